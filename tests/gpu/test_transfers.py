"""Every way by which values cross between two devices, forced on drivers that need none of them."""

from __future__ import annotations

import pytest

from support.runs.transfer_runs import FAKE, START
from support.runs.two_drivers import both

pytestmark = pytest.mark.full


# Values have 96 bytes: less than a slot, just one, one more or less, many.
@pytest.mark.parametrize(("validate", "sizes"), [
    ("", "96 7"), ("1", "95 1000"),
    pytest.param("", "1048576 97 48 32 1 95", marks=pytest.mark.slow),
    pytest.param("1", "96 97 48 7", marks=pytest.mark.slow),
])  # fmt: skip
def test_values_move_in_pieces_of_any_size_and_each_of_them_counts(validate, sizes):
    both(
        START
        + """
made, real = [], device_copies.StagingRing.__init__
def ring(self, *arguments):
    real(self, *arguments)
    made.append(self)
device_copies.StagingRing.__init__ = ring
with nothing_left():
    for size in map(int, sys.argv[1].split()):
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
        assert "a slot needs at least one byte" in str(error)
""",
        sizes,
        VKLAB_VALIDATE=validate,
    )


@pytest.mark.full
def test_large_values_frames_in_flight_empty_ones_and_traces_go_through_the_ring():
    both(
        START
        + """
sizes = {rows: {n: np.resize(a, (rows, 8)) for n, a in fed.items()} for rows in (20_000, 0, 3)}
want = {rows: outputs_of(source, given) for rows, given in sizes.items() if rows}
with nothing_left(), load(STAGING_SLOT_BYTES=100_000) as session:
    with settings.settings(DISABLE_DIRECT_IO=True, STAGING_SLOT_BYTES=100_000):
        for rows, given in sizes.items():
            found = session.run(given)
            assert [array.shape for array in found.values()] == [(rows, 8)] * 2
            assert not rows or differs(want[rows], found) < 1e-6
            if not rows:
                whys = {m["reason"] for m in session.plan.summary()["moves"]}
                assert "it has no bytes" in whys, whys
        given = sizes[20_000]
        for found in session.map([given] * 6, in_flight=3):
            assert differs(want[20_000], found) < 1e-6
        spans = session.trace(given).spans
    moved = {s.name.split()[0]: s for s in spans if s.kind == "transfer" and " to " in s.name}
    assert moved.keys() >= {"a", "d", "e"} and all(s.bytes == 640_000 for s in moved.values())
    assert all(s.path == "ring in shared host memory" for s in moved.values() if s.name[0] != "b")
    rows = {row[3] for row in session.plan.rows()}
    assert any("ring in shared host memory (no dma-buf: " in row for row in rows), rows
"""
    )


def test_a_value_leaves_while_the_device_goes_on():
    both(
        START
        + """
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
            assert len(session.plan.chunks) == count, session.plan.chunks
            moves = {m["value"]: m["path"] for m in session.plan.summary()["moves"]
                     if m["path"] != "same memory"}
            assert moves == dict.fromkeys("ac", "ring in shared host memory"), moves
            spans = {span.name: span for span in session.trace(fed).spans}
            if not switch:  # the rest is with the device before the value starts to leave
                assert spans["submit 1"].end_ns <= spans["a to 2"].start_ns
            for found in session.map([fed] * 5, in_flight=2):
                assert differs(one, found) < 1e-6
"""
    )


def test_what_the_host_reads_and_what_devices_store_otherwise_lies_where_it_sees_it():
    both(
        START
        + """
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
"""
    )


def test_a_driver_that_takes_no_slots_gets_slots_of_its_own():
    both(
        START
        + """
real = device_copies.ImportedBuffer
def refuse(device, memory, size):
    if device.info.index == index:
        raise OutOfMemoryError("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY", "no more")
    return real(device, memory, size)
with nothing_left():
    for index in BOTH:
        device_copies.ImportedBuffer = refuse
        found, why = every_transfer_counts(STAGING_SLOT_BYTES=31)
        assert found == {"ring with host copies"}, found
        assert all("no shared slots: vkAllocateMemory" in reason for reason in why), why
"""
    )


def test_a_device_reads_another_ones_memory_where_both_accept_a_dma_buf():
    both(
        FAKE
        + """
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
"""
    )


@pytest.mark.full
def test_a_dma_buf_that_is_refused_or_lies_is_not_used():
    both(
        FAKE
        + """
def ends(word, found="ring in shared host memory", **facts):
    fresh(**facts)
    path, why = every_transfer_counts()
    assert path == {found} and all(word in reason for reason in why), (path, why)
with fake:
    ends("a buffer is not exportable", features=IMPORTABLE)
    ends("a buffer is not importable", features=EXPORTABLE)
    ends("has no VK_EXT_external_memory_dma_buf", lacking=set(BOTH))
    ends("reads other bytes than", reads_elsewhere=True)
    fresh()
    with settings.settings(DISABLE_DMA_BUF=True):
        assert every_transfer_counts()[1] == {"no dma-buf: VKLAB_DISABLE_DMA_BUF"}
    # A link that is proven, and then a buffer that is not taken: at each end in turn.
    for name in ("ExportedBuffer", "OpenedBuffer"):
        real = getattr(transfer_memory, name)
        class Refused(real):
            def _allocate(self, needs):
                raise OutOfMemoryError("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY", "full")
        setattr(transfer_memory, name, Refused)
        ends("no dma-buf: vkAllocateMemory")
        setattr(transfer_memory, name, real)
    fresh(lacking={SWIFTSHADER})
    path, why = every_transfer_counts()
    assert path == {"ring in shared host memory"} and len(why) == 1, (path, why)
    fresh()
"""
    )
