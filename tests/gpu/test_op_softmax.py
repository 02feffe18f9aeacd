"""Softmax against ONNX Runtime: every axis, both meanings, rows around a workgroup, specials."""

from __future__ import annotations

import numpy as np
import pytest

from support.checks.check_operator import check_operator
from vklab.ops import normalization

SHAPES = [(3, 7), (1, 1031), (5, 1), (1, 255), (2, 256), (2, 257), (2, 3, 5), (1, 10)]


@pytest.mark.parametrize("opset", [11, 13])
def test_every_axis(device, opset):
    for shape in SHAPES:
        for axis in range(-len(shape), len(shape)):
            check_operator("Softmax", [shape], device=device, opset=opset, axis=axis)


def test_default_axis_depends_on_the_opset(device):
    shape = (2, 3, 5)
    new = check_operator("Softmax", [shape], device=device, opset=13)
    old = check_operator("Softmax", [shape], device=device, opset=11)
    assert np.allclose(new.sum(-1), 1) and np.allclose(old.sum((1, 2)), 1)


def test_many_rows(device):
    check_operator("Softmax", [(1031, 3)], device=device)
    check_operator("Softmax", [(7, 1031)], device=device, axis=0)


@pytest.mark.full
def test_more_rows_than_one_row_of_the_grid(device):
    check_operator("Softmax", [(32768 + 3, 2)], device=device)


def test_large_and_tiny_values(device):
    x = np.array([[1e4, 1e4 - 1, -1e4], [-3.4e38, 3.4e38, 0], [1e-45, 0, -1e-45]], np.float32)
    check_operator("Softmax", inputs=[x], device=device)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_a_special_value_spoils_its_row_only(device, special):
    x = np.ones((3, 300), np.float32)
    x[1, 299] = special
    y = check_operator("Softmax", inputs=[x], device=device)
    assert np.isnan(y).any(1).tolist() == [False, True, False]


def test_minus_infinity_is_a_probability_of_zero(device):
    x = np.zeros((2, 5), np.float32)
    x[0, 2] = x[1, :] = -np.inf
    y = check_operator("Softmax", inputs=[x], device=device)
    assert y[0, 2] == 0 and np.isnan(y[1]).all()


def test_no_elements(device):
    for shape in [(0, 3), (3, 0), (2, 0, 5)]:
        assert check_operator("Softmax", [shape], device=device).shape == shape


@pytest.mark.parametrize("opset", [11, 13])
def test_the_logarithm_of_every_axis(device, opset):
    for shape in [(3, 7), (2, 257), (2, 3, 5), (1031, 3)]:
        for axis in range(-len(shape), len(shape)):
            check_operator("LogSoftmax", [shape], device=device, opset=opset, axis=axis)
            check_operator("Hardmax", [shape], device=device, opset=opset, axis=axis)


def test_the_logarithm_of_small_probabilities(device):
    x = np.array([[1e4, 0, -1e4], [-3e38, 3e38, 0], [-np.inf, 0, 0], [np.nan, 0, 0]], np.float32)
    check_operator("LogSoftmax", inputs=[x], device=device)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_shared_out_among_workgroups(device_index, dtype, monkeypatch):
    monkeypatch.setattr(normalization, "LONGEST", {True: 100, False: 20})
    x = np.random.default_rng(3).standard_normal((3, 211)).astype(dtype)
    loose = {"rtol": 5e-3, "atol": 5e-3} if dtype == "float16" else {}
    for op_type in ("Softmax", "LogSoftmax"):
        for opset in (11, 13):
            for axis in (0, 1):
                check_operator(
                    op_type, inputs=[x], device=device_index, opset=opset, axis=axis, **loose
                )
