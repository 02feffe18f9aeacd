"""Models that hand a state from run to run: a recurrent cell, attention with a fixed cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value

ROWS, WIDTH, HEADS, LENGTH, DEPTH = 3, 8, 2, 23, 4
node = helper.make_node


def cell(rows: int | str = ROWS, width: int = WIDTH) -> onnx.ModelProto:
    """Build h2 = Tanh(h w + x), y = ReduceSum(h2): the state h becomes h2."""
    nodes = [
        node("MatMul", ["h", "w"], ["hw"]),
        node("Add", ["hw", "x"], ["s"]),
        node("Tanh", ["s"], ["h2"]),
        node("ReduceSum", ["h2"], ["y"], keepdims=0),
    ]
    inputs = [value("x", (rows, width)), value("h", (rows, width))]
    return model(nodes, inputs, ["y", "h2"], {"w": random_array((width, width))})


def position_dtype() -> str:
    """Return the dtype of a position: int64, or int32 where a device computes no int64."""
    every = all("shaderInt64" in info.features for info in vklab.devices())
    return "int64" if every else "int32"


def attention() -> onnx.ModelProto:
    """Build attention of one query over a cache, which takes the new row at position `at`.

    The outputs' order is not that of the inputs, and the states have different sizes.
    """
    nodes = [
        node("Equal", ["rows", "at"], ["is_new"]),
        node("Where", ["is_new", "k", "past_k"], ["present_k"]),
        node("Where", ["is_new", "v", "past_v"], ["present_v"]),
        node("Transpose", ["present_k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["score"]),
        node("LessOrEqual", ["places", "at"], ["is_past"]),
        node("Where", ["is_past", "score", "low"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "present_v"], ["y"]),
        node("Add", ["count", "one"], ["count2"]),
    ]
    cache, wide = (HEADS, LENGTH, DEPTH), (HEADS, LENGTH, 2 * DEPTH)
    at = helper.np_dtype_to_tensor_dtype(np.dtype(position_dtype()))
    inputs = [
        value("at", (1,), at),
        value("count", (1,)),
        value("past_v", wide),
        value("past_k", cache),
        value("q", (HEADS, 1, DEPTH)),
        value("k", (HEADS, 1, DEPTH)),
        value("v", (HEADS, 1, 2 * DEPTH)),
    ]
    numbers = np.arange(LENGTH, dtype=position_dtype())
    constants = {
        "rows": numbers.reshape(1, LENGTH, 1),
        "places": numbers.reshape(1, 1, LENGTH),
        "low": np.float32(-1e9),
        "one": np.ones(1, np.float32),
    }
    return model(nodes, inputs, ["present_k", "y", "count2", "present_v"], constants)


STATES: dict[str, tuple[Any, dict[str, str]]] = {
    "cell": (cell, {"h": "h2"}),
    "attention": (attention, {"past_k": "present_k", "past_v": "present_v", "count": "count2"}),
}


def step_inputs(name: str, number: int) -> dict[str, np.ndarray]:
    """Return the inputs of one step that are no states."""
    if name == "cell":
        return {"x": random_array((ROWS, WIDTH), number)}
    shapes = {"q": (HEADS, 1, DEPTH), "k": (HEADS, 1, DEPTH), "v": (HEADS, 1, 2 * DEPTH)}
    arrays = {key: random_array(shape, 10 * number + len(key)) for key, shape in shapes.items()}
    return {"at": np.array([number], position_dtype()), **arrays}


def zero_states(session: Any, states: dict[str, str]) -> dict[str, np.ndarray]:
    """Return zeros for the states of a session's model."""
    return {i.name: np.zeros(i.dims, i.dtype) for i in session.inputs if i.name in states}
