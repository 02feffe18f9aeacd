"""One model over lavapipe and SwiftShader: equal results, bad input, failures, nothing left."""

from __future__ import annotations

import pytest
from two_drivers import both

START = """
import numpy as np, vklab
from split_models import *
from vklab.errors import *
"""

# Each device runs at least a quarter of the dispatches, and every transfer matters: the output
# changes if it is corrupted.
SPLIT = START + """
from vklab import settings
from vklab.runtime.places import Places
import sys
name, pieces = sys.argv[1], int(sys.argv[2])
source, fed = case(name)
one = outputs_of(source, fed)
with nothing_left(), split(source, pieces) as session:
    assert differs(one, session.run(fed)) < 1e-4
    assert session.check(fed).passed and not session.host_reasons
    plan = session.plan
    assert [info.index for info in session.devices] == BOTH
    counts = plan.dispatch_counts()
    assert set(counts) == set(LABELS.values()) and min(counts.values()) * 4 >= sum(counts.values())
    summary = plan.summary()
    assert set(summary["placement"].values()) == set(LABELS.values())
    assert len(summary["moves"]) == len(plan.transfers) >= pieces - 1
    shared = not settings.get("DISABLE_SHARED_MEMORY")
    path = "shared host memory" if shared else "host copy"
    assert {move["path"] for move in summary["moves"]} - {"same memory"} == {path}
    real = Places.pass_on
    for corrupted in {move.value for move in plan.transfers}:
        def pass_on(places, value, target):
            real(places, value, target)
            if value == corrupted:
                place = target._inputs[value]
                place[...] = 0 if place.any() else 1
        Places.pass_on = pass_on
        wrong = session.run(fed)
        Places.pass_on = real
        assert differs(one, wrong) > 1e-4, corrupted
    assert differs(one, session.run(fed)) < 1e-4
"""


@pytest.mark.parametrize(("name", "pieces"), [
    ("digits", 2),
    pytest.param("mlp", 3, marks=pytest.mark.full),
    pytest.param("digits", 5, marks=pytest.mark.slow),
    pytest.param("bert", 2, marks=pytest.mark.full),
    pytest.param("vit", 5, marks=pytest.mark.slow),
    pytest.param("gpt2", 5, marks=pytest.mark.slow),
    pytest.param("llama", 2, marks=pytest.mark.slow),
    pytest.param("lstm", 2, marks=pytest.mark.slow),
    pytest.param("unet", 2, marks=pytest.mark.slow),
    pytest.param("mobilenet_v3", 5, marks=pytest.mark.slow),
    pytest.param("shufflenet", 2, marks=pytest.mark.slow),
    pytest.param("squeezenet", 2, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_model_split_by_pins_gives_the_same_and_every_transfer_counts(name, pieces):
    both(SPLIT, name, pieces)


def test_what_moves_may_be_copied_through_the_host():
    both(SPLIT, "digits", 2, VKLAB_DISABLE_SHARED_MEMORY="1")


@pytest.mark.parametrize("validate", ["", "1"])
def test_branches_inputs_and_outputs_lie_on_either_device(validate):
    both(START + """
source, fed = diamond()
one = outputs_of(source, fed)
with nothing_left(), vklab.load(source, devices=BOTH, place=DIAMOND) as session:
    for rows in (3, 5, 3):
        given = {name: np.resize(array, (rows, 8)) for name, array in fed.items()}
        want = one if rows == 3 else outputs_of(source, given)
        found = session.run(given)
        assert list(found) == ["f", "b"] and differs(want, found) < 1e-6
    stages = session.plan.stages
    assert [len(stage.graph.nodes) for stage in stages] == [1, 1, 2, 1, 1]
    assert "5 stages" in str(session.plan) and "transfer" in session.plan._repr_html_()
    assert {row.node for row in session.profile(fed, repeats=1).rows} >= {"a", "b", "e", "f"}
    assert all(session.time(fed, repeats=2).device_ns)
    twice = [vklab.load(source, devices=BOTH, place=DIAMOND) for _ in range(2)]
    assert all(differs(one, other.run(fed)) < 1e-6 for other in (*twice, session))
    with vklab.load(source, devices=BOTH, place=DIAMOND, upper_bounds={"n": 9}) as bounded:
        assert differs(one, bounded.run(fed)) < 1e-6
    paths = [move["path"] for move in session.plan.summary()["moves"]]
    assert sorted(paths) == ["same memory"] * 2 + ["shared host memory"] * 3, paths
""", VKLAB_VALIDATE=validate)  # fmt: skip


def test_the_default_is_one_device_where_two_do_not_pay_and_caps_force_two():
    both(START + """
source, fed = case("mlp")
one = outputs_of(source, fed)
with nothing_left(), vklab.load(source, devices="all") as session:
    assert differs(one, session.run(fed)) < 1e-6
    assert len(session.plan.stages) == 1 and session.plan.stages[0].device == LAVAPIPE
    assert session.plan.placement.single_ns == session.plan.placement.predicted_ns
    with vklab.load(source, devices="all", memory_caps=dict.fromkeys(BOTH, 850_000)) as capped:
        assert differs(one, capped.run(fed)) < 1e-6
        assert len(capped.plan.dispatch_counts()) == 2, capped.plan
        assert capped.plan.placement.single_ns is None and capped.plan.transfers
        for load in capped.plan.placement.loads:
            assert 0 < load.weights_bytes + load.peak_bytes <= 850_000
""")  # fmt: skip


def test_types_that_a_device_stores_otherwise_cross_and_host_parts_stay():
    both(START + """
from vklab import settings
f16 = 10
nodes = [helper.make_node("Relu", ["x"], ["a"], "a"), helper.make_node("Neg", ["a"], ["b"], "b"),
         helper.make_node("Abs", ["b"], ["y"], "c")]
source = model(nodes, [value("x", (2, 37), f16)], [value("y", (2, 37), f16)])
x = random_array((2, 37)).astype(np.float16)
for place in ({"a": SWIFTSHADER, "[bc]": LAVAPIPE}, {"[ac]": LAVAPIPE, "b": SWIFTSHADER}):
    with vklab.load(source, devices=BOTH, place=place) as session:
        np.testing.assert_array_equal(session.run(x)["y"], np.maximum(x, 0))
        assert all(m["path"] == "host copy" for m in session.plan.summary()["moves"])
source, fed = case("digits")
one = outputs_of(source, fed)
with nothing_left(), settings.settings(HOST="MaxPool"), split(source, 5) as session:
    assert differs(one, session.run(fed)) < 1e-4
    summary = session.plan.summary()
    assert set(summary["placement"].values()) == {"host", *LABELS.values()} and summary["moves"]
    assert summary["host_nodes"]
""")  # fmt: skip


RANDOM = START + """
import random, sys
from vklab import settings
def graph(rng):
    count = rng.randint(2, 40)
    nodes, names = [], ["x", "z"]
    for place in range(count):
        near = names[-rng.choice([1, 3, 10]):]
        kind = rng.choice("Add Mul Relu Sigmoid Softmax MatMul Max Transpose".split())
        reads = [rng.choice(near) for _ in range(2 if kind in ("Add", "Mul", "Max") else 1)]
        reads += ["w"] * (kind == "MatMul")
        nodes.append(helper.make_node(kind, reads, [f"v{place}"], f"n{place}"))
        names.append(f"v{place}")
    read = {name for node in nodes for name in node.input}
    ends = [name for name in names[2:] if name not in read or rng.random() < 0.1]
    inputs = [value(name, (9, 9)) for name in names[:2]]
    return model(nodes, inputs, ends, {"w": random_array((9, 9)) / 3}), names
with nothing_left(), settings.settings(DISABLE_FUSION=True):
    for seed in range(int(sys.argv[1])):
        rng = random.Random(seed)
        source, names = graph(rng)
        fed = {"x": random_array((9, 9), seed), "z": random_array((9, 9), seed + 1)}
        place, device = {}, rng.choice(BOTH)
        for name in names[2:]:
            device = rng.choice(BOTH) if rng.random() < 0.4 else device
            place["n" + name[1:]] = device
        one = outputs_of(source, fed)
        with vklab.load(source, devices=BOTH, place=place) as session:
            assert differs(one, session.run(fed)) < 1e-4, seed
            for found in session.map([fed] * 6, in_flight=3):
                assert differs(one, found) < 1e-4, seed
"""


@pytest.mark.parametrize("count", [
    pytest.param(10, marks=pytest.mark.full), pytest.param(150, marks=pytest.mark.slow),
])  # fmt: skip
def test_random_graphs_on_random_devices_give_the_same(count):
    both(RANDOM, count)


def test_a_driver_that_imports_no_memory_gets_copies():
    both(START + """
from vklab.runtime import shared
source, fed = diamond()
one, real = outputs_of(source, fed), shared.ImportedBuffer
with nothing_left():
    for index in BOTH:
        def refuse(device, memory, size):
            if device.info.index == index:
                raise OutOfMemoryError("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY")
            return real(device, memory, size)
        shared.ImportedBuffer = refuse
        with vklab.load(source, devices=BOTH, place=DIAMOND) as session:
            assert differs(one, session.run(fed)) < 1e-6
            paths = {move["path"] for move in session.plan.summary()["moves"]}
            assert paths == {"same memory", "host copy"}, paths
""")  # fmt: skip


def test_bad_wishes_are_refused_and_leave_nothing():
    said = both(START + """
source, fed = diamond()
wide = {"d": 11}
integers = model([helper.make_node("Add", ["x", "x"], ["y"], "sum")],
                 [value("x", (2,), 7)], [value("y", (2,), 7)])
def refused(kind, source=source, **wish):
    try:
        vklab.load(source, **{"devices": BOTH, **wish}).run(fed)
    except kind as error:
        print(error)
    else:
        raise AssertionError(f"{wish} is taken")
with nothing_left():
    refused(SetupError, devices=[0, 0])
    refused(SetupError, devices=[0, 7])
    refused(SetupError, devices=[])
    refused(SetupError, devices="some")
    refused(SetupError, device=0)
    refused(PlanError, place={"nothing*": 0})
    refused(SetupError, place={"a": 5})
    refused(SetupError, devices=[LAVAPIPE], place={"a": SWIFTSHADER})
    refused(PlanError, memory_caps={0: 64, 1: 64})
    refused(SetupError, replicate=True, place={"a": 0})
    refused(PlanError, source=integers, place={"sum": SWIFTSHADER})
""").splitlines()  # fmt: skip
    for part in ("names device 0", "there is no device 7", "names no device", 'neither "all" nor',
                 "give one of them", "no node has such a name", "there is no device 5",
                 "not among this session's", "fits nowhere", "replicate=True",
                 "lacks shaderInt64"):  # fmt: skip
        assert any(part in line for line in said), part


# Every Vulkan call of a run fails once, in each way that it can; a clear error, no hang, nothing
# left; and where the device is not lost, the session goes on.
FAULTS = START + """
import threading, time
from vklab.vulkan.device import Device
CODES = {"vkResetFences": [-2], "vkQueueSubmit": [-1, -2, -4], "vkWaitForFences": [-1, -4, 2]}
calls, armed, lock, real = [], {}, threading.Lock(), Device.command
def command(device, name):
    found = real(device, name)
    if name not in CODES:
        return found
    def call(*arguments):
        with lock:
            number = len(calls)
            calls.append(name)
        if number not in armed:
            return found(*arguments)
        if name == "vkWaitForFences" and armed[number] == -4:
            found(*arguments)  # nothing runs on a device that is lost
        return armed[number]
    return call
Device.command = command
def again(session):
    for _ in range(500):
        try:
            return session.run(fed)
        except TimeoutError as error:
            assert "still works on an earlier run" in str(error)
            time.sleep(0.01)
source, fed = diamond()
one = outputs_of(source, fed)
def load():
    session = vklab.load(source, devices=BOTH, place=DIAMOND)
    assert differs(one, session.run(fed)) < 1e-6
    calls.clear()
    return session
with nothing_left():
    session = load()
    session.run(fed)
    assert sorted(set(calls)) == sorted(CODES) and len(calls) == 15, calls
    tried = 0
    for number in range(15):
        for code in sorted({code for codes in CODES.values() for code in codes}):
            calls.clear()
            armed[number] = code
            begun = time.perf_counter()
            try:
                session.run(fed)
                raise AssertionError("the failure is lost")
            except VulkanError as error:
                name = calls[number]
                assert name in str(error) and "; in stage " in str(error), error
                lost = isinstance(error, DeviceLostError)
                assert lost == (code == -4), error
            armed.clear()
            tried += 1
            assert time.perf_counter() - begun < 5
            if lost:
                try:
                    session.run(fed)
                    raise AssertionError("a lost device is used")
                except DeviceLostError as error:
                    assert "close this session and load again" in str(error)
                session.close()
                session = load()
            assert differs(one, again(session)) < 1e-6
    session.close()
print(tried)
"""


def test_every_call_of_a_run_that_fails_is_a_clear_error_and_nothing_is_left():
    assert int(both(FAULTS)) == 60  # 15 calls, 4 codes


RUNS = START + """
import sys, threading
count = int(sys.argv[1]) // 8
source, fed = diamond()
want = {rows: outputs_of(source, {n: np.resize(a, (rows, 8)) for n, a in fed.items()})
        for rows in (3, 4)}
wrong = []
def work(rows):
    given = {n: np.resize(a, (rows, 8)) for n, a in fed.items()}
    for _ in range(count):
        if differs(want[rows], session.run(given)) > 1e-6:
            wrong.append(rows)
with nothing_left(), vklab.load(source, devices=BOTH, place=DIAMOND) as session:
    for rows in want:
        session.run({n: np.resize(a, (rows, 8)) for n, a in fed.items()})
    before = api.live_handles(), threading.active_count()
    threads = [threading.Thread(target=work, args=(3 + i % 2,)) for i in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join(600)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    after = api.live_handles(), threading.active_count()
    assert after[0] == before[0] and after[1] <= before[1] + 2
assert threading.active_count() == 1
"""


@pytest.mark.parametrize("count", [320, pytest.param(10_000, marks=pytest.mark.slow)])
def test_threads_run_one_spread_session(count):
    both(RUNS, count)
