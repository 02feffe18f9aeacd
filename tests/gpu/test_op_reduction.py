"""Reductions against ONNX Runtime and NumPy: any axes, long rows, empty sets, NaN, dtypes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import vklab
from support.checks.check_operator import check_operator
from support.checks.run_node import close
from support.graphs.small_models import one_node, random_array
from vklab.ops import reduction

NAMES = sorted(reduction.KINDS)
NUMPY = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod}


def run(op_type, arrays, device, opset=18, constants=(), **attributes):
    """Return the first output of one node."""
    proto, fed = one_node(op_type, arrays, constants, opset, **attributes)
    with vklab.load(proto, device) as session:
        return session.run(fed)["y0"]


def axes_array(axes):
    """Return axes as the input that they are."""
    return np.array(axes, np.int64)


@pytest.mark.parametrize("name", NAMES)
def test_every_set_of_axes(device_index, name):
    x = np.abs(random_array((2, 3, 1, 5))) + 0.1
    for count in range(1, 5):
        for axes in itertools.combinations(range(4), count):
            given = [x, axes_array([a - 4 if a % 2 else a for a in axes])]
            check_operator(
                name, inputs=given, constants=[1], device=device_index, opset=18, keepdims=count % 2
            )


@pytest.mark.parametrize("name", NAMES)
def test_axes_as_an_attribute_and_none(device, name):
    x = np.abs(random_array((3, 5, 7))) + 0.1
    for more in ({}, {"axes": [1]}, {"axes": [0, 2], "keepdims": 0}):
        check_operator(name, inputs=[x], device=device, opset=11, **more)


def test_no_axes_is_no_reduction(device):
    x = random_array((3, 5))
    for name, expected in [("ReduceSum", x), ("ReduceSumSquare", x * x), ("ReduceL1", np.abs(x))]:
        none = [x, axes_array([])]
        close(run(name, none, device, constants=[1], noop_with_empty_axes=1), expected)
    close(run("ReduceSum", [x, None], device, keepdims=0), x.sum())


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMax", "ReduceLogSumExp", "ReduceMean"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 200003), [1]), ((70001, 3), [0]), ((3, 70001), [0]), ((263, 40, 37), [0]),
        ((1031, 257), [1]), ((257, 1031), [0]), ((4099, 33), [0]), ((5, 67, 3, 71), [1, 3]),
        ((17, 9001), [0, 1]),
    ],
)  # fmt: skip
def test_long_and_many_rows(device_index, name, shape, axes):
    check_operator(
        name,
        inputs=[random_array(shape), axes_array(axes)],
        constants=[1],
        device=device_index,
        opset=18,
    )


@pytest.mark.full
def test_rows_of_millions(device_index):
    x = np.abs(random_array((20_000_003,)))
    total = run("ReduceSum", [x], device_index)
    close(total, x.sum(dtype=np.float64, keepdims=True).astype(np.float32))
    x[12_345_678] = 99
    assert run("ArgMax", [x], device_index, axis=0)[0] == 12_345_678


@pytest.mark.parametrize("name", sorted(NUMPY))
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64", "float64", "float16"])
def test_dtypes(device_index, name, dtype):
    x = np.random.default_rng(0).integers(1, 4, (3, 7, 5)).astype(dtype)
    close(
        run(name, [x, axes_array([1])], device_index, constants=[1]),
        NUMPY[name](x, axis=1, keepdims=True).astype(dtype),
    )


def test_small_integers_and_truth(device_index):
    for dtype in ("int8", "uint8", "bool"):
        x = np.random.default_rng(1).integers(0, 2, (5, 300)).astype(dtype)
        for name in ("ReduceMax", "ReduceMin"):
            got = run(name, [x, axes_array([1])], device_index, 20, [1])
            close(got, NUMPY[name](x, axis=1, keepdims=True))


def test_integer_roots_and_means_are_cut(device):
    x = np.array([[3, 4], [6, 8], [-7, 0]], np.int32)
    close(
        run("ReduceL2", [x, axes_array([1])], device, 18, [1], keepdims=0),
        np.array([5, 10, 7], np.int32),
    )
    close(
        run("ReduceMean", [x, axes_array([1])], device, 18, [1], keepdims=0),
        np.array([3, 7, -3], np.int32),
    )


def test_half_sums_do_not_overflow_on_the_way(device_index):
    x = np.full((1, 4000), 100, np.float16)
    close(run("ReduceMean", [x, axes_array([1])], device_index, 18, [1]), x[:, :1])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_reduces_to_the_neutral_element(device_index, name):
    expected = {
        "ReduceProd": 1,
        "ReduceMean": np.nan,
        "ReduceMax": -np.inf,
        "ReduceMin": np.inf,
        "ReduceLogSum": -np.inf,
        "ReduceLogSumExp": -np.inf,
    }.get(name, 0)
    got = run(name, [np.zeros((2, 0, 3), np.float32), axes_array([1])], device_index, 20, [1])
    close(got, np.full((2, 1, 3), expected, np.float32))
    none = run(name, [np.zeros((2, 0), np.float32), axes_array([0])], device_index, 20, [1])
    assert none.shape == (1, 0)


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean"])
@pytest.mark.parametrize("length", [5, 300])
def test_nan_and_infinities(device, name, length):
    x = np.zeros((4, length), np.float32)
    x[0, 2], x[1, 1], x[2, 3], x[3, :] = np.nan, np.inf, -np.inf, -np.inf
    got = run(name, [x, axes_array([1])], device, 18, [1])
    functions = {**NUMPY, "ReduceMean": np.mean}
    close(got, functions[name](x, axis=1, keepdims=True))


def test_log_sum_exp_of_large_and_of_no_probabilities(device):
    x = np.array(
        [
            [1000, 1000],
            [-1000, -1000],
            [-np.inf, 0],
            [3e37, -3e37],
            [np.inf, 0],
            [-np.inf, -np.inf],
            [np.nan, 0],
        ],
        np.float32,
    )
    close(
        run("ReduceLogSumExp", [x, axes_array([1])], device, 18, [1], keepdims=0),
        np.logaddexp(x[:, 0], x[:, 1]),
    )


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_arguments(device_index, name, last):
    for shape in [(3, 5, 7), (2, 1031), (1031, 2), (40, 300), (1, 9001), (9001, 3)]:
        x = np.round(random_array(shape) * 2)  # many are equal
        for axis in range(-len(shape), len(shape)):
            got = run(name, [x], device_index, 13, axis=axis, keepdims=0, select_last_index=last)
            walked = np.flip(x, axis) if last else x
            found = getattr(np, name.lower())(walked, axis)
            assert (got == (shape[axis] - 1 - found if last else found)).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "float64"])
def test_arguments_of_dtypes(device_index, dtype):
    x = np.random.default_rng(2).permutation(120)[:105].reshape(3, 35).astype(dtype)
    assert (run("ArgMax", [x], device_index, 13, axis=1, keepdims=0) == x.argmax(1)).all()
    assert (run("ArgMin", [x], device_index, 13, axis=0, keepdims=0) == x.argmin(0)).all()


def test_the_first_nan_is_both_largest_and_smallest(device):
    x = np.ones((2, 300), np.float32)
    x[0, [7, 200]] = np.nan
    x[1, 9] = -np.inf
    for name, expected in [("ArgMax", x.argmax(1)), ("ArgMin", x.argmin(1))]:
        assert (run(name, [x], device, 13, axis=1, keepdims=0) == expected).all()
    assert run("ArgMax", [x], device, 13, axis=1, select_last_index=1)[0, 0] == 200


@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running(device_index, name, exclusive, reverse):
    function = np.cumsum if name == "CumSum" else np.cumprod
    for shape in [(7,), (3, 257), (2, 1031), (1031, 3), (2, 3, 5), (1, 5003)]:
        x = random_array(shape) / 8 + (1 if name == "CumProd" else 0)
        for axis in range(len(shape)):
            walked = np.flip(x, axis) if reverse else x
            expected = function(walked.astype(np.float64), axis)
            if exclusive:
                ends = np.full_like(expected.take([0], axis), name == "CumProd")
                inner = expected.take(range(shape[axis] - 1), axis)
                expected = np.concatenate([ends, inner], axis)
            expected = (np.flip(expected, axis) if reverse else expected).astype(np.float32)
            got = run(
                name,
                [x, np.array(axis, np.int64)],
                device_index,
                26,
                [1],
                exclusive=exclusive,
                reverse=reverse,
            )
            close(got, expected, 1e-3, 1e-5)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 37])
def test_determinants(device, size):
    x = random_array((5, size, size))
    x[:, :1] = 0 if size == 2 else x[:, :1]  # singular
    close(run("Det", [x], device, 22), np.linalg.det(x.astype(np.float64)).astype(np.float32))
