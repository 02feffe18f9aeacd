"""widen_weights: dequantize constants that no integer product reads, once, before the run.

`plan.constant_folding` leaves them in codes until the passes before this one have used them.
Visited by lab 10.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import quantized, rewriting
from vklab.types import TensorInfo

FLOATS = frozenset({"float32"})


def widen_weights(graph: Graph) -> Graph:
    """Replace each DequantizeLinear of a constant by its float32 result.

    Source: Muchnick 1997, "Advanced Compiler Design and Implementation" (constant folding)
    """
    made: dict[str, TensorInfo] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        widened = _widened(graph, node)
        if widened is None:
            kept.append(node)
        else:
            made[widened.name] = widened
    if not made:
        return graph
    return rewriting.rewritten(graph, kept, *made.values())


def _widened(graph: Graph, node: Node) -> TensorInfo | None:
    if not quantized.is_scaling(node, "DequantizeLinear") or node.attributes.get("block_size"):
        return None
    given = [graph.infos[name].constant for name in node.inputs if name]
    codes, scale = given[0], given[1]
    if codes is None or scale is None or any(array is None for array in given):
        return None
    if str(scale.dtype) not in FLOATS or node.attributes.get("output_dtype"):
        return None
    zero = given[2] if len(given) > 2 and given[2] is not None else np.zeros(1, np.int8)
    axis = node.attributes.get("axis", 1)
    key = ("widened", axis, scale.tobytes(), zero.tobytes())
    function = partial(_dequantized, scale=scale, zero=zero, axis=axis)
    return rewriting.constant(node.outputs[0], constant_cache.derive(key, function, codes))


def _dequantized(
    codes: np.ndarray, *, scale: np.ndarray, zero: np.ndarray, axis: int
) -> np.ndarray:
    """Return (codes - zero) * scale, with one scale or one for each index of an axis."""
    shape = [1] * codes.ndim
    if scale.size > 1:
        shape[axis] = -1
    steps = codes.astype(np.int32) - zero.astype(np.int32).reshape(shape)
    return steps.astype(np.float32) * scale.reshape(shape)
