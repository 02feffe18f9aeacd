"""Functions and kernels in a process of their own: what hangs or crashes there is a result."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from support.runs.child import wait_until_gone
from support.runs.waits import LIMIT_S, hang
from vklab.errors import DeviceLostError, SetupError
from vklab.runtime import open_devices
from vklab_course import Run, check, run_kernel, run_limited
from vklab_course.children import kernel_child
from vklab_course.children.child import run_child

pytestmark = pytest.mark.full


def twice(number):
    return helper(number)


def helper(number):
    return 2 * number


def sleeps():
    hang()


def counts_in_native_code():
    return sum(iter(int, 1))


def dies():
    os._exit(3)


def breaks():
    os.kill(os.getpid(), 11)


def prints():
    while True:
        print("x" * 10_000)


def stub():
    raise NotImplementedError("Lab 90, exercise 1: ...")


def raises():
    return 1 // 0


def starts_a_child():
    import subprocess

    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(6000)"]).pid


@pytest.mark.parametrize(("function", "status", "words"), [
    (sleeps, "timeout", "did not end within 1 s"),
    (counts_in_native_code, "timeout", "did not end within 1 s"),
    (dies, "crashed", "ended its process with code 3"),
    (breaks, "crashed", "signal SIGSEGV"),
    (prints, "too_much_output", "printed without end"),
    (stub, "not_attempted", "Lab 90, exercise 1"),
    (raises, "raised", "ZeroDivisionError"),
    (lambda: sys.exit(2), "raised", "SystemExit: 2"),
    (lambda: (yield), "raised", "cannot leave its process"),
])  # fmt: skip
def test_whatever_a_function_does_is_an_outcome(function, status, words):
    outcome = run_limited(function, seconds=1)
    assert outcome.status == status and words in outcome.message, outcome


def test_a_function_takes_along_what_it_uses(fresh_interpreter):
    factor = np.float32(3)
    assert run_limited(twice, 4).value == 8
    outcome = run_limited(lambda x: (print("hello"), factor * x)[1], np.ones(2, np.float32))
    assert outcome.status == "returned" and outcome.output == "hello\n"
    assert outcome.value.tolist() == [3, 3]
    assert "cannot be sent" in run_limited(lambda: factor, sys.stdout).message


@pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX's")
def test_what_a_child_starts_ends_with_it(fresh_interpreter):
    pid = run_limited(starts_a_child).value
    wait_until_gone(pid)


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="alarms are POSIX's")
def test_a_child_that_lost_its_parent_ends_by_itself(tmp_path):
    # The parent would wait, and the child hang: the child's own alarm ends it.
    code = (
        "import pathlib, time; from vklab_course.children.child import begin\n"
        f"begin(pathlib.Path({str(tmp_path)!r})); time.sleep(6000)"
    )
    (tmp_path / "lost.py").write_text(code)
    variables = {"PYTHONPATH": str(tmp_path), "VKLAB_CHILD_SECONDS": "1"}
    ended = run_child("lost", [], tmp_path, LIMIT_S, variables)
    assert ended.code == -signal.SIGALRM


# -------------------------------------------------------------------------------------- kernels

HEAD = """#version 450
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 0) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint count; };
"""
SLANG = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
struct Push { uint count; }
[[vk::push_constant]] Push push;
[shader("compute")] [numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x < push.count) y[id.x] = 2 * x[id.x];
}
"""


# Each buffer has an instance name, which replaces the block's name.
INSTANCES = """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; } xs;
layout(binding = 1) buffer Y { float y[]; } ys;
layout(push_constant) uniform Push { uint count; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < count) ys.y[i] = 2 * xs.x[i]; }
"""
NESTED = SLANG.replace(
    "struct Push { uint count; }",
    "struct Size { uint count; uint other; }\nstruct Push { Size size; }",
)
NESTED = NESTED.replace("push.count", "push.size.count")


def glsl(body):
    return HEAD + "void main() { uint i = gl_GlobalInvocationID.x; " + body + " }"


def a_run(size=70, groups=(2,), names=("X", "Y"), **push):
    x = np.arange(size, dtype=np.float32)
    buffers = {names[0]: x, names[1]: np.zeros(size, np.float32)}
    return Run(buffers, groups, push or {"count": size})


@pytest.fixture(autouse=True, scope="module")
def a_device():
    try:
        open_devices.select()
    except SetupError as error:
        pytest.skip(str(error))


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "names"), [
    (glsl("if (i < count) y[i] = 2 * x[i];"), ("X", "Y")), (SLANG, ("x", "y")),
])  # fmt: skip
def test_a_kernel_runs_and_touches_nothing_else(text, names, fresh_interpreter):
    (done,) = run_kernel(text, a_run(names=names))
    assert done.status == "ran" and done.out_of_bounds == {}, done
    assert np.array_equal(done.buffers[names[1]], 2 * done.buffers[names[0]])


@pytest.mark.gpu
@pytest.mark.parametrize("body", [
    "y[i] = 2 * x[i];",                                   # no guard: reads and writes behind
    "if (i < count) y[i] = 2 * x[i]; if (i == 0) y[count] = 7;",
    "if (i <= count) y[i] = 2 * x[i];",
])  # fmt: skip
def test_writes_behind_the_end_are_reported(body):
    (done,) = run_kernel(glsl(body), a_run())
    assert done.status == "ran" and done.out_of_bounds["Y"][0] == 70 * 4, done
    assert np.array_equal(done.buffers["Y"], 2 * done.buffers["X"])


@pytest.mark.gpu
@pytest.mark.parametrize("change", ["+= 1.5", "-= 0.001", "*= 2.0", "= max(y[count], 2.0)"])
def test_a_change_in_place_behind_the_end_is_reported(change):
    (done,) = run_kernel(glsl(f"if (i == 0) y[count] {change}; y[i % count] = x[0];"), a_run())
    assert done.status == "ran" and done.out_of_bounds["Y"] == (70 * 4,), done


@pytest.mark.gpu
@pytest.mark.parametrize(("body", "unused", "words"), [
    ("y[id.x % 70] = 2;", ("x", "count"), "x and count are never used: the compiler has dropped"),
    ("y[id.x % 70] = 2 * x[id.x % 70];", ("count",), "count is never used: the compiler has dropp"),
])  # fmt: skip
def test_what_a_kernel_never_uses_is_named(body, unused, words):
    text = SLANG.replace("if (id.x < push.count) y[id.x] = 2 * x[id.x];", body)
    (done,) = run_kernel(text, a_run(names=("x", "y")))
    assert (done.status, done.unused, words in done.message) == ("ran", unused, True), done
    assert np.array_equal(done.buffers["x"], a_run().buffers["X"])
    assert set(done.buffers["y"].tolist()) <= set(range(0, 140, 2))


@pytest.mark.gpu
def test_workgroups_are_ints():
    (done,) = run_kernel(SLANG, a_run(groups=(np.int64(2), 1), names=("x", "y")))
    assert done.status == "ran" and done.buffers["y"][69] == 138
    for groups, said in (
        ((2, np.ceil(1.5), 1), r"got \(2, 2, 1\) \(of type int, float64, int\)"),
        (2.0, r"got 2 \(of type float\)"),
        (2, r"got 2 \(of type int\)"),
        (None, r"got None \(of type NoneType\)"),
    ):
        with pytest.raises(TypeError, match="workgroups are ints in a tuple, " + said):
            run_kernel(SLANG, a_run(groups=groups, names=("x", "y")))


@pytest.mark.gpu
def test_a_kernel_that_uses_nothing_says_so():
    text = SLANG.replace("if (id.x < push.count) y[id.x] = 2 * x[id.x];", "// x, y")
    (done,) = run_kernel(text, a_run(names=("x", "y")))
    assert done.status == "mismatch", done
    assert "x, y and count are never used: this kernel reads nothing" in done.message


@pytest.mark.gpu
def test_an_array_of_vectors_arrives_whole():
    text = SLANG.replace("uint count;", "uint count; float3 d[2];").replace(
        "2 * x[id.x]", "push.d[id.x / 3 % 2][id.x % 3] + 0 * x[id.x]"
    )
    (done,) = run_kernel(text, a_run(names=("x", "y"), count=70, d=[1.0, 2, 3, 4, 5, 6]))
    assert done.buffers["y"][:6].tolist() == [1, 2, 3, 4, 5, 6], done


@pytest.mark.gpu
def test_a_text_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    text = SLANG.replace("{", "{ /* compiled once */", 1)
    counts = []
    for _ in range(2):
        assert run_kernel(text, a_run(names=("x", "y")))[0].status == "ran"
        counts.append(len(list(Path(tmp_path, "spirv").iterdir())))
    assert counts[0] == counts[1] > 0


@pytest.mark.gpu
def test_push_constants_are_known_by_type():
    (done,) = run_kernel(SLANG.replace("uint count", "float count"), a_run(names=("x", "y")))
    assert done.push_formats == {"count": "f"} and done.push_offsets == {"count": 0}
    assert run_kernel(SLANG, a_run(names=("x", "y")))[0].push_formats == {"count": "I"}


@pytest.mark.gpu
def test_a_kernel_that_asks_for_the_length_gets_the_real_one():
    text = glsl("if (i < y.length()) y[i] = float(y.length());")
    (done,) = run_kernel(text, a_run())
    assert done.buffers["Y"].tolist() == [70.0] * 70 and not done.out_of_bounds


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "run", "status", "words"), [
    (glsl("y[i] = nix;"), a_run(), "compile_error", "kernel.comp:6: 'nix'"),
    ("void main() { nix(); }", a_run(), "compile_error", "kernel.slang:1"),
    (glsl(";"), a_run(names=("X", "Z")), "mismatch", "['X', 'Z']"),
    (glsl("y[i] = count;"), a_run(number=3), "mismatch", "push constants ['count']"),
    (INSTANCES, a_run(), "mismatch", "buffers ['xs', 'ys'], the dispatch gives ['X', 'Y']: use"),
    (INSTANCES, a_run(), "mismatch", "Rename the block, and delete the instance name"),
    (SLANG, a_run(), "mismatch", "buffers ['x', 'y'], the dispatch gives ['X', 'Y']: use "),
    (NESTED, a_run(names=("x", "y")), "mismatch", "push constant size is a structure: write its "
     "members (count, other) into the block itself"),
    (glsl("uint n = count; y[i] = n;"), a_run(n=3), "mismatch", "the dispatch supplies ['n']"),
    (glsl("#error Lab 90, exercise 2: yours"), a_run(), "not_attempted", "exercise 2"),
    ("", a_run(), "compile_error", "kernel.slang"),
])  # fmt: skip
def test_a_kernel_that_cannot_run_says_why(text, run, status, words):
    (done,) = run_kernel(text, run)
    assert done.status == status and words in done.message, done
    assert "/tmp" not in done.message


@pytest.mark.gpu
@pytest.mark.full
def test_a_kernel_that_never_ends_is_stopped_and_keeps_what_was_done(fresh_interpreter):
    # llvmpipe leaves every loop after 65536 iterations: many invocations make it long there.
    text = glsl("""
    float sum = 0;
    for (uint a = 0; a != count; a++) sum += sin(sum + float(a));
    if (i < 64) y[i] = sum;""")
    runs = [a_run(64, (1,), count=2), a_run(64, (60_000, 60), count=0xFFFFFFFF)]
    fast, slow = run_kernel(text, runs, seconds=2)
    assert fast.status == "ran"
    assert slow.status == "timeout" and "did not end" in slow.message


@pytest.mark.gpu
def test_a_missing_device_is_a_result(fresh_interpreter):
    (done,) = run_kernel(glsl(";"), a_run(), device="no such device")
    assert done.status == "no_device" and "no such device" in done.message


def test_a_lost_device_is_a_result(tmp_path, monkeypatch):
    def lose(*_):
        raise DeviceLostError("vkWaitForFences", "VK_ERROR_DEVICE_LOST", "a GPU did not finish")

    said = []
    monkeypatch.setattr(kernel_child, "begin", lambda folder: None)
    monkeypatch.setattr(kernel_child, "_stop", lambda folder, *facts: said.append(facts))
    monkeypatch.setattr(kernel_child.open_devices, "open_device", lose)
    (tmp_path / "job.json").write_text('{"runs": [], "device": null, "seconds": 15}')
    kernel_child.main(tmp_path)
    ((status, message),) = said
    assert status == "crashed" and "a GPU did not finish; does every loop stop" in message


@pytest.mark.gpu
@pytest.mark.parametrize(("body", "words"), [
    ("nix", "the kernel does not compile"), ("y[i] = 2.5 * x[i];", "is there a guard, and"),
    ("if (i < count) y[i] = 0.0 / 0.0;", "of them NaN"),
])  # fmt: skip
def test_a_verdict_on_a_bad_kernel(fixture_lab, body, words):
    head = HEAD.replace("uint count;", "uint count; float factor;")
    verdict = check("90-2", head + "void main() { uint i = gl_GlobalInvocationID.x;\n" + body + "}")
    assert verdict.status == "incorrect" and words in str(verdict), str(verdict)


@pytest.mark.gpu
@pytest.mark.parametrize(("kib", "status"), [(32, "ran"), (33, "mismatch"), (262_144, "mismatch")])
def test_shared_memory_is_bounded_whatever_a_driver_takes(kib, status):
    """lavapipe runs a kernel with 256 MiB of shared memory; no GPU does."""
    text = (
        HEAD
        + f"shared float s[{256 * kib}];\n"
        + (
            "void main() { uint i = gl_GlobalInvocationID.x; s[i] = x[i % count];"
            " y[i % count] = 2 * s[i]; }"
        )
    )
    (done,) = run_kernel(text, a_run(count=70))
    assert done.status == status, done
    if status != "ran":
        assert f"it has {1024 * kib:,} bytes of shared memory a workgroup" in done.message


@pytest.mark.gpu
def test_a_right_kernel_with_256_mib_of_shared_memory_earns_nothing(fixture_lab):
    head = HEAD.replace("uint count;", "uint count; float factor;")
    text = head + (
        "shared float s[67108864];\nvoid main() { uint i = gl_GlobalInvocationID.x;\n"
        "s[i % 64] = 0.0; if (i < count) y[i] = factor * x[i]; }"
    )
    verdict = check("90-2", text)
    assert verdict.points == 0 and "at most 32,768" in str(verdict), str(verdict)
