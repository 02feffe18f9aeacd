"""Tensors of a binding: views of its memory, imports of the caller's, inputs of other sessions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs.small_models import model, random_array, relu, value
from support.graphs.state_models import ROWS, WIDTH, cell, step_inputs
from vklab import settings
from vklab.errors import ModelError, VklabError

X = np.float32([[1, -2, 3]])
node = helper.make_node


def test_tensors_are_views_of_the_memory(device):
    torch = pytest.importorskip("torch")
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
            np.array(y, copy=True), y.numpy()
        )
        torch.from_dlpack(x)[0, 1] = 5
        x[0, 2] = -1
        assert bound.run()["y"].numpy().tolist() == [[1, 5, 0]] == y[:].tolist()
        assert bound.run({"x": torch.tensor(X)})["y"].numpy().tolist() == [[1, 0, 3]]


def test_dtypes_that_dlpack_of_numpy_lacks_are_named(device_index):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = value("x", (2,), TensorProto.BFLOAT16)
    with (
        vklab.load(model([node("Relu", ["x"], ["y"])], [x], ["y"]), device_index) as session,
        session.bind(np.array([1, -1], ml_dtypes.bfloat16)) as bound,
    ):
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
    torch = pytest.importorskip("torch")
    with vklab.load(relu((1, 3)), device_index) as session:
        for given in (Foreign(X), torch.tensor(X), torch.tensor(X).requires_grad_()):
            assert session.run(given)["y"].tolist() == [[1, 0, 3]]
            with session.bind({"x": given}) as bound:
                assert bound.run()["y"].numpy().tolist() == [[1, 0, 3]]
                assert bound.run({"x": given})["y"].numpy().tolist() == [[1, 0, 3]]
        on_gpu = Foreign(X, (2, 1))
        words = r"input x: .* cannot be converted.*; copy it to the host, for example with \.cpu"
        with pytest.raises(ModelError, match=words):
            session.run(on_gpu)
        words = r"input x: float32\[1,3\] is given on a device of type CUDA, number 1; copy it to"
        with pytest.raises(ModelError, match=words):
            session.bind(on_gpu)
        with session.bind(X) as bound, pytest.raises(ModelError, match=r"\.cpu\(\)"):
            bound.run({"x": on_gpu})


def test_inputs_are_read_in_the_callers_memory(device):
    torch = pytest.importorskip("torch")
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
    with (
        vklab.load(relu((1, 3)), device_index) as session,
        session.bind(given, in_place=["x"]) as bound,
    ):
        tensor = bound.inputs["x"]
        assert tensor.origin == "copied" and words in tensor.reason
        assert bound.run({"x": X})["y"].numpy().tolist() == [[1, 0, 3]]
        assert not given.any()
    with (
        settings.settings(DISABLE_SHARED_MEMORY=True),
        vklab.load(relu((1, 3)), device_index) as session,
        session.bind(X, in_place=["x"]) as bound,
    ):
        assert bound.inputs["x"].reason == "VKLAB_DISABLE_SHARED_MEMORY"
        assert bound.run()["y"].numpy().tolist() == [[1, 0, 3]]


# ------------------------------------------------------------------------- tensors of others


@pytest.mark.parametrize("resident", [(), ("y",)])
@pytest.mark.parametrize("hidden", [False, True], ids=["mapped", "hidden"])
def test_a_tensor_is_the_input_of_another_session(device, copies, resident, hidden, request):
    if hidden:
        request.getfixturevalue("unmapped")
    first, second = relu((2, 3)), model([node("Neg", ["y"], ["z"])], [value("y", (2, 3))], ["z"])
    with (
        vklab.load(first, device) as one,
        vklab.load(second, device) as two,
        one.bind(random_array((2, 3)), resident=resident) as a,
        two.bind({"y": a.outputs["y"]}) as b,
    ):
        copies.clear()
        for number in range(3):
            x = random_array((2, 3), number)
            a.run({"x": x})
            b.run()
            assert not copies
            np.testing.assert_array_equal(b.outputs["z"].numpy(), -np.maximum(x, 0))
        assert b.inputs["y"].origin == "bound"
        # Both are the same memory: `numpy()` gives a view of it, or else a copy at each call.
        one_array, other = a.outputs["y"].numpy(), b.inputs["y"].numpy()
        np.testing.assert_array_equal(one_array, other)
        shared = one_array.ctypes.data == other.ctypes.data
        assert (a.outputs["y"].is_view, b.inputs["y"].is_view) == (shared, shared)
        assert not (hidden and resident and shared)
        assert len(b._home._programs) == 1


@pytest.mark.parametrize("hidden", [False, True])
def test_a_state_is_the_input_of_another_session(device_index, copies, hidden, request):
    if hidden:
        request.getfixturevalue("unmapped")
    second = model([node("Neg", ["h"], ["z"])], [value("h", (ROWS, WIDTH))], ["z"])
    with (
        settings.settings(DISABLE_DIRECT_IO=hidden),
        vklab.load(cell(), device_index) as one,
        vklab.load(second, device_index) as two,
        one.bind(step_inputs("cell", 0), state={"h": "h2"}) as a,
        two.bind(a.outputs["h2"]) as b,
    ):
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
        for proto, words in (
            (neg((2, 4)), r"input y: float32\[2,4\] is given with shape \(2, 3\)"),
            (
                neg((2, 3), TensorProto.INT32),
                r"y: int32\[2,3\] is given as y: fl.*"
                "the dtypes differ",
            ),
        ):
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
    wide = model(
        [node("Concat", ["h", "x"], ["h2"], axis=1), node("Cast", ["h"], ["i"], to=6)],
        [value("x", (2, 3)), value("h", (2, 3))],
        ["h2", "i"],
    )
    with vklab.load(wide, device_index) as session:
        for states, words in (
            (
                {"h": "h2"},
                r"output h2: float32\[2,6\] cannot be the next run's "
                r"h: float32\[2,3\]; dtype and shape",
            ),
            ({"h": "i"}, r"output i: int32\[2,3\] cannot be"),
        ):
            with pytest.raises(ModelError, match=words):
                session.bind({"x": np.zeros((2, 3), np.float32)}, state=states)
    with vklab.load(cell("rows"), device_index) as session:
        for given, named, words in (
            (x, {"state": {"g": "h2"}}, "the model has no input 'g'; choose from x, h"),
            (x, {"state": {"h": "g"}}, "the model has no output 'g'; choose from y, h2"),
            (x, {"state": {"h": "h2", "x": "h2"}}, "output h2 is given as the next value of two"),
            (x, {"in_place": ["g"]}, "no input 'g'"),
            (x, {"resident": ["g"]}, "no output 'g'"),
            (x, {"state": {"h": "h2"}, "in_place": ["h"]}, "h is a state, and cannot be read in"),
            (x, {}, r"inputs \['h'\] are missing"),
            ({}, {"state": {"h": "h2"}}, "give its first value, because the size of rows"),
            ({"x": x["x"], "h": x["x"][:1]}, {}, "dimension 'rows' is 3 in one input and 1"),
            ({"x": x["x"].astype(float), "h": x["x"]}, {}, "given as float64"),
        ):
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
