"""Element-wise operators against ONNX Runtime: sizes, broadcasting, NaN, infinities, extremes."""

from __future__ import annotations

import numpy as np
import pytest

from support.checks.check_operator import check_operator
from support.graphs.small_models import random_array

UNARY = [
    ("Relu", {}), ("LeakyRelu", {}), ("LeakyRelu", {"alpha": -0.5}), ("Sigmoid", {}),
    ("Tanh", {}), ("Neg", {}), ("Identity", {}),
]  # fmt: skip
BINARY = ["Add", "Sub", "Mul", "Div"]
# Primes, and one more or less than a workgroup of 256.
SIZES = [(), (1,), (7,), (255,), (256,), (257,), (3, 5, 7), (1031,), (2, 3, 1, 5, 7, 1)]
EXTREMES = np.array(
    [
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        1.2e-38,
        -1.2e-38,
        1e-6,
        0.5,
        -0.5,
        1,
        -1,
        9,
        -9,
        88,
        -88,
        104,
        -104,
        3.4e38,
        -3.4e38,
    ],
    np.float32,
)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 1.0, -1.0, 0.0], np.float32)

BROADCASTS = [
    ((3, 7), (7,)), ((3, 7), (3, 1)), ((3, 1), (1, 7)), ((5,), ()), ((), (5,)), ((), ()),
    ((1,), (3, 1, 5)), ((2, 3, 5, 7), (3, 1, 7)), ((2, 1, 5, 1), (1, 3, 1, 7)),
    ((2, 1, 3, 1, 5), (1, 7, 1, 2, 1)), ((257, 3), (1, 3)), ((1, 8, 28, 28), (8, 1, 1)),
    ((2, 3, 2, 3, 2, 3), (2, 1, 2, 3, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "attributes"), UNARY)
def test_one_operand(device, op_type, attributes):
    for shape in SIZES:
        check_operator(op_type, [shape], device=device, **attributes)


@pytest.mark.parametrize("op_type", BINARY)
def test_two_operands_broadcast(device, op_type):
    for shapes in BROADCASTS:
        check_operator(op_type, shapes, device=device)


@pytest.mark.parametrize("op_type", BINARY)
def test_constant_operands(device, op_type):
    check_operator(op_type, [(3, 7), (7,)], device=device, constants=[1])
    check_operator(op_type, [(1, 7), (3, 7)], device=device, constants=[0])


def test_one_tensor_twice(device):
    from onnx import helper

    import vklab
    from support.graphs.small_models import model, value

    node = helper.make_node("Mul", ["x", "x"], ["y"])
    proto = model([node], [value("x", (5,))], [value("y", (5,))])
    x = random_array((5,))
    with vklab.load(proto, device) as session:
        np.testing.assert_array_equal(session.run(x)["y"], x * x)


@pytest.mark.parametrize(("op_type", "attributes"), UNARY)
def test_extremes(device, op_type, attributes):
    check_operator(op_type, inputs=[EXTREMES], device=device, **attributes)


@pytest.mark.parametrize(("op_type", "attributes"), UNARY)
def test_nan_and_infinities_of_one_operand(device, op_type, attributes):
    check_operator(op_type, inputs=[SPECIAL], device=device, **attributes)


@pytest.mark.parametrize("op_type", BINARY)
def test_nan_and_infinities_of_two_operands(device, op_type):
    check_operator(op_type, inputs=[SPECIAL.reshape(-1, 1), SPECIAL], device=device)


@pytest.mark.parametrize("op_type", BINARY)
def test_no_elements(device, op_type):
    for shapes in [((0,), (0,)), ((0, 3), (3,)), ((2, 0, 1), (5,)), ((0,), ())]:
        assert check_operator(op_type, shapes, device=device).size == 0


@pytest.mark.full
def test_a_grid_that_continues_along_y(device):
    # 32768 workgroups of 256 fill one row of the grid: lib/index.slang's GRID_WIDTH.
    check_operator("Neg", [(32768 * 256 + 257,)], device=device)
