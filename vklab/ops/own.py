"""Operators of vklab's own, which graphs contain only after a rewriting.

Their domain is "vklab", so no model can mean another by their names.
"""

from __future__ import annotations

import numpy as np

from vklab.errors import ModelError
from vklab.ops.body import Body, Expansion
from vklab.ops.elementwise import broadcast_shape
from vklab.ops.registry import Result, operator
from vklab.ops.shape import view
from vklab.types import TensorInfo

__all__ = ["sum_to_shape"]


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
