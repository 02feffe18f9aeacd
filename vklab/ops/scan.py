"""Dispatch running sums and products along an axis, and determinants. ONNX: CumSum, CumProd, Det.

Visited by lab 07. Source: Blelloch, "Prefix Sums and Their Applications", 1990.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import ELEMENTS, NUMBERS, REALS, type_defines
from vklab.ops.inputs import known_integers, normal_axis, require
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.ops.rows import rows_of, value_dtype
from vklab.types import Dispatch, TensorInfo

EACH = 4  # elements of one invocation in a block of shaders/ops/cumulative.slang
LARGEST_MATRIX = 256
# The longest row of one invocation.
LONGEST_ROW = 16384


@operator("CumSum")
def cumsum(x: TensorInfo, axis: TensorInfo, *, exclusive: int = 0, reverse: int = 0) -> Result:
    """Compute the running sum along an axis. Source: ONNX CumSum-14."""
    return _cumulative("plus", x, axis, exclusive, reverse)


@operator("CumProd")
def cumprod(x: TensorInfo, axis: TensorInfo, *, exclusive: int = 0, reverse: int = 0) -> Result:
    """Compute the running product along an axis. Source: ONNX CumProd-26."""
    return _cumulative("times", x, axis, exclusive, reverse)


def _cumulative(
    combine: str, X: TensorInfo, axis: TensorInfo, exclusive: int, reverse: int
) -> Result:
    require(NUMBERS, X)
    numbers = known_integers(axis, "the axis")
    if len(numbers) != 1:
        raise ModelError(f"axis={numbers} must be one number")
    number = normal_axis(numbers[0], X.rank)
    result = output(X.dtype, X.dims)
    if X.count == 0:
        return Result((result,))
    before, columns, after = X.dims[:number], X.dims[number], X.dims[number + 1 :]
    rows = rows_of(math.prod(before), columns, math.prod(after))
    if columns > LONGEST_ROW:
        rows = replace(rows, wide=True)
    blocks = -(-columns // (rows.lanes * EACH))
    steps = 2 * EACH + rows.lanes.bit_length() + 1
    dispatch = Dispatch(
        kernel="cumulative",
        reads=(("x_buffer", X),),
        writes=(("y_buffer", result),),
        workgroups=rows.workgroups,
        push=rows.push,
        defines=(
            *type_defines("X", X.dtype)[:2],
            *type_defines("Y", X.dtype)[::2],
            ("V", ELEMENTS[value_dtype(X.dtype)].value),
            ("COMBINE", combine),
            ("IDENTITY", "0" if combine == "plus" else "1"),
            ("WIDE", str(int(rows.wide))),
            ("REVERSE", str(int(reverse != 0))),
            ("EXCLUSIVE", str(int(exclusive != 0))),
        ),
        constants=(("WORKGROUP", rows.lanes),),
        flops=X.count,
        iterations=blocks * steps if rows.wide else columns,
        stores=True,
        loads=True,
    )
    return Result((result,), (dispatch,))


@operator("Det")
def determinant(X: TensorInfo) -> Result:
    """Compute determinants by Gaussian elimination with partial pivoting. Source: ONNX Det-22."""
    require(REALS, X)
    if X.rank < 2 or X.dims[-1] != X.dims[-2]:
        raise ModelError(f"X of shape {X.shape} must end in two equal axes: square matrices")
    size = X.dims[-1]
    if size > LARGEST_MATRIX:
        raise UnsupportedOperatorError(f"matrices of {size} rows; kernels take {LARGEST_MATRIX}")
    result = output(X.dtype, X.dims[:-2])
    if result.count == 0:
        return Result((result,))
    if size == 0:
        return Result((output(X.dtype, X.dims[:-2], np.ones(X.dims[:-2], X.dtype)),))
    copy = output(value_dtype(X.dtype), X.dims)
    lanes = min(WORKGROUP, max(32, 1 << (size * size // 4).bit_length()))
    dispatch = Dispatch(
        kernel="determinant",
        reads=(("x_buffer", X),),
        writes=(("m_buffer", copy), ("y_buffer", result)),
        workgroups=grid(result.count),
        push=(("count", result.count), ("size", size)),
        defines=(*type_defines("T", X.dtype), ("V", ELEMENTS[copy.dtype].value)),
        constants=(("WORKGROUP", lanes),),
        flops=result.count * size**3,
        iterations=size * (size + 4) // 2 + size**3 // 3 // lanes + 3 * size + size**2 // lanes,
    )
    return Result((result,), (dispatch,), (copy,))
