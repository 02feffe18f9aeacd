"""Expand ONNX Runtime's quantized and fused operators: dequantize, compute, quantize again.

Elementwise operators compute in floating point, matrix products exactly in int32.
Source: ONNX Runtime, docs/ContribOperators.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.body import Body, Expansion
from vklab.ops.dtypes import ELEMENT_TYPES
from vklab.ops.inputs import normal_axis, require
from vklab.ops.registry import operator
from vklab.types import TensorInfo

DOMAIN = "com.microsoft"
BYTES = frozenset({"int8", "uint8"})
# The attributes that FusedConv's activation_params set, by activation.
PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}


def _numbers(b: Body, x: TensorInfo, scale: TensorInfo, zero: TensorInfo | None) -> str:
    require(BYTES, x)
    return b("DequantizeLinear", x, scale, zero)


def _codes(b: Body, y: str, scale: TensorInfo, zero: TensorInfo | None, dtype: str) -> Expansion:
    """Return the finished body with y, quantized to a dtype, as its output."""
    to = None if zero else ELEMENT_TYPES[dtype]
    return b.result(b("QuantizeLinear", y, scale, zero, output_dtype=to))


def _of_one(
    op_type: str, x: TensorInfo, given: Sequence[TensorInfo | None], **attributes: Any
) -> Expansion:
    """Return an operator of one input; `given` is (scale, zero, result's scale, result's zero)."""
    b = Body()
    scale, zero, y_scale, y_zero = given
    y = b(op_type, _numbers(b, x, _needed(scale), zero), **attributes)
    return _codes(b, y, _needed(y_scale), y_zero, x.dtype)


def _needed(scale: TensorInfo | None) -> TensorInfo:
    if scale is None:
        raise ModelError("an input that holds a tensor or a scale is missing")
    return scale


@operator("QLinearAdd", domain=DOMAIN)
def qlinear_add(
    A: TensorInfo, A_scale: TensorInfo, A_zero_point: TensorInfo | None, B: TensorInfo,
    B_scale: TensorInfo, B_zero_point: TensorInfo | None, C_scale: TensorInfo,
    C_zero_point: TensorInfo | None = None,
) -> Expansion:  # fmt: skip
    """Add two quantized tensors. Source: ONNX Runtime's QLinearAdd-1."""
    b = Body()
    y = b("Add", _numbers(b, A, A_scale, A_zero_point), _numbers(b, B, B_scale, B_zero_point))
    return _codes(b, y, C_scale, C_zero_point, A.dtype)


@operator("QLinearMul", domain=DOMAIN)
def qlinear_mul(
    A: TensorInfo, A_scale: TensorInfo, A_zero_point: TensorInfo | None, B: TensorInfo,
    B_scale: TensorInfo, B_zero_point: TensorInfo | None, C_scale: TensorInfo,
    C_zero_point: TensorInfo | None = None,
) -> Expansion:  # fmt: skip
    """Multiply two quantized tensors element by element. Source: ONNX Runtime's QLinearMul-1."""
    b = Body()
    y = b("Mul", _numbers(b, A, A_scale, A_zero_point), _numbers(b, B, B_scale, B_zero_point))
    return _codes(b, y, C_scale, C_zero_point, A.dtype)


@operator("QLinearWhere", domain=DOMAIN)
def qlinear_where(
    condition: TensorInfo, X: TensorInfo, x_scale: TensorInfo, x_zero_point: TensorInfo,
    Y: TensorInfo, y_scale: TensorInfo, y_zero_point: TensorInfo, z_scale: TensorInfo,
    z_zero_point: TensorInfo,
) -> Expansion:  # fmt: skip
    """Select elements of two quantized tensors. Source: ONNX Runtime's QLinearWhere-1."""
    b = Body()
    x, y = _numbers(b, X, x_scale, x_zero_point), _numbers(b, Y, y_scale, y_zero_point)
    return _codes(b, b("Where", condition, x, y), z_scale, z_zero_point, X.dtype)


@operator("QLinearSigmoid", domain=DOMAIN)
def qlinear_sigmoid(
    X: TensorInfo, X_scale: TensorInfo, X_zero_point: TensorInfo | None, Y_scale: TensorInfo,
    Y_zero_point: TensorInfo | None = None,
) -> Expansion:  # fmt: skip
    """Compute Sigmoid of a quantized tensor. Source: ONNX Runtime's QLinearSigmoid-1."""
    return _of_one("Sigmoid", X, (X_scale, X_zero_point, Y_scale, Y_zero_point))


@operator("QLinearLeakyRelu", domain=DOMAIN)
def qlinear_leaky_relu(
    X: TensorInfo, X_scale: TensorInfo, X_zero_point: TensorInfo | None, Y_scale: TensorInfo,
    Y_zero_point: TensorInfo | None = None, *, alpha: float = 0.01,
) -> Expansion:  # fmt: skip
    """Compute LeakyRelu of a quantized tensor. Source: ONNX Runtime's QLinearLeakyRelu-1."""
    return _of_one("LeakyRelu", X, (X_scale, X_zero_point, Y_scale, Y_zero_point), alpha=alpha)


@operator("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(
    X: TensorInfo, X_scale: TensorInfo, x_zero_point: TensorInfo | None, y_scale: TensorInfo,
    y_zero_point: TensorInfo, *, opset: int, axis: int = -1,
) -> Expansion:  # fmt: skip
    """Compute Softmax along an axis; below opset 13, over all axes from `axis` on.

    Source: ONNX Runtime's QLinearSoftmax-1.
    """
    b = Body()
    x = _numbers(b, X, X_scale, x_zero_point)
    axis = normal_axis(axis, X.rank)
    if opset >= 13:
        y = b("Softmax", x, axis=axis)
    else:
        rows = np.array([math.prod(X.dims[:axis]), math.prod(X.dims[axis:])], np.int64)
        flat = b("Softmax", b("Reshape", x, rows, allowzero=1), axis=1)
        y = b("Reshape", flat, np.array(X.dims, np.int64), allowzero=1)
    return _codes(b, y, y_scale, y_zero_point, X.dtype)


@operator("QLinearConcat", domain=DOMAIN)
def qlinear_concat(
    Y_scale: TensorInfo, Y_zero_point: TensorInfo, *inputs: TensorInfo | None, axis: int
) -> Expansion:  # fmt: skip
    """Join tensors of different scales and zero points. Source: ONNX Runtime's QLinearConcat-1."""
    if not inputs or len(inputs) % 3:
        raise ModelError(f"{len(inputs)} inputs are not triples of tensor, scale and zero point")
    b = Body()
    parts = [
        _numbers(b, _needed(x), _needed(scale), zero)
        for x, scale, zero in zip(*(inputs[i::3] for i in range(3)), strict=True)
    ]
    return _codes(b, b("Concat", *parts, axis=axis), Y_scale, Y_zero_point, Y_zero_point.dtype)


def _pooled(
    op_type: str,
    x: TensorInfo,
    given: Sequence[TensorInfo | None],
    channels_last: int,
    **attributes: Any,
) -> Expansion:
    if not channels_last:
        return _of_one(op_type, x, given, **attributes)
    raise UnsupportedOperatorError(f"{channels_last=}; kernels take channels before spatial axes")


@operator("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(
    X: TensorInfo, x_scale: TensorInfo, x_zero_point: TensorInfo | None, y_scale: TensorInfo,
    y_zero_point: TensorInfo | None = None, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    channels_last: int = 0, count_include_pad: int = 0, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Expansion:  # fmt: skip
    """Compute each window's mean of X [N,C,...]. Source: ONNX Runtime's QLinearAveragePool-1."""
    return _pooled(
        "AveragePool",
        X,
        (x_scale, x_zero_point, y_scale, y_zero_point),
        channels_last,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@operator("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(
    X: TensorInfo, x_scale: TensorInfo, x_zero_point: TensorInfo, y_scale: TensorInfo,
    y_zero_point: TensorInfo, *, channels_last: int = 0,
) -> Expansion:  # fmt: skip
    """Compute the mean of each channel. Source: ONNX Runtime's QLinearGlobalAveragePool-1."""
    given = (x_scale, x_zero_point, y_scale, y_zero_point)
    return _pooled("GlobalAveragePool", X, given, channels_last)


def _product(
    b: Body, left: Any, right: Any, scales: Sequence[Any], zeros: Sequence[Any],
    units: TensorInfo | None = None
) -> str:  # fmt: skip
    """Return (left * right + units) * scales, summed in int32; one scale, or one per column."""
    total = b("MatMulInteger", left, right, *zeros)
    total = total if units is None else b("Add", total, units)
    scale = b("Mul", *scales)
    return b("Mul", b("CastLike", total, scale), scale)


@operator("QGemm", domain=DOMAIN)
def qgemm(
    A: TensorInfo, a_scale: TensorInfo, a_zero_point: TensorInfo, B: TensorInfo,
    b_scale: TensorInfo, b_zero_point: TensorInfo, C: TensorInfo | None = None,
    y_scale: TensorInfo | None = None, y_zero_point: TensorInfo | None = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Expansion:  # fmt: skip
    """Compute alpha * (A' * B' + C), C in units of both scales. Source: ONNX Runtime's QGemm-1."""
    if A.rank != 2 or B.rank != 2:
        raise ModelError(f"{A} and {B} must be matrices")
    b = Body()
    left = b("Transpose", A, perm=(1, 0)) if transA else A
    right = b("Transpose", B, perm=(1, 0)) if transB else B
    scale = a_scale if alpha == 1 else b("Mul", a_scale, alpha)
    y = _product(b, left, right, (scale, b_scale), (a_zero_point, b_zero_point), C)
    if y_scale is None:
        return b.result(y)
    return _codes(b, y, y_scale, y_zero_point, "uint8")


@operator("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    A: TensorInfo, B: TensorInfo, a_scale: TensorInfo, b_scale: TensorInfo,
    a_zero_point: TensorInfo | None = None, b_zero_point: TensorInfo | None = None,
    bias: TensorInfo | None = None,
) -> Expansion:  # fmt: skip
    """Multiply quantized matrices to floats. Source: ONNX Runtime's MatMulIntegerToFloat-1."""
    b = Body()
    y = _product(b, A, B, (a_scale, b_scale), (a_zero_point, b_zero_point))
    return b.result(y if bias is None else b("Add", y, bias))


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(
    A: TensorInfo, B: TensorInfo, b_scale: TensorInfo, b_zero_point: TensorInfo | None = None,
    bias: TensorInfo | None = None,
) -> Expansion:  # fmt: skip
    """Quantize A by its range, multiply by B. Source: ONNX Runtime's DynamicQuantizeMatMul-1."""
    b = Body()
    a, scale, zero = b.many("DynamicQuantizeLinear", 3, A)
    y = _product(b, a, B, (scale, b_scale), (zero, b_zero_point))
    return b.result(y if bias is None else b("Add", y, bias))


@operator("FusedConv", domain=DOMAIN)
def fused_conv(
    X: TensorInfo, W: TensorInfo, B: TensorInfo | None = None, Z: TensorInfo | None = None, *,
    activation: str = "", activation_params: Sequence[float] = (), auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expansion:  # fmt: skip
    """Convolve, add Z and apply an activation. Source: ONNX Runtime's FusedConv-1."""
    b = Body()
    y = b(
        "Conv",
        X,
        W,
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    y = y if Z is None else b("Add", y, Z)
    if activation == "Clip":
        y = b("Clip", y, *(np.array(limit).astype(X.dtype) for limit in activation_params))
    elif activation:
        names = PARAMETERS.get(activation, ())
        more: dict[str, Any] = dict(zip(names, activation_params, strict=False))
        y = b(activation, y, **more)
    return b.result(y)


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(
    input_ids: TensorInfo, segment_ids: TensorInfo | None, word_embedding: TensorInfo,
    position_embedding: TensorInfo, segment_embedding: TensorInfo | None, gamma: TensorInfo,
    beta: TensorInfo, mask: TensorInfo | None = None, position_ids: TensorInfo | None = None, *,
    epsilon: float = 1e-12, mask_index_type: int = 0, output_count: int = 1,
) -> Expansion:  # fmt: skip
    """Normalise the sum of three embeddings; count the steps that the mask keeps.

    Source: ONNX Runtime's EmbedLayerNormalization-1.
    """
    batch, steps = input_ids.dims
    b = Body()
    if position_ids is None:
        ends = (np.array([number], np.int64) for number in (0, steps))
        position = b("Slice", position_embedding, *ends)
    else:
        position = b("Gather", position_embedding, position_ids)
    total = b("Add", b("Gather", word_embedding, input_ids), position)
    if segment_ids is not None and segment_embedding is not None:
        total = b("Add", total, b("Gather", segment_embedding, segment_ids))
    y = b("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    counts: Any = None
    if output_count > 1:
        counts = np.zeros(batch, np.int32)
        if mask is not None:
            kept = b("Cast", b("Equal", mask, np.array(1, np.int32)), to=ELEMENT_TYPES["int32"])
            counts = b("ReduceSum", kept, np.array([1], np.int64), keepdims=0)
    return b.result(y, counts, total)
