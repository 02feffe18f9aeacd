"""Functions that passes share: values that keep their names, renaming, new constants, views.

Decides nothing about any pattern. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from vklab.base.names import internal
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.ops import dtypes, registry
from vklab.types import TensorInfo

# Operators that may return an input's elements unchanged; spares the others shape inference.
MAY_HAND_ON = frozenset({
    "Cast", "CastLike", "Clip", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten",
    "Identity", "Max", "Mean", "Min", "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split",
    "Squeeze", "Sum", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
RESHAPE_OPSET = 14  # the first with allowzero


def fixed(graph: Graph) -> set[str]:
    """Return the values that keep their names: graph outputs and values that bodies capture."""
    bodies = (body for node in graph.nodes for body in node.bodies.values())
    return {*graph.outputs, *(name for body in bodies for name in body.captures)}


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """Return a node with its inputs renamed; renamings are followed through chains of names."""

    def final(name: str) -> str:
        while name in names:
            name = names[name]
        return name

    if names.keys().isdisjoint(node.inputs):
        return node
    return replace(node, inputs=tuple(map(final, node.inputs)))


def value(info: TensorInfo) -> np.ndarray:
    """Return the value of a tensor that is known to be constant."""
    assert info.constant is not None, f"{info.name} has no value"
    return info.constant


def constant(name: str, array: np.ndarray) -> TensorInfo:
    """Return the TensorInfo of a new initializer."""
    return TensorInfo(name, str(array.dtype), array.shape, array)


def rewritten(graph: Graph, nodes: Iterable[Node], *new: TensorInfo) -> Graph:
    """Return a graph with its nodes replaced.

    Args:
        graph: the graph before.
        nodes: all nodes after, in topological order.
        new: infos of new values; those with a constant become initializers.
    """
    infos = {info.name: info for info in new}
    constants = {name: info for name, info in infos.items() if info.constant is not None}
    return graph.with_nodes(
        nodes, initializers={**graph.initializers, **constants}, infos={**graph.infos, **infos}
    )


def reshape(graph: Graph, source: str, made: TensorInfo) -> tuple[Node, TensorInfo]:
    """Return a Reshape node and the constant with its shape.

    Args:
        graph: the graph the node is for.
        source: name of the reshaped value.
        made: the node's output, with a static shape.
    """
    dims = dtypes.integer_array(made.dims)
    shape = constant(internal(made.name, "shape"), dims)
    attributes = {} if dims.all() else {"allowzero": 1}
    opset = 0 if graph.opset >= RESHAPE_OPSET else RESHAPE_OPSET
    return Node(
        internal(made.name, "reshape"),
        "Reshape",
        (source, shape.name),
        (made.name,),
        attributes,
        opset=opset,
    ), shape


def read_once(graph: Graph) -> set[str]:
    """Return the values that one node reads once, and that are not `fixed`."""
    return {name for name, nodes in graph.readers().items() if len(nodes) == 1} - fixed(graph)


def handed_on(graph: Graph, node: Node) -> str:
    """Return the input whose elements, in the same order, are a node's output; '' if none is.

    Shape inference decides, so the answer holds for the graph's present shapes only.
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
