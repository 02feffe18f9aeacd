"""MIL's operators with sums: convolutions, pools, products, reductions, normalisations.

Importing this module fills the table of all operators.
Source: operator definitions of MIL, iOS 15 to 18
"""

from __future__ import annotations

import math

import numpy as np

# Imported for their operators, which fill the table.
from vklab.apps.compare.coreml import compressed, elementwise, movement  # noqa: F401
from vklab.apps.compare.coreml.emission import Emission, operator
from vklab.types import TensorInfo

Ints = tuple[int, ...]
AUTO_PADS = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}
REDUCTIONS = {"reduce_mean": "ReduceMean", "reduce_sum": "ReduceSum", "reduce_max": "ReduceMax",
              "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd", "reduce_l1_norm": "ReduceL1",
              "reduce_l2_norm": "ReduceL2", "reduce_sum_square": "ReduceSumSquare",
              "reduce_log_sum_exp": "ReduceLogSumExp"}  # fmt: skip


def pads_of(op: Emission, pad_type: str, pad: Ints | None, axes: int) -> dict[str, object]:
    """Return ONNX's padding attributes of a window.

    Args:
        op: the emission, for error messages.
        pad_type: "valid", "same", "same_lower" or "custom".
        pad: before and after each axis, for "custom".
        axes: the number of spatial axes.
    """
    if pad_type in AUTO_PADS:
        return {"auto_pad": AUTO_PADS[pad_type]}
    if pad_type != "custom":
        raise op.refusal(f"pad_type {pad_type!r}; vklab knows custom, {', '.join(AUTO_PADS)}")
    sizes = tuple(pad or (0,) * 2 * axes)
    if len(sizes) != 2 * axes or min(sizes, default=0) < 0:
        raise op.refusal(f"pad {sizes} of {axes} axes")
    return {"pads": (*sizes[::2], *sizes[1::2])}


@operator("conv")
def conv(
    op: Emission,
    x: TensorInfo,
    weight: TensorInfo,
    bias: TensorInfo | None = None,
    *,
    strides: Ints | None = None,
    pad_type: str = "valid",
    pad: Ints | None = None,
    dilations: Ints | None = None,
    groups: int = 1,
) -> None:
    """Convolve one to three spatial axes."""
    padding = pads_of(op, pad_type, pad, x.rank - 2)
    op.result(
        "Conv", x, weight, bias, strides=strides, dilations=dilations, group=groups, **padding
    )


@operator("max_pool", "avg_pool")
def pool(
    op: Emission,
    x: TensorInfo,
    *,
    kernel_sizes: Ints,
    strides: Ints | None = None,
    pad_type: str,
    pad: Ints | None = None,
    exclude_padding_from_average: bool = False,
    ceil_mode: bool = False,
) -> None:
    """Take the largest element or the mean of each window."""
    padding = pads_of(op, pad_type, pad, len(kernel_sizes))
    if ceil_mode and op.kind == "avg_pool" and not exclude_padding_from_average:
        raise op.refusal(
            "ceil_mode with padding that counts: MIL does not fix the divisor of "
            "windows beyond the padding"
        )
    counted = None if op.kind == "max_pool" else int(not exclude_padding_from_average)
    op.result(
        "MaxPool" if op.kind == "max_pool" else "AveragePool",
        x,
        kernel_shape=kernel_sizes,
        strides=strides,
        ceil_mode=int(ceil_mode) or None,
        count_include_pad=counted,
        **padding,
    )


@operator("linear")
def linear(op: Emission, x: TensorInfo, weight: TensorInfo, bias: TensorInfo | None = None) -> None:
    """Compute x W' + b over the last axis, rounded once."""
    if x.rank == 2:
        op.result("Gemm", x, weight, bias, transB=1)
        return
    if sum(isinstance(dim, str) for dim in x.shape[:-1]) > 1:
        raise op.refusal(f"{x} has more than one open dimension before the last")
    rows = op.node(
        "Reshape", x, np.asarray([-1, x.dims[-1]] if x.is_static else [-1, x.shape[-1]], np.int64)
    )
    product = op.node("Gemm", rows, weight, bias, transB=1)
    dims = [-1 if isinstance(dim, str) else dim for dim in (*x.shape[:-1], weight.shape[0])]
    op.result("Reshape", product, np.asarray(dims, np.int64))


@operator("matmul")
def matmul(
    op: Emission,
    x: TensorInfo,
    y: TensorInfo,
    *,
    transpose_x: bool = False,
    transpose_y: bool = False,
) -> None:
    """Multiply matrices, broadcasting batch axes like NumPy."""
    sides = [
        _transposed(op, each) if flag else each
        for each, flag in ((x, transpose_x), (y, transpose_y))
    ]
    op.result("MatMul", *sides)


def _transposed(op: Emission, x: TensorInfo | str, rank: int = 0) -> str:
    rank = x.rank if isinstance(x, TensorInfo) else rank
    return op.node("Transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))


@operator("scaled_dot_product_attention")
def scaled_dot_product_attention(
    op: Emission,
    query: TensorInfo,
    key: TensorInfo,
    value: TensorInfo,
    attn_mask: TensorInfo | None = None,
) -> None:
    """Compute softmax(Q K' / sqrt(E) + mask) V in float32, rounded once."""
    size = query.shape[-1]
    if isinstance(size, str):
        raise op.refusal(f"the last dimension of {query} is open")
    scale = np.float32(1 / math.sqrt(int(size)))
    scores = op.node("MatMul", op.wide(query), _transposed(op, op.wide(key), key.rank))
    scores = op.node("Mul", scores, scale)
    if attn_mask is not None and attn_mask.dtype == "bool":
        scores = op.node("Where", attn_mask, scores, np.float32(-np.inf))
    elif attn_mask is not None:
        scores = op.node("Add", scores, op.wide(attn_mask))
    op.narrow("MatMul", op.node("Softmax", scores, axis=-1), op.wide(value))


@operator("softmax")
def softmax(op: Emission, x: TensorInfo, *, axis: int = -1) -> None:
    """Compute exp(x) divided by its sum over an axis."""
    op.result("Softmax", x, axis=axis)


@operator(*REDUCTIONS)
def reduction(
    op: Emission, x: TensorInfo, *, axes: Ints | None = None, keep_dims: bool = False
) -> None:
    """Reduce axes, or all, to one element."""
    numbers = None if axes is None else np.asarray(axes, np.int64)
    op.result(REDUCTIONS[op.kind], x, numbers, keepdims=int(keep_dims))


@operator("layer_norm")
def layer_norm(
    op: Emission,
    x: TensorInfo,
    gamma: TensorInfo | None = None,
    beta: TensorInfo | None = None,
    *,
    axes: Ints | None = None,
    epsilon: float = 1e-5,
) -> None:
    """Give the given axes, the last ones, mean zero and variance one; then scale and shift."""
    chosen = sorted(axis % x.rank for axis in axes) if axes is not None else list(range(x.rank))
    first = x.rank - len(chosen)
    if chosen != list(range(first, x.rank)):
        raise op.refusal(f"axes {axes} of {x.rank} are not the last ones")
    ones = op.filled(1, x.dims[first:], x.dtype) if gamma is None else gamma
    op.result("LayerNormalization", x, ones, beta, axis=first, epsilon=float(epsilon))


@operator("batch_norm")
def batch_norm(
    op: Emission,
    x: TensorInfo,
    mean: TensorInfo,
    variance: TensorInfo,
    gamma: TensorInfo | None = None,
    beta: TensorInfo | None = None,
    *,
    epsilon: float = 1e-5,
) -> None:
    """Normalise channels by given means and variances, then scale and shift."""
    scale = op.filled(1, mean.dims, mean.dtype) if gamma is None else gamma
    shift = op.filled(0, mean.dims, mean.dtype) if beta is None else beta
    op.result("BatchNormalization", x, scale, shift, mean, variance, epsilon=float(epsilon))


@operator("instance_norm")
def instance_norm(
    op: Emission,
    x: TensorInfo,
    gamma: TensorInfo | None = None,
    beta: TensorInfo | None = None,
    *,
    epsilon: float = 1e-5,
) -> None:
    """Normalise each channel of each image, then scale and shift."""
    channels = x.dims[1:2]
    scale = op.filled(1, channels, x.dtype) if gamma is None else gamma
    shift = op.filled(0, channels, x.dtype) if beta is None else beta
    op.result("InstanceNormalization", x, scale, shift, epsilon=float(epsilon))
