"""Dispatch conversions of elements to another dtype, by value or by bits.

Loading and storing convert most dtypes; the rest is here. ONNX: Cast, CastLike, BitCast.
"""

from __future__ import annotations

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import ELEMENT_TYPES, ELEMENTS, INTEGERS, MOVABLE
from vklab.ops.elementwise import compute
from vklab.ops.inputs import require
from vklab.ops.registry import Result, operator, output
from vklab.types import TensorInfo

CASTABLE = frozenset(ELEMENTS)
# Floats that a cast saturates by default, with the largest number of each.
BYTE_FLOATS = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0,
               "float8_e5m2fnuz": 57344.0}  # fmt: skip
ROUND_MODES = {"nearest": 0x400000, "up": 0x7FFFFF, "down": 0}


def dtype_of(element_type: int) -> str:
    """Return the dtype of an ONNX element type; ModelError for an unknown number."""
    dtype = next((name for name, n in ELEMENT_TYPES.items() if n == element_type), "")
    if not dtype:
        raise ModelError(f"unknown element type {element_type}; see ONNX's TensorProto.DataType")
    if dtype == "string":
        raise UnsupportedOperatorError("strings are not supported")
    return dtype


def value_of(expression: str, source: str, target: str) -> str:
    """Return a Slang expression that converts a value between dtypes.

    An integer out of the target's range loses its upper bits, as ONNX demands.

    Args:
        expression: the Slang expression of the value.
        source: the dtype of the value.
        target: the dtype of the result.
    """
    before, after = ELEMENTS[source].value, ELEMENTS[target].value
    if after == "bool" != before:
        return f"({expression} != 0)"
    if before in ("float", "double") and after in ("uint", "uint64_t"):
        signed = after.removeprefix("u")
        signed = "int" if signed == "int" else "int64_t"
        return f"({expression} < 0 ? {after}({signed}({expression})) : {after}({expression}))"
    return f"{after}({expression})"


@operator("Cast")
def cast(input: TensorInfo, *, to: int, saturate: int = 1, round_mode: str = "up") -> Result:
    """Convert every element to another dtype. Source: ONNX Cast-25."""
    if round_mode not in ROUND_MODES:
        raise ModelError(f"unknown round_mode={round_mode!r}; choose one of up, down, nearest")
    return convert(input, dtype_of(to), bool(saturate), round_mode)


@operator("CastLike", since=15)
def cast_like(
    input: TensorInfo, target_type: TensorInfo, *, saturate: int = 1, round_mode: str = "up"
) -> Result:
    """Convert every element to the dtype of another tensor. Source: ONNX CastLike-25."""
    if round_mode not in ROUND_MODES:
        raise ModelError(f"unknown round_mode={round_mode!r}; choose one of up, down, nearest")
    return convert(input, target_type.dtype, bool(saturate), round_mode)


def convert(X: TensorInfo, to: str, saturate: bool = True, round_mode: str = "up") -> Result:
    """Return X in another dtype; a view of X if the dtype is the same.

    Args:
        X: the tensor to convert.
        to: the dtype of the result.
        saturate: clamp to the largest number of an 8-bit float instead of infinity or NaN.
        round_mode: the rounding to float8_e8m0fnu: "up", "down" or "nearest".
    """
    require(CASTABLE, X)
    if to not in CASTABLE:
        raise UnsupportedOperatorError(f"no kernel converts to {to}")
    if X.dtype == to:
        return Result((output(to, X.dims, X.constant),), views=((0, 0),))
    value = value_of("a", X.dtype, to)
    if to in BYTE_FLOATS and saturate:
        return compute(
            f"onnx::clip_to({value}, p0, p1)", (X,), to, -BYTE_FLOATS[to], BYTE_FLOATS[to]
        )
    if to == "float8_e8m0fnu":
        return compute(
            f"round_to_power({value}, uint(p0), {str(saturate).lower()})",
            (X,),
            to,
            ROUND_MODES[round_mode],
        )
    return compute(value, (X,), to)


@operator("BitCast", since=26)
def bit_cast(input: TensorInfo, *, to: int) -> Result:
    """Reinterpret every element's bits as another dtype. Source: ONNX BitCast-26."""
    require(MOVABLE, input)
    target, bits = dtype_of(to), 8 * np.dtype(input.dtype).itemsize
    if 8 * np.dtype(target).itemsize != bits:
        raise ModelError(f"{input.dtype} and {target} have elements of different size")
    if bits >= 32 or input.dtype == target:
        constant = None if input.constant is None else input.constant.view(target)
        return Result((output(target, input.dims, constant),), views=((0, 0),))
    # A device without narrow types stores each of them in 32 bits, converted by its own rule.
    value = "half_bits(a)" if input.dtype == "float16" else "a"
    kind = "uint" if target == "float16" else ELEMENTS[_plain(target)].value
    value = f"half_of(uint({value}) & 0xffff)" if target == "float16" else f"{kind}({value})"
    return compute(value, (input,), target, dtypes=(_plain(input.dtype), _plain(target)))


def _plain(dtype: str) -> str:
    """Return the dtype that holds the bits of another dtype as numbers."""
    if dtype in INTEGERS or dtype == "float16":
        return dtype
    return f"uint{8 * np.dtype(dtype).itemsize}"
