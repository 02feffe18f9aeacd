"""Every way by which values cross between two devices, forced on drivers that need none of them."""

from __future__ import annotations

import pytest
from two_drivers import both

# DISABLE_DIRECT_IO has devices treated as if the host did not see their memory.
START = """
import sys
import numpy as np, vklab
from split_models import *
from vklab import settings
from vklab.errors import *
from vklab.plan import arenas
from vklab.runtime import shared, ways
source, fed = diamond()
one = outputs_of(source, fed)
def load(**switches):
    with settings.settings(DISABLE_DIRECT_IO=True, **switches):
        session = vklab.load(source, devices=BOTH, place=DIAMOND)
        session.run(fed)
    return session
def paths(session):
    found = [move["path"] for move in session.plan.summary()["moves"]]
    assert found.count("same memory") == 2 and len(found) == 5
    return set(found) - {"same memory"}
def reasons(session):
    return {move["reason"] for move in session.plan.summary()["moves"]} - {""}
# Every transfer counts: with any one of them corrupted, at its first byte or its last, results
# differ. The memory is mapped on these drivers.
def every_transfer_counts(**switches):
    real, corrupted, where, ran = shared.Shared.moves, "", 0, []
    def moves(memory):
        return {move: wrapped(memory, move, way) for move, way in real(memory).items()}
    def wrapped(memory, move, way):
        def run():
            way()
            slot = memory.plan.plans[move.target].input_slots[move.value]
            assert slot.arena.startswith(arenas.ARRIVING)
            ran.append(move.value)
            if move.value == corrupted:
                mapped = memory._reserves[move.target].buffers[slot.arena].mapped
                place = np.frombuffer(mapped, np.float32, slot.size_bytes // 4, slot.offset_bytes)
                place[where] += 1
        return run
    shared.Shared.moves = moves
    try:
        with load(**switches) as session:
            for corrupted in ("", "a", "d", "e"):
                for where in (0, -1):
                    ran = []
                    differ = differs(one, session.run(fed))
                    assert (differ > 1e-4) == bool(corrupted), (corrupted, where, differ)
                    assert sorted(ran) == ["a", "d", "e"]
            return paths(session), reasons(session)
    finally:
        shared.Shared.moves = real
"""


@pytest.mark.parametrize("validate", ["", "1"])
def test_values_move_in_pieces_of_any_size_and_each_of_them_counts(validate):
    both(START + """
made, real = [], ways.Ring.__init__
def ring(self, *arguments):
    real(self, *arguments)
    made.append(self)
ways.Ring.__init__ = ring
with nothing_left():
    # Values have 96 bytes: less than a slot, just one, one more or less, many.
    for size in (1 << 20, 96, 97, 95, 48, 7, 32):
        for disabled, path in ((False, "ring in shared host memory"),
                               (True, "ring with host copies")):
            made.clear()
            switches = dict(STAGING_SLOT_BYTES=size, DISABLE_SHARED_MEMORY=disabled)
            found, why = every_transfer_counts(**switches)
            assert found == {path}, found
            assert all("has no VK_EXT_external_memory_dma_buf" in reason for reason in why)
            assert all(("no shared slots: VKLAB_DISABLE" in r) == disabled for r in why), why
            assert len(made) == 2  # a and e share the ring of their link
            for each in made:
                assert [b.size_bytes for b in each._slots] == [2 * min(size, 96)] * 2
    with settings.settings(DISABLE_STAGING_RING=True):
        with load() as session:
            assert paths(session) == {"shared host memory"}
        with load(DISABLE_SHARED_MEMORY=True) as session:
            assert differs(one, session.run(fed)) < 1e-6
            assert paths(session) == {"host copy"}
            assert reasons(session) == {"VKLAB_DISABLE_SHARED_MEMORY"}
    try:
        load(STAGING_SLOT_BYTES=0)
        raise AssertionError("no slot is taken")
    except PlanError as error:
        assert "a slot holds a byte or more" in str(error)
""", VKLAB_VALIDATE=validate)  # fmt: skip


def test_large_values_frames_in_flight_empty_ones_and_traces_go_through_the_ring():
    both(START + """
sizes = {rows: {n: np.resize(a, (rows, 8)) for n, a in fed.items()} for rows in (70_000, 0, 3)}
want = {rows: outputs_of(source, given) for rows, given in sizes.items() if rows}
with nothing_left(), load(STAGING_SLOT_BYTES=300_000) as session:
    with settings.settings(DISABLE_DIRECT_IO=True, STAGING_SLOT_BYTES=300_000):
        for rows, given in sizes.items():
            found = session.run(given)
            assert [array.shape for array in found.values()] == [(rows, 8)] * 2
            assert not rows or differs(want[rows], found) < 1e-6
            if not rows:
                whys = {m["reason"] for m in session.plan.summary()["moves"]}
                assert "it has no bytes" in whys, whys
        given = sizes[70_000]
        for found in session.map([given] * 6, in_flight=3):
            assert differs(want[70_000], found) < 1e-6
        spans = session.trace(given).spans
    moved = {s.name.split()[0]: s for s in spans if s.kind == "transfer" and " to " in s.name}
    assert moved.keys() >= {"a", "d", "e"} and all(s.bytes == 2_240_000 for s in moved.values())
    assert all(s.path == "ring in shared host memory" for s in moved.values() if s.name[0] != "b")
    rows = {row[3] for row in session.plan.rows()}
    assert any("ring in shared host memory (no dma-buf: " in row for row in rows), rows
""")  # fmt: skip


def test_a_value_leaves_while_the_device_goes_on():
    both(START + """
steps = [("Relu", "x", "a"), ("MatMul", "a w", "b"), ("Sigmoid", "b", "c"), ("Add", "a c", "y")]
nodes = [helper.make_node(op, reads.split(), [made], made) for op, reads, made in steps]
source = model(nodes, [value("x", (64, 64))], ["y"], {"w": random_array((64, 64))})
fed = {"x": random_array((64, 64), 1)}
one = outputs_of(source, fed)
place = {"[abc]": LAVAPIPE, "y": SWIFTSHADER}
for switch, count in ((False, 3), (True, 2)):
    with nothing_left(), settings.settings(DISABLE_DIRECT_IO=True, DISABLE_EARLY_MOVES=switch):
        with vklab.load(source, devices=BOTH, place=place) as session:
            assert differs(one, session.run(fed)) < 1e-6
            assert len(session.plan.stages) == count, session.plan.stages
            moves = {m["value"]: m["path"] for m in session.plan.summary()["moves"]
                     if m["path"] != "same memory"}
            assert moves == dict.fromkeys("ac", "ring in shared host memory"), moves
            spans = {span.name: span for span in session.trace(fed).spans}
            if not switch:  # the rest is with the device before the value starts to leave
                assert spans["submit 0.1"].end_ns <= spans["a to 0.2"].start_ns
            for found in session.map([fed] * 5, in_flight=2):
                assert differs(one, found) < 1e-6
""")  # fmt: skip


def test_what_the_host_reads_and_what_devices_store_otherwise_lies_where_it_sees_it():
    both(START + """
nodes = [helper.make_node("Relu", ["x"], ["a"], "a"), helper.make_node("Neg", ["a"], ["b"], "b"),
         helper.make_node("Abs", ["b"], ["y"], "c")]
half = model(nodes, [value("x", (2, 37), 10)], [value("y", (2, 37), 10)])
x = random_array((2, 37)).astype(np.float16)
kept = model(nodes, [value("x", (2, 37))], ["a", "b", "y"])
place = {"[ac]": LAVAPIPE, "b": SWIFTSHADER}
with nothing_left(), settings.settings(DISABLE_DIRECT_IO=True):
    with vklab.load(half, devices=BOTH, place=place) as session:
        np.testing.assert_array_equal(session.run(x)["y"], np.maximum(x, 0))
        moves = session.plan.summary()["moves"]
        assert all(m["path"] == "host copy" and "it is float" in m["reason"] for m in moves), moves
    x = x.astype(np.float32)
    with vklab.load(kept, devices=BOTH, place=place) as session:
        found = session.run(x)
        np.testing.assert_array_equal(found["a"], np.maximum(x, 0))
        np.testing.assert_array_equal(found["b"], -found["a"])
        assert {m["path"] for m in session.plan.summary()["moves"]} == {"shared host memory"}
""")  # fmt: skip


def test_a_driver_that_takes_no_slots_gets_slots_of_its_own():
    both(START + """
real = ways.ImportedBuffer
def refuse(device, memory, size):
    if device.info.index == index:
        raise OutOfMemoryError("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY", "no more")
    return real(device, memory, size)
with nothing_left():
    for index in BOTH:
        ways.ImportedBuffer = refuse
        found, why = every_transfer_counts(STAGING_SLOT_BYTES=31)
        assert found == {"ring with host copies"}, found
        assert all("no shared slots: vkAllocateMemory" in reason for reason in why), why
""")  # fmt: skip


# ------------------------------------------------------------------------------------- dma-buf

FAKE = START + """
from fake_dma_buf import *
def fresh(**facts):
    open_devices.close_all()
    assert api.live_handles() == {} and not fake.memory and not descriptors()
    fake.__dict__.update({"features": EXPORTABLE | IMPORTABLE, "lacking": set(),
                          "reads_elsewhere": False, "dedicated": 0, **facts})
fake = FakeDmaBuf()
"""


def test_a_device_reads_another_ones_memory_where_both_accept_a_dma_buf():
    both(FAKE + """
with fake:
    fresh()
    assert every_transfer_counts() == ({"dma-buf"}, set())
    with load() as session:
        assert descriptors() == 2 * len(fake.memory) > 0  # each is open, and mapped
        for rows in (5, 3):
            given = {name: np.resize(array, (rows, 8)) for name, array in fed.items()}
            with settings.settings(DISABLE_DIRECT_IO=True):
                assert differs(outputs_of(source, given), session.run(given)) < 1e-6
    fresh(features=EXPORTABLE | IMPORTABLE | DEDICATED)
    assert every_transfer_counts()[0] == {"dma-buf"} and fake.dedicated
    fresh()
""")  # fmt: skip


def test_a_dma_buf_that_is_refused_or_lies_is_not_used():
    both(FAKE + """
def ends(word, found="ring in shared host memory", **facts):
    fresh(**facts)
    path, why = every_transfer_counts()
    assert path == {found} and all(word in reason for reason in why), (path, why)
with fake:
    ends("a buffer is not exportable", features=IMPORTABLE)
    ends("a buffer is not importable", features=EXPORTABLE)
    ends("has no VK_EXT_external_memory_dma_buf", lacking=set(BOTH))
    ends("finds other bytes than", reads_elsewhere=True)
    fresh()
    with settings.settings(DISABLE_DMA_BUF=True):
        assert every_transfer_counts()[1] == {"no dma-buf: VKLAB_DISABLE_DMA_BUF"}
    # A link that is proven, and then a buffer that is not taken: at each end in turn.
    for name in ("ExportedBuffer", "OpenedBuffer"):
        real = getattr(shared, name)
        class Refused(real):
            def _allocate(self, needs):
                raise OutOfMemoryError("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY", "full")
        setattr(shared, name, Refused)
        ends("no dma-buf: vkAllocateMemory")
        setattr(shared, name, real)
    fresh(lacking={SWIFTSHADER})
    path, why = every_transfer_counts()
    assert path == {"ring in shared host memory"} and len(why) == 1, (path, why)
    fresh()
""")  # fmt: skip


# -------------------------------------------------------------------------------------- faults

# Every call by which a session gets its memory, its ways and its copies fails once: another way
# is taken or a clear error is raised, and nothing is left.
LOADING = FAKE + """
import re
from vklab.vulkan.device import Device
NAMES = ("vkAllocateMemory", "vkBindBufferMemory", "vkCreateBuffer", "vkCreateFence",
         "vkCreateCommandPool", "vkAllocateCommandBuffers", "vkBeginCommandBuffer",
         "vkEndCommandBuffer", "vkGetMemoryFdKHR", "vkGetMemoryFdPropertiesKHR",
         "vkGetMemoryHostPointerPropertiesEXT", "vkMapMemory")
calls, armed = [], [-1]
def arm():
    real = Device.command
    def command(device, name):
        found = real(device, name)
        if name not in NAMES:
            return found
        def call(*arguments):
            calls.append(name)
            return -1 if len(calls) - 1 == armed[0] else found(*arguments)
        return call
    Device.command = command
def run(**switches):
    calls.clear()
    with settings.settings(DISABLE_DIRECT_IO=True, STAGING_SLOT_BYTES=50, **switches):
        with vklab.load(source, devices=BOTH, place=DIAMOND) as session:
            assert differs(one, session.run(fed)) < 1e-6
            return paths(session)
def every(**switches):
    armed[0], outcomes = -1, []
    usual = run(**switches)
    count = len(calls)
    kept = api.live_handles()
    for armed[0] in range(int(sys.argv[1]), count, int(sys.argv[2])):
        try:
            outcomes.append("" if run(**switches) == usual else "other way")
        except VulkanError as error:
            assert calls[armed[0]] in str(error), error
            outcomes.append("error")
        assert api.live_handles() == kept, (armed, calls[armed[0]], api.live_handles(), kept)
        assert descriptors() == len(fake.memory) == 0
    return [usual, *(word for word in ("other way", "error") if word in outcomes)]
"""


@pytest.mark.parametrize(("first", "step"), [
    (3, 11), *(pytest.param(n, 4, marks=pytest.mark.slow) for n in range(4)),
])  # fmt: skip
def test_every_call_of_loading_that_fails_is_another_way_or_a_clear_error(first, step):
    said = both(LOADING + """
arm()
print(every(), every(DISABLE_SHARED_MEMORY=True))
with fake:
    fresh()
    arm()
    print(every())
    fresh()
""", first, step)  # fmt: skip
    ends = "'other way', 'error']"
    assert said == (f"[{{'ring in shared host memory'}}, {ends} [{{'ring with host copies'}}, "
                    f"'error']\n[{{'dma-buf'}}, {ends}\n")  # fmt: skip


RUNNING = FAKE + """
import threading, time
from vklab.vulkan.device import Device
CODES = {"vkResetFences": [-2], "vkQueueSubmit": [-1, -2, -4], "vkWaitForFences": [-1, -4, 2]}
calls, armed, lock = [], {}, threading.Lock()
def arm():
    real = Device.command
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
def every(**switches):
    session = load(**switches)
    tried, failures = 0, 0
    calls.clear()
    session.run(fed)
    count = len(calls)
    for number in range(count):
        for code in CODES[calls[number]] if number < len(calls) else ():
            calls.clear()
            armed[number] = code
            begun = time.perf_counter()
            try:
                session.run(fed)
                assert number >= len(calls), "the failure is lost"
            except VulkanError as error:
                assert calls[number] in str(error) and "; in stage " in str(error), error
                assert isinstance(error, DeviceLostError) == (code == -4), error
                if code == -4:
                    try:
                        armed.clear()
                        session.run(fed)
                        raise AssertionError("a lost device is used")
                    except DeviceLostError as error:
                        assert "close this session and load again" in str(error)
                    session.close()
                    session = load(**switches)
                failures += 1
            armed.clear()
            assert time.perf_counter() - begun < 5
            assert differs(one, again(session)) < 1e-6
            calls.clear()
            session.run(fed)
    session.close()
    return count, failures
"""


@pytest.mark.parametrize("copied", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_every_call_of_a_run_through_the_ring_that_fails_is_a_clear_error(copied):
    said = both(RUNNING + """
with nothing_left():
    arm()
    print(*every(STAGING_SLOT_BYTES=40, DISABLE_SHARED_MEMORY=sys.argv[1]))
""", copied)  # fmt: skip
    count, failures = map(int, said.split())
    # Three values in three pieces each, in and out, beside the five stages themselves.
    assert count == 15 + 3 * 3 * 2 * 3 and failures > count


def test_every_call_of_a_run_by_dma_buf_that_fails_is_a_clear_error():
    said = both(RUNNING + """
with fake:
    fresh()
    arm()
    with nothing_left():
        print(*every())
    assert not fake.memory and not descriptors()
""")  # fmt: skip
    count, failures = map(int, said.split())
    assert count == 15 + 3 * 3 and failures > count
