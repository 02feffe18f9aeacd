"""One model over lavapipe and SwiftShader: equal results, bad input, nothing left."""

from __future__ import annotations

import pytest

from support.models import light_models
from support.runs.two_drivers import both

pytestmark = pytest.mark.full
START = """
import numpy as np, vklab
from support.runs.split_models import *
from vklab.errors import *
from support.checks import spread_checks
"""

# Without pieces SwiftShader, which is slow, has what is cheap.
# Each device runs at least a quarter of the dispatches, and every transfer matters: the output
# changes if it is corrupted.
SPLIT = (
    START
    + """
from vklab import settings
from vklab.runtime.many import split as splits
import sys
name, pieces = sys.argv[1], int(sys.argv[2])
source, fed = case(name)
with vklab.load(source, LAVAPIPE) as single:
    one = single.run(fed)
    names = [node.name for node in single.graph.nodes]
    place = cheapest(single, fed) if pieces == 0 else pins(names, pieces)
with nothing_left(), vklab.load(source, devices=BOTH, place=place) as session:
    assert differs(one, session.run(fed)) < 1e-4
    assert pieces == 0 or session.check(fed).passed  # another run: not where runs take seconds
    assert not session.host_reasons
    plan = session.plan
    assert [info.index for info in session.devices] == BOTH
    counts = spread_checks.dispatch_counts(plan)
    assert set(counts) == set(LABELS.values()) and min(counts.values()) * 4 >= sum(counts.values())
    summary = plan.summary()
    assert set(summary["placement"].values()) == set(LABELS.values())
    assert len(summary["moves"]) == len(plan.transfers) >= max(pieces - 1, 1)
    shared = not settings.get("DISABLE_SHARED_MEMORY")
    path = "shared host memory" if shared else "host copy"
    def stored(number, value):
        return plan.chunks[number].stored[value]
    for move in plan.transfers:
        alike = stored(move.source, move.value) == stored(move.target, move.value)
        wanted = {path if alike else "host copy", "same memory"}
        assert plan.paths[move].name in wanted, move
    ran = [s.device for s in session.trace(fed).spans if s.kind == "dispatch" and s.duration_ns]
    assert all(ran.count(label) * 4 >= len(plan.dispatches) for label in LABELS.values())
    tasks = next(session.roots[0].path()).runner.tasks
    moved = {name for task in tasks for name, _ in task.readers}
    crossing = {move.value for move in plan.transfers if plan.paths[move].name != "same memory"}
    assert moved >= crossing
    real = splits.pass_on
    for corrupted in moved:
        def pass_on(places, value, target):
            real(places, value, target)
            if value == corrupted:
                place = target.inputs[value]
                place[...] = 0 if place.any() else 1
        splits.pass_on = pass_on
        wrong = session.run(fed)
        splits.pass_on = real
        assert differs(one, wrong) > 1e-4, corrupted
"""
)


# Of each kind of model one that SwiftShader runs soon: layers, an encoder, a decoder, attention on
# images, recurrence, convolutions in groups.
FULL = [("mlp", 3), ("bert", 2), ("llama", 2), ("vit", 0), ("lstm", 0), ("mobilenet_v3", 0)]
SLOW = [("gpt2", 2), ("gpt2", 5), ("digits", 5), ("vit", 7), ("lstm", 2), ("unet", 0), ("unet", 2),
        ("mobilenet_v3", 5), ("efficientnet_b0", 0), ("squeezenet", 2),
        *((name, 0) for name in light_models.NAMES)]  # fmt: skip


@pytest.mark.parametrize(("name", "pieces"), [
    ("digits", 2),
    *(pytest.param(*case, marks=pytest.mark.full) for case in FULL),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
])  # fmt: skip
def test_a_model_split_by_pins_gives_the_same_and_every_transfer_counts(name, pieces):
    both(SPLIT, name, pieces, VKLAB_TIMEOUT="250")


def test_a_split_model_breaks_no_rule_of_vulkan():
    both(SPLIT, "digits", 2, VKLAB_VALIDATE="1")


def test_what_moves_may_be_copied_through_the_host():
    both(SPLIT, "digits", 2, VKLAB_DISABLE_SHARED_MEMORY="1")


@pytest.mark.parametrize("validate", ["", "1"])
def test_branches_inputs_and_outputs_lie_on_either_device(validate):
    both(
        START
        + """
source, fed = diamond()
one = outputs_of(source, fed)
with nothing_left(), vklab.load(source, devices=BOTH, place=DIAMOND) as session:
    for rows in (3, 5, 3):
        given = {name: np.resize(array, (rows, 8)) for name, array in fed.items()}
        want = one if rows == 3 else outputs_of(source, given)
        found = session.run(given)
        assert list(found) == ["f", "b"] and differs(want, found) < 1e-6
    chunks = session.plan.chunks
    assert [len(chunk.graph.nodes) for chunk in chunks] == [1, 1, 2, 1, 1]
    assert "5 chunks" in str(session.plan) and "transfer" in session.plan._repr_html_()
    assert {row.node for row in session.profile(fed, repeats=1).rows} >= {"a", "b", "e", "f"}
    assert all(session.time(fed, repeats=2).device_ns)
    twice = [vklab.load(source, devices=BOTH, place=DIAMOND) for _ in range(2)]
    assert all(differs(one, other.run(fed)) < 1e-6 for other in (*twice, session))
    with vklab.load(source, devices=BOTH, place=DIAMOND, upper_bounds={"n": 9}) as bounded:
        assert differs(one, bounded.run(fed)) < 1e-6
    paths = [move["path"] for move in session.plan.summary()["moves"]]
    assert sorted(paths) == ["same memory"] * 2 + ["shared host memory"] * 3, paths
""",
        VKLAB_VALIDATE=validate,
    )


def test_the_default_is_one_device_where_two_do_not_pay_and_caps_force_two():
    both(
        START
        + """
source, fed = case("mlp")
one = outputs_of(source, fed)
with nothing_left(), vklab.load(source, devices="all") as session:
    assert differs(one, session.run(fed)) < 1e-6
    assert len(session.plan.chunks) == 1 and session.plan.chunks[0].device == LAVAPIPE
    assert session.plan.placement.single_ns == session.plan.placement.predicted_ns
    caps = {"llvm": 850_000, "Swift": 850_000}
    with vklab.load(source, devices="all", memory_caps=caps) as capped:
        assert differs(one, capped.run(fed)) < 1e-6
        assert len(spread_checks.dispatch_counts(capped.plan)) == 2, capped.plan
        assert capped.plan.placement.single_ns is None and capped.plan.transfers
        for load in capped.plan.placement.loads:
            assert 0 < load.weights_bytes + load.peak_bytes <= 850_000
"""
    )


@pytest.mark.full
def test_types_that_a_device_stores_otherwise_cross_and_host_parts_stay():
    both(
        START
        + """
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
"""
    )


RANDOM = (
    START
    + """
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
)


def test_a_compiled_model_is_spread_or_replicated(tmp_path):
    both(
        START
        + """
import sys
from pathlib import Path
from vklab.graph import onnx_import
from vklab.runtime.compiled import build, saved
source, fed = diamond()
one, path = outputs_of(source, fed), Path(sys.argv[1])
graph, info = onnx_import.load_graph(source), vklab.devices()[LAVAPIPE]
saved.write(path, build.compile_graph(graph, info, [{"n": 3}])[0])
with nothing_left():
    place = {"[ab]": "llvm", "c": "Swift"}
    with vklab.load(path, devices=["llvm", "Swift"], place=place) as spread:
        assert differs(one, spread.run(fed)) < 1e-6
        assert len(spread_checks.dispatch_counts(spread.plan)) == 2
        assert "compiled for one device" in spread.plan_reason
    with vklab.load(path, devices="all", replicate=True) as session:
        for found in session.map([fed] * 12, in_flight=4):
            assert differs(one, found) < 1e-6
""",
        tmp_path / "diamond.vklab",
    )


@pytest.mark.parametrize("count", [
    pytest.param(10, marks=pytest.mark.full), pytest.param(150, marks=pytest.mark.slow),
])  # fmt: skip
def test_random_graphs_on_random_devices_give_the_same(count):
    both(RANDOM, count)


def test_a_driver_that_imports_no_memory_gets_copies():
    both(
        START
        + """
from vklab.runtime.many import transfer_memory
source, fed = diamond()
one, real = outputs_of(source, fed), transfer_memory.ImportedBuffer
with nothing_left():
    for index in BOTH:
        def refuse(device, memory, size):
            if device.info.index == index:
                raise OutOfMemoryError("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY")
            return real(device, memory, size)
        transfer_memory.ImportedBuffer = refuse
        with vklab.load(source, devices=BOTH, place=DIAMOND) as session:
            assert differs(one, session.run(fed)) < 1e-6
            paths = {move["path"] for move in session.plan.summary()["moves"]}
            assert paths == {"same memory", "host copy"}, paths
"""
    )


def test_bad_wishes_are_refused_and_leave_nothing():
    said = both(
        START
        + """
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
"""
    ).splitlines()
    for part in (
        "names device 0",
        "there is no device 7",
        "names no device",
        'neither "all" nor',
        "give one of them",
        "no node has such a name",
        "there is no device 5",
        "not among this session's",
        "fits nowhere",
        "replicate=True",
        "lacks shaderInt64",
    ):
        assert any(part in line for line in said), part
