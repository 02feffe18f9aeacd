"""Results that ONNX's text leaves open: docs/coverage.md says what vklab makes of them, and why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vklab
from vklab.apps.cli import conformance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
NAN = float("nan")
STATE = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
COSINES = np.repeat(np.float32([[1], [2], [3], [4]]), 2, axis=1)


def run(device, op_type, inputs, outputs, opset=22, **attributes):
    """Return the outputs of one node; an input of None is left out."""
    given = {f"x{n}": np.asarray(array) for n, array in enumerate(inputs) if array is not None}
    names = [f"x{n}" if array is not None else "" for n, array in enumerate(inputs)]
    node = helper.make_node(op_type, names, [f"y{n}" for n in range(len(outputs))], **attributes)
    infos = [
        helper.make_tensor_value_info(
            "x0", helper.np_dtype_to_tensor_dtype(given["x0"].dtype), given["x0"].shape
        )
    ]
    made = [helper.make_tensor_value_info(f"y{n}", kind, None) for n, kind in enumerate(outputs)]
    constants = [
        numpy_helper.from_array(array, name) for name, array in given.items() if name != "x0"
    ]
    graph = helper.make_graph([node], "g", infos, made, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    with vklab.load(model, device) as session:
        return [session.run({"x0": given["x0"]})[name.name] for name in made]


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_sequence_of_length_0_keeps_its_state(device_index, op_type, gates):
    weights, again = (np.ones((1, 4 * gates, n), np.float32) for n in (3, 4))
    y, last = run(
        device_index,
        op_type,
        [np.ones((2, 1, 3), np.float32), weights, again, None, np.int32([0]), STATE],
        [TensorProto.FLOAT] * 2,
        hidden_size=4,
    )
    assert not y.any() and np.array_equal(last, STATE)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_a_linear_resize_of_integers_rounds_to_the_nearest(device_index, dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    (y,) = run(
        device_index,
        "Resize",
        [np.array([[[[1, 2, 4, 7]]]], dtype), None, np.float32([1, 1, 1, 2])],
        [kind],
        mode="linear",
    )
    assert y.ravel().tolist() == [1, 1, 2, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 1, 1, 4)])
def test_the_maximum_of_a_window_with_nan_is_nan(device_index, shape):
    x = np.float32([1, NAN, 3, 2]).reshape(shape)
    (y,) = run(
        device_index, "MaxPool", [x], [TensorProto.FLOAT], kernel_shape=[1, 2][-len(shape) + 2 :]
    )
    assert np.array_equal(y.ravel(), [NAN, NAN, 3], equal_nan=True)


def test_zeros_have_a_scale(device_index):
    kinds = [TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8]
    y, scale, zero = run(device_index, "DynamicQuantizeLinear", [np.zeros(3, np.float32)], kinds)
    assert not y.any() and not zero.any() and scale == np.float32(1 / 255)


def test_a_negative_float_passes_through_the_signed_integer(device_index):
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        (y,) = run(device_index, "Cast", [np.float32([-1, -1.5, 200])], [kind], to=kind)
        assert y.tolist() == [np.iinfo(dtype).max, np.iinfo(dtype).max, 200]


@pytest.mark.parametrize(("position", "row"), [(-1, 4), (-4, 1), (-9, 1), (5, 4), (100, 4)])
def test_a_position_outside_of_the_cache_takes_the_nearest_row(device_index, position, row):
    inputs = [
        np.ones((1, 1, 1, 4), np.float32),
        COSINES,
        np.zeros_like(COSINES),
        np.int64([[position]]),
    ]
    (y,) = run(device_index, "RotaryEmbedding", inputs, [TensorProto.FLOAT], opset=23)
    assert y.ravel().tolist() == [row] * 4


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_a_window_of_one_value_has_the_first_of_a_longer_one(device_index, name):
    one, two = (
        run(device_index, name, [np.int64(size)], [TensorProto.FLOAT], periodic=0)[0]
        for size in (1, 2)
    )
    assert np.allclose(one, two[:1], atol=1e-7) and np.isfinite(one).all()


def test_the_page_has_the_text_of_the_generator():
    page = PAGE.read_text("utf-8")
    assert all(f"| {' | '.join(row)} |\n" in page for row in conformance.OPEN)
