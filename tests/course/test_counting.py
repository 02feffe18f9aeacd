"""Counters in the SPIR-V of kernels: right kernels pass, and cheats are named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support.course import counted_kernels as kernels
from support.course.counted_kernels import (
    BY_GROUPS,
    CALLS,
    COUNT,
    GLSL_MAP,
    MAP,
    X,
    glsl,
    look,
    run_of,
    slang,
)
from vklab.errors import SetupError
from vklab.runtime import open_devices
from vklab_course import Run
from vklab_course.counting import observe, shapes
from vklab_course.counting.observe import observe_kernel

pytestmark = pytest.mark.full
ORDERS = {"counted", "mirrored", "reversed", "partial"}


@pytest.fixture(autouse=True, scope="module")
def a_device():
    try:
        open_devices.select()
    except SetupError as error:
        pytest.skip(str(error))


# ---------------------------------------------------------------------------- right kernels


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "groups", "each"), [
    (MAP, 16, 1), (GLSL_MAP, 16, 1), (BY_GROUPS, 17, 1), (CALLS, 16, 1), (kernels.FOUR, 5, 4),
    (kernels.FOUR_VECTORS, 4, 4),
], ids=["slang", "glsl", "group ids", "functions", "four", "vectors"])  # fmt: skip
def test_a_right_map_is_counted_element_by_element(text, groups, each):
    seen, y = look(text, run_of(text, (groups,)))
    x = list(seen.run.buffers)[0]
    assert (seen.status, seen.message, set(seen.dispatches)) == ("ran", "", ORDERS)
    assert np.array_equal(seen.buffers[y], 2 * X)
    counts = seen.counts
    assert counts.reads[x].tolist() == counts.writes[y].tolist() == [1] * COUNT
    assert not counts.writes[x].any() and not counts.reads[y].any()
    assert counts.total("bytes_read") == counts.total("bytes_written") == 4 * COUNT
    workers = COUNT // each
    assert counts.elements_written[y].tolist() == [each] * workers + [0] * (64 * groups - workers)
    assert not counts.is_log_full and len(counts.log) == 2 * COUNT
    assert counts.log[: 2 * each : 1, 0].tolist() == [0] * 2 * each
    assert sum(counts.sectors_read[x]) == sum(counts.sectors_written[y]) == 125
    assert shapes.work_shape(seen, y, elements_per_invocation=each) == ""
    assert shapes.partial_shape(seen, y, elements_per_invocation=each) == ""
    assert shapes.row_shape(seen, y, most=each) == shapes.order_matters(seen) == ""
    assert shapes.load_shape(seen, x, most=each, most_elements=each) == ""
    assert shapes.room_shape(seen, 0) == ""
    said = f"element {COUNT - 1} of {y} was written"
    assert said in shapes.room_shape(seen, 1)


@pytest.mark.gpu
def test_a_transpose_is_followed_in_two_dimensions():
    rows, columns = 37, 53
    x = np.arange(rows * columns, dtype=np.float32)
    run = Run({"x": x, "y": np.zeros_like(x)}, (7, 5), {"rows": rows, "columns": columns})
    seen, y = look(kernels.TRANSPOSE, run)
    assert np.array_equal(seen.buffers[y], x.reshape(rows, columns).T.reshape(-1))
    assert shapes.work_shape(seen, y) == shapes.order_matters(seen) == ""

    def owner(elements):
        column, row = np.divmod(elements, rows)
        return row * 7 * 8 + column

    assert shapes.partial_shape(seen, y, owner=owner) == ""
    assert "element" in shapes.partial_shape(seen, y)  # elements do not lie one after the other


@pytest.mark.gpu
@pytest.mark.parametrize("text", [kernels.REDUCTION, kernels.SLANG_REDUCTION],
                         ids=["glsl", "slang"])  # fmt: skip
def test_a_reduction_is_counted_in_shared_memory(text):
    run = run_of(text, y=np.zeros(16, np.float32))
    seen, y = look(text, run)
    assert seen.status == "ran" and seen.counts.by_invocation["barriers"].tolist() == [7] * 1024
    sums = np.add.reduceat(X, np.arange(0, COUNT, 64))
    assert np.allclose(seen.buffers[y], sums)
    assert seen.counts.total("shared_stores") == 16 * (64 + 63)
    assert seen.counts.total("turns") == 6 * 1024
    assert shapes.work_shape(seen, y) == shapes.order_matters(seen) == ""
    assert shapes.partial_shape(seen, y, owner=lambda elements: 64 * elements) == ""


@pytest.mark.gpu
def test_atomic_operations_are_reads_and_writes():
    values = (np.arange(1024, dtype=np.uint32) * 7) % 16
    run = Run({"values": values, "bins": np.zeros(16, np.uint32)}, (16,))
    seen, bins = look(kernels.HISTOGRAM, run)
    assert seen.buffers[bins].tolist() == [64] * 16
    assert seen.counts.total("atomics") == 1024 + 256
    assert seen.counts.reads[bins].tolist() == seen.counts.writes[bins].tolist() == [16] * 16
    assert seen.counts.elements_atomic[bins].sum() == 256
    assert seen.counts.elements_atomic["values"].sum() == 0
    assert "written by 16 invocations" in shapes.work_shape(seen, bins)
    assert shapes.work_shape(seen, bins, writes_per_element=16) == shapes.order_matters(seen) == ""


@pytest.mark.gpu
def test_rungs_of_a_product_are_told_by_their_traffic():
    n, read, moved = 128, {}, {}
    a, b = np.random.default_rng(0).standard_normal((2, n * n), dtype=np.float32)
    for name, groups, each in (("NAIVE", 8, 1), ("TILED", 8, 1), ("REGISTERS", 2, 16)):
        run = Run({"a": a, "b": b, "c": np.zeros_like(a)}, (groups, groups), {"n": n})
        seen, c = look(getattr(kernels, name), run)
        product = (a.reshape(n, n) @ b.reshape(n, n)).reshape(-1)
        assert seen.status == "ran" and np.allclose(seen.buffers[c], product, atol=1e-3)
        read[name], moved[name] = seen.counts.total("bytes_read"), seen.counts.traffic
        said = shapes.work_shape(seen, c, elements_per_invocation=each)
        assert said == shapes.order_matters(seen, absolute=1e-3) == ""
    # 2 n^3 numbers; each number once for 16 rows or columns; once for 64.
    assert read == {"NAIVE": 8 * n**3, "TILED": 8 * n**3 // 16, "REGISTERS": 8 * n**3 // 64}
    assert moved["NAIVE"] == moved["TILED"] == 4 * n * n * (8 + 8 + 1)
    assert moved["REGISTERS"] == 4 * n * n * (2 + 2 + 1)


# ----------------------------------------------------------------------------------- cheats

ALL = "for (uint i = 0; i < push.count; ++i) y[i] = 2 * x[i];"
SERIAL = f"if (id.x == 0) {ALL}"
EACH = "if (id.x < push.count) y[id.x] = 2 * x[id.x];"
ALONE = "one invocation did all the work: invocation 0 wrote 1000 elements of y, 1023 invocations"


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "said", "partly"), [
    (slang(SERIAL), ALONE,
     "element 512 of y did not change, but it is the work of workgroup 8, which ran"),
    (slang(SERIAL.replace("== 0", "== 1023")), "invocation 1023 wrote 1000",
     "element 0 of y changed, but it is the work of workgroup 0, which did not run"),
    (slang(ALL), "element 0 of y was written 1024 times", "element 0 of y changed"),
    (slang("uint i = min(id.x, push.count - 1); y[i] = 2 * x[i];"),
     "element 999 of y was written by 25 invocations, the first of them 999, 1000, 1001", ""),
    (slang("if (group.x == 0) for (uint i = lane; i < push.count; i += 64) y[i] = 2 * x[i];"),
     "invocation 0 wrote 16 elements of y, allowed are at most 1", "did not change"),
    # Kernels that look for an observer: they find none, and behave as they always do.
    (slang(f"#ifdef vklab_by\n{EACH}\n#else\n{SERIAL}\n#endif"), ALONE, "did not change"),
    (slang(f"uint n, s; y.GetDimensions(n, s); if (n > 1000) {{ {EACH} }} else {SERIAL}"), ALONE,
     "did not change"),
    (slang(f"if (group.x == 8 && lane == 0 && vklab == 0) {{ {ALL} }} else {SERIAL}",
           "static const uint vklab = 0;"), "was written 2 times", "changed"),
    (slang("y[id.x] = 2 * x[id.x];"), "element 1000 of y was written, which has 1000 elements", ""),
    (slang(EACH + " else y[-1] = 3;"), "element -1 of y was written, which has 1000", ""),
    (slang(EACH.replace("x[id.x]", "x[id.x + (1 << 30)]").replace("y[id", "y[id")),
     "element 1073741824 of x was read", None),
    (kernels.INNER, "at element 68 of Y, an index into an array within an element is", None),
    (glsl("part[i] = 1.0; if (i < count) y[i] = 2.0 * x[i];", "shared float part[65];"),
     "an element outside of the shared array part was written by invocation 65", ""),
], ids=["serial", "last", "all", "clamped", "one group", "ifdef", "length", "partial", "unguarded",
        "-1", "far", "inner", "shared"])  # fmt: skip
def test_a_cheat_is_named(text, said, partly):
    run = run_of(text, y=np.zeros(100, np.float32)) if text == kernels.INNER else None
    seen, y = look(text, run)
    assert said in (seen.message if seen.status == "crashed" else shapes.work_shape(seen, y))
    if partly is not None and seen.status == "ran":
        assert partly in shapes.partial_shape(seen, y)
        assert (partly == "") == (shapes.partial_shape(seen, y) == "")


@pytest.mark.gpu
@pytest.mark.parametrize("text", [
    slang("while (push.count > 0) y[id.x % 1000] += 1;"),
    glsl("for (uint k = 0; k != count + 1; k += 2) y[i % 1000] += 1;"),
    glsl("do { y[i % 1000] += 1; } while (x[0] > 0.5);"),
    slang("if (id.x == 70) { for (;;) { if (x[id.x] < 0) break; y[0] += 1; } }"),
], ids=["while", "for", "do", "one"])  # fmt: skip
def test_a_loop_that_does_not_end_is_named(text):
    seen, _ = look(text)
    assert seen.status == "timeout", seen
    assert "a loop of this kernel does not end: invocation" in seen.message
    assert seen.counts.by_invocation["turns"].max() == 65_000
    assert observe_kernel(text, [run_of(text)] * 2, seconds=20)[1].status == "timeout"


@pytest.mark.gpu
def test_a_race_that_the_order_of_the_driver_hides_is_seen():
    text = kernels.RACE
    elements = np.arange(COUNT)
    half = X[np.where(elements % 64 < 32, elements, elements - 32)]
    seen, y = look(text)
    assert np.array_equal(seen.buffers[y], half)
    assert shapes.work_shape(seen, y) == ""
    assert "in mirrored order, element 32 of y is" in shapes.order_matters(seen)
    mended = text.replace("0;\n", "0; GroupMemoryBarrierWithGroupSync();\n", 1)
    seen, y = look(mended)
    assert np.array_equal(seen.buffers[y], half) and shapes.order_matters(seen) == ""


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "said"), [
    (kernels.REDUCTION, ""), (kernels.SLANG_REDUCTION, ""),
    (kernels.RACE, "invocation 32 reads element 0 of the shared array part, which another"),
    (kernels.SUM.replace("BARRIER", ""), "invocation 32 writes element 32 of the shared array"),
    # The driver runs the last eight invocations in step, so that this sum comes out right.
    (kernels.REDUCTION.replace("        barrier();", "        if (step > 4) barrier();"),
     "invocation 0 reads element 2 of the shared array part"),
], ids=["right", "slang", "order", "first barrier", "last barriers"])  # fmt: skip
def test_races_in_shared_memory_are_told_without_luck(text, said):
    seen, _ = look(text, run_of(text, y=np.zeros(COUNT, np.float32)))
    assert seen.status == "ran" and shapes.race_shape(seen).startswith(said), seen
    assert (said == "") == (shapes.race_shape(seen) == "")


@pytest.mark.gpu
def test_atomic_operations_on_shared_memory_do_not_race():
    values = np.zeros(64, np.uint32)
    run = Run({"values": values, "bins": np.zeros(16, np.uint32)}, (1,))
    seen, _ = look(kernels.HISTOGRAM, run)
    assert shapes.race_shape(seen) == "" and seen.buffers["bins"][0] == 64
    seen, _ = look(
        kernels.HISTOGRAM.replace(
            "InterlockedAdd(mine[values[id.x]], 1u)", "mine[values[id.x]] += 1"
        ),
        run,
    )
    assert "of the shared array mine" in shapes.race_shape(seen)


@pytest.mark.gpu
@pytest.mark.parametrize("missing", [0, 1])
def test_an_atomic_operation_and_a_plain_access_race(missing):
    """Without the barrier before the counting, and without the one behind it."""
    barrier = "GroupMemoryBarrierWithGroupSync();"
    first, between, last = kernels.HISTOGRAM.split(barrier)
    parts = (first + between, last) if missing == 0 else (first, between + last)
    values = np.arange(64, dtype=np.uint32) % 16
    run = Run({"values": values, "bins": np.zeros(16, np.uint32)}, (1,))
    seen, _ = look(barrier.join(parts), run)
    assert "of the shared array mine" in shapes.race_shape(seen)


@pytest.mark.gpu
def test_a_barrier_that_some_invocations_skip_is_named():
    text = kernels.REDUCTION.replace("        barrier();", "        if (i % 64 < 32) barrier();")
    assert text != kernels.REDUCTION
    seen, _ = look(text, run_of(text, y=np.zeros(16, np.float32)))
    assert "all must arrive at each barrier" in shapes.barrier_shape(seen)
    seen, _ = look(kernels.REDUCTION, run_of(text, y=np.zeros(16, np.float32)))
    assert shapes.barrier_shape(seen) == ""


@pytest.mark.gpu
def test_barriers_of_two_branches_are_not_one():
    text = kernels.REDUCTION.replace(
        "        barrier();", "        if (i % 64 < 32) barrier(); else barrier();"
    )
    seen, _ = look(text, run_of(text, y=np.zeros(16, np.float32)))
    assert shapes.barrier_shape(seen) == (
        "invocations 0 and 32 of a workgroup meet different "
        "barriers: all must arrive at each barrier"
    )


@pytest.mark.gpu
def test_a_barrier_that_orders_buffers_only_ends_no_race_in_shared_memory():
    text, group = kernels.SLANG_REDUCTION, "GroupMemoryBarrierWithGroupSync"
    assert group in text
    for other, races in (
        ("DeviceMemoryBarrierWithGroupSync", True),
        ("AllMemoryBarrierWithGroupSync", False),
    ):
        seen, _ = look(text.replace(group, other), run_of(text, y=np.zeros(COUNT, np.float32)))
        assert bool(shapes.race_shape(seen)) == races and seen.counts.total("barriers")


@pytest.mark.gpu
def test_a_read_of_shared_memory_that_nobody_has_written_is_named():
    run = Run({"values": np.zeros(64, np.uint32), "bins": np.zeros(16, np.uint32)}, (1,))
    seen, _ = look(kernels.HISTOGRAM, run)
    assert shapes.unset_shape(seen) == ""
    line = next(line for line in kernels.HISTOGRAM.splitlines() if "= 0" in line)
    seen, _ = look(kernels.HISTOGRAM.replace(line, ""), run)
    assert "reads element 1 of the shared array mine, which nobody" in shapes.unset_shape(seen)


@pytest.mark.gpu
def test_uses_of_shared_arrays_and_the_size_of_workgroups_are_counted():
    seen, _ = look(kernels.REDUCTION, run_of(kernels.REDUCTION, y=np.zeros(16, np.float32)))
    by = seen.counts.by_invocation
    uses = by["shared_loads"] + by["shared_stores"]
    worst, most = int(uses.argmax()), int(uses.max())
    assert shapes.shared_shape(seen, most=most) == ""
    said = f"invocation {worst} used shared arrays {most} times: its own share needs {most - 1} at"
    assert shapes.shared_shape(seen, most=most - 1).startswith(said)
    assert shapes.size_shape(seen, size=64) == ""
    assert "kernel has 64 invocations" in shapes.size_shape(seen, size=32)


# --------------------------------------------------------------------------------- refusals


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "status", "words"), [
    (slang(EACH + " w[0] = 1;", "[[vk::binding(2, 0)]] RWStructuredBuffer<uint> w;"), "mismatch",
     "the shader has buffers ['w', 'x', 'y'], the dispatch gives ['x', 'y']"),
    (slang(EACH + " w[0] = 1;", "[[vk::binding(0, 1)]] RWStructuredBuffer<uint> w;"),
     "compile_error", "descriptor set 1"),
    (slang(EACH + " uint64_t p = 64; *((uint*)p) = 1;"), "refused", "pointers to memory"),
    (slang(EACH + " t[id.xy] = 1;", "RWTexture2D<float> t;"), "refused", "an image"),
    (slang("if (id.x < push.count) y[id.x] = c.k * x[id.x];",
           "struct C { float k; }; ConstantBuffer<C> c;"), "mismatch", "['c', 'x', 'y']"),
    (slang("y[id.x] = nix;"), "compile_error", "undefined identifier 'nix'"),
    (slang("#error Lab 04, exercise 4: yours"), "not_attempted", "exercise 4"),
    (slang(""), "mismatch", "x, y and count are never used"),
], ids=["binding", "set", "pointer", "image", "uniform", "error", "stub", "empty"])  # fmt: skip
def test_a_kernel_that_cannot_be_followed_says_why(text, status, words):
    seen, _ = look(text)
    assert seen.status == status and words in seen.message, seen
    assert "/tmp" not in seen.message and not seen.dispatches


@pytest.mark.gpu
def test_a_binding_that_is_declared_and_not_used_changes_nothing():
    seen, y = look(slang(EACH, "[[vk::binding(2, 0)]] RWStructuredBuffer<uint> vklab_touched;"))
    assert seen.status == "ran" and shapes.work_shape(seen, y) == ""


@pytest.mark.gpu
def test_several_runs_and_chosen_ways_come_in_order():
    runs = [run_of(MAP, (16,), X), run_of(MAP, (1,), X[:7])]
    first, second = observe_kernel(
        MAP, runs, dispatches=("plain", "counted", "reversed"), variables=observe.PINNED
    )
    assert [*first.dispatches] == ["counted", "reversed"] and [*second.dispatches] == ["counted"]
    assert second.buffers["y"].tolist() == [2.0 * n for n in range(1, 8)]
    (counted,) = observe_kernel(MAP, runs[0], dispatches=("counted",))
    assert np.array_equal(counted.buffers["y"], 2 * X) and list(counted.buffers) == ["x", "y"]


@pytest.mark.gpu
def test_what_does_not_fit_the_counters_is_said():
    big = dataclasses.replace(run_of(MAP), workgroups=(4000, 40))
    seen, _ = look(MAP, big)
    assert seen.status == "refused" and "use a smaller case" in seen.message
    seen, _ = look(slang("for (uint k = 0; k < 100; ++k) y[id.x % 1000] += x[k];"))
    assert seen.counts.is_log_full and seen.counts.reads["x"][:100].tolist() == [1024] * 100
