"""Matrix products: MatMul and Gemm, both one kernel that addresses its operands by strides.

Right on every device; `plan.variants` swaps in faster kernels.
Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.elementwise import broadcast_shape, broadcast_strides, merge_axes
from vklab.ops.inputs import require, same
from vklab.ops.registry import Result, operator, output
from vklab.types import Dispatch, TensorInfo

__all__ = ["default_lanes", "gemm", "matmul", "product", "row_blocks"]

BATCH_AXES = 3
COLUMN_WORKGROUP = 64


def row_blocks(
    m: int, n: int, batch: int, lanes: int, blocks: int
) -> tuple[tuple[int, int, int], tuple[tuple[str, int], ...]]:
    """Return the grid and the constants of a kernel with lanes x blocks rows an invocation.

    matmul and conv are both an m x n product: columns in x, blocks of rows in y, batches in z.
    """
    workgroups = (-(-n // COLUMN_WORKGROUP), -(-m // (lanes * blocks)), batch)
    return workgroups, (("LANES", lanes), ("BLOCKS", blocks), ("WORKGROUP", COLUMN_WORKGROUP))


def default_lanes(m: int) -> int:
    """Return rows of one invocation: the most, up to 8, that m rows do not leave idle."""
    return next(lanes for lanes in (8, 4, 2, 1) if lanes <= m)


@operator("MatMul", since=1)
def matmul(A: TensorInfo, B: TensorInfo) -> Result:
    """Multiply matrices, broadcasting the batch axes as numpy.matmul. Source: ONNX MatMul-13."""
    if A.rank == 0 or B.rank == 0:
        raise ModelError("a scalar has no matrix product")
    a, b = A.dims, B.dims
    a = (1, *a) if A.rank == 1 else a
    b = (*b, 1) if B.rank == 1 else b
    (m, k), (k_b, n) = a[-2:], b[-2:]
    if k != k_b:
        raise ModelError(f"inner sizes differ: {k} and {k_b}")
    batch = broadcast_shape(a[:-2], b[:-2])
    strides = [
        tuple(step * side[-2] * side[-1] for step in broadcast_strides(side[:-2], batch))
        for side in (a, b)
    ]
    shape = batch + (() if A.rank == 1 else (m,)) + (() if B.rank == 1 else (n,))
    require(FLOATS, A, B)
    result = output(same(A, B), shape)
    return Result((result,), product(A, B, None, result, (m, n, k), (k, 1), (n, 1), batch, strides))


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
        raise ModelError(f"A and B are matrices, not of rank {A.rank} and {B.rank}")
    m, k = A.dims[::-1] if transA else A.dims
    k_b, n = B.dims[::-1] if transB else B.dims
    if k != k_b:
        raise ModelError(f"inner sizes differ: {k} and {k_b}")
    if C is not None and broadcast_shape(C.dims, (m, n)) != (m, n):
        raise ModelError(f"C of shape {C.shape} does not broadcast to ({m}, {n})")
    require(FLOATS, A, B, C)
    result = output(same(A, B, C), (m, n))
    a_steps = (1, m) if transA else (k, 1)
    b_steps = (1, k) if transB else (n, 1)
    return Result((result,), product(A, B, C, result, (m, n, k), a_steps, b_steps,
                                     alpha=alpha, beta=beta))  # fmt: skip


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
    """Return the dispatch of shaders/ops/matmul.slang for strided operands."""
    if result.count == 0:
        return ()
    m, n, k = sizes
    shape, (a_batch, b_batch) = merge_axes(batch, batch_strides)
    if len(shape) > BATCH_AXES:
        raise UnsupportedOperatorError(
            f"{len(shape)} independent batch axes {tuple(batch)}, the kernel has {BATCH_AXES}"
        )
    padding = (0,) * (BATCH_AXES - len(shape))
    c_row, c_column = broadcast_strides(C.dims, (m, n)) if C is not None else (0, 0)
    count = result.count // (m * n)
    workgroups, constants = row_blocks(m, n, count, default_lanes(m), 1)
    return (
        Dispatch(
            kernel="matmul",
            reads=(("a_buffer", A), ("b_buffer", B), *((("c_buffer", C),) if C else ())),
            writes=(("y_buffer", result),),
            workgroups=workgroups,
            push=(
                ("m", m), ("n", n), ("k", k), ("batches", count), ("part", k),
                ("a_row", a_steps[0]), ("a_column", a_steps[1]),
                ("b_row", b_steps[0]), ("b_column", b_steps[1]),
                ("c_row", c_row), ("c_column", c_column),
                ("alpha", alpha), ("beta", beta),
                ("batch_shape", tuple(1 for _ in padding) + shape),
                ("a_batch", padding + a_batch), ("b_batch", padding + b_batch),
            ),
            defines=(
                ("BIAS", "0" if C is None else "1"), ("SUBGROUP", "0"),
                *type_defines("T", result.dtype),
            ),
            constants=constants,
            flops=2 * m * n * k * count,
        ),
    )  # fmt: skip
