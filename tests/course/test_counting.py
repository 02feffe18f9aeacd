"""Counters in the SPIR-V of kernels: right kernels pass, and cheats are named."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess

import counted_kernels as kernels
import numpy as np
import pytest
import two_drivers
from child import python
from counted_kernels import glsl, slang

from vklab.course import Run
from vklab.course.counting import observe, shapes
from vklab.course.counting.instrument import instrument
from vklab.course.counting.observe import observe_kernel
from vklab.errors import SetupError, ShaderError
from vklab.runtime import open_devices
from vklab.shader import compiler
from vklab.vulkan import instance

COUNT = 1000
X = np.arange(1, COUNT + 1, dtype=np.float32)
ORDERS = {"counted", "mirrored", "reversed", "partial"}


def run_of(text, groups=(16,), x=X, y=None, **push):
    names = ("X", "Y") if "#version" in text else ("x", "y")
    y = np.zeros_like(x) if y is None else y
    return Run(dict(zip(names, (x, y), strict=True)), groups, push or {"count": len(x)})


def look(text, run=None, **options):
    """Return one observed run of a kernel, and the name of its buffer of results."""
    run = run or run_of(text)
    (observed,) = observe_kernel(text, run, seconds=20, **options)
    return observed, list(run.buffers)[-1]


@pytest.fixture(autouse=True, scope="module")
def a_device():
    try:
        open_devices.select()
    except SetupError as error:
        pytest.skip(str(error))


# ---------------------------------------------------------------------------- right kernels

MAP = slang("if (id.x < push.count) y[id.x] = 2 * x[id.x];")
GLSL_MAP = glsl("if (i < count) y[i] = 2.0 * x[i];")
BY_GROUPS = slang("uint i = 64 * group.x + lane; if (i < push.count) y[i] = 2 * x[i];")
# The id passes through functions, and an early return leaves main before its end.
CALLS = glsl("if (i >= count) return; put(i, 2.0 * get(i));", """
float get(uint i) { return x[i]; }
void put(uint i, float value) { y[i] = value; }
""")


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "groups", "each"), [
    (MAP, 16, 1), (GLSL_MAP, 16, 1), (BY_GROUPS, 17, 1), (CALLS, 16, 1), (kernels.FOUR, 5, 4),
    (kernels.FOUR_VECTORS, 4, 4),
], ids=["slang", "glsl", "group ids", "functions", "four", "vectors"])  # fmt: skip
def test_a_right_map_is_counted_element_by_element(text, groups, each):
    seen, y = look(text, run_of(text, (groups,)))
    x = list(seen.run.buffers)[0]
    assert (seen.status, seen.message, set(seen.ways)) == ("ran", "", ORDERS)
    assert np.array_equal(seen.buffers[y], 2 * X)
    counts = seen.counts
    assert counts.reads[x].tolist() == counts.writes[y].tolist() == [1] * COUNT
    assert not counts.writes[x].any() and not counts.reads[y].any()
    assert counts.total("bytes_read") == counts.total("bytes_written") == 4 * COUNT
    workers = COUNT // each
    assert counts.elements_written[y].tolist() == [each] * workers + [0] * (64 * groups - workers)
    firsts = [*range(0, COUNT, each)]
    assert counts.first_written[y][:workers].tolist() == firsts
    assert counts.last_written[y][:workers].tolist() == [first + each - 1 for first in firsts]
    assert (counts.first_written[y][workers:] == -1).all()
    assert not counts.is_log_full and len(counts.log) == 2 * COUNT
    assert counts.log[: 2 * each : 1, 0].tolist() == [0] * 2 * each
    assert sum(counts.sectors_read[x]) == sum(counts.sectors_written[y]) == 125
    assert shapes.work_shape(seen, y, elements_per_invocation=each) == ""
    assert shapes.partial_shape(seen, y, elements_per_invocation=each) == ""
    assert shapes.order_matters(seen) == ""


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
    assert seen.counts.first_written[y][1] == rows  # invocation (1, 0)


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
    (slang(SERIAL), ALONE, "element 512 of y did not change: another workgroup does the work"),
    (slang(SERIAL.replace("== 0", "== 1023")), "invocation 1023 wrote 1000",
     "element 0 of y changed, which is the work of workgroup 0"),
    (slang(ALL), "element 0 of y was written 1024 times", "element 0 of y changed"),
    (slang("uint i = min(id.x, push.count - 1); y[i] = 2 * x[i];"),
     "element 999 of y was written by 25 invocations, the first of them 999, 1000, 1001", ""),
    (slang("if (group.x == 0) for (uint i = lane; i < push.count; i += 64) y[i] = 2 * x[i];"),
     "invocation 0 wrote 16 elements of y, asked were at most 1", "did not change"),
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
    (glsl("part[i] = 1.0; if (i < count) y[i] = 2.0 * x[i];", "shared float part[65];"),
     "an element outside of the shared array part was written by invocation 65", ""),
], ids=["serial", "last", "all", "clamped", "one group", "ifdef", "length", "partial", "unguarded",
        "-1", "far", "shared"])  # fmt: skip
def test_a_cheat_is_named(text, said, partly):
    seen, y = look(text)
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
    half = X.reshape(-1, 1)[:, 0].copy()
    seen, y = look(text)
    for first in range(0, COUNT, 64):
        half[first + 32 : first + 64] = half[first : first + 64 - 32][: len(half[first + 32 : first + 64])]
    assert np.array_equal(seen.buffers[y], half)
    assert shapes.work_shape(seen, y) == ""
    assert "in mirrored order, element 32 of y is" in shapes.order_matters(seen)
    mended = text.replace("0;\n", "0; GroupMemoryBarrierWithGroupSync();\n", 1)
    seen, y = look(mended)
    assert np.array_equal(seen.buffers[y], half) and shapes.order_matters(seen) == ""


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
    assert "/tmp" not in seen.message and not seen.ways


@pytest.mark.gpu
def test_a_binding_that_is_declared_and_not_used_changes_nothing():
    seen, y = look(slang(EACH, "[[vk::binding(2, 0)]] RWStructuredBuffer<uint> vklab_touched;"))
    assert seen.status == "ran" and shapes.work_shape(seen, y) == ""


def test_aliases_and_other_buffers_are_refused_in_the_module(tmp_path):
    text = kernels.GLSL_HEAD.replace("binding = 1) buffer", "binding = 0) buffer")
    path = tmp_path / "kernel.comp"
    path.write_text(text + "void main() { y[0] = x[count]; }")
    spirv = compiler.compile_variant(str(path)).spirv
    with pytest.raises(ShaderError, match="Y and X share binding 0"):
        instrument(spirv, {"X": 4, "Y": 4})
    with pytest.raises(ShaderError, match="X is not a buffer of this exercise, which has Y, Z"):
        instrument(spirv, {"Y": 4, "Z": 4})


# ------------------------------------------------------------------- compilers and drivers

EVERY = {"map": MAP, "glsl": GLSL_MAP, "calls": CALLS, "four": kernels.FOUR,
         "vectors": kernels.FOUR_VECTORS, "reduction": kernels.REDUCTION,
         "shared": kernels.SLANG_REDUCTION, "histogram": kernels.HISTOGRAM,
         "product": kernels.REGISTERS, "endless": slang("while (push.count > 0) y[id.x] += 1;"),
         "leaves": slang("for (uint k = 0; ; ++k) { float v = x[k] * 3; if (v > 9) { y[k] = v; "
                         "return; } if (v > 4) break; } y[3] = x[2];")}  # fmt: skip


def modules(text, folder):
    """Yield a kernel's SPIR-V as it is compiled, optimised, and in an old version of SPIR-V."""
    path = folder / ("kernel.comp" if "#version" in text else "kernel.slang")
    path.write_text(text)
    shader = compiler.compile_variant(str(path))
    units = dict.fromkeys(shader.reflection.bindings, 4)
    yield "vulkan1.3", shader.spirv, units
    (folder / "plain.spv").write_bytes(shader.spirv)
    if shutil.which("spirv-opt"):
        command = ["spirv-opt", "-O", "--target-env=vulkan1.3", "plain.spv", "-o", "fast.spv"]
        subprocess.run(command, cwd=folder, check=True)
        yield "vulkan1.3", (folder / "fast.spv").read_bytes(), units
    if path.suffix == ".comp" and shutil.which("glslangValidator"):
        command = ["glslangValidator", "-V", "--target-env", "vulkan1.0", str(path), "-o", "old.spv"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        yield "vulkan1.0", (folder / "old.spv").read_bytes(), units


@pytest.mark.parametrize("name", EVERY)
def test_counted_modules_are_valid(name, tmp_path):
    if not shutil.which("spirv-val"):
        pytest.skip("spirv-val is not installed (Debian: spirv-tools)")
    for environment, spirv, units in modules(EVERY[name], tmp_path):
        for is_full in (True, False):
            (tmp_path / "counted.spv").write_bytes(instrument(spirv, units, is_full).spirv)
            command = ["spirv-val", "--target-env", environment, "counted.spv"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, (environment, is_full, done.stdout + done.stderr)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["glsl", "calls", "reduction", "four"])
def test_optimised_and_old_modules_are_counted_alike(name, tmp_path, monkeypatch):
    text, totals = EVERY[name], []
    y = np.zeros(16 if name == "reduction" else COUNT, np.float32)
    for _, spirv, _ in modules(text, tmp_path):
        monkeypatch.setattr(observe, "_compile", lambda *_, spirv=spirv: (spirv, None))
        seen, result = look(text, run_of(text, y=y))
        assert seen.status == "ran", seen
        totals.append([seen.counts.total(field) for field in ("loads", "stores", "barriers")])
        totals[-1] += [seen.buffers[result].tolist(), seen.counts.writes[result].tolist()]
    assert len(totals) > 1 and totals[1:] == totals[:-1]


@pytest.mark.gpu
def test_the_validation_layer_has_nothing_to_say(tmp_path):
    if instance.VALIDATION_LAYER not in instance.layers():
        pytest.skip("the validation layer is not installed")
    code = """
import sys
from pathlib import Path
from vklab.course.children import kernel_child
from vklab.runtime import open_devices
made = open_devices.open_device
opened = []
open_devices.open_device = lambda name: opened.append(made(name)) or opened[-1]
kernel_child.main(Path(sys.argv[1]))
opened[0].device.instance.raise_messages()
print(len(list(Path(sys.argv[1]).glob("out-*.json"))))
"""
    monkeypatched = pytest.MonkeyPatch()
    said = []

    def child(module, arguments, folder, seconds, variables=None):
        said.append(python(code, folder, VKLAB_VALIDATE="1"))
        return observe.run_kernel.Ended("exited", 0, "")

    with monkeypatched.context() as patch:
        patch.setattr(observe.run_kernel, "run_child", child)
        for text, y in ((MAP, None), (kernels.REDUCTION, np.zeros(16, np.float32))):
            seen, _ = look(text, run_of(text, y=y))
            assert seen.status == "ran", seen
    assert said == ["5\n", "5\n"]


@pytest.mark.gpu
@pytest.mark.full
@pytest.mark.parametrize("name", ["map", "glsl", "reduction", "vectors"])
def test_swiftshader_counts_as_lavapipe_does(name):
    text, seen = EVERY[name], []
    y = np.zeros(16 if name == "reduction" else COUNT, np.float32)
    for device in ("llvmpipe", "SwiftShader"):
        options = {"device": device, "variables": two_drivers.drivers()}
        observed, result = look(text, run_of(text, y=y), **options)
        assert observed.status == "ran", observed
        assert shapes.order_matters(observed) == ""
        seen.append(observed)
    one, other = (each.counts for each in seen)
    assert np.array_equal(one.log, other.log) and one.traffic == other.traffic
    for field, numbers in one.by_invocation.items():
        assert np.array_equal(numbers, other.by_invocation[field]), field
    assert np.array_equal(one.writes[result], other.writes[result])


@pytest.mark.gpu
def test_several_runs_and_chosen_ways_come_in_order():
    runs = [run_of(MAP, (16,), X), run_of(MAP, (1,), X[:7])]
    first, second = observe_kernel(MAP, runs, ways=("plain", "counted", "reversed"),
                                   variables=observe.PINNED)  # fmt: skip
    assert set(first.ways) == {"counted", "reversed"} and set(second.ways) == {"counted"}
    assert second.buffers["y"].tolist() == [2.0 * n for n in range(1, 8)]
    (counted,) = observe_kernel(MAP, runs[0], ways=("counted",))
    assert np.array_equal(counted.buffers["y"], 2 * X) and list(counted.buffers) == ["x", "y"]


@pytest.mark.gpu
def test_what_does_not_fit_the_counters_is_said():
    big = dataclasses.replace(run_of(MAP), workgroups=(4000, 40))
    seen, _ = look(MAP, big)
    assert seen.status == "refused" and "use a smaller case" in seen.message
    seen, _ = look(slang("for (uint k = 0; k < 100; ++k) y[id.x % 1000] += x[k];"))
    assert seen.counts.is_log_full and seen.counts.reads["x"][:100].tolist() == [1024] * 100
