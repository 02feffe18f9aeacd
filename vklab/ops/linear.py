"""Dispatch MatMul and Gemm: one kernel that addresses its operands by strides.

It is right on every device; `plan.tuning.variants` swaps in faster kernels. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import ELEMENTS, INTEGERS, REALS, type_defines
from vklab.ops.elementwise import broadcast_shape, broadcast_strides, merge_axes
from vklab.ops.inputs import require, same
from vklab.ops.registry import Result, operator, output
from vklab.types import Dispatch, TensorInfo

# `integer_linear` has the products of 8-bit integers.
PRODUCTS = REALS | {"int32", "uint32", "int64", "uint64"}
# Batch axes of a kernel: two are nearly always enough, and leave room for fused push constants.
BATCH_AXES = (2, 6)
COLUMN_WORKGROUP = 64
MOST_GROUPS = 65535
MOST_PRODUCTS = 4096 * MOST_GROUPS


def row_blocks(
    m: int, n: int, batch: int, lanes: int, blocks: int, columns: int = 1
) -> tuple[tuple[int, int, int], tuple[tuple[str, int], ...]]:
    """Return workgroups and specialization constants of matmul or conv, an m x n product.

    Workgroups cover columns in x, blocks of rows in y and batches in z.

    Args:
        m: the rows of the result.
        n: the columns of the result.
        batch: the number of products.
        lanes: rows of a block; with subgroups, the lanes that share loads.
        blocks: blocks of rows of one invocation; more for a result of many rows.
        columns: columns of one invocation, a workgroup apart.
    """
    while -(-m // (lanes * blocks)) > MOST_GROUPS:
        blocks *= 2  # not the lanes: they may share loads, within a subgroup
    workgroups = (-(-n // COLUMN_WORKGROUP), -(-m // (lanes * blocks)), batch)
    sizes = {"LANES": lanes, "BLOCKS": blocks, "COLUMNS": columns}
    return workgroups, (*sizes.items(), ("WORKGROUP", COLUMN_WORKGROUP // columns))


def batch_starts(count: int) -> Sequence[int]:
    """Return the first product of each dispatch of a batch: a grid is MOST_GROUPS deep.

    Raises UnsupportedOperatorError for more products than a few thousand dispatches compute.
    """
    if count > MOST_PRODUCTS:
        raise UnsupportedOperatorError(
            f"{count} products of matrices; kernels compute at most {MOST_PRODUCTS}"
        )
    return range(0, count, MOST_GROUPS) if count > MOST_GROUPS else [0][: count > 0]


def default_lanes(m: int) -> int:
    """Return the rows of one invocation: 8, 4, 2 or 1, but not more than m."""
    return next(lanes for lanes in (8, 4, 2, 1) if lanes <= m)


@operator("MatMul", since=1)
def matmul(A: TensorInfo, B: TensorInfo) -> Result:
    """Multiply matrices, broadcasting batch axes like numpy.matmul. Source: ONNX MatMul-13."""
    shape, (m, n, k), batch, strides = matrix_batches(A.dims, B.dims)
    require(PRODUCTS, A, B)
    result = output(same(A, B), shape)
    if not any(strides[1]) and A.count == math.prod(batch) * m * k:
        m, batch, strides = math.prod(batch) * m, (), [(), ()]  # one B: A is one tall matrix
    return Result((result,), product(A, B, None, result, (m, n, k), (k, 1), (n, 1), batch, strides))


def matrix_batches(
    a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, int, int], tuple[int, ...], list[tuple[int, ...]]]:
    """Return the result's shape, (m, n, k), the batch axes, and their strides in both operands.

    Source: ONNX MatMul-13, which follows numpy.matmul.
    """
    if not a or not b:
        raise ModelError("a scalar has no matrix product")
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    a = (1, *a) if len(a) == 1 else a
    b = (*b, 1) if len(b) == 1 else b
    (m, k), (k_b, n) = a[-2:], b[-2:]
    if k != k_b:
        raise ModelError(f"inner sizes differ: {k} and {k_b}")
    batch = broadcast_shape(a[:-2], b[:-2])
    strides = [
        tuple(step * side[-2] * side[-1] for step in broadcast_strides(side[:-2], batch))
        for side in (a, b)
    ]
    return (*batch, *rows, *columns), (m, n, k), batch, strides


@operator("Gemm", since=7)
def gemm(
    A: TensorInfo,
    B: TensorInfo,
    C: TensorInfo | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Result:
    """Compute alpha * A' * B' + beta * C. Source: ONNX Gemm-13."""
    if A.rank != 2 or B.rank != 2:
        raise ModelError(f"A and B must be matrices, but have rank {A.rank} and {B.rank}")
    m, k = A.dims[::-1] if transA else A.dims
    k_b, n = B.dims[::-1] if transB else B.dims
    if k != k_b:
        raise ModelError(f"inner sizes differ: {k} and {k_b}")
    if C is not None and broadcast_shape(C.dims, (m, n)) != (m, n):
        raise ModelError(f"C of shape {C.shape} does not broadcast to ({m}, {n})")
    require(PRODUCTS, A, B, C)
    if A.dtype in INTEGERS and not (alpha.is_integer() and beta.is_integer()):
        raise UnsupportedOperatorError(
            f"alpha={alpha} and beta={beta} must be integers for {A.dtype}"
        )
    C = None if beta == 0 else C  # 0 * NaN must not become NaN
    result = output(same(A, B, C), (m, n))
    a_steps = (1, m) if transA else (k, 1)
    b_steps = (1, k) if transB else (n, 1)
    return Result(
        (result,), product(A, B, C, result, (m, n, k), a_steps, b_steps, alpha=alpha, beta=beta)
    )


def product(
    A: TensorInfo,
    B: TensorInfo,
    C: TensorInfo | None,
    result: TensorInfo,
    sizes: tuple[int, int, int],
    a_steps: tuple[int, int],
    b_steps: tuple[int, int],
    batch: Sequence[int] = (),
    batch_strides: Sequence[Sequence[int]] = ((), ()),
    alpha: float = 1.0,
    beta: float = 1.0,
) -> tuple[Dispatch, ...]:
    """Return the dispatches of shaders/ops/matmul.slang: alpha * A * B + beta * C for each batch.

    Args:
        A: the left operand.
        B: the right operand.
        C: a matrix that broadcasts to (m, n), the same for every batch; None for none.
        result: the dense tensor that is written.
        sizes: (m, n, k): the result is m x n, sums have k terms.
        a_steps: A's strides along rows and columns, in elements.
        b_steps: B's strides along rows and columns, in elements.
        batch: the shape of the batch axes.
        batch_strides: the strides of A and of B along the batch axes, in elements.
        alpha: the factor of the product.
        beta: the factor of C.
    """
    if result.count == 0:
        return ()
    m, n, k = sizes
    c_steps = broadcast_strides(C.dims, (m, n)) if C is not None else (0, 0)
    if n == 1 and m > 1:  # a column is computed as a row, with its workgroups along x
        A, B, m, n, a_steps, b_steps = B, A, n, m, b_steps[::-1], a_steps[::-1]
        c_steps, batch_strides = c_steps[::-1], batch_strides[::-1]
    batches_push, axes = batch_axes(batch, batch_strides)
    count = result.count // (m * n)
    operands = (("a_buffer", A), ("b_buffer", B), *((("c_buffer", C),) if C else ()))
    defines = (
        ("BIAS", "0" if C is None else "1"),
        ("SUBGROUP", "0"),
        axes,
        *value_defines(result.dtype),
        *type_defines("T", A.dtype)[:2],
        *type_defines("Y", result.dtype)[::2],
    )
    dispatches = []
    for start in batch_starts(count):
        batches = min(count - start, MOST_GROUPS)
        workgroups, constants = row_blocks(m, n, batches, default_lanes(m), 1)
        push: tuple[tuple[str, float | tuple[int, ...]], ...] = (
            ("m", m),
            ("n", n),
            ("k", k),
            ("batches", batches),
            ("part", k),
            ("start", start),
            ("a_row", a_steps[0]),
            ("a_column", a_steps[1]),
            ("b_row", b_steps[0]),
            ("b_column", b_steps[1]),
            ("c_row", c_steps[0]),
            ("c_column", c_steps[1]),
            ("alpha", alpha),
            ("beta", beta),
            *batches_push,
        )
        dispatches.append(
            Dispatch(
                "matmul",
                operands,
                (("y_buffer", result),),
                workgroups,
                push,
                defines,
                constants,
                flops=2 * m * n * k * batches,
                stores=True,
            )
        )
    return tuple(dispatches)


def batch_axes(
    batch: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[str, str]]:
    """Return push constants of both operands' batch axes, and the define of their number.

    Raises UnsupportedOperatorError for more axes than kernels have.
    """
    shape, (a, b) = merge_axes(batch, strides)
    axes = next((axes for axes in BATCH_AXES if axes >= len(shape)), None)
    if axes is None:
        raise UnsupportedOperatorError(
            f"{len(shape)} independent batch axes {tuple(batch)}; kernels take {BATCH_AXES[-1]}"
        )
    rest = axes - len(shape)
    push = (
        ("batch_shape", (1,) * rest + shape),
        ("a_batch", (0,) * rest + a),
        ("b_batch", (0,) * rest + b),
    )
    return push, ("BATCH_AXES", str(axes))


def value_defines(dtype: str) -> tuple[tuple[str, str], ...]:
    """Return the define ACC: the Slang type of sums of a dtype."""
    return (("ACC", ELEMENTS[dtype].value),)
