"""join_products: compute queries, keys and values of one input by one MatMul.

Only before a rotary embedding, whose kernel reads heads at any offset, so that splitting the joint
result costs nothing; values are cut out by a Slice. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import join_heads, rewriting
from vklab.graph.passes.matching import AnyValue, Either, PatternSearch, PatternStep
from vklab.types import TensorInfo

# The largest buffer range that every device can bind; a larger product would be split again.
MOST_BYTES = 1 << 27
SLICE_OPSET = 13
# ONNX's tables hold one angle per pair of elements, the tables of vklab's operator one each.
OWN = ("", "vklab")

TERMS = PatternStep("MatMul", (AnyValue("x"), AnyValue("w")), "product")
PRODUCT = Either((PatternStep("Add", (TERMS, AnyValue("b"))), TERMS))


@dataclass(frozen=True)
class _Branch:
    """A product by constant weights, with or without a bias, whose rows are reshaped to heads.

    If a rotary embedding follows, it is the last of `nodes`. `kind` is equal for branches that may
    be joined, `made` names the product's result, and `dims` is the shape of the heads.
    """

    kind: tuple[str, ...]
    constants: tuple[TensorInfo, ...]
    made: str
    nodes: tuple[Node, ...]
    dims: tuple[int, ...]

    @property
    def angles(self) -> tuple[Any, ...]:
        """Return the tables and attributes of the rotary embedding; () if there is none."""
        rotary = self.nodes[-1]
        if rotary.op_type != "RotaryEmbedding":
            return ()
        more = {k: v for k, v in rotary.attributes.items() if k != "num_heads"}
        return rotary.domain, rotary.inputs[1:], more, self.dims[3]


def join_products(graph: Graph) -> Graph:
    """Join the products of one input of which two pass rotary embeddings by the same angles."""
    search, fixed = PatternSearch(graph), rewriting.fixed(graph)
    kinds: dict[tuple[str, ...], list[_Branch]] = {}
    for node in graph.nodes:
        for branch in _branch(search, node, fixed):
            kinds.setdefault(branch.kind, []).append(branch)
    replaced: dict[str, tuple[Node, ...]] = {}
    new: list[TensorInfo] = []
    for branches in kinds.values():
        turned = [branch for branch in branches if branch.angles]
        values = [branch for branch in branches if not branch.angles]
        if len(turned) == 2 and turned[0].angles == turned[1].angles:
            new += _join(graph, [*turned, *values], replaced)
    return join_heads.replaced_nodes(graph, replaced, *new)


def _branch(search: PatternSearch, seen: Node, fixed: set[str]) -> Iterator[_Branch]:
    """Yield the product that a Reshape splits into heads, with its rotary embedding."""
    if seen.op_type != "Reshape" or seen.inputs[0] in fixed:
        return

    def reader(name: str, op_type: str) -> list[Node]:
        each = search.readers.get(name, [])
        return each if len(each) == 1 and name not in fixed and each[0].op_type == op_type else []

    heads, made = seen.outputs[0], seen.inputs[0]
    turn = [n for n in reader(heads, "Transpose") if n.attributes.get("perm") == (0, 2, 1, 3)]
    dims = search.dims(turn[0].outputs[0] if turn else heads)
    # With one head or one position, heads are in order without a Transpose too.
    is_heads = len(dims) == 4 and (bool(turn) or 1 in dims[1:3])
    if not is_heads or search.dims(made) != (dims[0], dims[2], dims[1] * dims[3]):
        return
    heads = (turn or [seen])[0].outputs[0]
    rotary = [
        node
        for node in reader(heads, "RotaryEmbedding")
        if node.inputs[0] == heads and node.domain in OWN
    ]
    for match in search.find(PRODUCT, made) if len(search.readers[made]) == 1 else ():
        if len(match.nodes) > len(match.values) - 1:
            continue  # a Cast is inside
        constants = tuple(search.info(match.values[n]) for n in "wb" if n in match.values)
        if all(_is_weight(search, info, dims[1] * dims[3]) for info in constants):
            kind = (match.values["x"], *(f"{info.dtype}, {info.rank}" for info in constants))
            after = (seen, *turn, *rotary) if rotary else ()
            yield _Branch(kind, constants, made, (*match.nodes[::-1], *after), dims)
            return


def _is_weight(search: PatternSearch, info: TensorInfo, columns: int) -> bool:
    """Tell whether a constant is a weight matrix or bias with no other readers.

    With others, devices would hold both the constant and the joined copy.
    """
    is_shaped = info.dims[-1:] == (columns,) and info.rank <= 2
    return info.constant is not None and is_shaped and len(search.readers[info.name]) == 1


def _join(
    graph: Graph, branches: Sequence[_Branch], replaced: dict[str, tuple[Node, ...]]
) -> list[TensorInfo]:
    """Add the joint nodes of branches to `replaced`, by output; return infos of new values.

    A node that replaces several goes to the position of the first of them.
    """
    one, other, *values = branches
    parts = list(zip(*(branch.constants for branch in branches), strict=True))
    if sum(info.size_bytes for info in parts[0]) > MOST_BYTES:
        return []
    name, info = internal(one.made, "products joined"), graph.infos[one.made]
    arrays = ([part.constant for part in each if part.constant is not None] for each in parts)
    new = [
        rewriting.constant(
            internal(name, f"joined constant{number}"),
            constant_cache.derive("joined", join_heads.side_by_side, *each),
        )
        for number, each in enumerate(arrays)
    ]
    made = [internal(name, "joined product"), name][-len(new) :]
    new += [replace(info, name=each, shape=(*info.dims[:2], new[0].dims[1])) for each in made]
    product = Node(name, "MatMul", (one.kind[0], new[0].name), (made[0],))
    bias = Node(name, "Add", (made[0], new[1].name), (name,))
    rotary = one.nodes[-1]
    domain, tables, attributes, size = one.angles
    attributes |= {
        "size": size,
        "queries": one.dims[1],
        "keys": other.dims[1],
        "whole": int(domain == "vklab"),
    }
    both = Node(
        rotary.name,
        "RotaryHeads",
        (name, *tables),
        (rotary.outputs[0], other.nodes[-1].outputs[0]),
        attributes,
        "vklab",
        1,
    )
    replaced |= {node.outputs[0]: () for branch in branches for node in branch.nodes}
    order = {node.outputs[0]: number for number, node in enumerate(graph.nodes)}
    first = min((branch.nodes[0].outputs[0] for branch in branches), key=order.__getitem__)
    last = min(both.outputs, key=order.__getitem__)
    replaced[first], replaced[last] = (product, bias)[: len(made)], (both,)
    start = one.constants[0].dims[1] + other.constants[0].dims[1]
    for branch in values:
        end = start + branch.constants[0].dims[1]
        given = (start, end, 2)
        names = [internal(branch.made, f"branch {what}") for what in ("start", "end", "axis")]
        new += [
            rewriting.constant(n, np.array([v], np.int64))
            for n, v in zip(names, given, strict=True)
        ]
        cut = Node(branch.made, "Slice", (name, *names), (branch.made,), opset=SLICE_OPSET)
        replaced[branch.made] = (*replaced[branch.made], cut)
        start = end
    return new
