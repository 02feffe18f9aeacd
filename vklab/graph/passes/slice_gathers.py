"""slice_gathers: read a fixed range of indices by a Slice instead of a Gather.

Exporters select queries, keys and values from one product by a Gather with a constant index. A
Slice is a strided view, which later steps compose with Transposes. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.types import TensorInfo

SLICE_OPSET = 13


def slice_gathers(graph: Graph) -> Graph:
    """Replace each Gather whose constant indices are consecutive by a Slice and a Reshape.

    Source: ONNX Gather-13, Slice-13
    """
    ranges = {node.outputs[0]: found for node in graph.nodes if (found := _range(graph, node))}
    if not ranges:
        return graph
    new: list[TensorInfo] = []
    nodes = [
        part
        for node in graph.nodes
        for part in (
            _sliced(graph, node, *ranges[node.outputs[0]], new)
            if node.outputs[0] in ranges
            else (node,)
        )
    ]
    return rewriting.rewritten(graph, nodes, *new)


def _range(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Return the first index of a Gather and the one after its last; None if there are others."""
    if node.op_type != "Gather" or node.domain:
        return None
    data, indices = (graph.infos[name] for name in node.inputs)
    if indices.constant is None or indices.rank > 1 or data.constant is not None:
        return None
    size = data.dims[node.attributes.get("axis", 0)]
    numbers = [int(number) for number in indices.constant.reshape(-1)]
    if not numbers or not -size <= numbers[0] < size:
        return None
    first = numbers[0] % size
    inside = first + len(numbers) <= size
    one_range = all(
        number % size == first + n and -size <= number < size for n, number in enumerate(numbers)
    )
    return (first, first + len(numbers)) if inside and one_range else None


def _sliced(
    graph: Graph, node: Node, start: int, end: int, new: list[TensorInfo]
) -> Iterator[Node]:
    """Yield the nodes that replace a Gather; add the values that they need to `new`.

    Args:
        graph: the graph of the node.
        node: the Gather.
        start: its first index.
        end: the index after its last.
        new: collects infos of constants and inner values.
    """
    made, data = graph.infos[node.outputs[0]], graph.infos[node.inputs[0]]
    axis = int(node.attributes.get("axis", 0)) % data.rank
    numbers = [
        rewriting.constant(internal(made.name, f"slice {what}"), np.array([value], np.int64))
        for what, value in (("start", start), ("end", end), ("axis", axis))
    ]
    new += numbers
    is_scalar = made.rank < data.rank
    inner = internal(made.name, "slice") if is_scalar else made.name
    opset = 0 if graph.opset >= SLICE_OPSET else SLICE_OPSET
    yield Node(node.name, "Slice", (data.name, *(n.name for n in numbers)), (inner,), opset=opset)
    if is_scalar:
        dims = (*data.dims[:axis], 1, *data.dims[axis + 1 :])
        new.append(TensorInfo(inner, data.dtype, dims))
        reshape, shape = rewriting.reshape(graph, inner, made)
        new.append(shape)
        yield reshape
