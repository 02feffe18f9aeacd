"""Inputs of an ONNX model: their names, and random arrays for them. Visited by lab 09."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from vklab.errors import ModelError


def _values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs without those that are initializers."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def names(model: onnx.ModelProto) -> list[str]:
    """Return the names of the inputs without those that are initializers."""
    return [value.name for value in _values(model)]


def drawn(
    model: onnx.ModelProto, random: np.random.Generator, above: int
) -> dict[str, NDArray[Any]]:
    """Return an array for each input: normal floats, and small integers; open sizes are 1.

    Args:
        model: the model.
        random: draws the numbers.
        above: integers are less than this.

    Raises ModelError for an input that is not a tensor of numbers of known rank.
    """
    return {value.name: _drawn(value, random, above) for value in _values(model)}


def _drawn(value: onnx.ValueInfoProto, random: np.random.Generator, above: int) -> NDArray[Any]:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or tensor.elem_type == TensorProto.STRING:
        raise ModelError(f"input {value.name!r} is not a tensor of numbers of known rank")
    # HasField, because a dimension of 0 is known, and an unset one is symbolic.
    shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if dtype == np.bool_ or np.issubdtype(dtype, np.integer):
        return random.integers(0, 2 if dtype == np.bool_ else above, shape).astype(dtype)
    return random.standard_normal(shape, np.float32).astype(dtype)
