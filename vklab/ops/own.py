"""Operators of vklab's own, which graphs contain only after a rewriting.

Their domain is "vklab", so no model can mean another by their names.
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
    """Sum over what broadcasting has repeated, down to the shape of `like`. Source: own."""
    if broadcast_shape(X.dims, like.dims) != X.dims:
        raise ModelError(f"shape {X.shape} does not come from broadcasting {like.shape}")
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
    """Compute Softmax(scale * Q K' + mask) V of every head, whatever the mask. Source: own.

    Unlike ONNX's Attention, a row that is masked as a whole is what Softmax makes of it, unless
    `guarded` puts 0 for NaN. A bool mask puts `fill` in place of what it closes.
    """
    require(FLOATS, Q, K, V)
    work = Attending()
    scores = work.scores(Heads.of(Q), Heads.of(K), scale)
    weights, _ = work.weights(scores, mask, empty=2 if guarded else 1, fill=fill)
    work.scratch += [scores, weights]
    result = work.values(weights, Heads.of(V), flat=False)
    return Result((result,), tuple(work.dispatches), tuple(work.scratch))
