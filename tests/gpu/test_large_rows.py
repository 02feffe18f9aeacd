"""Kernels of GPUs for memory-bound work: rows in registers, loads ahead, tiles, wide moves.

A CPU device is taken for a GPU, and the limits from which a kernel is used are lowered.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs.small_models import one_node, random_array
from vklab import settings
from vklab.plan import storage
from vklab.plan.tuning.rows import elements, row_registers
from vklab.types import DeviceInfo


@pytest.fixture(autouse=True)
def as_gpu(monkeypatch):
    """Take a CPU device for a GPU, and small tensors for large ones."""
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    monkeypatch.setattr(elements, "FEWEST_BYTES", 0)
    monkeypatch.setattr(elements, "MANY", 1000)
    monkeypatch.setattr(row_registers, "ACROSS", 64)
    monkeypatch.setattr(row_registers, "SHARING", 5)  # rows, from which on they share workgroups


def run(device, op_type, arrays, constants=(), **attributes):
    """Return the output of one node, and its dispatches."""
    proto, fed = one_node(op_type, arrays, constants, opset=18, **attributes)
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        return session.run(fed)["y0"], session.plan.dispatches


ROWS = [(3, 1), (5, 33), (7, 768), (2, 1031), (1, 8), (2200, 64), (2200, 24), (9, 36),
        pytest.param((2, 16384), marks=pytest.mark.full),
        pytest.param((3, 17000), marks=pytest.mark.full)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_rows_in_registers_with_infinity_and_nan(device, shape, dtype):
    x = random_array(shape).astype(dtype)
    if len(x) > 2:
        x[1, 0], x[2, 0] = np.nan, np.inf
    w, b = (random_array(shape[1:], seed).astype(dtype) for seed in (1, 2))
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        distance = wide - wide.mean(-1, keepdims=True)
        norm = distance / np.sqrt((distance**2).mean(-1, keepdims=True) + 1e-5) * w + b
        powers = np.exp(wide - wide.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 4e-3, "atol": 4e-3}
    y, (dispatch,) = run(device, "LayerNormalization", [x, w, b])
    np.testing.assert_allclose(y, norm, **tolerance)
    for op_type, expected in (("Softmax", weights), ("LogSoftmax", np.log(weights))):
        y, (dispatch,) = run(device, op_type, [x])
        np.testing.assert_allclose(y, expected, **tolerance)
        lanes = dispatch.constant_values
        if dispatch.kernel == "softmax_registers":
            defines = dispatch.define_values
            width = 8 if defines["EIGHTS"] == "1" else 4 if defines["FOURS"] == "1" else 1
            assert shape[1] <= lanes["WORKGROUP"] // lanes["ROWS"] * lanes["EACH"] * width
            assert lanes["ROWS"] == 1 or shape[0] >= 5


# (shape, axis, whether a row stays in registers)
MIDDLE = [((2, 21, 1040), 1, True), ((1, 70, 4099), 1, True), ((70, 40, 240), 1, True),
          ((3, 1, 6000), 1, True), ((24, 20000), 0, True), ((2, 4200, 72), 1, False),
          pytest.param((2, 3001, 67), 1, False, marks=pytest.mark.full)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("shape", "axis", "kept"), MIDDLE)
def test_softmax_along_an_axis_whose_elements_lie_apart(device, shape, axis, kept, dtype):
    x = (3 * random_array(shape)).astype(dtype)
    rows = np.moveaxis(x, axis, 0).reshape(shape[axis], -1)  # a view or a copy: written back
    rows[-1, 0], rows[-1, 1], rows[:, 2], rows[0, 3] = np.nan, np.inf, -np.inf, -np.inf
    rows[:, 4] = 30000
    x = np.moveaxis(rows.reshape(np.moveaxis(x, axis, 0).shape), 0, axis)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        powers = np.exp(wide - wide.max(axis, keepdims=True))
        weights = powers / powers.sum(axis, keepdims=True)
        expected = {"Softmax": weights, "LogSoftmax": np.log(weights)}
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 4e-3, "atol": 4e-3}
    for op_type, right in expected.items():
        y, (dispatch,) = run(device, op_type, [np.ascontiguousarray(x)], axis=axis)
        assert dispatch.kernel == "softmax_columns" and dispatch.define_values["KEPT"] == str(+kept)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(y, right, **tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize(("shape", "axis"), [((40, 320), 1), ((9, 65), 1), ((2, 21, 9000), 1),
                                             ((1, 9999), 1), ((1031, 70), 0), ((3, 300), 1),
                                             ((0, 64), 1)])  # fmt: skip
def test_largest_elements_are_found_ahead(device, shape, axis, dtype):
    x = np.round(8 * random_array(shape)).astype(dtype)  # with ties: the first one wins
    if dtype != "int32":
        x[..., 3] = np.nan
    for op_type, found in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
        proto, fed = one_node(op_type, [x], axis=axis, keepdims=0, opset=13)
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
        with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
            y, dispatches = session.run(fed)["y0"], session.plan.dispatches
        np.testing.assert_array_equal(y, found(x, axis=axis))
        assert all(each.constant_values["AHEAD"] > 1 for each in dispatches)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((5, 33), 1),
        ((70, 1031), 1),
        ((1031, 70), 0),
        ((3, 400, 50), 1),
        ((1, 9999), 1),
        ((40, 8), 1),
        ((5, 3000, 72), 1),
        ((70, 1024), 1),
        ((0, 64), 1),
    ],
)
def test_reductions_load_ahead(device, shape, axis, dtype):
    x = (8 * random_array(shape)).astype(dtype)
    if dtype != "int32" and x.size:
        rows = np.moveaxis(x, axis, -1).reshape(-1, shape[axis])  # a copy, if axis is not the last
        rows[0, 1:3], rows[1 % len(rows), 4], rows[-1, 5] = (np.inf, -np.inf), np.nan, -np.nan
        moved = np.moveaxis(x, axis, -1).shape
        x = np.ascontiguousarray(np.moveaxis(rows.reshape(moved), -1, axis))
    for op_type, reduced in (("ReduceSum", np.sum), ("ReduceMax", np.max), ("ReduceMin", np.min)):
        y, dispatches = run(device, op_type, [x, np.array([axis])], (1,), keepdims=0)
        assert all(dispatch.constant_values["AHEAD"] > 1 for dispatch in dispatches)
        with np.errstate(invalid="ignore"):
            expected = reduced(x.astype(np.float64), axis=axis)
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
        tolerance = 2e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(y / scale, expected / scale, atol=tolerance)


PERMUTED = [((33, 47), (1, 0)), ((5, 40, 70), (0, 2, 1)), ((3, 40, 9, 64), (0, 2, 3, 1)),
            ((2, 17, 3, 11, 19), (4, 0, 2, 1, 3)), ((130, 1, 66), (2, 1, 0)),
            ((3, 40, 9, 64), (0, 2, 1, 3)), ((7, 64, 4), (1, 0, 2)),
            ((2, 3, 4, 5, 6, 64), (1, 0, 3, 2, 4, 5)), ((9, 5, 7), (2, 1, 0)),
            ((0, 40, 40), (0, 2, 1))]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
@pytest.mark.parametrize(("shape", "order"), PERMUTED, ids=str)
def test_transposes(device, shape, order, dtype):
    x = (50 * random_array(shape)).astype(dtype)
    y, dispatches = run(device, "Transpose", [x], perm=order)
    np.testing.assert_array_equal(y, x.transpose(order))
    wide = order[-1] == len(order) - 1
    if x.size and shape != (9, 5, 7):  # whose sides are too short
        assert dispatches[0].kernel == ("elementwise" if wide else "transpose")
        moved = dispatches[0].define_values.get("A", "")
        assert not wide or moved in ("uint2", "uint4", "uint", "uint16_t")


@pytest.mark.parametrize("start", [8, 3, 1])
def test_slices_move_whole_vectors_where_they_can(device, start):
    x = random_array((40, 64)).astype(np.float16)
    bounds = [np.array([number]) for number in (start, start + 40, 1)]
    y, (dispatch,) = run(device, "Slice", [x, *bounds], (1, 2, 3))
    np.testing.assert_array_equal(y, x[:, start : start + 40])
    assert (dispatch.define_values["A"] == "uint4") == (start == 8)


@pytest.mark.parametrize("count", [1000, 2049, 8192])
def test_several_elements_of_an_invocation(device, count):
    x = random_array((count,))
    y, (dispatch,) = run(device, "Relu", [x])
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    assert dispatch.constant_values["EACH"] == 4
    proto, fed = one_node("Relu", [x.astype(np.float16)], opset=18)
    proto.graph.node.append(helper.make_node("Add", ["y0", "x0"], ["z"]))
    proto.graph.output[0].name = "z"
    with vklab.load(proto, device) as session:
        (dispatch,) = session.plan.dispatches
        z = session.run(fed)["z"]
    is_half = storage.stored_dtype("float16", vklab.devices()[device]) == "float16"
    each = 8 if is_half else 4  # of 16 bytes
    assert (dispatch.kernel, dispatch.constant_values["EACH"]) == ("pointwise", each)
    half = x.astype(np.float16)
    np.testing.assert_array_equal(z, np.maximum(half, 0) + half)


BROADCAST = [((40, 64), (64,), True), ((3, 40, 64), (40, 64), True),
             ((3, 40, 64), (3, 1, 64), True),
             ((40, 64), (40, 1), False), ((40, 63), (63,), False)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("shape", "other", "by_fours"), BROADCAST)
def test_broadcast_operands_are_read_in_fours(device, shape, other, by_fours, dtype):
    x, w = random_array(shape).astype(dtype), random_array(other, 1).astype(dtype)
    y, (dispatch,) = run(device, "Sub", [x, w])
    np.testing.assert_allclose(y, x - w, rtol=1e-6)
    assert (("FOURS", "1") in dispatch.defines) == by_fours


def test_fused_rows_are_read_by_element(device):
    x, w = random_array((6, 64)), random_array((64,), 1)
    proto, fed = one_node("LayerNormalization", [x, w], opset=18)
    proto.graph.node.append(helper.make_node("Relu", ["y0"], ["z"]))
    proto.graph.output[0].name = "z"
    with vklab.load(proto, device) as session:
        (dispatch,) = session.plan.dispatches
        z = session.run(fed)["z"]
    assert dispatch.kernel == "normalize_registers" and ("FOURS", "0") in dispatch.defines
    distance = x - x.mean(-1, keepdims=True)
    norm = distance / np.sqrt((distance**2).mean(-1, keepdims=True) + 1e-5) * w
    np.testing.assert_allclose(z, np.maximum(norm, 0), rtol=1e-4, atol=1e-5)
