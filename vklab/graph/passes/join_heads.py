"""join_heads: compute queries, keys and values of one attention by one MatMul.

The joint result is stored with its parts one after the other, so that each is a range of memory;
attention reads heads in any order. For GPUs, where fewer launches count. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.types import TensorInfo

# Rows from which on products are multiplied in tiles.
FEWEST_ROWS = 16
MOST_BYTES = 1 << 27
SLICE_OPSET = 13
PARTS = 3


@dataclass(frozen=True)
class _Branch:
    """A product of a value and a matrix, with or without a bias, and the name of its result."""

    product: Node
    added: Node | None
    constants: tuple[TensorInfo, ...]

    @property
    def made(self) -> str:
        return (self.added or self.product).outputs[0]


def join_heads(graph: Graph, width: int = 0) -> Graph:
    """Join the products that make queries, keys and values of one input.

    Args:
        graph: the graph.
        width: elements of 16 bytes; the columns of each product are a multiple.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2
    """
    makers = {name: node for node in graph.nodes for name in node.outputs}
    single = rewriting.read_once(graph)
    replaced: dict[str, tuple[Node, ...]] = {}
    new: list[TensorInfo] = []
    for node in graph.nodes:
        if node.op_type != "Attention" or node.domain not in ("", "vklab"):
            continue
        found = [_branch(graph, name, makers, single) for name in node.inputs[:PARTS]]
        branches = [branch for branch in found if branch is not None]
        if len(branches) == PARTS and _are_alike(graph, branches, width or 1):
            new += _join(graph, branches, replaced)
    return replaced_nodes(graph, replaced, *new)


def _branch(graph: Graph, name: str, makers: dict[str, Node], single: set[str]) -> _Branch | None:
    """Return the product whose columns become the heads of a value."""
    node = makers.get(name)
    while node and node.op_type in ("Reshape", "Transpose") and name in single:
        name = node.inputs[0]
        node = makers.get(name)
    added = node if node and node.op_type == "Add" and not node.domain else None
    if added:
        bias = [graph.infos[each] for each in added.inputs if each not in makers]
        name = next((each for each in added.inputs if each in makers), "")
        node = makers.get(name)
        if len(bias) != 1 or bias[0].constant is None or bias[0].rank != 1:
            return None
    values = {name, (added or node).outputs[0]} if node else set[str]()
    if node is None or node.op_type != "MatMul" or node.domain or not values <= single:
        return None
    matrix = graph.infos[node.inputs[1]]
    constants = (matrix, *(bias if added else ()))
    known = matrix.rank == 2 and all(each.constant is not None for each in constants)
    return _Branch(node, added, constants) if known and matrix.name in single else None


def _are_alike(graph: Graph, branches: Sequence[_Branch], width: int) -> bool:
    """Tell whether products read the same rows, and have as many columns each."""
    info = graph.infos[branches[0].product.inputs[0]]
    kinds = {
        (b.product.inputs[0], tuple((c.dtype, c.shape) for c in b.constants)) for b in branches
    }
    matrix = branches[0].constants[0]
    return (
        len(kinds) == 1
        and len({b.made for b in branches}) == PARTS
        and info.is_static
        and info.rank >= 2
        and info.count >= FEWEST_ROWS * info.dims[-1]
        and not matrix.dims[1] % width
        and PARTS * matrix.size_bytes <= MOST_BYTES
    )


def _join(
    graph: Graph, branches: Sequence[_Branch], replaced: dict[str, tuple[Node, ...]]
) -> list[TensorInfo]:
    """Add the joint nodes to `replaced`, by the output they stand for; return new infos."""
    first = branches[0]
    source, made = graph.infos[first.product.inputs[0]], graph.infos[first.made]
    rows, columns = source.dims[:-1], made.dims[-1]
    name = internal(first.made, "heads joined")
    parts = zip(*(branch.constants for branch in branches), strict=True)
    new = [
        rewriting.constant(
            internal(name, f"heads constant{number}"),
            constant_cache.derive("joined", side_by_side, *map(rewriting.value, each)),
        )
        for number, each in enumerate(parts)
    ]
    wide = replace(made, name=name, shape=(*rows, PARTS * columns))
    product = replace(wide, name=internal(name, "heads product")) if first.added else wide
    apart = replace(made, name=internal(name, "heads apart"), shape=(*rows, PARTS, columns))
    turned = replace(made, name=internal(name, "heads turned"), shape=(PARTS, *rows, columns))
    view, shape = rewriting.reshape(graph, wide.name, apart)
    order = (len(rows), *range(len(rows)), len(rows) + 1)
    nodes = [Node(product.name, "MatMul", (source.name, new[0].name), (product.name,))]
    if first.added:
        nodes.append(Node(name, "Add", (product.name, new[1].name), (name,)))
    nodes += [view, Node(turned.name, "Transpose", (apart.name,), (turned.name,), {"perm": order})]
    new += [wide, product, apart, turned, shape]
    position = {node.outputs[0]: number for number, node in enumerate(graph.nodes)}
    places = sorted((b.product.outputs[0] for b in branches), key=position.__getitem__)
    replaced |= {node.outputs[0]: () for b in branches for node in (b.product, b.added) if node}
    replaced[places[0]] = tuple(nodes)
    for number, branch in enumerate(branches):
        cut = replace(turned, name=internal(branch.made, "heads cut"), shape=(1, *rows, columns))
        ends = [
            rewriting.constant(internal(cut.name, f"cut {what}"), np.array([value], np.int64))
            for what, value in (("start", number), ("end", number + 1), ("axis", 0))
        ]
        view, shape = rewriting.reshape(graph, cut.name, graph.infos[branch.made])
        new += [cut, *ends, shape]
        slicing = Node(
            cut.name,
            "Slice",
            (turned.name, *(end.name for end in ends)),
            (cut.name,),
            opset=SLICE_OPSET,
        )
        replaced[branch.made] = (*replaced[branch.made], slicing, view)
    return new


def replaced_nodes(graph: Graph, nodes: Mapping[str, tuple[Node, ...]], *new: TensorInfo) -> Graph:
    """Return a graph with other nodes in the place of some; the graph itself if there are none.

    Args:
        graph: the graph.
        nodes: the nodes in the place of another, by the first output of that.
        new: infos of the values that are new.
    """
    if not nodes:
        return graph
    changed = (node for old in graph.nodes for node in nodes.get(old.outputs[0], (old,)))
    return rewriting.rewritten(graph, changed, *new)


def side_by_side(*arrays: np.ndarray) -> np.ndarray:
    """Return arrays joined along their last axis."""
    return np.concatenate(arrays, axis=-1)
