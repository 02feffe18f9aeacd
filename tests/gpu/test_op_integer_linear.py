"""MatMulInteger and QLinearMatMul against NumPy and ONNX Runtime: zero points, ties, batches."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import one_node
from vklab import settings

SHAPES = [((3, 7), (7, 5)), ((1, 1), (1, 1)), ((2, 3, 7), (7, 5)), ((2, 1, 3, 7), (3, 7, 65)),
          ((7,), (7, 5)), ((3, 7), (7,)), ((0, 7), (7, 5)), ((3, 0), (0, 5)),
          ((33, 257), (257, 67))]  # fmt: skip


def numbers(dtype, shape, seed=0):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return np.asarray(rng.integers(info.min, info.max + 1, shape, dtype), dtype)


def run(op_type, arrays, device):
    proto, fed = one_node(op_type, arrays, opset=21)
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        return session.run(fed)["y0"]


@pytest.mark.parametrize(("a", "b"), [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
def test_sums_are_exact(device, a, b):
    for left, right in SHAPES:
        x, y = numbers(a, left), numbers(b, right, 1)
        got = run("MatMulInteger", [x, y, numbers(a, ()), numbers(b, (), 1)], device)
        wide = [m.astype(np.int64) - n for m, n in ((x, numbers(a, ())), (y, numbers(b, (), 1)))]
        np.testing.assert_array_equal(got, wide[0] @ wide[1])
        np.testing.assert_array_equal(
            run("MatMulInteger", [x, y], device), x.astype(np.int64) @ y.astype(np.int64)
        )


def test_zero_points_of_rows_and_columns(device):
    x, y = numbers("uint8", (3, 7)), numbers("int8", (7, 5), 1)
    rows, columns = numbers("uint8", 3, 2), numbers("int8", 5, 3)
    expected = (x.astype(int) - rows[:, None]) @ (y.astype(int) - columns)
    np.testing.assert_array_equal(run("MatMulInteger", [x, y, rows, columns], device), expected)
    got = run("MatMulInteger", [x, y, np.array(3, np.uint8), columns], device)
    np.testing.assert_array_equal(got, (x.astype(int) - 3) @ (y.astype(int) - columns))


def test_batches_have_their_own_zero_points(device):
    x, y = numbers("uint8", (2, 3, 7)), numbers("uint8", (2, 7, 5), 1)
    rows, columns = numbers("uint8", (2, 3, 1), 2), numbers("uint8", (2, 1, 5), 3)
    expected = (x.astype(int) - rows) @ (y.astype(int) - columns)
    np.testing.assert_array_equal(run("MatMulInteger", [x, y, rows, columns], device), expected)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantized_products(device, dtype):
    for left, right in SHAPES[:6]:
        x, y = numbers(dtype, left), numbers(dtype, right, 1)
        scales = [np.array(s, np.float32) for s in (0.02, 0.03, 0.9)]
        zeros = [numbers(dtype, (), i) for i in (4, 5, 6)]
        check_operator(
            "QLinearMatMul",
            device=device,
            inputs=[
                x,
                scales[0],
                zeros[0],
                y,
                scales[1],
                zeros[1],
                scales[2],
                zeros[2],
            ],
        )


def test_halves_are_rounded_to_even(device):
    one, zero = np.array(1, np.float32), np.array(0, np.int8)
    x = np.arange(-8, 8, dtype=np.int8)[:, None]
    half = np.array(2, np.float32)
    ones = np.ones((1, 1), np.int8)
    y = run("QLinearMatMul", [x, one, zero, ones, one, zero, half, zero], device)
    np.testing.assert_array_equal(y, np.rint(x / 2))
