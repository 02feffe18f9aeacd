"""patches: compute a convolution of patches that do not overlap as a product of matrices.

The first layer of a vision transformer: its windows touch, and the channels of its result come
last. One Transpose then lays the patches out as rows. For GPUs. Visited by lab 10.
"""

from __future__ import annotations

import math

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import layouts, rewriting
from vklab.ops.dtypes import FLOATS
from vklab.types import TensorInfo

ROWS_FIRST = (0, 2, 1)
# Rows and columns of patches, then channels and the pixels of a patch.
APART = (0, 2, 4, 1, 3, 5)
PLAIN = {"group": 1, "auto_pad": "NOTSET"}


def patches(graph: Graph, width: int = 0) -> Graph:
    """Replace Conv, Reshape and Transpose by a product of patches and filters.

    Args:
        graph: the graph.
        width: elements of 16 bytes; filters and patches of such multiples are read at once.

    Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", equation 1
    """
    readers = graph.readers()
    kept = rewriting.fixed(graph)
    nodes, new, gone = list[Node](), list[TensorInfo](), set[str]()
    for node in graph.nodes:
        chain = _chain(graph, node, readers, kept) if node.op_type == "Conv" else None
        if node.outputs[0] in gone:
            continue
        if chain is None or not _suits(graph, node, width or 1):
            nodes.append(node)
            continue
        made, infos = _product(graph, node, chain)
        nodes += made
        new += infos
        gone |= {*chain}
    return rewriting.rewritten(graph, nodes, *new) if gone else graph


def _chain(
    graph: Graph, conv: Node, readers: dict[str, list[Node]], kept: set[str]
) -> tuple[str, str] | None:
    """Return the values of the Reshape and of the Transpose that alone read a convolution."""
    found, value = [], conv.outputs[0]
    for op_type in ("Reshape", "Transpose"):
        nodes = readers.get(value, [])
        if len(nodes) != 1 or nodes[0].op_type != op_type or nodes[0].domain or value in kept:
            return None
        value = nodes[0].outputs[0]
        found.append(value)
    flat, turned = (graph.infos[name] for name in found)
    image = graph.infos[conv.outputs[0]]
    is_flat = (
        image.rank == 4
        and image.is_static
        and flat.shape == (*image.dims[:2], image.dims[2] * image.dims[3])
    )
    if not is_flat or layouts.permutation(readers[flat.name][0], 3) != ROWS_FIRST:
        return None
    return flat.name, turned.name


def _suits(graph: Graph, conv: Node, width: int) -> bool:
    """Tell whether the windows touch and cover the image, and rows divide into whole loads."""
    given = conv.attributes
    image, weight = (graph.infos[name] for name in conv.inputs[:2])
    kernel = weight.dims[2:] if weight.constant is not None else ()
    if conv.domain or len(kernel) != 2 or not image.is_static or image.dtype not in FLOATS:
        return False
    plain = all(given.get(name, value) == value for name, value in PLAIN.items())
    steps, pads = given.get("strides", (1, 1)), given.get("pads", (0,) * 4)
    return (
        plain
        and tuple(steps) == tuple(kernel)
        and math.prod(kernel) > 1
        and not any(pads)
        and set(given.get("dilations", (1, 1))) == {1}
        and not any(size % side for size, side in zip(image.dims[2:], kernel, strict=True))
        and not (weight.dims[0] % width or math.prod(weight.dims[1:]) % width)
    )


def _product(
    graph: Graph, conv: Node, chain: tuple[str, str]
) -> tuple[list[Node], list[TensorInfo]]:
    """Return the nodes of the product, and the infos of their values."""
    image, weight = (graph.infos[name] for name in conv.inputs[:2])
    made = graph.infos[chain[1]]
    (batch, channels, *_), kernel = image.dims, weight.dims[2:]
    rows = [size // side for size, side in zip(image.dims[2:], kernel, strict=True)]
    apart = (batch, channels, rows[0], kernel[0], rows[1], kernel[1])
    depth = channels * math.prod(kernel)
    names = [
        internal(conv.outputs[0], f"patches {part}")
        for part in ("apart", "turned", "rows", "product")
    ]
    shapes = (apart, tuple(apart[axis] for axis in APART), (batch, made.dims[1], depth), made.dims)
    infos = [
        TensorInfo(name, image.dtype, shape) for name, shape in zip(names, shapes, strict=True)
    ]
    array = constant_cache.derive("filters in columns", _columns, rewriting.value(weight))
    columns = rewriting.constant(internal(weight.name, "patches columns"), array)
    biased = len(conv.inputs) > 2 and bool(conv.inputs[2])
    result = names[3] if biased else made.name
    views = [
        rewriting.reshape(graph, source, info)
        for source, info in ((image.name, infos[0]), (names[1], infos[2]))
    ]
    nodes = [
        views[0][0],
        Node(names[1], "Transpose", (names[0],), (names[1],), {"perm": APART}),
        views[1][0],
        Node(result, "MatMul", (names[2], columns.name), (result,), {}),
    ]
    if biased:
        nodes.append(Node(made.name, "Add", (result, conv.inputs[2]), (made.name,), {}))
    return nodes, [*infos, columns, *(shape for _, shape in views)]


def _columns(weight: np.ndarray) -> np.ndarray:
    """Return filters as the columns of a matrix."""
    return np.ascontiguousarray(weight.reshape(len(weight), -1).T)
