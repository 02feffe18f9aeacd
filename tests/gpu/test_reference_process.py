"""The process of references: what ends, hangs or fills it is an error, and the next check works."""

from __future__ import annotations

import os
import platform
import signal
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs.small_models import model, one_node, relu, value
from support.runs import child
from vklab import settings
from vklab.errors import CheckError, ModelError
from vklab.runtime.on_cpu import reference_process

# Only these processors raise a signal; ONNX Runtime divides 8 and 16 bits in 32.
IS_X86 = os.name == "posix" and platform.machine() in ("x86_64", "i686")
DTYPES = ("int8", "int16", "int32", "int64")


def operands(dtype):
    """Return the least integer and another one, and divisors of which the first is -1."""
    return np.array([np.iinfo(dtype).min, 5], dtype), np.array([-1, 3], dtype)


def compared(session, fed, way):
    """Compare in one of the three ways; return whether there was a reference."""
    try:
        if way == "setting":
            with settings.settings(CHECK="outputs"):
                session.run(fed)
        else:
            assert session.check(fed, nodes=way == "nodes").passed
    except CheckError as error:
        assert "ONNX Runtime crashed with SIGFPE" in str(error)
        return False
    return True


@pytest.mark.parametrize("way", ["outputs", "nodes", "setting"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_the_least_integer_by_minus_one(op_type, dtype, way, device_index):
    a, b = operands(dtype)
    proto, fed = one_node(op_type, [a, b], opset=14)
    with vklab.load(proto, device_index) as session:
        assert session.run(fed)["y0"].tolist() == ([a[0], 1] if op_type == "Div" else [0, 2])
        assert compared(session, fed, way) == (dtype in DTYPES[:2] or not IS_X86)
        assert compared(session, {**fed, "x1": np.array([2, 3], dtype)}, way)


@pytest.mark.skipif(not IS_X86, reason="other processors return a number")
def test_a_crash_tells_of_its_inputs_and_the_next_check_works(device_index):
    proto, fed = one_node("Div", [*operands("int64")], opset=14)
    with vklab.load(proto, device_index) as session, vklab.load(relu((3,)), device_index) as other:
        x = np.array([-1, 0, 2], np.float32)
        assert other.check(x).passed
        with pytest.raises(
            CheckError,
            match=r"without a check.* crashed with SIGFPE on x0: int64"
            r"\[2\] from -9223372036854775808 to 5, x1: int64\[2\] from -1 to 3",
        ):
            session.check(fed)
        assert other.check(x).passed and session.check({**fed, "x1": fed["x1"] + 5}).passed


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_a_division_in_a_body(device_index):
    a, b = operands("int32")
    kind = TensorProto.INT32
    branch = [
        helper.make_graph(
            [helper.make_node("Div", ["a", "b"], [name])], name, [], [value(name, [2], kind)]
        )
        for name in ("p", "q")
    ]
    node = helper.make_node("If", ["k"], ["y"], then_branch=branch[0], else_branch=branch[1])
    inputs = [value("k", [], TensorProto.BOOL), value("a", [2], kind), value("b", [2], kind)]
    fed = {"k": np.array(True), "a": a, "b": b}
    with vklab.load(model([node], inputs, [value("y", [2], kind)]), device_index) as session:
        assert session.run(fed)["y"].tolist() == [a[0], 1]
        assert compared(session, fed, "outputs") == (not IS_X86)
        assert compared(session, {**fed, "b": b * b}, "nodes")
    with (
        settings.settings(HOST="*"),
        vklab.load(model([node], inputs, [value("y", [2], kind)]), device_index) as session,
    ):
        assert session.run(fed)["y"].tolist() == [a[0], 1]


def endless():
    """Return a Loop without an end."""
    flag, number = TensorProto.BOOL, TensorProto.INT64
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["go"]), helper.make_node("Neg", ["s"], ["t"])],
        "body",
        [value("i", [], number), value("c", [], flag), value("s", [2])],
        [value("go", [], flag), value("t", [2])],
    )
    node = helper.make_node("Loop", ["n", "k", "x"], ["y"], body=body)
    inputs = [value("n", [], number), value("k", [], flag), value("x", [2])]
    fed = {"n": np.array(2**62), "k": np.array(True), "x": np.zeros(2, np.float32)}
    return model([node], inputs, [value("y", [2])]), fed


def test_a_hang_ends_at_the_limit(device_index):
    proto, fed = endless()
    with vklab.load(proto, device_index) as session:
        limit = settings.settings(REFERENCE_TIMEOUT=0.3)
        with limit, pytest.raises(CheckError, match=r"REFERENCE_TIMEOUT sets.*in 0\.3 s and was"):
            session.reference(fed)
        assert not session.reference({**fed, "n": np.array(4)})["y"].any()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_memory_ends_at_the_limit(device_index):
    proto, fed = one_node("Expand", [np.ones(1, np.float32), np.array([10**9])])
    with vklab.load(proto, device_index) as session:
        limit = settings.settings(REFERENCE_MEMORY=0.02)
        with limit, pytest.raises(CheckError, match="refuses these inputs.*llocat"):
            session.reference(fed)
        assert session.reference({**fed, "x1": np.array([3])})["y0"].tolist() == [1, 1, 1]


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_operands_that_onnx_runtime_refuses_do_not_hang_the_host(device_index):
    far = np.array([2**40, 0, 0])
    proto, fed = one_node("GatherElements", [np.ones(3, np.float32), far])
    limits = settings.settings(HOST="*", REFERENCE_TIMEOUT=0.5)
    with limits, vklab.load(proto, device_index) as session:
        with pytest.raises(ModelError, match=r"Out of range(.|\n)*onnx.reference: gave no answer"):
            session.run(fed)
        assert session.run({**fed, "x1": far % 3})["y0"].tolist() == [1, 1, 1]


@pytest.mark.skipif(os.name != "posix", reason="a process is killed by a signal")
def test_a_killed_process_is_replaced_and_models_are_freed(device_index):
    x = np.array([-1, 2], np.float32)
    process = reference_process._process
    with vklab.load(relu((2,)), device_index) as session:
        assert session.check(x).passed
        first = process._worker._process
        loaded = len(process._loaded)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert session.check(x).passed and process._worker._process.pid != first.pid
    with vklab.load(relu((2,)), device_index) as session:
        assert session.check(x).passed and session.check(x, nodes=True).passed
        assert len(process._loaded) <= loaded
        number = max(process._loaded)
    assert number not in process._loaded


FORK = """
import os, warnings, numpy as np, vklab
from support.graphs.small_models import relu
from vklab.runtime.on_cpu import reference_process
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
device, x = int(__import__("sys").argv[1]), np.array([-1, 2], np.float32)
def pid():
    return reference_process._process._worker._process.pid
with vklab.load(relu((2,)), device) as session:
    assert session.check(x).passed
    print(pid(), flush=True)
    forked = os.fork()
    if not forked:
        reference = vklab.runtime.observe.reference.SessionReference(
            session.model, session.graph, False)
        assert reference.compare({"y": np.array([0, 2], np.float32)}, {"x": x}).passed
        print(pid(), flush=True)
        os._exit(0)
    assert os.waitpid(forked, 0)[1] == 0
    before = pid()
    assert session.check(x).passed and pid() == before
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_its_own_and_none_outlives_its_parent(device_index):
    ours, forked = map(int, child.python(FORK, device_index).split())
    assert ours != forked
    for process in (ours, forked):
        child.wait_until_gone(process)
