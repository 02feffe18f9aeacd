"""Dispatch Softmax and LogSoftmax along rows of any axis.

One kernel does rows that fit a workgroup; longer rows are expanded into reductions.
Visited by lab 07.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vklab.ops.body import Body
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import normal_axis, require
from vklab.ops.registry import Answer, Result, operator, output
from vklab.ops.rows import rows_of
from vklab.types import Dispatch, TensorInfo

# Rows above LONGEST (by `wide`), or above LONG_ROW if fewer than FEW_ROWS, are divided among
# workgroups: softmax is then expanded into reductions.
LONGEST = {True: 1 << 20, False: 20000}
FEW_ROWS, LONG_ROW = 64, 1 << 15


@operator("Softmax", since=13)
def softmax(X: TensorInfo, *, axis: int = -1) -> Answer:
    """Normalise exp(X) along one axis. Source: ONNX Softmax-13."""
    return _softmax(X, normal_axis(axis, X.rank), False, 0)


@operator("Softmax", since=1)
def softmax_flattened(X: TensorInfo, *, axis: int = 1) -> Answer:
    """Normalise exp(X) over all axes from `axis` on. Source: ONNX Softmax-11."""
    return _softmax(X, normal_axis(axis, X.rank), True, 0)


@operator("LogSoftmax", since=13)
def log_softmax(X: TensorInfo, *, axis: int = -1) -> Answer:
    """Compute the logarithm of Softmax along one axis. Source: ONNX LogSoftmax-13."""
    return _softmax(X, normal_axis(axis, X.rank), False, 1)


@operator("LogSoftmax", since=1)
def log_softmax_flattened(X: TensorInfo, *, axis: int = 1) -> Answer:
    """Compute the logarithm of Softmax over all axes from `axis` on. Source: ONNX LogSoftmax-11."""
    return _softmax(X, normal_axis(axis, X.rank), True, 1)


def _softmax(X: TensorInfo, axis: int, flattened: bool, log: int) -> Answer:
    require(FLOATS, X)
    result = output(X.dtype, X.dims)
    if result.count == 0:
        return Result((result,))
    columns = math.prod(X.dims[axis:]) if flattened else X.dims[axis]
    inner = 1 if flattened else math.prod(X.dims[axis + 1 :])
    rows = rows_of(X.count // (columns * inner), columns, inner)
    if columns > LONGEST[rows.wide] or (rows.count < FEW_ROWS and columns > LONG_ROW):
        return _long_softmax(X, range(axis, X.rank) if flattened else [axis], log)
    dispatch = Dispatch(
        kernel="softmax",
        reads=(("x_buffer", X),),
        writes=(("y_buffer", result),),
        workgroups=rows.workgroups,
        push=rows.push,
        defines=(
            *type_defines("X", X.dtype)[:2],
            *type_defines("Y", X.dtype)[::2],
            ("WIDE", str(int(rows.wide))),
            ("LOG", str(log)),
        ),
        constants=(("WORKGROUP", rows.lanes),),
        flops=5 * X.count,
        iterations=3 * rows.iterations + 32,
        stores=True,
        loads=True,
    )
    return Result((result,), (dispatch,))


def _long_softmax(X: TensorInfo, axes: Sequence[int], log: int) -> Answer:
    body, over = Body(), np.array(axes, np.int64)
    above = body("Sub", X, body("ReduceMax", X, over))
    if log:
        return body.result(body("Sub", above, body("ReduceLogSumExp", above, over)))
    raised = body("Exp", above)
    return body.result(body("Div", raised, body("ReduceSum", raised, over)))
