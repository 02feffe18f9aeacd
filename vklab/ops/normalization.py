"""Operators that divide by something summed over an axis. ONNX: Softmax.

Visited by lab 07.
"""

from __future__ import annotations

import math

from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import normal_axis, require
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo

__all__ = ["softmax", "softmax_flattened"]


@operator("Softmax", since=13)
def softmax(X: TensorInfo, *, axis: int = -1) -> Result:
    """Normalise exp(X) along one axis. Source: ONNX Softmax-13."""
    axis = normal_axis(axis, X.rank)
    return _softmax(X, X.dims[axis], math.prod(X.dims[axis + 1 :]))


@operator("Softmax", since=1)
def softmax_flattened(X: TensorInfo, *, axis: int = 1) -> Result:
    """Normalise exp(X) over all axes from `axis` on. Source: ONNX Softmax-11."""
    return _softmax(X, math.prod(X.dims[normal_axis(axis, X.rank) :]), 1)


def _softmax(X: TensorInfo, columns: int, inner: int) -> Result:
    require(FLOATS, X)
    result = output(X.dtype, X.dims)
    if result.count == 0:
        return Result((result,))
    rows = X.count // columns
    dispatch = Dispatch(
        kernel="softmax",
        reads=(("x_buffer", X),),
        writes=(("y_buffer", result),),
        workgroups=grid(rows),
        push=(("rows", rows), ("columns", columns), ("inner", inner)),
        defines=type_defines("T", X.dtype),
        flops=5 * X.count,
        iterations=3 * -(-columns // WORKGROUP) + 32,
    )
    return Result((result,), (dispatch,))
