"""Poolings against ONNX Runtime: strides, pads, dilations, auto_pad, ceil_mode, 1-D, NaN."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import model, one_node, random_array, value

CASES = {
    "2x2": ((1, 2, 8, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "overlapping": ((2, 3, 7, 5), {"kernel_shape": [3, 2]}),
    "pads": ((1, 2, 7, 5), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "asymmetric": ((1, 2, 7, 5), {"kernel_shape": [3, 4], "pads": [0, 1, 2, 3]}),
    "ceil": ((1, 1, 8, 7), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}),
    "ceil-pads": (
        (1, 1, 8, 7),
        {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ),
    "same-upper": (
        (1, 2, 7, 8), {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": "SAME_UPPER"},
    ),
    "same-lower": (
        (1, 2, 7, 8), {"kernel_shape": [2, 4], "strides": [2, 3], "auto_pad": "SAME_LOWER"},
    ),
    "valid": ((1, 2, 7, 8), {"kernel_shape": [3, 2], "auto_pad": "VALID"}),
    "1-d": ((2, 3, 17), {"kernel_shape": [4], "strides": [3], "pads": [1, 2]}),
    "whole-image": ((1, 2, 5, 7), {"kernel_shape": [5, 7]}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_max_pool(device, case):
    shape, attributes = CASES[case]
    check_operator("MaxPool", [shape], device=device, **attributes)


def test_max_pool_dilations(device):
    check_operator(
        "MaxPool",
        [(1, 2, 11, 13)],
        device=device,
        kernel_shape=[3, 2],
        dilations=[2, 3],
        strides=[1, 2],
        pads=[1, 0, 1, 1],
    )


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_average_pool(device, case, include):
    shape, attributes = CASES[case]
    check_operator("AveragePool", [shape], device=device, count_include_pad=include, **attributes)


@pytest.mark.parametrize("include", [0, 1])
def test_average_pool_dilations(device, include):
    for ceil_mode in (0, 1):
        check_operator(
            "AveragePool",
            [(1, 2, 12, 13)],
            device=device,
            opset=19,
            kernel_shape=[3, 2],
            dilations=[2, 3],
            strides=[2, 2],
            pads=[1, 0, 1, 1],
            ceil_mode=ceil_mode,
            count_include_pad=include,
        )


@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools(device, op_type):
    for shape in [(1, 1, 1, 1), (2, 3, 5, 7), (1, 257, 2, 2), (3, 5, 17)]:
        check_operator(op_type, [shape], device=device)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_no_elements(device, op_type):
    proto, fed = one_node(op_type, [random_array((0, 3, 5, 5))], kernel_shape=[2, 2])
    with vklab.load(proto, device) as session:
        assert session.run(fed)["y0"].shape == (0, 3, 4, 4)


def test_max_pool_keeps_nan_wherever_it_stands_in_the_window(device):
    for row, column in itertools.product(range(3), range(3)):
        x = random_array((1, 1, 3, 3))
        x[0, 0, row, column] = np.nan
        proto, fed = one_node("MaxPool", [x], kernel_shape=[3, 3])
        with vklab.load(proto, device) as session:
            assert np.isnan(session.run(fed)["y0"]).all(), (row, column)


def test_max_pool_of_infinities(device):
    x = np.array([[[[-np.inf, -np.inf], [np.inf, 0.0]]]], np.float32)
    proto, fed = one_node("MaxPool", [x], kernel_shape=[1, 2])
    with vklab.load(proto, device) as session:
        np.testing.assert_array_equal(session.run(fed)["y0"].ravel(), [-np.inf, np.inf])


def test_average_pool_of_nan_and_infinity(device):
    x = random_array((1, 1, 6, 6))
    x[0, 0, 0, 0], x[0, 0, 5, 5] = np.nan, -np.inf
    check_operator("AveragePool", inputs=[x], device=device, kernel_shape=[2, 2], pads=[1] * 4)


def test_indices_that_nobody_reads_cost_nothing(device_index):
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "indices"], kernel_shape=[2, 2]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    x = random_array((1, 3, 7, 5))
    with vklab.load(model(nodes, [value("x", x.shape)], ["z"]), device_index) as session:
        assert session.check({"x": x}).passed


INDEXED = {
    "1-d": ((2, 3, 17), {"kernel_shape": [4], "strides": [3], "pads": [1, 2]}),
    "2-d": ((2, 2, 7, 5), {"kernel_shape": [3, 2], "strides": [2, 1], "dilations": [1, 2]}),
    "3-d": ((1, 2, 5, 7, 3), {"kernel_shape": [2, 3, 2], "pads": [1, 1, 0, 0, 1, 1]}),
}


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("case", INDEXED)
def test_max_pool_indices(device, case, order):
    shape, attributes = INDEXED[case]
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], storage_order=order, **attributes)
    outputs = [value("y", None), value("i", None, TensorProto.INT64)]
    with vklab.load(model([node], [value("x", shape)], outputs), device) as session:
        assert session.check({"x": random_array(shape)}).passed


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint8])
def test_max_pool_of_other_dtypes(device, dtype):
    x = (random_array((1, 2, 7, 5)) * 50).astype(dtype)
    check_operator("MaxPool", inputs=[x], device=device, kernel_shape=[3, 2], pads=[1, 1, 1, 0])


SPACES = {
    "1-d": ((1, 2, 17), {"kernel_shape": [4], "strides": [3], "pads": [1, 2]}),
    "3-d": ((2, 1, 7, 5, 6), {"kernel_shape": [3, 2, 4], "strides": [2, 1, 3], "pads": [1] * 6}),
    "3-d-same": ((1, 2, 5, 7, 3), {"kernel_shape": [2, 3, 2], "auto_pad": "SAME_LOWER"}),
    "3-d-ceil": ((1, 1, 8, 7, 6), {"kernel_shape": [3] * 3, "strides": [2] * 3, "ceil_mode": 1}),
}


@pytest.mark.parametrize("case", SPACES)
def test_other_spaces(device, case):
    shape, attributes = SPACES[case]
    check_operator("MaxPool", [shape], device=device, **attributes)
    check_operator("AveragePool", [shape], device=device, count_include_pad=1, **attributes)
    if "ceil_mode" not in attributes:
        for p in (1, 2, 3):
            check_operator("LpPool", [shape], device=device, p=p, **attributes)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_average_pool_of_other_dtypes(device, dtype):
    proto, fed = one_node(
        "AveragePool", [random_array((1, 2, 7, 5)).astype(dtype)], kernel_shape=[3, 2]
    )
    mean = np.lib.stride_tricks.sliding_window_view(fed["x0"], (3, 2), (2, 3)).mean((4, 5))
    with vklab.load(proto, device) as session:
        np.testing.assert_allclose(session.run(fed)["y0"], mean, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("p", [1, 2, 5])
def test_global_lp_pool(device, p):
    check_operator("GlobalLpPool", [(2, 3, 5, 7)], device=device, p=p)


@pytest.mark.parametrize("shape", [(1, 1, 300, 300), (2, 3, 41, 43), (1, 2, 3, 5, 7), (3, 1, 9)])
def test_global_pools_of_many_cells(device, shape):
    for op_type in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        check_operator(op_type, [shape], device=device)


def test_max_unpool(device):
    x = random_array((2, 3, 6, 8))
    nodes = [
        helper.make_node("MaxPool", ["x"], ["m", "i"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxUnpool", ["m", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    with vklab.load(model(nodes, [value("x", x.shape)], ["y"]), device) as session:
        assert session.check({"x": x}).passed


@pytest.mark.parametrize("size", [1, 3, 5, 9])
def test_lrn(device, size):
    check_operator("LRN", [(2, 7, 5, 3)], device=device, size=size, alpha=0.5, bias=2.0)


@pytest.mark.parametrize(("attributes", "words"), [
    ({"kernel_shape": [3]}, "kernel_shape"), ({"kernel_shape": [9, 9]}, "does not fit"),
    ({"kernel_shape": [0, 1]}, "kernel_shape"), ({"kernel_shape": [2, 2], "pads": [1]}, "pads"),
    ({"kernel_shape": [2, 2], "strides": [0, 1]}, "strides"),
    ({"kernel_shape": [2, 2], "auto_pad": "ALL"}, "auto_pad"),
])  # fmt: skip
def test_attributes_that_cannot_be(device_index, attributes, words):
    proto, _ = one_node("MaxPool", [random_array((1, 1, 5, 5))], **attributes)
    with pytest.raises(vklab.ModelError, match=words):
        vklab.load(proto, device_index)
