"""Work that never ends, devices that are lost, loads that fail: errors with names, no leaks."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import DATA, model, random_array, relu, stock_variant, value
from support.runs.child import python, run
from support.runs.handles import left
from support.runs.overlay import write_kernel
from support.runs.waits import until
from vklab.errors import DeviceLostError, OutOfMemoryError, ShaderError, TimeoutError, VulkanError
from vklab.runtime import kernels, open_devices, upload
from vklab.vulkan import instance
from vklab.vulkan.command import Submission
from vklab.vulkan.event import EventSubmission
from vklab.vulkan.sync import Fence

X = np.array([[1, -2, 3]], np.float32)
Y = np.maximum(X, 0)


@pytest.fixture
def handles(device_index):
    """Fail if a test leaves handles or memory behind."""
    opened = open_devices.open_device(device_index)
    before = left(opened)
    yield opened
    assert left(opened) == before


def never_signaled(fence, seconds=None):
    """Wait as `Fence.wait` does when the device does not finish in time."""
    raise TimeoutError("vkWaitForFences", "VK_TIMEOUT", "did not finish within 1 s")


def lost(fence, seconds=None):
    """Wait as `Fence.wait` does when the device is gone."""
    raise DeviceLostError("vkWaitForFences", "VK_ERROR_DEVICE_LOST", "gone")


def fail_waits(patch, failure):
    """Have every wait for a device fail: that of a submission, and those for its fence alone."""
    patch.setattr(Fence, "wait", failure)
    patch.setattr(Submission, "wait", failure)
    patch.setattr(EventSubmission, "wait", failure)


def eventually(session, x):
    """Run again until the earlier run has ended."""
    made = []

    def is_over():
        with contextlib.suppress(TimeoutError):
            made.append(session.run(x))
        return made

    until(is_over, "the earlier run has not ended")
    return made[0]


def test_a_run_that_ends_too_late_may_be_followed_by_others(handles, device_index, monkeypatch):
    with vklab.load(relu((1, 3)), device_index) as session:
        fail_waits(monkeypatch, never_signaled)
        with pytest.raises(TimeoutError, match=r"within 1 s; under way: chunk.*relu"):
            session.run(X)
        monkeypatch.undo()
        np.testing.assert_array_equal(eventually(session, X)["y"], Y)


def test_work_under_way_is_not_submitted_again(handles, device_index, monkeypatch):
    with vklab.load(relu((1, 3)), device_index) as session:
        fail_waits(monkeypatch, never_signaled)
        monkeypatch.setattr(Fence, "is_signaled", lambda self: False)
        for use in (session.run, session.run, session.profile):
            with pytest.raises(TimeoutError, match="within 1 s|still works on an earlier run"):
                use(X)
        monkeypatch.undo()
        np.testing.assert_array_equal(eventually(session, X)["y"], Y)


def test_closing_waits_for_work_under_way(handles, device_index, monkeypatch):
    session = vklab.load(relu((1, 3)), device_index)
    with monkeypatch.context() as patch:
        fail_waits(patch, never_signaled)
        with pytest.raises(TimeoutError):
            session.run(X)
    session.close()


def test_profiling_that_ends_too_late(handles, device_index, monkeypatch):
    with vklab.load(relu((1, 3)), device_index) as session:
        with monkeypatch.context() as patch:
            fail_waits(patch, never_signaled)
            with pytest.raises(TimeoutError):
                session.profile(X)
        np.testing.assert_array_equal(eventually(session, X)["y"], Y)


STUCK = """
import sys
import numpy as np, vklab
from support.graphs.small_models import relu
from vklab.errors import TimeoutError
from vklab.vulkan.command import Submission
from vklab.vulkan.event import EventSubmission
from vklab.vulkan.sync import Fence
def never(fence, seconds=None):
    raise TimeoutError("vkWaitForFences", "VK_TIMEOUT", "did not finish")
session = vklab.load(relu((1, 3)), int(sys.argv[1]))
Fence.wait = Submission.wait = EventSubmission.wait = never
Fence.is_signaled = lambda self: False
try:
    session.run(np.zeros((1, 3), np.float32))
except TimeoutError as error:
    print("run:", error)
session.close()
print("closed")
"""


def test_a_device_that_never_answers_does_not_stop_the_process_from_ending(device_index):
    assert "closed" in python(STUCK, device_index)


AT_EXIT = """
import ctypes, sys
libc, text = ctypes.CDLL(None), ctypes.create_string_buffer(b"handlers run")
libc.on_exit(libc.dprintf, text)  # called with the exit code, 2: the number of stderr
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "on_exit"), reason="glibc alone has on_exit")
@pytest.mark.parametrize(("code", "expected"), [
    (STUCK, ""), ("import sys, vklab; vklab.load('data/digits_cnn.onnx', int(sys.argv[1]))",
                  "handlers run"),
])  # fmt: skip
def test_exit_handlers_of_a_driver_do_not_meet_its_threads(code, expected, device_index):
    done = run(AT_EXIT + code + "\nsys.exit(2)", device_index, PYTHON_SERVER="")
    assert (done.returncode, done.stderr) == (2, expected), done.stdout


def test_a_session_that_nobody_closed_is_no_trouble_at_the_end(device_index):
    code = (
        "import sys, vklab; from support.graphs.small_models import relu; "
        "kept = [vklab.load(relu((1, 3)), int(sys.argv[1])) for _ in range(3)]; print('end')"
    )
    layer = instance.VALIDATION_LAYER in instance.layers()
    for validate in ("", "1") if layer else ("",):
        assert python(code, device_index, VKLAB_VALIDATE=validate) == "end\n"


def test_a_lost_device_is_named_and_opened_afresh(device_index, monkeypatch):
    first = vklab.load(relu((1, 3)), device_index)
    with monkeypatch.context() as patch:
        fail_waits(patch, lost)
        with pytest.raises(DeviceLostError, match="gone; under way: chunk 0: .* 1 steps.*relu"):
            first.run(X)
    with pytest.raises(DeviceLostError, match="was lost; close this session and load again"):
        first.run(X)
    with vklab.load(relu((1, 3)), device_index) as second:
        np.testing.assert_array_equal(second.run(X)["y"], Y)
    first.close()


def test_a_submission_that_fails_is_no_work_under_way(handles, device_index, monkeypatch):
    with vklab.load(relu((1, 3)), device_index) as session:
        program = next(session.roots[0].path()).runner
        with monkeypatch.context() as patch:
            patch.setattr(program._submission, "_submit", lambda *a: -1)
            with pytest.raises(OutOfMemoryError, match="vkQueueSubmit"):
                session.run(X)
        np.testing.assert_array_equal(session.run(X)["y"], Y)


# ------------------------------------------------------------------------- loads that fail

FAILING = [
    "vkCreateBuffer", "vkAllocateMemory", "vkCreateCommandPool", "vkCreateFence",
    "vkAllocateCommandBuffers", "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkMapMemory",
    "vkBindBufferMemory",
]  # fmt: skip


# Not one call alone: where one memory type is full, another may do, and nothing fails.
MOST_CALLS = 12


def gemm():
    node = helper.make_node("Gemm", ["x", "w"], ["y"])
    return model([node], [value("x", (2, 5))], ["y"], {"w": random_array((5, 3))})


@pytest.mark.parametrize("failing", FAILING)
def test_a_command_that_fails_while_loading(handles, device_index, monkeypatch, failing):
    before = left(handles)
    command = handles.device.command
    seen = []
    for nth in range(MOST_CALLS):  # from the first, the second ... call on all fail
        calls = iter(range(1000))

        def wrapped(name, nth=nth, calls=calls):
            if name != failing:
                return command(name)
            return lambda *a: -1 if next(calls) >= nth else command(name)(*a)

        with monkeypatch.context() as patch, contextlib.suppress(VulkanError):
            patch.setattr(handles.device, "command", wrapped)
            vklab.load(gemm(), device_index).close()
            seen.append(nth)
        assert left(handles) == before, nth
    assert len(seen) < MOST_CALLS, "nothing has failed"


def test_a_shader_that_does_not_compile(handles, device_index, tmp_path, monkeypatch):
    text = (DATA.parent / "shaders" / "ops" / "elementwise.slang").read_text()
    (tmp_path / "ops").mkdir()
    broken = text.replace(" y_buffer[TARGET] =", " nonsense[TARGET] =")
    line = broken[: broken.index("nonsense")].count("\n") + 1
    (tmp_path / "ops" / "elementwise.slang").write_text(broken)
    monkeypatch.setenv("VKLAB_SHADERS", str(tmp_path))
    with pytest.raises(ShaderError, match=rf"elementwise\.slang:{line}: .*nonsense"):
        vklab.load(relu((1, 3)), device_index)


@pytest.mark.parametrize(("old", "new", "words"), [
    ("    uint count;", "    uint count, extra;",
     r"takes push constants \['count', 'extra', 'p0', 'p1'\], the dispatch supplies \['count', "
     r"'p0', 'p1'\]"),
    ("StructuredBuffer<ELEMENT(A)> a_buffer;",
     "StructuredBuffer<ELEMENT(A)> a_buffer; RWStructuredBuffer<A> more;",
     r"has buffers \{.*'more': True.*\} \(name: writable\), the dispatch supplies \{'a_buffer': "),
    ("float p0, p1;", "float p0[2], p1;", "push constant p0 has 2 elements, the dispatch supplies"),
])  # fmt: skip
def test_a_kernel_and_a_dispatch_that_do_not_fit(handles, device_index, tmp_path, monkeypatch, old,
                                                 new, words):  # fmt: skip
    text = (DATA.parent / "shaders" / "ops" / "elementwise.slang").read_text()
    changed = (
        text.replace(old, new, 1)
        .replace("params.p0)", "params.p1)")
        .replace("y_buffer[TARGET] =", "more[element] = values[i]; y_buffer[TARGET] =")
        if "more" in new
        else text.replace(old, new, 1)
    )
    if "p0[2]" in new:
        changed = changed.replace("p0 = params.p0,", "p0 = params.p0[1],")
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "elementwise.slang").write_text(changed)
    monkeypatch.setenv("VKLAB_SHADERS", str(tmp_path))
    with pytest.raises(ShaderError, match=f"kernel elementwise:? {words}"):
        vklab.load(relu((1, 3)), device_index)


@pytest.mark.parametrize(("old", "new", "words"), [
    ("if (row >= params.rows) return;", "if (row >= params.rows) { huge[lane] = row; return; }",
     "262144 bytes of shared memory a workgroup, .* has [0-9]+ .maxComputeSharedMemorySize"),
    ("numthreads(WORKGROUP, 1, 1)", "numthreads(WORKGROUP, 64, 1)",
     "[0-9]+ invocations a workgroup, .* has [0-9]+ .maxComputeWorkGroupInvocations"),
    ("", "", r"workgroups of \([0-9]+, 1, 1\) invocations, .* takes .*maxComputeWorkGroupSize"),
])  # fmt: skip
def test_a_workgroup_beyond_the_limits_never_reaches_the_driver(
    handles, device_index, tmp_path, monkeypatch, old, new, words
):
    declared = ("[shader(", "groupshared uint huge[1 << 16];\n[shader(")
    changed = write_kernel(tmp_path, "softmax", declared, (old, new))
    monkeypatch.setenv("VKLAB_SHADERS", str(changed))
    if not new:
        limits = {**handles.device.info.limits, "maxComputeWorkGroupSize": (1, 1, 1)}
        monkeypatch.setattr(handles.device, "info", replace(handles.device.info, limits=limits))
    monkeypatch.setattr(kernels, "ComputePipeline", None)
    proto = model(
        [helper.make_node("Softmax", ["x"], ["y"])], [value("x", (2, 3))], [value("y", (2, 3))]
    )
    with pytest.raises(ShaderError, match=f"kernel softmax .*has {words}"):
        vklab.load(proto, device_index)


def test_specialization_constants_that_do_not_exist():
    from vklab.shader import compiler
    from vklab.types import Dispatch

    shader = compiler.compile_variant(*stock_variant("softmax"))
    wrong = Dispatch("softmax", (), (), (1, 1, 1), constants=(("COLOUR", 3),))
    with pytest.raises(ShaderError, match=r"has specialization constants \['WORKGROUP'\].*COLOUR"):
        kernels.specialize(shader.reflection, wrong)


def test_weights_that_cannot_be_uploaded(handles, device_index, monkeypatch):
    def fail(*arguments):
        raise OutOfMemoryError("vkAllocateMemory", "VK_ERROR_OUT_OF_HOST_MEMORY", "staging")

    monkeypatch.setattr(upload, "upload", fail)
    with pytest.raises(OutOfMemoryError, match="staging"):
        vklab.load(gemm(), device_index)
