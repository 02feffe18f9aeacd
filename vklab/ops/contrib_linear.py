"""Dispatch ONNX Runtime's own matrix products: FusedMatMul, FusedGemm, MatMulNBits.

Visited by lab 08. Source: ONNX Runtime, docs/ContribOperators.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.body import Body, Expansion
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.elementwise import broadcast_shape
from vklab.ops.inputs import require, same
from vklab.ops.linear import COLUMN_WORKGROUP, PRODUCTS, product
from vklab.ops.registry import Result, operator, output
from vklab.types import Dispatch, TensorInfo, dense_strides

DOMAIN = "com.microsoft"
ROWS = 4


@operator("FusedMatMul", domain=DOMAIN)
def fused_matmul(
    A: TensorInfo,
    B: TensorInfo,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Result:
    """Multiply scaled matrices, transposed by attribute. Source: ONNX Runtime's FusedMatMul-1."""
    if not A.rank or not B.rank:
        raise ModelError("a scalar has no matrix product")
    require(PRODUCTS, A, B)
    if not float(alpha).is_integer() and A.dtype not in FLOATS | {"float64"}:
        raise UnsupportedOperatorError(f"alpha={alpha} is not an integer, but A is {A.dtype}")
    a, a_steps = _read(A, transA, transBatchA, row=True)
    b, b_steps = _read(B, transB, transBatchB, row=False)
    (m, k), (k_b, n) = a[-2:], b[-2:]
    if k != k_b:
        raise ModelError(f"inner sizes differ: {k} and {k_b}")
    batch = broadcast_shape(a[:-2], b[:-2])
    strides = [
        (0,) * (len(batch) - len(shape) + 2)
        + tuple(0 if dim == 1 else s for dim, s in zip(shape[:-2], steps[:-2], strict=True))
        for shape, steps in ((a, a_steps), (b, b_steps))
    ]
    shape = (*batch, *((m,) if A.rank > 1 else ()), *((n,) if B.rank > 1 else ()))
    result = output(same(A, B), shape)
    a_walk, b_walk = (a_steps[-2], a_steps[-1]), (b_steps[-2], b_steps[-1])
    return Result(
        (result,), product(A, B, None, result, (m, n, k), a_walk, b_walk, batch, strides, alpha)
    )


def _read(
    X: TensorInfo, transposed: int, batch_first: int, row: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides of an operand as batches of matrices; a vector is one matrix."""
    if X.rank == 1:
        return ((1, X.dims[0]), (0, 1)) if row else ((X.dims[0], 1), (1, 0))
    order = list(range(X.rank))
    if batch_first:  # the rows come first, before the batches
        order = [*order[1:-1], 0, order[-1]]
    if transposed:
        order[-2:] = order[:-3:-1]
    strides = dense_strides(X.dims)
    return tuple(X.dims[i] for i in order), tuple(strides[i] for i in order)


@operator("FusedGemm", domain=DOMAIN)
def fused_gemm(
    A: TensorInfo,
    B: TensorInfo,
    C: TensorInfo | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expansion:
    """Compute an activation of alpha * A' * B' + beta * C. Source: ONNX Runtime's FusedGemm-1."""
    b = Body()
    y = b("Gemm", A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    if activation:
        y = b(activation, y, alpha=activation_alpha, beta=activation_beta, gamma=activation_gamma)
    return b.result(y)


@operator("MatMulNBits", domain=DOMAIN)
def matmul_nbits(
    A: TensorInfo,
    B: TensorInfo,
    scales: TensorInfo,
    zero_points: TensorInfo | None = None,
    g_idx: TensorInfo | None = None,
    bias: TensorInfo | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Result:
    """Multiply by 2, 4 or 8-bit weights, scaled per block. Source: ONNX Runtime's MatMulNBits-1."""
    if g_idx is not None or weight_prepacked or bits not in (2, 4, 8):
        raise UnsupportedOperatorError(
            f"g_idx {g_idx}, {weight_prepacked=}, {bits=}: kernels take "
            "no g_idx, no prepacked weights; 2, 4 or 8 bits"
        )
    require(FLOATS, A, scales, bias)
    dtype, blocks = same(A, scales, bias), -(-K // max(block_size, 1))
    wanted = N * blocks * (block_size * bits // 8)
    if not A.rank or A.dims[-1] != K or B.dtype != "uint8" or B.count != wanted or wanted < 1:
        raise ModelError(f"{A} and {B} do not fit K={K}, N={N}, block_size={block_size}")
    packed = zero_points is not None and zero_points.dtype == "uint8"
    zeros = N * -(-blocks * bits // 8) if packed else N * blocks
    if scales.count != N * blocks or (zero_points and zero_points.count != zeros):
        raise ModelError(f"{scales}, {zero_points} do not fit {N} columns of {blocks} blocks")
    if zero_points and not packed:
        same(A, zero_points)
    if bias is not None and bias.dims != (N,):
        raise ModelError(f"bias {bias} must have shape ({N},)")
    result = output(dtype, (*A.dims[:-1], N))
    rows = math.prod(A.dims[:-1])
    if not result.count:
        return Result((result,))
    optional: Sequence[tuple[str, TensorInfo | None]] = (("zero", zero_points), ("bias", bias))
    given = tuple((f"{name}_buffer", info) for name, info in optional if info is not None)
    return Result(
        (result,),
        (
            Dispatch(
                kernel="matmul_nbits",
                reads=(("a_buffer", A), ("b_buffer", B), ("scale_buffer", scales), *given),
                writes=(("y_buffer", result),),
                workgroups=(-(-N // COLUMN_WORKGROUP), -(-rows // ROWS), 1),
                push=(("m", rows), ("n", N), ("k", K), ("blocks", blocks), ("block", block_size)),
                defines=(
                    ("BITS", str(bits)),
                    ("ZERO", str(0 if zero_points is None else 1 if packed else 2)),
                    ("BIAS", str(int(bias is not None))),
                    *type_defines("B", "uint8")[:2],
                    *type_defines("T", dtype)[:2],
                    *type_defines("Y", dtype)[::2],
                ),
                flops=2 * rows * N * K,
                iterations=K,
                stores=True,
                rounds=accuracy_level == 4,  # which permits int8 for A
            ),
        ),
    )
