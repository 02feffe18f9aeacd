"""What passes share: names that must stay, renaming, new constants, what only hands elements on.

Decides nothing about any pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.ops import registry
from vklab.types import TensorInfo

__all__ = ["constant", "fixed", "handed_on", "renamed", "reshape", "rewritten"]

# Operators that may leave all elements where they are. Others are not asked: asking takes time.
MAY_HAND_ON = frozenset({
    "Cast", "CastLike", "Clip", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten",
    "Identity", "Max", "Mean", "Min", "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split",
    "Squeeze", "Sum", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
RESHAPE_OPSET = 14  # the first with allowzero


def fixed(graph: Graph) -> set[str]:
    """Return the values that keep their names: outputs, and what bodies capture."""
    bodies = (body for node in graph.nodes for body in node.bodies.values())
    return {*graph.outputs, *(name for body in bodies for name in body.captures)}


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """Return a node that reads other values; a name stands for another until none does."""

    def final(name: str) -> str:
        while name in names:
            name = names[name]
        return name

    if names.keys().isdisjoint(node.inputs):
        return node
    return replace(node, inputs=tuple(map(final, node.inputs)))


def constant(name: str, array: np.ndarray) -> TensorInfo:
    """Describe a new initializer."""
    return TensorInfo(name, str(array.dtype), array.shape, array)


def rewritten(graph: Graph, nodes: Iterable[Node], *new: TensorInfo) -> Graph:
    """Return the graph with other nodes, and infos of values and constants that are new."""
    infos = {info.name: info for info in new}
    constants = {name: info for name, info in infos.items() if info.constant is not None}
    return graph.with_nodes(nodes, initializers={**graph.initializers, **constants},
                            infos={**graph.infos, **infos})  # fmt: skip


def reshape(graph: Graph, source: str, made: TensorInfo) -> tuple[Node, TensorInfo]:
    """Return the node that sees a value under the shape of another, and its constant."""
    dims = np.array(made.dims, np.int64)
    shape = constant(f"{made.name}:shape", dims)
    attributes = {} if dims.all() else {"allowzero": 1}
    opset = 0 if graph.opset >= RESHAPE_OPSET else RESHAPE_OPSET
    return Node(f"{made.name}:reshape", "Reshape", (source, shape.name), (made.name,), attributes,
                opset=opset), shape  # fmt: skip


def handed_on(graph: Graph, node: Node) -> str:
    """Return the input whose elements, in their order, are a node's output; '' if none is.

    The operator itself is asked, so this holds for these shapes only.
    """
    if node.op_type not in MAY_HAND_ON or node.domain or any(node.outputs[1:]):
        return ""
    made = graph.infos[node.outputs[0]]
    if not any(_is_alike(graph.infos[name], made) for name in node.inputs if name):
        return ""
    result, _ = shapes.apply_node(graph, node, graph.infos)
    views = dict(result.views) if isinstance(result, registry.Result) else {}
    source = node.inputs[views[0]] if 0 in views else ""
    return source if source and _is_alike(graph.infos[source], made) else ""


def _is_alike(one: TensorInfo, other: TensorInfo) -> bool:
    return one.dtype == other.dtype and one.count == other.count
