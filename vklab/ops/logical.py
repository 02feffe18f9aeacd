"""Dispatch comparisons and logic on single elements, and selection by a bool. ONNX: Less, Where.

Each is one function of shaders/lib/elementwise.slang. Visited by labs 09 and 10.
"""

from __future__ import annotations

from vklab.ops.dtypes import BOOL, ELEMENTS, FLOATS, MOVABLE, NUMBERS, REALS
from vklab.ops.elementwise import SELECT, compute, elementwise
from vklab.ops.inputs import require, same
from vklab.ops.registry import Result, operator
from vklab.types import TensorInfo

CODED = frozenset(name for name, element in ELEMENTS.items() if element.value == "float") - FLOATS


@operator("And", since=7)
def logical_and(A: TensorInfo, B: TensorInfo) -> Result:
    """Tell whether both are true. Source: ONNX And-7."""
    return elementwise("logical_and", A, B, of=BOOL)


@operator("Or", since=7)
def logical_or(A: TensorInfo, B: TensorInfo) -> Result:
    """Tell whether one or both are true. Source: ONNX Or-7."""
    return elementwise("logical_or", A, B, of=BOOL)


@operator("Xor", since=7)
def logical_xor(A: TensorInfo, B: TensorInfo) -> Result:
    """Tell whether exactly one is true. Source: ONNX Xor-7."""
    return elementwise("logical_xor", A, B, of=BOOL)


@operator("Not")
def logical_not(X: TensorInfo) -> Result:
    """Negate a bool. Source: ONNX Not-1."""
    return elementwise("logical_not", X, of=BOOL)


@operator("Equal", since=7)
def equal(A: TensorInfo, B: TensorInfo) -> Result:
    """Tell whether a and b are equal. Source: ONNX Equal-19."""
    if A.dtype == "bool":
        return elementwise("logical_equal", A, B, of=BOOL, to="bool")
    return elementwise("equal", A, B, of=NUMBERS, to="bool")


@operator("Greater", since=7)
def greater(A: TensorInfo, B: TensorInfo) -> Result:
    """Tell whether a > b. Source: ONNX Greater-13."""
    return elementwise("greater", A, B, of=NUMBERS, to="bool")


@operator("GreaterOrEqual", since=12)
def greater_or_equal(A: TensorInfo, B: TensorInfo) -> Result:
    """Tell whether a >= b. Source: ONNX GreaterOrEqual-16."""
    return elementwise("greater_or_equal", A, B, of=NUMBERS, to="bool")


@operator("Less", since=7)
def less(A: TensorInfo, B: TensorInfo) -> Result:
    """Tell whether a < b. Source: ONNX Less-13."""
    return elementwise("less", A, B, of=NUMBERS, to="bool")


@operator("LessOrEqual", since=12)
def less_or_equal(A: TensorInfo, B: TensorInfo) -> Result:
    """Tell whether a <= b. Source: ONNX LessOrEqual-16."""
    return elementwise("less_or_equal", A, B, of=NUMBERS, to="bool")


@operator("IsNaN", since=9)
def is_nan(X: TensorInfo) -> Result:
    """Tell whether x is not a number. Source: ONNX IsNaN-20."""
    return elementwise("not_a_number", X, of=REALS | CODED, to="bool")


@operator("IsInf", since=10)
def is_inf(X: TensorInfo, *, detect_negative: int = 1, detect_positive: int = 1) -> Result:
    """Tell whether x is infinite, of a sign that is detected. Source: ONNX IsInf-20."""
    return elementwise(
        "infinite",
        X,
        of=REALS | CODED,
        to="bool",
        negative=detect_negative,
        positive=detect_positive,
    )


@operator("Where", since=9)
def where(condition: TensorInfo, X: TensorInfo, Y: TensorInfo) -> Result:
    """Select x where the condition is true, and y elsewhere. Source: ONNX Where-16."""
    require(BOOL, condition)
    require(MOVABLE, X, Y)
    return compute(SELECT, (condition, X, Y), same(X, Y))
