"""Dispatch losses of classifiers. ONNX: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss.

One kernel computes the loss of each target, reductions add them up; a mean divides by the sum of
the targets' weights. Visited by lab 09.
"""

from __future__ import annotations

import math

import numpy as np

from vklab.errors import ModelError
from vklab.ops.body import Body
from vklab.ops.dtypes import ELEMENTS, REALS, type_defines
from vklab.ops.inputs import require, same
from vklab.ops.reduction import KINDS, Kind, reduce_work
from vklab.ops.registry import WORKGROUP, Answer, Result, grid, operator, output
from vklab.ops.rows import Work, value_dtype
from vklab.types import Dispatch, TensorInfo

INDICES = frozenset({"int32", "int64"})
REDUCTIONS = ("none", "sum", "mean")
# Not the index of a class: no target is ignored.
NOTHING = -(2**31)


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(
    input: TensorInfo,
    target: TensorInfo,
    weight: TensorInfo | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Result:
    """Negate the input at each target's class. Source: ONNX NegativeLogLikelihoodLoss-22."""
    require(REALS, input, weight)
    require(INDICES, target)
    dtype = same(input, weight)
    if input.rank < 2 or target.dims != (input.dims[0], *input.dims[2:]):
        raise ModelError(
            f"target {target.shape} must have the shape of {input.shape} without the "
            "axis of classes"
        )
    if weight is not None and weight.dims != (input.dims[1],):
        raise ModelError(
            f"weight {weight.shape} must have one number for each of {input.dims[1]} classes"
        )
    if reduction not in REDUCTIONS:
        raise ModelError(f"unknown reduction={reduction!r}; choose one of {', '.join(REDUCTIONS)}")
    result = output(dtype, target.dims if reduction == "none" else ())
    if target.count == 0 or input.count == 0:
        empty = np.full(result.dims, np.nan if reduction == "mean" else 0, dtype)
        return Result((output(dtype, result.dims, empty),))
    ignored = NOTHING if ignore_index is None else max(NOTHING, min(ignore_index, -NOTHING - 1))
    if reduction == "none":
        return Result((result,), (_losses(input, target, weight, ignored, (result,)),))
    work, wide = Work(), value_dtype(dtype)
    parts = [work.temporary(wide, target.dims) for _ in range(2 if reduction == "mean" else 1)]
    work.dispatches += (_losses(input, target, weight, ignored, tuple(parts)),)
    axes, total, kind = range(target.rank), None, KINDS["ReduceSum"]
    if reduction == "mean":
        total, kind = work.temporary(wide, ()), Kind(finish="total/shift")
        reduce_work(KINDS["ReduceSum"], parts[1], axes, total, None, work)
    reduce_work(kind, parts[0], axes, result, total, work)
    return Result((result,), work.dispatches, work.scratch)


def _losses(
    X: TensorInfo,
    target: TensorInfo,
    weight: TensorInfo | None,
    ignored: int,
    outputs: tuple[TensorInfo, ...],
) -> Dispatch:
    storage, _, store = type_defines("Y", outputs[0].dtype)
    return Dispatch(
        kernel="nll_loss",
        reads=(
            ("x_buffer", X),
            ("target_buffer", target),
            *((("w_buffer", weight),) if weight else ()),
        ),
        writes=tuple(zip(("y_buffer", "total_buffer"), outputs, strict=False)),
        workgroups=grid(-(-target.count // WORKGROUP)),
        push=(
            ("count", target.count),
            ("inner", math.prod(X.dims[2:])),
            ("classes", X.dims[1]),
            ("ignored", ignored),
        ),
        defines=(
            *type_defines("X", X.dtype)[:2],
            storage,
            store,
            ("I", "uint2" if target.dtype == "int64" else "int"),
            ("V", ELEMENTS[value_dtype(X.dtype)].value),
            ("WEIGHTED", str(int(weight is not None))),
            ("TOTAL", str(len(outputs) - 1)),
        ),
        flops=2 * target.count,
    )


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(
    scores: TensorInfo,
    labels: TensorInfo,
    weights: TensorInfo | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Answer:
    """Compute LogSoftmax and its loss. Source: ONNX SoftmaxCrossEntropyLoss-13."""
    body = Body()
    log_prob = body("LogSoftmax", scores, axis=1)
    loss = body(
        "NegativeLogLikelihoodLoss",
        log_prob,
        labels,
        weights,
        ignore_index=ignore_index,
        reduction=reduction,
    )
    return body.result(loss, log_prob)
