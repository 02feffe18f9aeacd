"""Bindings: values that stay on the device, states that are swapped, tensors that others read."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import model, random_array, relu, value
from state_models import ROWS, STATES, WIDTH, cell, step_inputs, zero_states

import vklab
from vklab import settings
from vklab.errors import CheckError, ModelError, TimeoutError, VklabError
from vklab.runtime import upload
from vklab.runtime.io_binding import IOBinding
from vklab.runtime.many import device_copies
from vklab.runtime.program import Program
from vklab.vulkan.memory import Buffer

STEPS = 20
X = np.float32([[1, -2, 3]])
node = helper.make_node


@pytest.fixture
def copies(monkeypatch):
    """Return a list that notes every copy between host and device memory."""
    noted: list[str] = []

    def note(owner, name):
        real = getattr(owner, name)

        def noting(*given, **named):
            noted.append(name)
            return real(*given, **named)

        monkeypatch.setattr(owner, name, noting)

    note(IOBinding, "copy_in")
    note(IOBinding, "copy_out")
    note(upload, "upload")
    note(device_copies, "download")
    return noted


@pytest.fixture
def unmapped(monkeypatch):
    """Hide device memory from the host, as a GPU without resizable BAR does."""
    real_init, real_mapped = Buffer.__init__, Buffer.mapped.fget

    def init(buffer, allocator, size_bytes, kind="device"):
        buffer.is_hidden = kind == "device"
        real_init(buffer, allocator, size_bytes, kind)

    def mapped(buffer):
        return None if buffer.is_hidden else real_mapped(buffer)

    monkeypatch.setattr(Buffer, "__init__", init)
    monkeypatch.setattr(Buffer, "mapped", property(mapped))


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
    with settings.settings(DISABLE_DIRECT_IO=not direct), \
            vklab.load(build(), device_index) as session, \
            session.bind(step_inputs(name, 0), state=states) as bound:  # fmt: skip
        copies.clear()
        for number in range(3):
            bound.run(step_inputs(name, number))
        assert not copies
        staged = {copy.name for program in bound._home._programs.values()
                  for copy in program.chunk.copies}  # fmt: skip
        assert not staged & {*states, *states.values()}
        assert bool(staged) is not direct
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


def test_a_state_may_be_a_view_of_another_output_or_of_an_input(device):
    nodes = [node("Add", ["a", "x"], ["y"]), node("Reshape", ["y", "shape"], ["a2"]),
             node("Identity", ["b"], ["c2"]), node("Mul", ["c", "x"], ["b2"])]  # fmt: skip
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
    with vklab.load(cell(), device_index) as session, \
            session.bind(step_inputs("cell", 0), state={"h": "h2"}) as bound:  # fmt: skip
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
    with vklab.load(cell(), device_index) as session, settings.settings(CHECK="outputs"), \
            session.bind(step_inputs("cell", 0), state={"h": "h2"}) as bound:  # fmt: skip
        bound.run(step_inputs("cell", 1))
        bound.run(step_inputs("cell", 2))
        real = bound._home.run

        def wrong():
            real()
            bound.outputs["h2"][...] = 5

        monkeypatch.setattr(bound._home, "run", wrong)
        with pytest.raises(CheckError, match="h2"):
            bound.run()


# ------------------------------------------------------------------------------------- tensors


def test_tensors_are_views_of_the_memory(device):
    import torch

    with vklab.load(relu((1, 3)), device) as session, session.bind(X) as bound:
        x, y = bound.inputs["x"], bound.outputs["y"]
        bound.run()
        assert (x.name, x.dtype, x.shape, x.origin) == ("x", np.float32, (1, 3), "copied")
        assert str(y).startswith("y: float32[1,3] on ") and y.is_view and len(y) == 1
        for array in (np.asarray(y), np.from_dlpack(y), torch.from_dlpack(y).numpy(), y.numpy()):
            assert array.ctypes.data == y.numpy().ctypes.data
            np.testing.assert_array_equal(array, np.maximum(X, 0), strict=True)
        assert y.__dlpack_device__() == (1, 0)
        assert np.array(y, np.float64).dtype == np.float64 and not np.shares_memory(
            np.array(y, copy=True), y.numpy())  # fmt: skip
        torch.from_dlpack(x)[0, 1] = 5
        x[0, 2] = -1
        assert bound.run()["y"].numpy().tolist() == [[1, 5, 0]] == y[:].tolist()
        assert bound.run({"x": torch.tensor(X)})["y"].numpy().tolist() == [[1, 0, 3]]


def test_dtypes_that_dlpack_of_numpy_lacks_are_named(device_index):
    import ml_dtypes

    x = value("x", (2,), TensorProto.BFLOAT16)
    with vklab.load(model([node("Relu", ["x"], ["y"])], [x], ["y"]), device_index) as session, \
            session.bind(np.array([1, -1], ml_dtypes.bfloat16)) as bound:  # fmt: skip
        assert bound.run()["y"].numpy().tolist() == [1, 0]
        with pytest.raises(BufferError, match="no bfloat16; view numpy\\(\\) as np.uint16"):
            np.from_dlpack(bound.outputs["y"])


class Foreign:
    """A tensor of a library that NumPy knows by DLPack only."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        if self.device[0] != 1:
            raise BufferError("Unsupported device in DLTensor.")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_tensors_with_dlpack_are_inputs(device_index):
    import torch

    with vklab.load(relu((1, 3)), device_index) as session:
        for given in (Foreign(X), torch.tensor(X), torch.tensor(X).requires_grad_()):
            assert session.run(given)["y"].tolist() == [[1, 0, 3]]
            with session.bind({"x": given}) as bound:
                assert bound.run()["y"].numpy().tolist() == [[1, 0, 3]]
                assert bound.run({"x": given})["y"].numpy().tolist() == [[1, 0, 3]]
        on_gpu = Foreign(X, (2, 1))
        with pytest.raises(ModelError, match="input x: .* cannot be converted"):
            session.run(on_gpu)
        words = r"input x: float32\[1,3\] is given on a device of type CUDA, number 1; copy it to"
        with pytest.raises(ModelError, match=words):
            session.bind(on_gpu)
        with session.bind(X) as bound, pytest.raises(ModelError, match=r"\.cpu\(\)"):
            bound.run({"x": on_gpu})


def test_inputs_are_read_in_the_callers_memory(device):
    import torch

    whole = np.zeros((3, 1 << 14), np.float32)
    whole[1] = random_array((1 << 14,))
    x = whole[1:2]
    with vklab.load(relu((1, 1 << 14)), device) as session:
        for given in (x, torch.from_numpy(x)):
            with session.bind({"x": given}, in_place=["x"]) as bound:
                tensor = bound.inputs["x"]
                if tensor.origin != "imported":
                    assert "VK_EXT_external_memory_host" in tensor.reason or "read" in tensor.reason
                    pytest.skip(f"the device reads no memory of the process: {tensor.reason}")
                assert tensor.numpy().ctypes.data == x.ctypes.data and not tensor.reason
                np.testing.assert_array_equal(bound.run()["y"].numpy(), np.maximum(x, 0))
                x[...] = random_array(x.shape, 1)
                np.testing.assert_array_equal(bound.run()["y"].numpy(), np.maximum(x, 0))


def misaligned():
    """Return zeros that begin one byte after a multiple of 64."""
    space = np.zeros(128, np.uint8)
    return space[(1 - space.ctypes.data) % 64 :][:12].view(np.float32)[None]


@pytest.mark.parametrize(("given", "words"), [
    (np.zeros((1, 6), np.float32)[:, ::2], "not contiguous"),
    (np.frombuffer(bytes(12), np.float32)[None], "read-only"),
    (misaligned(), "cannot read address 0x"),
])  # fmt: skip
def test_inputs_that_cannot_be_imported_are_copied_with_a_reason(device_index, given, words):
    with vklab.load(relu((1, 3)), device_index) as session, \
            session.bind(given, in_place=["x"]) as bound:  # fmt: skip
        tensor = bound.inputs["x"]
        assert tensor.origin == "copied" and words in tensor.reason
        assert bound.run({"x": X})["y"].numpy().tolist() == [[1, 0, 3]]
        assert not given.any()
    with settings.settings(DISABLE_SHARED_MEMORY=True), \
            vklab.load(relu((1, 3)), device_index) as session, \
            session.bind(X, in_place=["x"]) as bound:  # fmt: skip
        assert bound.inputs["x"].reason == "VKLAB_DISABLE_SHARED_MEMORY"
        assert bound.run()["y"].numpy().tolist() == [[1, 0, 3]]


# ------------------------------------------------------------------------- tensors of others


@pytest.mark.parametrize("resident", [(), ("y",)])
def test_a_tensor_is_the_input_of_another_session(device, copies, resident):
    first, second = relu((2, 3)), model([node("Neg", ["y"], ["z"])], [value("y", (2, 3))], ["z"])
    with vklab.load(first, device) as one, vklab.load(second, device) as two, \
            one.bind(random_array((2, 3)), resident=resident) as a, \
            two.bind({"y": a.outputs["y"]}) as b:  # fmt: skip
        copies.clear()
        for number in range(3):
            x = random_array((2, 3), number)
            a.run({"x": x})
            b.run()
            assert not copies
            np.testing.assert_array_equal(b.outputs["z"].numpy(), -np.maximum(x, 0))
        assert b.inputs["y"].origin == "bound"
        assert b.inputs["y"].numpy().ctypes.data == a.outputs["y"].numpy().ctypes.data
        assert len(b._home._programs) == 1


@pytest.mark.parametrize("hidden", [False, True])
def test_a_state_is_the_input_of_another_session(device_index, copies, hidden, request):
    if hidden:
        request.getfixturevalue("unmapped")
    second = model([node("Neg", ["h"], ["z"])], [value("h", (ROWS, WIDTH))], ["z"])
    with settings.settings(DISABLE_DIRECT_IO=hidden), vklab.load(cell(), device_index) as one, \
            vklab.load(second, device_index) as two, \
            one.bind(step_inputs("cell", 0), state={"h": "h2"}) as a, \
            two.bind(a.outputs["h2"]) as b:  # fmt: skip
        copies.clear()
        for number in range(5):
            h2 = a.run(step_inputs("cell", number))["h2"]
            z = b.run()["z"]
            assert not copies
            np.testing.assert_array_equal(z.numpy(), -h2.numpy())
            copies.clear()


def test_tensors_that_cannot_be_inputs_say_why(device_index, monkeypatch):
    def neg(shape, kind=TensorProto.FLOAT):
        return model([node("Neg", ["y"], ["z"])], [value("y", shape, kind)], ["z"])

    with vklab.load(relu((2, 3)), device_index) as session:
        a = session.bind(random_array((2, 3)))
        for proto, words in ((neg((2, 4)), r"input y: float32\[2,4\] is given with shape \(2, 3\)"),
                             (neg((2, 3), TensorProto.INT32), r"y: int32\[2,3\] is given as y: fl.*"
                                                              "the dtypes differ")):  # fmt: skip
            with vklab.load(proto, device_index) as two, pytest.raises(ModelError, match=words):
                two.bind(a.outputs["y"])
        with vklab.load(neg((2, 3)), device_index) as two:
            b = two.bind(a.outputs["y"])
            with monkeypatch.context() as patch:
                patch.setattr(a._home, "opened", object.__new__(type(a._home.opened)))
                a._home.opened.info = session.device
                with pytest.raises(ModelError, match=r"this session is on .*: pass tensor.numpy"):
                    two.bind(a.outputs["y"])
            a.close()
            for use in (b.run, lambda: two.bind(a.outputs["y"]), a.run, a.outputs["y"].numpy):
                with pytest.raises(VklabError, match="this binding is closed"):
                    use()
            b.close()


# -------------------------------------------------------------------------------------- errors


def test_bindings_that_do_not_fit_say_why(device_index):
    x = step_inputs("cell", 0)
    wide = model([node("Concat", ["h", "x"], ["h2"], axis=1), node("Cast", ["h"], ["i"], to=6)],
                 [value("x", (2, 3)), value("h", (2, 3))], ["h2", "i"])  # fmt: skip
    with vklab.load(wide, device_index) as session:
        for states, words in (({"h": "h2"}, r"output h2: float32\[2,6\] cannot be the next run's "
                               r"h: float32\[2,3\]; dtype and shape"),
                              ({"h": "i"}, r"output i: int32\[2,3\] cannot be")):  # fmt: skip
            with pytest.raises(ModelError, match=words):
                session.bind({"x": np.zeros((2, 3), np.float32)}, state=states)
    with vklab.load(cell("rows"), device_index) as session:
        for given, named, words in (
            (x, {"state": {"g": "h2"}}, "the model has no input 'g'; choose from x, h"),
            (x, {"state": {"h": "g"}}, "the model has no output 'g'; choose from y, h2"),
            (x, {"in_place": ["g"]}, "no input 'g'"),
            (x, {"resident": ["g"]}, "no output 'g'"),
            (x, {"state": {"h": "h2"}, "in_place": ["h"]}, "h is a state, and cannot be read in"),
            (x, {}, r"inputs \['h'\] are missing"),
            ({}, {"state": {"h": "h2"}}, "give its first value, because the size of rows"),
            ({"x": x["x"], "h": x["x"][:1]}, {}, "dimension 'rows' is 3 in one input and 1"),
            ({"x": x["x"].astype(float), "h": x["x"]}, {}, "given as float64"),
        ):  # fmt: skip
            with pytest.raises(ModelError, match=words):
                session.bind(given, **named)
        with pytest.raises(ModelError, match="3 inputs are given"):
            session.bind(1, 2, 3)
        with session.bind({**x, "h": x["x"]}) as bound:
            with pytest.raises(VklabError, match="output y has no value before the first run"):
                bound.outputs["y"].numpy()
            with pytest.raises(ModelError, match="no input 'g'; choose from x, h"):
                bound.run({"g": 0})
            with pytest.raises(ModelError, match="x: .* is written with float64; convert"):
                bound.run({"x": np.zeros((ROWS, WIDTH))})
            with pytest.raises(ModelError, match="x: .* cannot be written: could not broadcast"):
                bound.inputs["x"][...] = x["x"][:2]
            with pytest.raises(KeyError, match="'g' is not bound; choose from y, h2"):
                bound.outputs["g"]
