"""Rounding of the values of a fused text, so that they are as if they had been stored.

Half precision rounds after every step: by bits, or by the device's own arithmetic of halves where
it rounds as IEEE 754 says. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from vklab.ops import dtypes
from vklab.ops.dtypes import ELEMENTS
from vklab.types import DeviceInfo, Dispatch, Formula, Pointwise

# A kernel whose text computes in halves; `shader.exact` then requires rounding to even of it.
DEFINE = ("HALVES", "1")
# A sum, difference or product of two halves is the same rounded from float32 and computed in
# halves, since float32 has twice the bits (Figueroa 1995, "When is double rounding innocuous?").
NATIVE = frozenset({"onnx::add(a, b)", "onnx::sub(a, b)", "onnx::mul(a, b)"})
# Their results are numbers of a dtype if their arguments are.
REPRESENTABLE = frozenset({
    "onnx::neg(a)", "onnx::abs(a)", "onnx::sign(a)", "onnx::relu(a)", "onnx::ceil(a)",
    "onnx::floor(a)", "onnx::round(a)", "onnx::maximum(a, b)", "onnx::minimum(a, b)",
    "onnx::clip(a, b, c)", "onnx::select(a, b, c)",
})  # fmt: skip
_PLAIN = {"float32": "float", "int32": "int", "uint32": "uint", "bool": "bool"}


def plain(dtype: str) -> str:
    """Return the Slang type of a dtype that registers hold as it is; "" for another one."""
    return _PLAIN.get(dtype, "")


def has_halves(info: DeviceInfo) -> bool:
    """Tell whether the device's arithmetic of halves rounds to even and keeps small numbers."""
    return bool(info.limits.get("exactFloat16")) and "shaderFloat16" in info.features


def works(dispatch: Dispatch) -> Iterator[Pointwise]:
    """Yield all element-wise work of a dispatch."""
    yield from filter(None, (dispatch.pointwise, dispatch.prologue, dispatch.epilogue))
    yield from dispatch.siblings


def kept(dispatch: Dispatch) -> tuple[tuple[str, str], ...]:
    """Return the define of a dispatch that computes in halves, else none."""
    return (DEFINE,) if DEFINE in dispatch.defines else ()


def is_native(work: Pointwise, formula: Formula) -> bool:
    """Tell whether a formula of halves gives the same computed in halves."""
    return formula.text in NATIVE and _are_halves(work, formula)


def is_representable(work: Pointwise, formula: Formula) -> bool:
    """Tell whether a formula's results need no rounding, because its arguments were rounded."""
    return formula.text in REPRESENTABLE and _are_halves(work, formula)


def stays_half(work: Pointwise, number: int) -> bool:
    """Tell whether a value is a half that only formulas of halves read, or that none reads.

    Rounded by a conversion, it has no way back to a float that a driver could cut short.
    """
    readers = [formula for formula in work.formulas if number in formula.arguments]
    return _dtype(work, number) == "float16" and all(is_native(work, each) for each in readers)


def _are_halves(work: Pointwise, formula: Formula) -> bool:
    first = 1 if formula.text.startswith("onnx::select") else 0  # its condition has any dtype
    given = (_dtype(work, number) for number in formula.arguments[first:])
    return formula.dtype == "float16" and all(dtype == "float16" for dtype in given)


def _dtype(work: Pointwise, number: int) -> str:
    """Return the dtype of an operand or of a formula; numbers that are halves count as such."""
    count = len(work.operands)
    if number < count:
        return work.operands[number].dtype
    formula = work.formulas[number - count]
    if formula.text == "p0" and not formula.arguments:
        return "float16" if _is_half(formula.numbers[0]) else formula.dtype
    return formula.dtype


def _is_half(value: float) -> bool:
    small = isinstance(value, float) and abs(value) < 65520  # larger ones round to infinity
    return small and float(np.float16(value)) == value


def words(
    names: Sequence[str], arguments: Iterable[int], halves: set[str], native: bool
) -> dict[str, str]:
    """Return the Slang of each argument of a formula, by the letter that stands for it.

    Args:
        names: the names of all values.
        arguments: the numbers of the formula's arguments.
        halves: the names of values that are halves; others are floats.
        native: whether the formula computes in halves.
    """
    texts = [names[number] for number in arguments]
    converted = (
        [
            text if (text in halves) == native else f"{'half' if native else 'float'}({text})"
            for text in texts
        ]
        if native or halves
        else texts
    )
    return dict(zip("abc", converted, strict=False))


def rounded(name: str, value: str, dtype: str, declare: bool) -> tuple[str, dict[str, str]]:
    """Return the line that rounds a value as storing it in a tensor would, and its defines.

    Args:
        name: the variable.
        value: the Slang of the value.
        dtype: the dtype of the tensor.
        declare: whether the line declares the variable.
    """
    known = plain(dtype)
    if known:
        return (f"    {known} {name} = {value};" if declare else ""), {}
    if dtype == "float16":  # drivers optimise a conversion there and back away
        return f"    {'float ' if declare else ''}{name} = narrow_half({value});", {}
    alias = f"R_{dtype.upper()}"
    kind = ELEMENTS[dtype].value if ELEMENTS[dtype].value in ("float", "int", "uint") else alias
    line = f"{name} = {alias}_LOAD({alias}({alias}_STORE({value})));"
    defines = dict(dtypes.type_defines(alias, dtype))
    return (f"    {kind} {line}" if declare else f"    {line}"), defines
