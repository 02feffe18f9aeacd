"""Operators that move or rename elements: views of any dtype, and transposes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import model, one_node, random_array, value
from vklab import settings
from vklab.errors import ModelError, UnsupportedOperatorError


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5), (2, 3, 4, 5)])
def test_every_permutation(device, shape):
    for perm in itertools.permutations(range(len(shape))):
        check_operator("Transpose", [shape], device=device, perm=list(perm))


def test_transpose_of_axes_of_one_moves_nothing(device):
    proto, fed = one_node("Transpose", [random_array((1, 3, 1, 5))], perm=[2, 1, 0, 3])
    with vklab.load(proto, device) as session:
        assert session.plan.summary()["dispatches"] == 0
        np.testing.assert_array_equal(session.run(fed)["y0"].ravel(), fed["x0"].ravel())


def test_transpose_without_perm_and_of_five_axes(device):
    check_operator("Transpose", [(3, 5)], device=device)
    check_operator("Transpose", [(2, 3, 2, 3, 2)], device=device, perm=[4, 2, 0, 3, 1])


def test_transpose_without_elements(device):
    assert check_operator("Transpose", [(0, 3)], device=device).shape == (3, 0)


def test_transpose_of_a_constant_costs_nothing(device):
    from onnx import helper

    weight = random_array((5, 7))
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    proto = model(nodes, [value("x", (3, 7))], [value("y", (3, 5))], {"w": weight})
    x = random_array((3, 7))
    with vklab.load(proto, device) as session:
        assert session.plan.summary()["nodes"] == 1
        assert session.check({"x": x}).passed


@pytest.mark.parametrize(("shape", "wanted", "allowzero"), [
    ((2, 3, 4), (4, 6), 0), ((2, 3, 4), (-1,), 0), ((2, 3, 4), (0, -1), 0), ((), (1, 1), 0),
    ((0, 3), (3, 0), 1), ((0, 3), (0, 7), 1), ((1,), (), 0), ((2, 3, 4), (2, 0, 2, -1), 0),
])  # fmt: skip
def test_reshape(device, shape, wanted, allowzero):
    inputs = [random_array(shape), integers(*wanted)]
    check_operator("Reshape", inputs=inputs, constants=[1], device=device, allowzero=allowzero)


@pytest.mark.parametrize("axis", [-3, -1, 0, 1, 2, 3])
def test_flatten(device, axis):
    check_operator("Flatten", [(2, 3, 5)], device=device, axis=axis)


def test_squeeze_and_unsqueeze(device):
    x = random_array((1, 3, 1, 5))
    check_operator("Squeeze", inputs=[x, integers(0, -2)], constants=[1], device=device)
    check_operator("Squeeze", inputs=[x], device=device)
    check_operator("Squeeze", inputs=[x], device=device, opset=11, axes=[2])
    check_operator("Unsqueeze", inputs=[x, integers(0, -1)], constants=[1], device=device)
    check_operator("Unsqueeze", inputs=[x], device=device, opset=11, axes=[0, 3])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "float64"])
def test_views_carry_every_dtype(device, dtype):
    x = np.arange(7).astype(dtype)  # 7 bytes are no whole number of words
    check_operator("Reshape", inputs=[x, integers(7, 1)], constants=[1], device=device)


def test_strings_are_declined(device):
    proto, fed = one_node("Transpose", [np.array([["a", "b"]], object)])
    with (
        settings.settings(FALLBACK=False),
        pytest.raises(ModelError, match="string"),
        vklab.load(proto, device) as session,
    ):
        session.run(fed)


def test_dropout_keeps_everything(device):
    x = random_array((3, 5))
    check_operator("Dropout", inputs=[x], device=device)
    check_operator("Dropout", inputs=[x, np.float32(0.5)], constants=[1], device=device)
    check_operator("Dropout", inputs=[x], device=device, opset=7, ratio=0.25)


def test_dropout_says_that_nothing_was_dropped(device):
    x = random_array((3, 5))
    check_operator("Dropout", inputs=[x], device=device)
    proto, fed = one_node(
        "Dropout", [x, np.array(0, np.float32), np.array(True)], [1, 2], outputs=2
    )
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        np.testing.assert_array_equal(session.run(fed)["y1"], np.ones((3, 5), bool))


def test_dropout_in_training_is_declined(device):
    inputs = [random_array((3,)), np.array(0.5, np.float32), np.array(True)]
    proto, _ = one_node("Dropout", inputs, constants=[1, 2])
    with (
        settings.settings(FALLBACK=False),
        pytest.raises(UnsupportedOperatorError, match="training_mode"),
    ):
        vklab.load(proto, device)


def test_an_output_that_the_operator_does_not_have_is_refused(device):
    proto, _ = one_node("Transpose", [random_array((2, 3))], outputs=2)
    with pytest.raises(ModelError, match="'node' .*Transpose.* makes 1 outputs, 2 are given"):
        vklab.load(proto, device)
