"""Convolutions beside the plain one against ONNX Runtime: 3-D, float64, transposed, quantized."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import one_node, random_array

SPACES = {
    "3-d": ([(2, 3, 5, 7, 6), (4, 3, 3, 2, 3), (4,)], {"pads": [1, 0, 1, 0, 1, 2]}),
    "3-d-strides": ([(1, 2, 9, 7, 8), (3, 2, 2, 3, 2)], {"strides": [2, 3, 1]}),
    "3-d-dilations": ([(1, 4, 9, 7, 8), (6, 2, 2, 2, 3)], {"dilations": [3, 2, 1], "group": 2}),
    "3-d-depthwise": ([(1, 5, 4, 4, 4), (5, 1, 3, 3, 3)], {"group": 5, "auto_pad": "SAME_UPPER"}),
}


@pytest.mark.parametrize("case", SPACES)
def test_three_axes(device, case):
    shapes, attributes = SPACES[case]
    check_operator("Conv", shapes, device=device, **attributes)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_dtypes(device, dtype):
    shapes = [(1, 3, 7, 5), (4, 3, 3, 3), (4,)]
    inputs = [random_array(shape, i).astype(dtype) for i, shape in enumerate(shapes)]
    for op_type, more in (("Conv", {"pads": [1] * 4}), ("ConvTranspose", {"strides": [2, 1]})):
        inputs[1] = inputs[1].reshape((3, 4, 3, 3) if op_type == "ConvTranspose" else shapes[1])
        proto, fed = one_node(op_type, inputs, **more)
        expected = ReferenceEvaluator(proto).run(None, fed)[0]
        with vklab.load(proto, device) as session:
            np.testing.assert_allclose(session.run(fed)["y0"], expected, rtol=5e-3, atol=2e-2)


TRANSPOSED = {
    "1-d": ([(2, 3, 7), (3, 4, 3), (4,)], {"strides": [2], "pads": [1, 0]}),
    "2-d": ([(1, 3, 5, 7), (3, 2, 3, 4)], {"strides": [2, 3], "output_padding": [1, 2]}),
    "groups": ([(2, 6, 5, 3), (6, 3, 2, 3), (9,)], {"group": 3, "pads": [1, 0, 0, 1]}),
    "depthwise": ([(1, 5, 6, 6), (5, 1, 4, 4)], {"group": 5, "strides": [2, 2], "pads": [1] * 4}),
    "dilations": ([(1, 2, 5, 4), (2, 3, 3, 2)], {"dilations": [2, 3], "strides": [3, 2]}),
    "3-d": ([(1, 2, 3, 4, 5), (2, 3, 2, 3, 2), (3,)], {"strides": [2, 1, 3]}),
    "same-upper": ([(1, 2, 5, 4), (2, 3, 4, 3)], {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    "same-lower": ([(1, 2, 5, 4), (2, 3, 4, 3)], {"strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    "valid": ([(1, 2, 5, 4), (2, 3, 4, 3)], {"strides": [2, 3], "auto_pad": "VALID"}),
    "shape": ([(1, 2, 5, 4), (2, 3, 3, 3)], {"strides": [3, 2], "output_shape": [14, 8]}),
    "smaller-shape": ([(1, 2, 5, 4), (2, 3, 4, 5)], {"strides": [2, 2], "output_shape": [9, 8]}),
    "stride-beyond-kernel": ([(1, 2, 4, 3), (2, 3, 1, 2)], {"strides": [3, 4]}),
}


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose(device, case):
    shapes, attributes = TRANSPOSED[case]
    check_operator("ConvTranspose", shapes, device=device, **attributes)


def integers(shape, dtype, seed=0):
    """Return integers of the dtype's whole range."""
    bounds = np.iinfo(dtype)
    random = np.random.default_rng(seed)
    return random.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


GEOMETRIES = {
    "1-d": ([(1, 3, 11), (4, 3, 3)], {"pads": [1, 2], "strides": [2]}),
    "2-d": ([(2, 4, 7, 5), (6, 2, 3, 2)], {"group": 2, "pads": [1, 0, 2, 1], "dilations": [2, 1]}),
    "3-d": ([(1, 2, 4, 5, 3), (3, 2, 2, 2, 2)], {"auto_pad": "SAME_UPPER"}),
}


def check_exactly(device, op_type, inputs, **attributes):
    """Compare with ONNX's reference implementation, every number."""
    proto, fed = one_node(op_type, inputs, (), 21, **attributes)
    proto.graph.output[0].ClearField("type")
    expected = ReferenceEvaluator(proto).run(None, fed)[0]
    with vklab.load(proto, device) as session:
        made = session.run(fed)["y0"]
    assert made.dtype == expected.dtype
    return made, expected


@pytest.mark.parametrize("dtypes", [(np.uint8, np.uint8), (np.uint8, np.int8)])
@pytest.mark.parametrize("case", GEOMETRIES)
def test_conv_integer(device, case, dtypes):
    (first, second), attributes = GEOMETRIES[case]
    x, w = integers(first, dtypes[0]), integers(second, dtypes[1], 1)
    zero = np.array(3, dtypes[1])
    for more in ([], [np.array(101, dtypes[0])], [np.array(7, dtypes[0]), zero]):
        made, expected = check_exactly(device, "ConvInteger", [x, w, *more], **attributes)
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("case", GEOMETRIES)
def test_qlinear_conv(device, case, dtype):
    (first, second), attributes = GEOMETRIES[case]
    filters = second[0]
    scales = np.linspace(0.01, 0.02, filters, dtype=np.float32)
    zeros = np.arange(filters).astype(dtype)
    if case != "2-d":  # the reference takes scales of filters for images only
        scales, zeros = scales[0], zeros[2:3]
    bias = integers(filters, np.int32, 2) // 2**20
    inputs = [
        integers(first, dtype),
        np.float32(0.03),
        dtype(9),
        integers(second, dtype, 1),
        scales,
        zeros,
        np.float32(0.7),
        dtype(11),
        bias,
    ]
    made, expected = check_exactly(
        device, "QLinearConv", [np.asarray(i) for i in inputs], **attributes
    )
    # The standard's own rounding happens in other steps: a tie may fall to the other side.
    difference = np.abs(made.astype(int) - expected.astype(int))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.01


def test_qlinear_conv_rounds_ties_to_even(device):
    x = np.arange(1, 9, dtype=np.uint8).reshape(1, 1, 8)
    one, zero = np.float32(1), np.uint8(0)
    inputs = [x, one, zero, np.ones((1, 1, 1), np.uint8), one, zero, np.float32(2), zero]
    proto, fed = one_node("QLinearConv", [np.asarray(i) for i in inputs])
    with vklab.load(proto, device) as session:
        np.testing.assert_array_equal(session.run(fed)["y0"].ravel(), [0, 1, 2, 2, 2, 3, 4, 4])


@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv(device, masked):
    shapes = [(2, 4, 6, 5), (6, 2, 3, 2), (2, 24, 3, 5), (6,), (2, 12, 3, 5)]
    inputs = [random_array(shape, i) for i, shape in enumerate(shapes)]
    inputs = inputs if masked else [*inputs[:3], None, None][:3]
    check_operator(
        "DeformConv",
        inputs=inputs,
        device=device,
        opset=19,
        group=2,
        offset_group=2,
        strides=[2, 1],
        pads=[1, 0, 1, 1],
    )


def test_col2im(device):
    x = random_array((2, 2 * 6, 5 * 4))
    sizes = [np.array([6, 5]), np.array([2, 3])]
    for dtype in (np.float32, np.float64, np.int32):
        made, expected = check_exactly(
            device, "Col2Im", [(x * 10).astype(dtype), *sizes], pads=[0, 1, 0, 0]
        )
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op_type", "shapes", "attributes", "words"), [
    ("ConvTranspose", [(1, 3, 5, 5), (2, 3, 3, 3)], {}, "do not fit together"),
    ("ConvTranspose", [(1, 3, 5, 5), (3, 3, 3, 3)], {"output_padding": [1]}, "output_padding"),
    ("ConvTranspose", [(1, 3, 5, 5), (3, 3, 3, 3)], {"output_shape": [-1, 4]}, "output_shape"),
    ("ConvTranspose", [(1, 3, 1, 1), (3, 3, 3, 3)], {"pads": [2] * 4}, "leave nothing"),
    ("DeformConv", [(1, 2, 4, 4), (3, 2, 2, 2), (1, 8, 4, 4)], {}, "offset has shape"),
    ("DeformConv", [(1, 2, 4, 4), (3, 2, 2, 2), (1, 8, 3, 3)], {"offset_group": 3}, "offset_group"),
])  # fmt: skip
def test_what_cannot_be(device_index, op_type, shapes, attributes, words):
    proto, _ = one_node(op_type, [random_array(s) for s in shapes], (), 19, **attributes)
    with pytest.raises(vklab.ModelError, match=words):
        vklab.load(proto, device_index)
