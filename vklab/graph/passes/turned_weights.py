"""Turn the rows of a weight rather than the image that a product reads flattened.

The pass `channels_last` uses it: the classifier behind a convolution expects channels first.
Visited by lab 10.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import drop_dead_nodes, layouts, rewriting
from vklab.types import TensorInfo

# Elements of a weight that is copied for it; beside a product with more, a Transpose is short.
MOST_ELEMENTS = 1 << 22


def turn_weights(graph: Graph) -> Graph:
    """Replace Transpose - Reshape - product with a constant by Reshape - product.

    Element-wise operators between Transpose and Reshape stay there.
    """
    makers = {node.outputs[0]: node for node in graph.nodes}
    readers, kept = graph.readers(), rewriting.fixed(graph)
    nodes, new = list[Node](), list[TensorInfo]()
    for node in graph.nodes:
        path = _path(graph, node, makers)
        axes = _axes(graph, node, path)
        if not axes or any(
            len(readers[each.outputs[0]]) > 1 or each.outputs[0] in kept for each in path
        ):
            nodes.append(node)
            continue
        made, infos = _flat(graph, node, path, axes)
        nodes += made
        new += infos
    if not new:
        return graph
    return drop_dead_nodes.drop_dead_nodes(rewriting.rewritten(graph, nodes, *new))


def _is(node: Node, *op_types: str) -> bool:
    return node.op_type in op_types and not node.domain


def _path(graph: Graph, node: Node, makers: dict[str, Node]) -> list[Node]:
    """Return Transpose, element-wise operators and Reshape before a product; [] without them."""
    path, wanted = list[Node](), ("Reshape",)
    read = node.inputs[0] if _is(node, "MatMul", "Gemm") else ""
    while maker := makers.get(read):
        info = graph.infos[maker.inputs[0]]
        others = (graph.infos[name] for name in maker.inputs[1:] if name)
        single = all(each.constant is not None and each.count == 1 for each in others)
        order = tuple(range(info.rank))
        if not _is(maker, *wanted) and not (
            path and single and layouts.through(graph.infos, maker, order, maker.inputs[:1])
        ):
            return []
        path.insert(0, maker)
        if _is(maker, "Transpose"):
            return path
        wanted, read = ("Transpose",), maker.inputs[0]
    return []


def _axes(graph: Graph, node: Node, path: list[Node]) -> tuple[tuple[int, int], ...]:
    """Return the position and the size of each axis of the image that is flattened into a row.

    Axes are in the order of the model; a position is that before the Transpose. Returns () if the
    product is no such product.

    Args:
        graph: the graph.
        node: the product.
        path: the nodes before it.
    """
    if not path:
        return ()
    row, weight = graph.infos[node.inputs[0]], graph.infos[node.inputs[1]]
    image = graph.infos[path[0].outputs[0]]
    order = layouts.permutation(path[0], image.rank)
    known = image.is_static and weight.constant is not None and weight.rank == row.rank == 2
    if not known or node.attributes.get("transA", 0) or order[0] != 0:
        return ()
    if weight.count > MOST_ELEMENTS:
        return ()
    if row.dims != (image.dims[0], math.prod(image.dims[1:])):
        return ()
    return tuple((axis - 1, size) for axis, size in zip(order[1:], image.dims[1:], strict=True))


def _flat(
    graph: Graph, node: Node, path: list[Node], axes: tuple[tuple[int, int], ...]
) -> tuple[list[Node], list[TensorInfo]]:
    """Return a product that reads the image as it is before the Transpose, and new values.

    Args:
        graph: the graph.
        node: the product.
        path: Transpose, element-wise operators and Reshape before it.
        axes: as `_axes` returns them.
    """
    turn, *between, reshape = path
    read, made, new = turn.inputs[0], list[Node](), list[TensorInfo]()
    shape = graph.infos[read].shape
    for each in between:
        info = graph.infos[each.outputs[0]]
        new.append(replace(info, name=internal(info.name, "unturned"), shape=shape))
        made.append(replace(each, inputs=(read, *each.inputs[1:]), outputs=(new[-1].name,)))
        read = new[-1].name
    row, weight = graph.infos[reshape.outputs[0]], graph.infos[node.inputs[1]]
    view, dims = rewriting.reshape(graph, read, replace(row, name=internal(row.name, "unturned")))
    along = node.attributes.get("transB", 0)
    array = constant_cache.derive(
        ("rows", axes, along), lambda w: _turned(w, axes, along), rewriting.value(weight)
    )
    rows = rewriting.constant(internal(weight.name, f"rows for {row.name}"), array)
    product = replace(node, inputs=(view.outputs[0], rows.name, *node.inputs[2:]))
    infos = [*new, replace(row, name=view.outputs[0]), dims, rows]
    return [*made, view, product], infos


def _turned(weight: np.ndarray, axes: tuple[tuple[int, int], ...], along: int) -> np.ndarray:
    """Return a weight whose rows have the order of the image before the Transpose.

    Args:
        weight: [rows, columns], or [columns, rows] if `along`.
        axes: as `_axes` returns them.
        along: whether rows are the last axis.
    """
    rows = weight.T if along else weight
    parts = rows.reshape(*(size for _, size in axes), -1)
    back = np.argsort([position for position, _ in axes])
    turned = parts.transpose(*back, len(axes)).reshape(rows.shape)
    return np.ascontiguousarray(turned.T if along else turned)
