"""Expand normalisations into other operators: by known statistics, by a norm, over any axes.

ONNX: BatchNormalization, LpNormalization, MeanVarianceNormalization, SkipLayerNormalization.
Visited by labs 09 and 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vklab.errors import ModelError
from vklab.ops.body import Body
from vklab.ops.dtypes import FLOATS, REALS
from vklab.ops.inputs import normal_axes, normal_axis, require
from vklab.ops.layer_norm import CODES, normalize
from vklab.ops.registry import Answer, operator
from vklab.types import TensorInfo


@operator("BatchNormalization", since=14)
def batch_normalization(
    X: TensorInfo,
    scale: TensorInfo,
    B: TensorInfo,
    input_mean: TensorInfo,
    input_var: TensorInfo,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Answer:
    """Normalise channels by given statistics, or by those of X. Source: ONNX BatchNormalization-15.

    In training mode, return the running statistics mixed with those of X too.
    """
    parameters = (scale, B, input_mean, input_var)
    require(REALS, X, *parameters)
    if X.rank < 2 or any(info.dims != (X.dims[1],) for info in parameters):
        shapes = ", ".join(str(info.shape) for info in parameters)
        raise ModelError(
            f"X {X.shape} needs one scale, B, mean and variance per channel, not {shapes}"
        )
    body, wide = Body(), np.float64 if X.dtype == "float64" else np.float32

    def widened(value: Any, dtype: str) -> Any:
        return value if dtype == wide.__name__ else body("Cast", value, to=CODES[wide.__name__])

    x = widened(X, X.dtype)
    factor, shift, mean, variance = (widened(info, info.dtype) for info in parameters)
    running: list[Any] = []
    if training_mode:
        axes = np.array([axis for axis in range(X.rank) if axis != 1], np.int64)
        own_mean = body("ReduceMean", x, axes)
        distance = body("Sub", x, own_mean)
        own_variance = body("ReduceMean", body("Mul", distance, distance), axes)
        flat = [body("Reshape", value, np.array([-1])) for value in (own_mean, own_variance)]
        for old, new, info in zip((mean, variance), flat, parameters[2:], strict=True):
            kept = body("Mul", old, wide(momentum))
            mixed = body("Add", kept, body("Mul", new, wide(1 - momentum)))
            running.append(_narrowed(body, mixed, info.dtype, wide.__name__))
        mean, variance = flat
    factor = body("Div", factor, body("Sqrt", body("Add", variance, wide(epsilon))))
    shift = body("Sub", shift, body("Mul", mean, factor))
    shape = np.array([-1] + [1] * (X.rank - 2))
    y = body("Mul", x, body("Reshape", factor, shape))
    y = body("Add", y, body("Reshape", shift, shape))
    return body.result(_narrowed(body, y, X.dtype, wide.__name__), *running)


def _narrowed(body: Body, value: str, dtype: str, wide: str) -> str:
    return value if dtype == wide else body("Cast", value, to=CODES[dtype])


@operator("BatchNormalization", since=7)
def batch_normalization_of_9(
    X: TensorInfo,
    scale: TensorInfo,
    B: TensorInfo,
    mean: TensorInfo,
    var: TensorInfo,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
) -> Answer:
    """Normalise each channel by known statistics. Source: ONNX BatchNormalization-9."""
    if not spatial:
        raise ModelError("spatial=0 is not supported; ONNX removed it in opset 9")
    return batch_normalization(X, scale, B, mean, var, epsilon=epsilon, momentum=momentum)


@operator("LpNormalization")
def lp_normalization(input: TensorInfo, *, axis: int = -1, p: int = 2) -> Answer:
    """Divide by the p-norm along an axis; zero stays zero. Source: ONNX LpNormalization-22."""
    require(REALS, input)
    if p not in (1, 2):
        raise ModelError(f"p={p} is not supported; choose 1 or 2")
    body, zero = Body(), np.zeros((), input.dtype)
    over = np.array([normal_axis(axis, input.rank)], np.int64)
    norm = body(f"ReduceL{p}", input, over)
    divided = body("Div", input, norm)
    return body.result(body("Where", body("Equal", norm, zero), zero, divided))


@operator("MeanVarianceNormalization")
def mean_variance_normalization(X: TensorInfo, *, axes: Sequence[int] = (0, 2, 3)) -> Answer:
    """Shift X to mean 0, scale it to variance 1. Source: ONNX MeanVarianceNormalization-13."""
    require(REALS, X)
    body = Body()
    wide = np.float64 if X.dtype == "float64" else np.float32
    over = np.array(normal_axes(tuple(axes), X.rank), np.int64)
    x = body("Cast", X, to=CODES["float32"]) if X.dtype in FLOATS - {"float32"} else X
    distance = body("Sub", x, body("ReduceMean", x, over))
    variance = body("ReduceMean", body("Mul", distance, distance), over)
    y = body("Div", distance, body("Add", body("Sqrt", variance), wide(1e-9)))
    return body.result(_narrowed(body, y, X.dtype, wide.__name__))


@operator("SimplifiedLayerNormalization", domain="com.microsoft")
@operator("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    X: TensorInfo,
    scale: TensorInfo,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Answer:
    """Divide by the root of the mean square, then scale. Source: ONNX RMSNormalization-23."""
    axis = normal_axis(axis, X.rank)
    return normalize(X, scale, None, axis, epsilon, scale.dtype, center=False)


@operator("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(
    input: TensorInfo,
    skip: TensorInfo,
    gamma: TensorInfo,
    beta: TensorInfo | None = None,
    bias: TensorInfo | None = None,
    *,
    epsilon: float = 1e-5,
) -> Answer:
    """Normalise the rows of input + skip + bias. Source: ONNX Runtime."""
    body = Body()
    total = _sum(body, input, skip, bias)
    outputs = body.many("LayerNormalization", 3, total, gamma, beta, axis=-1, epsilon=epsilon)
    return body.result(*outputs, total)


@operator("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_simplified_layer_normalization(
    input: TensorInfo,
    skip: TensorInfo,
    gamma: TensorInfo,
    bias: TensorInfo | None = None,
    *,
    epsilon: float = 1e-5,
) -> Answer:
    """Divide input + skip + bias by its root mean square. Source: Zhang and Sennrich, 2019."""
    body = Body()
    total = _sum(body, input, skip, bias)
    y, inverse = body.many(
        "SimplifiedLayerNormalization", 2, total, gamma, axis=-1, epsilon=epsilon
    )
    return body.result(y, None, inverse, total)


def _sum(body: Body, input: TensorInfo, skip: TensorInfo, bias: TensorInfo | None) -> str:
    total = body("Add", input, skip)
    return total if bias is None else body("Add", total, bias)
