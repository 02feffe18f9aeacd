"""Parts of the host and of devices that need not wait for each other run at the same time."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx import helper

import vklab
from support.checks.trace_checks import by_name, require_order
from support.graphs.small_models import model, random_array, value
from support.runs.waits import LIMIT_S
from vklab import settings
from vklab.errors import DeviceLostError, ModelError
from vklab.runtime.host import HostChunk
from vklab.runtime.many import overlap
from vklab.runtime.program import Program

SHAPE = (64, 64)


def branches(op_type="Sigmoid"):
    """Return y = f(x) @ w + relu(x) @ w, of which f is kept on the host."""
    nodes = [
        helper.make_node(op_type, ["x"], ["h"], "slow"),
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w"], ["v"], "product"),
        helper.make_node("MatMul", ["h", "w"], ["g"], "behind"),
        helper.make_node("Add", ["g", "v"], ["y"], "join"),
    ]
    return model(nodes, [value("x", ("n", 64))], ["y"], {"w": random_array(SHAPE)})


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Have parts overlap on devices that are CPUs too."""
    monkeypatch.setattr(overlap, "pays", lambda devices: True)


@pytest.fixture
def session(device):
    with settings.settings(HOST="slow"), vklab.load(branches(), device) as loaded:
        yield loaded


@pytest.fixture
def meeting(monkeypatch):
    """Have the host's part and a device's wait for each other; return the threads that met."""
    gate, met = threading.Barrier(2), []

    def meets(kind):
        run = kind.run

        def waits(self, values):
            if len(met) < 2:
                met.append(threading.current_thread().name)
                gate.wait(LIMIT_S)
            return run(self, values)

        monkeypatch.setattr(kind, "run", waits)

    def arm():
        meets(HostChunk)
        meets(Program)
        return met

    return arm


def test_a_host_part_and_a_device_run_at_the_same_time(session, meeting):
    x = random_array(SHAPE)
    one = session.run(x)["y"]  # in turn: the path is found
    assert [part.kind for part in session.plan.chunks] == ["vulkan", "host", "vulkan"]
    met = meeting()
    np.testing.assert_array_equal(session.run(x)["y"], one)  # each waits for the other
    assert len(set(met)) == 2
    np.testing.assert_allclose(one, session.reference({"x": x})["y"], atol=1e-4)
    for rows in (5, 64, 7, 5):
        some = random_array((rows, 64), rows)
        for _ in range(2):
            found = session.run(some)["y"]
            np.testing.assert_allclose(found, session.reference({"x": some})["y"], atol=1e-4)


def test_a_trace_shows_the_overlap(session, monkeypatch):
    x = random_array(SHAPE)
    one = session.run(x)["y"]
    with settings.settings(DISABLE_OVERLAP=True):
        in_turn = by_name(session.trace(x, repeats=2))
    session.run(x)
    traces = [session.trace(x, repeats=2), session.trace(x, frames=4, in_flight=2)]
    for trace in traces:
        require_order(trace, 100_000)
        assert {span.run for span in trace.spans} == set(range(2 if trace is traces[0] else 4))
        for run in range(2):
            found = by_name(trace, run)
            assert found.keys() == in_turn.keys() and len(found) > 12
            ends = {name for _, name in found["copy in 2"].after}
            assert ends == {"host 1", "copy out 0"} and not found["host 1"].after[run:]
    # What begins a run begins behind the end of the one before; in turn, only the first does.
    assert by_name(traces[0], 1)["host 1"].after == ((0, "copy out 2"),)
    assert in_turn["host 1"].after == ((0, "copy out 0"),)
    gate, programs = threading.Barrier(2), []

    def meets(run, one, *given):
        programs.extend([one] if isinstance(one, Program) else [])
        if isinstance(one, HostChunk) or one is programs[0]:
            gate.wait(LIMIT_S)
        return run(one, *given)

    for kind, name in ((HostChunk, "run"), (Program, "wait")):
        real = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda one, *given, real=real: meets(real, one, *given))
    found = by_name(session.trace(x))
    host, device = found["host 1"], found["wait 0"]
    assert host.start_ns < device.end_ns and device.start_ns < host.end_ns
    monkeypatch.undo()
    np.testing.assert_array_equal(session.run(x)["y"], one)


def test_switched_off_parts_run_in_turn(session, monkeypatch):
    x = random_array(SHAPE)
    one = session.run(x)["y"]
    monkeypatch.setattr(overlap._Pool, "put", lambda *_: pytest.fail("a thread is asked for"))
    with settings.settings(DISABLE_OVERLAP=True):
        np.testing.assert_array_equal(session.run(x)["y"], one)


def test_beside_devices_that_are_cpus_parts_run_in_turn(device_index, monkeypatch):
    monkeypatch.undo()
    calls, real = [], overlap._Pool.put
    monkeypatch.setattr(overlap._Pool, "put", lambda *given: calls.append(0) or real(*given))
    x = random_array(SHAPE)
    with settings.settings(HOST="slow"), vklab.load(branches(), device_index) as session:
        one = session.run(x)["y"]
        np.testing.assert_array_equal(session.run(x)["y"], one)
        assert bool(calls) == (not session.device.is_cpu)


def test_a_path_without_branches_takes_no_thread(device_index, monkeypatch):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "a"),
        helper.make_node("Sigmoid", ["a"], ["b"], "slow"),
        helper.make_node("MatMul", ["b", "w"], ["y"], "c"),
    ]
    proto = model(nodes, [value("x", SHAPE)], ["y"], {"w": random_array(SHAPE)})
    monkeypatch.setattr(overlap._Pool, "put", lambda *_: pytest.fail("a thread is asked for"))
    with settings.settings(HOST="slow"), vklab.load(proto, device_index) as session:
        for _ in range(3):
            session.run(random_array(SHAPE))


def test_a_failure_on_either_side_is_named_and_the_other_comes_home(session, monkeypatch):
    x = random_array(SHAPE)
    one = session.run(x)["y"]
    for kind, error, name in (
        (HostChunk, ModelError("the host fails"), "host chunk of 1 nodes from 'slow' to 'slow'"),
        (Program, DeviceLostError("vkQueueSubmit", "VK_ERROR_DEVICE_LOST"), "vulkan chunk"),
    ):
        other = Program if kind is HostChunk else HostChunk
        begun, ended, real = threading.Event(), [], other.run

        def fails(self, values, error=error, begun=begun):
            assert begun.wait(LIMIT_S)
            raise error

        def goes_on(self, values, begun=begun, ended=ended, real=real):
            begun.set()
            made = real(self, values)
            ended.append(made)
            return made

        with monkeypatch.context() as patch:
            patch.setattr(kind, "run", fails)
            patch.setattr(other, "run", goes_on)
            with pytest.raises(type(error)) as caught:
                session.run(x)
        assert len(ended) == 1  # drained, and nothing was started behind the failure
        said = " ".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        assert f"in {name}" in said, said
        np.testing.assert_array_equal(session.run(x)["y"], one)


def test_settings_hold_on_every_thread(session, monkeypatch):
    x, seen = random_array(SHAPE), []
    session.run(x)
    for kind in (HostChunk, Program):

        def notes(self, values, run=kind.run):
            seen.append(settings.get("TIMEOUT"))
            return run(self, values)

        monkeypatch.setattr(kind, "run", notes)
    with settings.settings(TIMEOUT=7.5):
        session.run(x)
    assert seen == [7.5] * 3


def test_sizes_that_depend_on_data_are_found_by_each_run(device_index):
    nodes = [
        helper.make_node("NonZero", ["x"], ["z"], "slow"),
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Transpose", ["z"], ["t"], "turn"),
        helper.make_node("GatherND", ["r", "t"], ["y"], "take"),
    ]
    proto = model(nodes, [value("x", (9, 7))], ["y", "r"])
    with settings.settings(HOST="slow"), vklab.load(proto, device_index) as session:
        for seed in (0, 0, 1, 2, 2, 0):
            x = random_array((9, 7), seed) * (random_array((9, 7), seed + 9) > 0)
            found = session.run(x)
            np.testing.assert_array_equal(found["y"], np.maximum(x, 0)[np.nonzero(x)])
            np.testing.assert_array_equal(found["r"], np.maximum(x, 0))


def test_frames_in_flight_overlap_too(session):
    x = [random_array(SHAPE, seed) for seed in range(8)]
    want = [session.run(each)["y"] for each in x]
    for found, expected in zip(session.map(x * 3, in_flight=3), want * 3, strict=True):
        np.testing.assert_array_equal(found["y"], expected)


def test_a_part_that_was_dropped_is_made_again(session):
    with settings.settings(KEPT_PLANS=1):
        for rows in (3, 3, 4, 4, 3, 3):
            x = random_array((rows, 64), rows)
            np.testing.assert_allclose(
                session.run(x)["y"], session.reference({"x": x})["y"], atol=1e-4
            )
