"""MIL's element-wise operators as ONNX nodes.

An operator of several nodes computes in float32 and rounds once, as one operator of MIL does.
Source: operator definitions of MIL, iOS 15 to 18
"""

from __future__ import annotations

import numpy as np

from vklab.apps.compare.coreml.emission import Emission, operator
from vklab.apps.compare.coreml.values import ONNX_CODES, STORED
from vklab.types import TensorInfo

# MIL's name and ONNX's, of operators that agree in everything.
UNARY = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "exp": "Exp", "sqrt": "Sqrt",
         "abs": "Abs", "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "round": "Round",
         "erf": "Erf", "sin": "Sin", "cos": "Cos", "softplus": "Softplus",
         "softsign": "Softsign", "logical_not": "Not", "identity": "Identity"}  # fmt: skip
BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "maximum": "Max", "minimum": "Min",
          "pow": "Pow", "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual",
          "greater": "Greater", "greater_equal": "GreaterOrEqual", "logical_and": "And",
          "logical_or": "Or", "logical_xor": "Xor"}  # fmt: skip


@operator(*UNARY)
def unary(op: Emission, x: TensorInfo) -> None:
    """Apply a function to each element."""
    op.result(UNARY[op.kind], x)


@operator(*BINARY)
def binary(op: Emission, x: TensorInfo, y: TensorInfo) -> None:
    """Combine two tensors element by element, broadcasting like NumPy."""
    op.result(BINARY[op.kind], x, y)


@operator("not_equal")
def not_equal(op: Emission, x: TensorInfo, y: TensorInfo) -> None:
    """Tell where two tensors differ."""
    op.result("Not", op.node("Equal", x, y))


@operator("real_div")
def real_div(op: Emission, x: TensorInfo, y: TensorInfo) -> None:
    """Divide floats."""
    if not x.dtype.startswith("float"):
        raise op.refusal(f"vklab divides floats, not {x.dtype}")
    op.result("Div", x, y)


@operator("floor_div")
def floor_div(op: Emission, x: TensorInfo, y: TensorInfo) -> None:
    """Divide and round down; ONNX's Div of integers rounds towards zero."""
    if x.dtype.startswith("float"):
        op.narrow("Floor", op.node("Div", op.wide(x), op.wide(y)))
    else:
        op.result("Div", op.node("Sub", x, op.node("Mod", x, y)), y)


@operator("mod")
def mod(op: Emission, x: TensorInfo, y: TensorInfo) -> None:
    """Return x - y * floor(x / y): the remainder with the sign of y."""
    if not x.dtype.startswith("float"):
        op.result("Mod", x, y)
        return
    wide, by = op.wide(x), op.wide(y)
    op.narrow("Sub", wide, op.node("Mul", by, op.node("Floor", op.node("Div", wide, by))))


@operator("square")
def square(op: Emission, x: TensorInfo) -> None:
    """Multiply each element by itself."""
    op.result("Mul", x, x)


@operator("log")
def log(op: Emission, x: TensorInfo, *, epsilon: float = 1e-45) -> None:
    """Compute log(x + epsilon)."""
    op.narrow("Log", op.node("Add", op.wide(x), np.float32(epsilon)))


@operator("rsqrt")
def rsqrt(op: Emission, x: TensorInfo, *, epsilon: float = 1e-12) -> None:
    """Compute 1 / sqrt(x + epsilon)."""
    root = op.node("Sqrt", op.node("Add", op.wide(x), np.float32(epsilon)))
    op.narrow("Reciprocal", root)


@operator("inverse")
def inverse(op: Emission, x: TensorInfo, *, epsilon: float = 1e-4) -> None:
    """Compute 1 / (x + epsilon)."""
    op.narrow("Reciprocal", op.node("Add", op.wide(x), np.float32(epsilon)))


@operator("silu")
def silu(op: Emission, x: TensorInfo) -> None:
    """Compute x * sigmoid(x)."""
    wide = op.wide(x)
    op.narrow("Mul", wide, op.node("Sigmoid", wide))


@operator("relu6")
def relu6(op: Emission, x: TensorInfo) -> None:
    """Clip to 0 and 6."""
    bounds = (np.zeros((), x.dtype), np.full((), 6, x.dtype))
    op.result("Clip", x, *bounds)


@operator("clip")
def clip(op: Emission, x: TensorInfo, *, alpha: float, beta: float) -> None:
    """Clip to alpha and beta."""
    op.result("Clip", x, np.asarray(alpha, x.dtype), np.asarray(beta, x.dtype))


@operator("leaky_relu")
def leaky_relu(op: Emission, x: TensorInfo, *, alpha: float = 0.01) -> None:
    """Multiply negative elements by alpha."""
    op.result("LeakyRelu", x, alpha=float(alpha))


@operator("elu")
def elu(op: Emission, x: TensorInfo, *, alpha: float = 1.0) -> None:
    """Replace negative elements by alpha * (exp(x) - 1)."""
    op.result("Elu", x, alpha=float(alpha))


@operator("sigmoid_hard")
def sigmoid_hard(op: Emission, x: TensorInfo, *, alpha: float = 0.2, beta: float = 0.5) -> None:
    """Clip alpha * x + beta to 0 and 1."""
    op.result("HardSigmoid", x, alpha=float(alpha), beta=float(beta))


@operator("thresholded_relu")
def thresholded_relu(op: Emission, x: TensorInfo, *, alpha: float = 1.0) -> None:
    """Replace elements below alpha by 0; unlike ONNX's operator, MIL's keeps x = alpha."""
    below = op.node("Less", x, np.asarray(alpha, x.dtype))
    op.result("Where", below, np.zeros((), x.dtype), x)


@operator("gelu")
def gelu(op: Emission, x: TensorInfo, *, mode: str = "EXACT") -> None:
    """Compute x * P(X <= x) of the normal distribution, or one of two approximations."""
    forms = {"EXACT": "none", "TANH_APPROXIMATION": "tanh"}
    if mode in forms:
        op.result("Gelu", x, approximate=forms[mode])
    elif mode == "SIGMOID_APPROXIMATION":
        wide = op.wide(x)
        scaled = op.node("Mul", wide, np.float32(1.702))
        op.narrow("Mul", wide, op.node("Sigmoid", scaled))
    else:
        known = ", ".join((*forms, "SIGMOID_APPROXIMATION"))
        raise op.refusal(f"mode {mode!r}; vklab knows {known}")


@operator("cast")
def cast(op: Emission, x: TensorInfo, *, dtype: str) -> None:
    """Convert to another type."""
    if STORED.get(dtype) not in ONNX_CODES:
        raise op.refusal(f"dtype {dtype!r}")
    op.result("Cast", x, to=ONNX_CODES[STORED[dtype]])


@operator("select")
def select(op: Emission, cond: TensorInfo, a: TensorInfo, b: TensorInfo) -> None:
    """Take elements of a where the condition holds, else of b."""
    op.result("Where", cond, a, b)
