"""Dispatch activation functions, which change every element by itself.

Each is one function of shaders/lib/elementwise.slang. ONNX: Relu, Gelu, HardSwish.
Visited by labs 09 and 10.
"""

from __future__ import annotations

import numpy as np

from vklab.errors import ModelError
from vklab.ops.body import Body, Expansion
from vklab.ops.dtypes import ELEMENTS, FLOATS, INTEGERS, NUMBERS, REALS
from vklab.ops.elementwise import broadcast_shape, compute, elementwise
from vklab.ops.inputs import require
from vklab.ops.registry import Result, operator
from vklab.types import TensorInfo

MICROSOFT = "com.microsoft"


@operator("Relu")
def relu(X: TensorInfo) -> Result:
    """Compute max(x, 0). Source: ONNX Relu-14."""
    return elementwise("int_relu" if X.dtype in INTEGERS else "relu", X, of=NUMBERS)


@operator("LeakyRelu")
def leaky_relu(X: TensorInfo, *, alpha: float = 0.01) -> Result:
    """Compute x, or alpha * x below zero. Source: ONNX LeakyRelu-16."""
    return elementwise("leaky_relu", X, of=REALS, alpha=alpha)


@operator("ThresholdedRelu")
def thresholded_relu(X: TensorInfo, *, alpha: float = 1.0) -> Result:
    """Compute x if x > alpha, else 0. Source: ONNX ThresholdedRelu-22."""
    return elementwise("thresholded_relu", X, of=REALS, alpha=alpha)


@operator("PRelu", since=7)
def prelu(X: TensorInfo, slope: TensorInfo) -> Result | Expansion:
    """Compute x, or slope * x below zero. Source: ONNX PRelu-16."""
    if slope.rank == 1 < X.rank and slope.dims == X.dims[1:2] and slope.dims != X.dims[-1:]:
        body = Body()  # until opset 6 a vector gave one slope per channel; models still do
        shape = np.asarray([slope.count] + [1] * (X.rank - 2), np.int64)
        return body.result(body("PRelu", X, body("Reshape", slope, shape)))
    if broadcast_shape(X.dims, slope.dims) != X.dims:
        raise ModelError(f"slope of shape {slope.shape} does not broadcast to {X.shape}")
    return elementwise("prelu", X, slope, of=NUMBERS)


@operator("Binarizer", domain="ai.onnx.ml")
def binarizer(X: TensorInfo, *, threshold: float = 0.0) -> Result:
    """Compute 1 above the threshold, else 0. Source: ONNX Binarizer-1."""
    return elementwise("binarize", X, of=FLOATS, threshold=threshold)


@operator("Elu")
def elu(X: TensorInfo, *, alpha: float = 1.0) -> Result:
    """Compute x, or alpha * (exp(x) - 1) below zero. Source: ONNX Elu-22."""
    return elementwise("elu", X, alpha=alpha)


@operator("Celu", since=12)
def celu(X: TensorInfo, *, alpha: float = 1.0) -> Result:
    """Compute x, or alpha * (exp(x / alpha) - 1) below zero. Source: ONNX Celu-12."""
    return elementwise("celu", X, alpha=alpha)


@operator("Selu")
def selu(
    X: TensorInfo, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805
) -> Result:
    """Compute gamma * x, or gamma * alpha * (exp(x) - 1) below zero. Source: ONNX Selu-22."""
    return elementwise("selu", X, alpha=alpha, gamma=gamma)


@operator("Sigmoid")
def sigmoid(X: TensorInfo) -> Result:
    """Compute 1 / (1 + exp(-x)). Source: ONNX Sigmoid-13."""
    return elementwise("sigmoid", X)


@operator("HardSigmoid")
def hard_sigmoid(X: TensorInfo, *, alpha: float = 0.2, beta: float = 0.5) -> Result:
    """Compute clip(alpha * x + beta, 0, 1). Source: ONNX HardSigmoid-22."""
    return elementwise("hard_sigmoid", X, alpha=alpha, beta=beta)


@operator("Swish", since=24)
def swish(X: TensorInfo, *, alpha: float = 1.0) -> Result:
    """Compute x * sigmoid(alpha * x). Source: ONNX Swish-24."""
    return elementwise("swish", X, alpha=alpha)


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(X: TensorInfo, *, alpha: float = 1.702) -> Result:
    """Compute x * sigmoid(alpha * x). Source: ONNX Runtime's QuickGelu-1."""
    return elementwise("swish", X, alpha=alpha)


@operator("HardSwish", since=14)
def hard_swish(X: TensorInfo) -> Result:
    """Compute x * clip(x / 6 + 1 / 2, 0, 1). Source: ONNX HardSwish-22."""
    return elementwise("hard_swish", X)


@operator("SwiGLU", since=28)
def swiglu(A: TensorInfo, B: TensorInfo, *, alpha: float = 1.0) -> Result:
    """Compute a * sigmoid(alpha * a) * b. Source: ONNX SwiGLU-28."""
    if A.dims != B.dims:
        raise ModelError(f"A has shape {A.shape} and B {B.shape}; both must have the same shape")
    return elementwise("swiglu", A, B, alpha=alpha)


@operator("Softplus")
def softplus(X: TensorInfo) -> Result:
    """Compute log(1 + exp(x)). Source: ONNX Softplus-22."""
    return elementwise("softplus", X)


@operator("Softsign")
def softsign(input: TensorInfo) -> Result:
    """Compute x / (1 + |x|). Source: ONNX Softsign-22."""
    return elementwise("softsign", input, of=REALS)


@operator("Mish", since=18)
def mish(X: TensorInfo) -> Result:
    """Compute x * tanh(softplus(x)). Source: ONNX Mish-22."""
    return elementwise("mish", X)


@operator("Gelu", since=20)
@operator("Gelu", domain=MICROSOFT)
def gelu(X: TensorInfo, *, approximate: str = "none") -> Result:
    """Compute x times the cumulative normal distribution at x. Source: ONNX Gelu-20."""
    functions = {"none": "gelu", "tanh": "gelu_tanh"}
    if approximate not in functions:
        raise ModelError(f"unknown approximate={approximate!r}; choose 'none' or 'tanh'")
    return elementwise(functions[approximate], X)


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(X: TensorInfo, bias: TensorInfo | None = None) -> Result | Expansion:
    """Compute Gelu of x + bias, approximated by tanh. Source: ONNX Runtime's FastGelu-1."""
    if bias is None:
        return gelu(X, approximate="tanh")
    body = Body()
    return body.result(body("Gelu", body("Add", X, bias), approximate="tanh"))


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(A: TensorInfo, B: TensorInfo) -> Expansion:
    """Compute Gelu of a + b. Source: ONNX Runtime's BiasGelu-1."""
    body = Body()
    return body.result(body("Gelu", body("Add", A, B)))


@operator("Shrink", since=9)
def shrink(input: TensorInfo, *, bias: float = 0.0, lambd: float = 0.5) -> Result:
    """Move x towards zero by bias; set it to zero within +-lambd. Source: ONNX Shrink-9."""
    require(FLOATS | INTEGERS, input)
    call = f"{ELEMENTS[input.dtype].value}(onnx::shrink(float(a), p0, p1))"
    return compute(call, (input,), input.dtype, bias, lambd)
