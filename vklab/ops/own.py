"""Dispatch vklab's own operators, which only passes and gradients write into a graph.

Their domain is "vklab", so their names cannot clash with a model's operators.
Visited by labs 10 and 19.
"""

from __future__ import annotations

import math

import numpy as np

from vklab.errors import ModelError
from vklab.ops.attention import Attending, Heads
from vklab.ops.body import Body, Expansion
from vklab.ops.dtypes import FLOATS
from vklab.ops.elementwise import broadcast_shape
from vklab.ops.inputs import require
from vklab.ops.registry import Result, operator
from vklab.ops.shape import view
from vklab.types import TensorInfo

__all__ = ["softmax_attention", "sum_to_shape"]


@operator("SumToShape", domain="vklab")
def sum_to_shape(X: TensorInfo, like: TensorInfo) -> Result | Expansion:
    """Sum X over the axes that broadcasting from the shape of `like` repeats. Source: own."""
    if broadcast_shape(X.dims, like.dims) != X.dims:
        raise ModelError(f"shape {like.shape} does not broadcast to {X.shape}")
    if X.dims == like.dims:
        return view(X, X.dims)
    padded = (1,) * (X.rank - like.rank) + like.dims
    axes = [i for i, (a, b) in enumerate(zip(X.dims, padded, strict=True)) if a != b]
    body = Body()
    summed = body("ReduceSum", X, np.asarray(axes, np.int64), keepdims=1)
    return body.result(body("Reshape", summed, np.asarray(like.dims, np.int64)))


@operator("Attention", domain="vklab")
def softmax_attention(
    Q: TensorInfo,
    K: TensorInfo,
    V: TensorInfo,
    mask: TensorInfo | None = None,
    *,
    scale: float = 1.0,
    fill: float = -math.inf,
    guarded: int = 0,
) -> Result:
    """Compute Softmax(scale * Q K' + mask) V of every head, for any mask. Source: own.

    Unlike in ONNX's Attention, a row masked as a whole has Softmax's result; `guarded` replaces
    its NaN by 0. A bool mask replaces the scores that it excludes by `fill`.
    """
    require(FLOATS, Q, K, V)
    work = Attending()
    scores = work.scores(Heads.of(Q), Heads.of(K), scale)
    weights, _ = work.weights(scores, mask, empty=2 if guarded else 1, fill=fill)
    work.scratch += [scores, weights]
    result = work.values(weights, Heads.of(V), flat=False)
    return Result((result,), tuple(work.dispatches), tuple(work.scratch))
