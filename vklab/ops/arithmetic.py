"""Dispatch arithmetic on single elements: sums, powers, roundings, functions, bits.

Each is one function of shaders/lib/elementwise.slang; integers have their own function where the
result differs. ONNX: Add, Mod, Pow, Erf, Clip. Visited by labs 09 and 10.
"""

from __future__ import annotations

import numpy as np

from vklab.errors import ModelError
from vklab.ops.body import Body, Expansion
from vklab.ops.dtypes import ELEMENTS, FLOATS, INTEGERS, NUMBERS, REALS
from vklab.ops.elementwise import compute, elementwise
from vklab.ops.inputs import require, same
from vklab.ops.registry import Result, operator, output
from vklab.types import TensorInfo

# Functions of one real number; those of EXACT exist for float64 too.
EXACT = {"Ceil": "ceil", "Floor": "floor", "Reciprocal": "reciprocal", "Round": "round",
         "Sqrt": "sqrt"}  # fmt: skip
SMOOTH = {"Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
          "Atanh": "atanh", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Log": "log",
          "Sin": "sin", "Sinh": "sinh", "Tan": "tan", "Tanh": "tanh"}  # fmt: skip


def by_kind(function: str, *inputs: TensorInfo) -> Result:
    """Apply a Slang function to numbers; for integers its variant with the prefix int_."""
    name = f"int_{function}" if inputs[0].dtype in INTEGERS else function
    return elementwise(name, *inputs, of=NUMBERS)


def _register(op_type: str, function: str, of: frozenset[str]) -> None:
    @operator(op_type)
    def apply(X: TensorInfo) -> Result:
        return elementwise(function, X, of=of)

    apply.__doc__ = f"Compute {function}(x). Source: ONNX {op_type}."


for _op_type, _function in EXACT.items():
    _register(_op_type, _function, REALS)
for _op_type, _function in SMOOTH.items():
    _register(_op_type, _function, FLOATS)


@operator("Abs")
def absolute(X: TensorInfo) -> Result:
    """Compute |x|. Source: ONNX Abs-13."""
    return by_kind("abs", X)


@operator("Neg")
def neg(X: TensorInfo) -> Result:
    """Compute -x. Source: ONNX Neg-13."""
    return elementwise("neg", X, of=NUMBERS)


@operator("Sign", since=9)
def sign(input: TensorInfo) -> Result:
    """Compute the sign of x: -1, 0 or 1. Source: ONNX Sign-13."""
    return by_kind("sign", input)


@operator("Add", since=7)
def add(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a + b. Source: ONNX Add-14."""
    return elementwise("add", A, B, of=NUMBERS)


@operator("Sub", since=7)
def sub(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a - b. Source: ONNX Sub-14."""
    return elementwise("sub", A, B, of=NUMBERS)


@operator("Mul", since=7)
def mul(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a * b. Source: ONNX Mul-14."""
    return elementwise("mul", A, B, of=NUMBERS)


@operator("Div", since=7)
def div(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a / b; integer quotients are rounded towards zero. Source: ONNX Div-14."""
    return by_kind("div", A, B)


@operator("Mod", since=10)
def mod(A: TensorInfo, B: TensorInfo, *, fmod: int = 0) -> Result:
    """Compute the remainder of a / b with the sign of b, or of a if fmod. Source: ONNX Mod-13."""
    return by_kind("fmod" if fmod else "mod", A, B)


@operator("Pow", since=7)
def power(X: TensorInfo, Y: TensorInfo) -> Result:
    """Compute x to the power of y, in x's dtype. Source: ONNX Pow-15."""
    require(FLOATS | INTEGERS, X, Y)
    value = ELEMENTS[X.dtype].value
    if X.dtype in INTEGERS and Y.dtype in INTEGERS:
        return compute(f"onnx::int_pow(a, {value}(b))", (X, Y), X.dtype)
    return compute(f"{value}(onnx::pow(float(a), float(b)))", (X, Y), X.dtype)


@operator("BitShift", since=11)
def bit_shift(X: TensorInfo, Y: TensorInfo, *, direction: str) -> Result:
    """Shift x by y bits. Source: ONNX BitShift-11."""
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"unknown direction={direction!r}; choose 'LEFT' or 'RIGHT'")
    bits = 8 * np.dtype(X.dtype).itemsize
    return elementwise(f"int_shift_{direction.lower()}", X, Y, of=INTEGERS, bits=bits)


@operator("BitwiseAnd", since=18)
def bitwise_and(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a & b bit by bit. Source: ONNX BitwiseAnd-18."""
    return elementwise("int_and", A, B, of=INTEGERS)


@operator("BitwiseOr", since=18)
def bitwise_or(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a | b bit by bit. Source: ONNX BitwiseOr-18."""
    return elementwise("int_or", A, B, of=INTEGERS)


@operator("BitwiseXor", since=18)
def bitwise_xor(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a ^ b bit by bit. Source: ONNX BitwiseXor-18."""
    return elementwise("int_xor", A, B, of=INTEGERS)


@operator("BitwiseNot", since=18)
def bitwise_not(X: TensorInfo) -> Result:
    """Invert every bit. Source: ONNX BitwiseNot-18."""
    return elementwise("int_not", X, of=INTEGERS)


def _same(X: TensorInfo) -> Result:
    return Result((output(X.dtype, X.dims, X.constant),), views=((0, 0),))


def _folded(op_type: str, function: str, inputs: tuple[TensorInfo, ...]) -> Result | Expansion:
    """Apply a function of two operands to any number of inputs, from left to right."""
    require(NUMBERS, *inputs)
    if not inputs:
        raise ModelError("no input is given; one or more are needed")
    if len(inputs) == 1:
        return _same(inputs[0])
    if len(inputs) == 2:
        return by_kind(function, *inputs) if function != "add" else add(*inputs)
    same(*inputs)
    body = Body()
    so_far = body(op_type, *inputs[:2])
    for info in inputs[2:]:
        so_far = body(op_type, so_far, info)
    return body.result(so_far)


@operator("Max", since=6)
def maximum(*data_0: TensorInfo) -> Result | Expansion:
    """Compute the maximum of all inputs; NaN if one is NaN. Source: ONNX Max-13."""
    return _folded("Max", "maximum", data_0)


@operator("Min", since=6)
def minimum(*data_0: TensorInfo) -> Result | Expansion:
    """Compute the minimum of all inputs; NaN if one is NaN. Source: ONNX Min-13."""
    return _folded("Min", "minimum", data_0)


@operator("Sum", since=6)
def total(*data_0: TensorInfo) -> Result | Expansion:
    """Compute the sum of all inputs. Source: ONNX Sum-13."""
    return _folded("Sum", "add", data_0)


@operator("Mean", since=6)
def mean(*data_0: TensorInfo) -> Result | Expansion:
    """Compute the mean of all inputs. Source: ONNX Mean-13."""
    require(REALS, *data_0)
    body = Body()
    count = np.asarray(len(data_0)).astype(same(*data_0))
    return body.result(body("Div", body("Sum", *data_0), count))


@operator("Clip", since=11)
def clip(input: TensorInfo, min: TensorInfo | None = None, max: TensorInfo | None = None) -> Result:
    """Clamp x between min and max; max if min > max. Source: ONNX Clip-13."""
    for bound in (min, max):
        if bound is not None and bound.count != 1:
            raise ModelError(f"a bound has shape {bound.shape}; it must be one number")
    require(NUMBERS, input)
    if min is None and max is None:
        return _same(input)
    function = "maximum" if max is None else "minimum" if min is None else "clip"
    return by_kind(function, input, *(bound for bound in (min, max) if bound is not None))


@operator("Clip", since=6)
def clip_by_attribute(
    input: TensorInfo, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> Result:
    """Clamp x between min and max. Source: ONNX Clip-6."""
    return elementwise("clip_to", input, of=REALS, low=min, high=max)
