"""Dispatch searches for the largest or smallest element of a row. ONNX: ArgMax, ArgMin, Hardmax.

Visited by lab 07.
"""

from __future__ import annotations

import math

from vklab.errors import ModelError
from vklab.ops.dtypes import ELEMENTS, INTEGERS, NUMBERS, REALS, type_defines
from vklab.ops.inputs import normal_axis, require
from vklab.ops.registry import Result, operator, output
from vklab.ops.rows import Rows, Work, divide_rows, rows_of, value_dtype
from vklab.types import Dispatch, TensorInfo

# An index is written without 64-bit arithmetic, which some devices lack.
INDEX = {
    "int64": (("Y", "uint2"), ("INDEX", "uint2(place,0)")),
    "int32": (("Y", "int"), ("INDEX", "int(place)")),
}


@operator("ArgMax")
def argmax(
    data: TensorInfo, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Result:
    """Find the index of the largest element along an axis. Source: ONNX ArgMax-13."""
    return _arg(">", data, axis, keepdims, select_last_index)


@operator("ArgMin")
def argmin(
    data: TensorInfo, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Result:
    """Find the index of the smallest element along an axis. Source: ONNX ArgMin-13."""
    return _arg("<", data, axis, keepdims, select_last_index)


@operator("Hardmax", since=13)
def hardmax(input: TensorInfo, *, axis: int = -1) -> Result:
    """Put one at the first largest element of an axis, zero elsewhere. Source: ONNX Hardmax-13."""
    axis = normal_axis(axis, input.rank)
    return _hardmax(input, input.dims[axis], math.prod(input.dims[axis + 1 :]))


@operator("Hardmax")
def hardmax_flattened(input: TensorInfo, *, axis: int = 1) -> Result:
    """Put one at the first largest element of the axes from `axis` on. Source: ONNX Hardmax-11."""
    return _hardmax(input, math.prod(input.dims[normal_axis(axis, input.rank) :]), 1)


def _hardmax(X: TensorInfo, columns: int, inner: int) -> Result:
    require(REALS, X)
    result = output(X.dtype, X.dims)
    rows = rows_of(X.count // max(columns * inner, 1), columns, inner)
    return _result(">", X, rows, result, hot=1)


def _arg(better: str, X: TensorInfo, axis: int, keepdims: int, last: int) -> Result:
    require(NUMBERS, X)
    axis = normal_axis(axis, X.rank)
    before, columns, after = X.dims[:axis], X.dims[axis], X.dims[axis + 1 :]
    result = output("int64", (*before, *((1,) if keepdims else ()), *after))
    if result.count and not columns:
        raise ModelError(f"axis {axis} of {X.shape} is empty: it has no largest element")
    rows = rows_of(math.prod(before), columns, math.prod(after))
    return _result(better, X, rows, result, last)


def _result(
    better: str, X: TensorInfo, rows: Rows, result: TensorInfo, last: int = 0, hot: int = 0
) -> Result:
    if result.count == 0:
        return Result((result,))
    indices, work = None, Work()
    cut = divide_rows(rows)
    while cut.parts > 1:
        best = work.temporary("int32", (cut.count,))
        work.dispatches += (_dispatch(better, X, indices, rows.columns, cut, best, last, 0),)
        indices = best
        cut = divide_rows(rows_of(rows.outer, cut.parts, rows.inner))
    work.dispatches += (_dispatch(better, X, indices, rows.columns, cut, result, last, hot),)
    return Result((result,), work.dispatches, work.scratch)


def _dispatch(
    better: str, X: TensorInfo, indices: TensorInfo | None, columns: int, rows: Rows,
    result: TensorInfo, last: int, hot: int,
) -> Dispatch:  # fmt: skip
    flags = {"WIDE": rows.wide, "GIVEN": indices is not None, "HOT": hot, "LAST": last}
    lanes = rows.lanes if rows.wide else 1
    return Dispatch(
        kernel="arg_reduce",
        reads=(("x_buffer", X), *((("i_buffer", indices),) if indices else ())),
        writes=(("y_buffer", result),),
        workgroups=rows.workgroups,
        push=(
            ("rows", rows.count),
            ("columns", columns),
            ("inner", rows.inner),
            ("part", rows.part),
            ("parts", rows.parts),
            ("places", rows.columns),
        ),
        defines=(
            *type_defines("X", X.dtype)[:2],
            *(type_defines("Y", result.dtype)[::2] if hot else INDEX[result.dtype]),
            ("V", ELEMENTS[value_dtype(X.dtype)].value),
            ("BETTER", better),
            ("EXTREME", "max" if better == ">" else "min"),
            ("NAN", "is_nan_integer" if X.dtype in INTEGERS else "is_nan"),
            *((name, str(int(bool(flag)))) for name, flag in flags.items()),
        ),
        constants=(("WORKGROUP", rows.lanes),),
        flops=X.count,
        iterations=rows.iterations + 16 + (-(-columns // lanes) if hot else 0),
        loads=True,
    )
