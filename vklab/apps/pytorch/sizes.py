"""Translation of sizes that PyTorch computes from numbers, in float64, as Python does.

PyTorch's exporter computes them in float32, so that math.floor(x.shape[0] * 0.29) of 100 gave 29 in
place of 28. Visited by lab 09.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from onnxscript import ir
from onnxscript import opset23 as op

from vklab.apps.pytorch.constants import UNKNOWN, constant, float64, symbolic
from vklab.errors import ModelError

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def _is_whole(number: Any) -> bool:
    """Tell whether a number, or a symbolic number of the graph, is an integer."""
    return isinstance(number, int) or getattr(number, "dtype", None) == INT64


def _binary(name: str) -> Callable[..., Any]:
    """Return the translation of an operator of two symbolic numbers."""

    def translate(a: Any, b: Any) -> Any:
        function = getattr(op, name)
        if _is_whole(a) and _is_whole(b):
            return function(a, b)
        return symbolic(function(float64(a), float64(b)))

    return translate


def _to_whole(name: str) -> Callable[..., Any]:
    """Return the translation of a rounding of a symbolic float."""
    return lambda number, digits=None: op.Cast(getattr(op, name)(float64(number)), to=INT64)


def _trunc(number: Any) -> Any:
    return op.Cast(float64(number), to=INT64)


def _sym_float(number: Any) -> Any:
    return symbolic(float64(number))


def _true_division(a: Any, b: Any) -> Any:
    return symbolic(op.Div(float64(a), float64(b)))


def _negative(number: Any) -> Any:
    return op.Neg(number) if _is_whole(number) else symbolic(op.Neg(float64(number)))


def _floor_division(a: Any, b: Any) -> Any:
    if _is_whole(a) and _is_whole(b):
        # Div of ONNX rounds towards zero, Mod has the divisor's sign as in Python.
        return op.Div(op.Sub(a, op.Mod(a, b)), b)
    return symbolic(op.Floor(op.Div(float64(a), float64(b))))


def _range(
    start: Any, end: Any, step: Any = 1, dtype: int = UNKNOWN, layout: str = "", device: str = "",
    pin_memory: bool = False,
) -> Any:  # fmt: skip
    del layout, device, pin_memory
    numbers = (start, end, step)
    if all(_is_whole(number) for number in numbers):
        whole = op.Range(*(constant(n, INT64) for n in numbers))
        return whole if dtype in (UNKNOWN, INT64) else op.Cast(whole, to=dtype)
    kind = ir.DataType(FLOAT if dtype == UNKNOWN else dtype)
    if all(isinstance(number, (int, float)) for number in numbers):
        known: Any = ir.tensor(torch.arange(*numbers, dtype=_TORCH[kind]), dtype=kind)
        return op.Constant(value=known)
    if kind.is_integer():
        raise ModelError(
            f"arange of {kind} by a float that depends on a size; round it first, or "
            "cast what arange of floats returns"
        )
    first, last, by = (float64(number) for number in numbers)
    count = op.Cast(op.Ceil(op.Div(op.Sub(last, first), by)), to=INT64)
    at = float64(op.Range(constant(0, INT64), count, constant(1, INT64)))
    return op.Cast(op.Add(first, op.Mul(at, by)), to=kind)


def _range_to(end: Any, dtype: int = UNKNOWN, **options: Any) -> Any:
    return _range(0, end, 1, dtype, **options)


def _range_by_one(start: Any, end: Any, dtype: int = UNKNOWN, **options: Any) -> Any:
    return _range(start, end, 1, dtype, **options)


_TORCH = {
    ir.DataType[name]: dtype
    for name, dtype in (
        ("FLOAT", torch.float32),
        ("DOUBLE", torch.float64),
        ("FLOAT16", torch.float16),
        ("BFLOAT16", torch.bfloat16),
        ("INT8", torch.int8),
        ("INT16", torch.int16),
        ("INT32", torch.int32),
        ("INT64", torch.int64),
        ("UINT8", torch.uint8),
    )
}


def require_open(exported: Any) -> None:
    """Raise ModelError if the export of a module fixed a size that a factor computes."""
    for guard in getattr(exported, "_guards_code", ()):
        if re.fullmatch(r"math\.\w+\(.*sym_float.*\) == \d+", guard):
            raise ModelError(
                f"torch.export fixes a size that depends on an open one: {guard}; use "
                "math.trunc in place of int, or give the dimension a "
                "fixed size"
            )


# A part of the custom_translation_table of torch.onnx.export.
TABLE: dict[Any, Callable[..., Any]] = {
    torch.sym_float: _sym_float,
    torch.sym_max: _binary("Max"),
    torch.sym_min: _binary("Min"),
    operator.add: _binary("Add"),
    operator.sub: _binary("Sub"),
    operator.mul: _binary("Mul"),
    operator.pow: _binary("Pow"),
    operator.neg: _negative,
    operator.truediv: _true_division,
    operator.floordiv: _floor_division,
    math.floor: _to_whole("Floor"),
    math.ceil: _to_whole("Ceil"),
    math.trunc: _trunc,
    round: _to_whole("Round"),
    torch.ops.aten.arange.default: _range_to,
    torch.ops.aten.arange.start: _range_by_one,
    torch.ops.aten.arange.start_step: _range,
}
