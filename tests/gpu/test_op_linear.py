"""MatMul and Gemm against ONNX Runtime: ranks, batches, transposes, sizes around tiles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.checks.check_operator import check_operator
from support.graphs.small_models import random_array
from vklab.types import DeviceInfo


@pytest.fixture(params=["as-it-is", "as-gpu", "plain"], autouse=True)
def choice(request, monkeypatch):
    """Try the kernels that the device gets, those that a GPU gets, and those right everywhere."""
    if request.param == "as-gpu":
        monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    if request.param == "plain":
        monkeypatch.setenv("VKLAB_DISABLE_VARIANTS", "1")


# One less and one more than the tiles of 16, 32 and 64, and primes.
AROUND_TILES = (1, 15, 16, 17, 31, 33, 63, 65)
RANKS = [
    ((7,), (7,)), ((7,), (7, 5)), ((3, 7), (7,)), ((3, 7), (7, 5)), ((2, 3, 7), (7,)),
    ((7,), (2, 7, 5)), ((2, 3, 7), (7, 5)), ((3, 7), (2, 7, 5)), ((2, 3, 7), (2, 7, 5)),
    ((1, 3, 7), (2, 7, 5)), ((2, 1, 3, 7), (4, 7, 5)), ((2, 4, 3, 7), (1, 4, 7, 5)),
    ((2, 1, 3, 7, 5), (3, 1, 5, 2)), ((5, 1, 17), (1, 17, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), RANKS)
def test_matmul_of_all_ranks(device, a, b):
    check_operator("MatMul", [a, b], device=device)


def test_matmul_of_six_independent_batch_axes(device):
    shapes = [(2, 1, 2, 1, 2, 1, 3, 7), (1, 3, 1, 3, 1, 2, 7, 5)]
    check_operator("MatMul", shapes, device=device)


def test_matmul_of_more_batches_than_a_grid_is_deep(device_index):
    check_operator("MatMul", [(70001, 2, 3), (70001, 3, 2)], device=device_index)


def test_matmul_of_more_rows_than_a_grid_is_high(device_index):
    for columns in (1, 2):
        check_operator("MatMul", [(600011, 2), (2, columns)], device=device_index)


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint32", "int64", "uint64"])
def test_matmul_of_other_numbers(device, dtype):
    for a, b in [((3, 7), (7, 5)), ((1, 67), (67, 33)), ((2, 33, 65), (65, 17)), ((9, 3), (3,))]:
        arrays = [(random_array(s, 3) * 1000).astype(dtype) for s in (a, b)]
        check_operator("MatMul", inputs=arrays, device=device)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_gemm_of_other_numbers(device, dtype):
    for m, n, k in [(3, 5, 7), (1, 33, 65), (33, 65, 129), (1, 5, 600)]:
        arrays = [random_array(s).astype(dtype) for s in ((m, k), (k, n), (n,))]
        rtol = 3e-3 if dtype == "float16" else 1e-12
        check_operator("Gemm", inputs=arrays, device=device, rtol=rtol, atol=rtol, alpha=0.5)


def test_what_beta_is_zero_for_is_not_read(device):
    c = np.full((3, 5), np.nan, np.float32)
    arrays = [random_array((3, 7)), random_array((7, 5)), c]
    y = check_operator("Gemm", inputs=arrays, device=device, beta=0.0)
    assert np.isfinite(y).all()


@pytest.mark.parametrize("k", [1, 17, 67])
def test_matmul_around_tiles(device, k):
    for m, n in itertools.product(AROUND_TILES, AROUND_TILES):
        if (m + n + k) % 3 == 0 or 1 in (m, n):  # a third of the square, and both vectors
            check_operator("MatMul", [(m, k), (k, n)], device=device)


@pytest.mark.full
@pytest.mark.parametrize("shapes", [
    ((1, 1031), (1031, 257)), ((257, 1031), (1031, 1)), ((127, 509), (509, 131)),
    ((1, 4096), (4096, 10)), ((1, 3), (3, 4097)), ((2, 129, 65), (2, 65, 127)),
])  # fmt: skip
def test_matmul_of_large_primes(device, shapes):
    check_operator("MatMul", shapes, device=device, constants=[1])


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm_transposes(device, trans_a, trans_b):
    for m, n, k in [(1, 5, 7), (1, 33, 65), (17, 1, 31), (33, 65, 17), (64, 64, 64), (1, 1, 1)]:
        a = (k, m) if trans_a else (m, k)
        b = (n, k) if trans_b else (k, n)
        for shapes in ([a, b], [a, b, (n,)]):
            check_operator("Gemm", shapes, device=device, transA=trans_a, transB=trans_b)


@pytest.mark.parametrize("c", [(), (1,), (5,), (1, 5), (3, 1), (3, 5), (1, 1)])
@pytest.mark.parametrize("rows", [1, 3])
def test_gemm_bias_shapes(device, c, rows):
    if rows == 1 and c and len(c) == 2 and c[0] == 3:
        c = (1, c[1])
    check_operator("Gemm", [(rows, 7), (7, 5), c], device=device, alpha=0.5, beta=-1.5)


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1.0), (1.0, 0.0), (-2.5, 3.0), (0.1, 0.1)])
def test_gemm_scales(device, alpha, beta):
    for rows in (1, 3):
        check_operator(
            "Gemm", [(rows, 7), (7, 33), (33,)], device=device, alpha=alpha, beta=beta, transB=0
        )


def test_gemm_weights_as_pytorch_stores_them(device):
    for rows in (1, 2, 33):
        check_operator(
            "Gemm", [(rows, 129), (65, 129), (65,)], device=device, constants=[1, 2], transB=1
        )


@pytest.mark.parametrize("shapes", [
    ((0, 3), (3, 5)), ((3, 0), (0, 5)), ((3, 5), (5, 0)), ((0, 3, 5), (5, 2)), ((1, 0), (0, 3)),
    ((2, 3, 0), (2, 0, 4)),
])  # fmt: skip
def test_matmul_without_elements(device, shapes):
    check_operator("MatMul", shapes, device=device)


def test_gemm_without_inner_elements_is_its_bias(device):
    for rows in (1, 3):
        check_operator("Gemm", [(rows, 0), (0, 5), (5,)], device=device)


def test_nan_and_infinity_reach_their_row_and_column_only(device):
    for rows, columns in [(1, 37), (37, 37), (37, 1)]:
        a, b = random_array((rows, 41)), random_array((41, columns), 1)
        a[0, 5], b[7, -1] = np.nan, np.inf
        y = check_operator("MatMul", inputs=[a, b], device=device)
        assert np.isnan(y[0]).all() and not np.isnan(y[1:]).any()


def test_values_near_the_ends_of_float32(device):
    # 1e-38 would be subnormal, which devices may flush to zero.
    a = np.array([[3e38, 3e38], [2e-38, 2e-38]], np.float32)
    check_operator("MatMul", inputs=[a, np.ones((2, 3), np.float32)], device=device)
