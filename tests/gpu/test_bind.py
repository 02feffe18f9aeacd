"""Bindings: values that stay on the device, states that are swapped, tensors that others read."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from support.graphs.state_models import ROWS, STATES, WIDTH, cell, step_inputs, zero_states
from support.runs.child import LIMIT_S
from vklab import settings
from vklab.errors import CheckError, TimeoutError
from vklab.runtime.program import Program

STEPS = 20
X = np.float32([[1, -2, 3]])
node = helper.make_node


def require_steps(session, name, states, steps=STEPS):
    """Compare steps of a binding with stateless runs, bit for bit."""
    carried = zero_states(session, states)
    with session.bind(step_inputs(name, 0), state=states) as bound:
        for number in range(steps):
            given = step_inputs(name, number)
            expected = session.run({**given, **carried})
            carried = {past: expected[present] for past, present in states.items()}
            outputs = bound.run(given)
            assert [*outputs] == [*expected]
            for key, tensor in outputs.items():
                np.testing.assert_array_equal(tensor.numpy(), expected[key], strict=True)
            for past in states:
                np.testing.assert_array_equal(bound.inputs[past].numpy(), carried[past])
        return bound.reason


# ------------------------------------------------------------------------------------- states


@pytest.mark.parametrize("name", STATES)
def test_a_state_carried_on_the_device_equals_runs_without_it(device, name):
    build, states = STATES[name]
    with vklab.load(build(), device) as session:
        assert require_steps(session, name, states) == ""


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("name", STATES)
def test_no_byte_of_a_state_is_copied(device_index, name, direct, copies):
    build, states = STATES[name]
    with (
        settings.settings(DISABLE_DIRECT_IO=not direct),
        vklab.load(build(), device_index) as session,
        session.bind(step_inputs(name, 0), state=states) as bound,
    ):
        copies.clear()
        for number in range(3):
            bound.run(step_inputs(name, number))
        assert not copies
        staged = {
            copy.name for program in bound._home._programs.values() for copy in program.chunk.copies
        }
        assert not staged & {*states, *states.values()}
        assert bool(staged) is not direct
        if not all(bound.inputs[past].is_view for past in states):
            return  # the device has memory that the host cannot map: there is no address to compare
        seen = [bound.outputs[present].numpy() for present in states.values()]
        addresses = {bound.inputs[past].numpy().ctypes.data for past in states}
        assert addresses == {array.ctypes.data for array in seen}
        bound.run()
        assert not addresses & {bound.inputs[past].numpy().ctypes.data for past in states}
        assert not copies


@pytest.mark.parametrize("name", STATES)
def test_states_in_memory_that_the_host_cannot_map(device_index, name, unmapped, copies):
    build, states = STATES[name]
    with settings.settings(DISABLE_DIRECT_IO=True), vklab.load(build(), device_index) as session:
        assert require_steps(session, name, states, 5) == ""
        with session.bind(step_inputs(name, 0), state=states) as bound:
            copies.clear()
            bound.run(step_inputs(name, 1))
            bound.run(step_inputs(name, 2))
            assert not copies
            past, present = next(iter(states.items()))
            assert not bound.outputs[present].is_view and bound.outputs["y"].is_view
            kept = bound.outputs[present].numpy()
            bound.inputs[past][..., :1] = 7  # read, changed, written back
            kept[..., :1] = 7
            np.testing.assert_array_equal(bound.inputs[past].numpy(), kept)
            np.testing.assert_array_equal(np.from_dlpack(bound.inputs[past]), kept)
            for read in (np.array, np.from_dlpack):
                with pytest.raises((ValueError, BufferError), match="copy=False forbids a copy"):
                    read(bound.inputs[past], copy=False)


def test_a_state_may_be_a_view_of_another_output_or_of_an_input(device):
    nodes = [
        node("Add", ["a", "x"], ["y"]),
        node("Reshape", ["y", "shape"], ["a2"]),
        node("Identity", ["b"], ["c2"]),
        node("Mul", ["c", "x"], ["b2"]),
    ]
    names = [value(name, (2, 3)) for name in ("x", "a", "b", "c")]
    states = {"a": "a2", "b": "b2", "c": "c2"}
    proto = model(nodes, names, ["b2", "y", "a2", "c2"], {"shape": np.int64([2, 3])})
    with vklab.load(proto, device) as session:
        values = {n: random_array((2, 3), i) for i, n in enumerate("xabc")}
        with session.bind(values, state=states) as bound:
            assert not bound.reason
            for number in range(5):
                values["x"] = random_array((2, 3), 10 + number)
                expected = session.run(values)
                outputs = bound.run({"x": values["x"]})
                for key in expected:
                    np.testing.assert_array_equal(outputs[key].numpy(), expected[key])
                values |= {past: expected[present] for past, present in states.items()}


def test_two_states_of_one_value_start_apart(device_index):
    nodes = [node("Add", ["a", "b"], ["a2"]), node("Reshape", ["a2", "shape"], ["b2"])]
    names, states = [value("a", (2, 3)), value("b", (2, 3))], {"a": "a2", "b": "b2"}
    proto = model(nodes, names, ["a2", "b2"], {"shape": np.int64([2, 3])})
    with vklab.load(proto, device_index) as session:
        values = {"a": random_array((2, 3)), "b": random_array((2, 3), 1)}
        with session.bind(values, state=states) as bound:
            assert bound.reason == "the outputs a2 and b2 are one value"
            for _ in range(3):
                expected = session.run(values)
                values = {past: expected[present] for past, present in states.items()}
                outputs = bound.run()
                for key, array in expected.items():
                    np.testing.assert_array_equal(outputs[key].numpy(), array)


def test_an_input_may_be_an_output_and_a_state(device_index):
    proto = model(
        [node("Add", ["x", "h"], ["y"])], [value("x", (3,)), value("h", (3,))], ["x", "y", "h"]
    )
    x, h = random_array((3,)), random_array((3,), 1)
    with vklab.load(proto, device_index) as session:
        for states in ({}, {"h": "y"}, {"h": "h"}, {"h": "x"}):
            with session.bind(x, h, state=states) as bound:
                carried = {"x": x, "h": h}
                for _ in range(3):
                    expected = session.run(carried)
                    carried |= {past: expected[present] for past, present in states.items()}
                    outputs = bound.run()
                    for key, array in expected.items():
                        np.testing.assert_array_equal(outputs[key].numpy(), array, err_msg=key)


def test_a_state_starts_where_the_caller_says_and_can_be_written(device_index):
    h = random_array((ROWS, WIDTH), 5)
    with vklab.load(cell("rows"), device_index) as session:
        x = step_inputs("cell", 1)["x"]
        expected = session.run({"x": x, "h": h})
        with session.bind({"x": x, "h": h}, state={"h": "h2"}) as bound:
            np.testing.assert_array_equal(bound.run()["h2"].numpy(), expected["h2"])
            bound.inputs["h"][...] = h
            np.testing.assert_array_equal(bound.run()["h2"].numpy(), expected["h2"])
            with session.bind({"x": x, "h": bound.outputs["h2"]}, state={"h": "h2"}) as other:
                again = session.run({"x": x, "h": expected["h2"]})
                np.testing.assert_array_equal(other.run()["h2"].numpy(), again["h2"])
                np.testing.assert_array_equal(bound.outputs["h2"].numpy(), expected["h2"])
        with session.bind({"x": x}, state={"h": "h2"}) as bound:  # the rows are those of x
            assert bound.inputs["h"].shape == (ROWS, WIDTH)
            zeros = session.run({"x": x, "h": np.zeros_like(h)})
            np.testing.assert_array_equal(bound.run()["h2"].numpy(), zeros["h2"])


def test_after_a_failed_run_the_states_are_those_before_it(device_index, monkeypatch):
    with (
        vklab.load(cell(), device_index) as session,
        session.bind(step_inputs("cell", 0), state={"h": "h2"}) as bound,
    ):
        bound.run()
        before = bound.inputs["h"].numpy().copy()

        def wait(program):
            raise TimeoutError("vkWaitForFences", "VK_TIMEOUT", "slow")

        with monkeypatch.context() as patch, pytest.raises(TimeoutError):
            patch.setattr(Program, "wait", wait)
            bound.run()
        np.testing.assert_array_equal(bound.inputs["h"].numpy(), before)
        expected = session.run({**step_inputs("cell", 0), "h": before})
        for program in bound._home._programs.values():
            program._pending and program._pending.wait()
        np.testing.assert_array_equal(bound.run()["h2"].numpy(), expected["h2"])


def test_check_compares_the_runs_of_a_binding(device_index, monkeypatch):
    with (
        vklab.load(cell(), device_index) as session,
        settings.settings(CHECK="outputs"),
        session.bind(step_inputs("cell", 0), state={"h": "h2"}) as bound,
    ):
        bound.run(step_inputs("cell", 1))
        bound.run(step_inputs("cell", 2))
        real = bound._home.run

        def wrong():
            real()
            bound.outputs["h2"][...] = 5

        monkeypatch.setattr(bound._home, "run", wrong)
        with pytest.raises(CheckError, match="h2"):
            bound.run()


def test_bindings_of_one_session_run_beside_each_other_and_its_runs(device):
    with vklab.load(cell(), device) as session:
        failures = []

        def steps():
            try:
                require_steps(session, "cell", {"h": "h2"}, 10)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=steps) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert not failures and not any(thread.is_alive() for thread in threads)


SWITCHES = ("DISABLE_REPLAY", "DISABLE_ALIASING", "DISABLE_PUSH_DESCRIPTORS")


@pytest.mark.parametrize("switch", SWITCHES)
def test_switches_hold_for_bindings(device_index, switch):
    build, states = STATES["attention"]
    with settings.settings(**{switch: True}), vklab.load(build(), device_index) as session:
        assert require_steps(session, "attention", states, 4) == ""
