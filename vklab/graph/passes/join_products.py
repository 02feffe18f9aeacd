"""join_products: queries, keys and values of one input are one product with all their weights.

Only where a rotary embedding follows: it reads heads wherever they lie, so parting them is free.
Values, which it does not read, are cut out on the way to where they are put.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.graph.passes.matching import Either, Search, Step, Value
from vklab.types import TensorInfo

__all__ = ["join_products"]

# What every device can bind: a larger product would be cut again.
MOST_BYTES = 1 << 27
SLICE_OPSET = 13
# ONNX's tables have an angle for each pair of places, those of vklab's own for each place.
OWN = ("", "vklab")

TERMS = Step("MatMul", (Value("x"), Value("w")), "product")
PRODUCT = Either((Step("Add", (TERMS, Value("b"))), TERMS))


@dataclass(frozen=True)
class _Branch:
    """A product with known weights and perhaps a bias, whose rows are seen as heads.

    `nodes` are all up to a rotary embedding, if one turns the heads: the last of them then.
    """

    kind: tuple[str, ...]
    constants: tuple[TensorInfo, ...]
    made: str
    nodes: tuple[Node, ...]
    dims: tuple[int, ...]

    @property
    def angles(self) -> tuple[Any, ...]:
        """Return by what heads are turned; nothing if they are not."""
        rotary = self.nodes[-1]
        if rotary.op_type != "RotaryEmbedding":
            return ()
        more = {k: v for k, v in rotary.attributes.items() if k != "num_heads"}
        return rotary.domain, rotary.inputs[1:], more, self.dims[3]


def join_products(graph: Graph) -> Graph:
    """Join products of one input, two of which are turned by the same angles."""
    search, fixed = Search(graph), rewriting.fixed(graph)
    kinds: dict[tuple[str, ...], list[_Branch]] = {}
    for node in graph.nodes:
        for branch in _branch(search, node, fixed):
            kinds.setdefault(branch.kind, []).append(branch)
    places: dict[str, tuple[Node, ...]] = {}
    new: list[TensorInfo] = []
    for branches in kinds.values():
        turned = [branch for branch in branches if branch.angles]
        values = [branch for branch in branches if not branch.angles]
        if len(turned) == 2 and turned[0].angles == turned[1].angles:
            new += _join(graph, [*turned, *values], places)
    if not places:
        return graph
    nodes = (node for old in graph.nodes for node in places.get(old.outputs[0], (old,)))
    return rewriting.rewritten(graph, nodes, *new)


def _branch(search: Search, seen: Node, fixed: set[str]) -> Iterator[_Branch]:
    """Yield the product that a Reshape sees as heads, with what turns these."""
    if seen.op_type != "Reshape" or seen.inputs[0] in fixed:
        return

    def reader(name: str, op_type: str) -> list[Node]:
        each = search.readers.get(name, [])
        return each if len(each) == 1 and name not in fixed and each[0].op_type == op_type else []

    heads, made = seen.outputs[0], seen.inputs[0]
    turn = [n for n in reader(heads, "Transpose") if n.attributes.get("perm") == (0, 2, 1, 3)]
    dims = search.dims(turn[0].outputs[0] if turn else heads)
    # Without a Transpose heads lie as they should where there is one, or one step.
    is_heads = len(dims) == 4 and (bool(turn) or 1 in dims[1:3])
    if not is_heads or search.dims(made) != (dims[0], dims[2], dims[1] * dims[3]):
        return
    heads = (turn or [seen])[0].outputs[0]
    rotary = [node for node in reader(heads, "RotaryEmbedding")
              if node.inputs[0] == heads and node.domain in OWN]  # fmt: skip
    for found in search.find(PRODUCT, made) if len(search.readers[made]) == 1 else ():
        if len(found.nodes) > len(found.values) - 1:
            continue  # a Cast stands in between
        constants = tuple(search.info(found.values[n]) for n in "wb" if n in found.values)
        if all(_is_weight(search, info, dims[1] * dims[3]) for info in constants):
            kind = (found.values["x"], *(f"{info.dtype}, {info.rank}" for info in constants))
            after = (seen, *turn, *rotary) if rotary else ()
            yield _Branch(kind, constants, made, (*found.nodes[::-1], *after), dims)
            return


def _is_weight(search: Search, info: TensorInfo, columns: int) -> bool:
    """Tell whether a constant is a matrix, or a bias, that nothing else reads: no device should
    hold it twice.
    """
    is_shaped = info.dims[-1:] == (columns,) and info.rank <= 2
    return info.constant is not None and is_shaped and len(search.readers[info.name]) == 1


def _join(
    graph: Graph, branches: Sequence[_Branch], places: dict[str, tuple[Node, ...]]
) -> list[TensorInfo]:
    """Say what stands in the place of the nodes of some branches; return what is new.

    What does the work of several stands where the first of them stood.
    """
    one, other, *values = branches
    parts = list(zip(*(branch.constants for branch in branches), strict=True))
    if sum(info.size_bytes for info in parts[0]) > MOST_BYTES:
        return []
    name, info = f"{one.made}:joined", graph.infos[one.made]
    arrays = ([part.constant for part in each if part.constant is not None] for each in parts)
    new = [rewriting.constant(f"{name}:{number}",
                              constant_cache.derive("joined", _side_by_side, *each))
           for number, each in enumerate(arrays)]  # fmt: skip
    made = [f"{name}:product", name][-len(new) :]
    new += [replace(info, name=each, shape=(*info.dims[:2], new[0].dims[1])) for each in made]
    product = Node(name, "MatMul", (one.kind[0], new[0].name), (made[0],))
    bias = Node(name, "Add", (made[0], new[1].name), (name,))
    rotary = one.nodes[-1]
    domain, tables, attributes, size = one.angles
    attributes |= {"size": size, "queries": one.dims[1], "keys": other.dims[1],
                   "whole": int(domain == "vklab")}  # fmt: skip
    both = Node(rotary.name, "RotaryHeads", (name, *tables),
                (rotary.outputs[0], other.nodes[-1].outputs[0]), attributes,
                "vklab", 1)  # fmt: skip
    places |= {node.outputs[0]: () for branch in branches for node in branch.nodes}
    order = {node.outputs[0]: number for number, node in enumerate(graph.nodes)}
    first = min((branch.nodes[0].outputs[0] for branch in branches), key=order.__getitem__)
    last = min(both.outputs, key=order.__getitem__)
    places[first], places[last] = (product, bias)[: len(made)], (both,)
    start = one.constants[0].dims[1] + other.constants[0].dims[1]
    for branch in values:
        end = start + branch.constants[0].dims[1]
        given = (start, end, 2)
        names = [f"{branch.made}:{what}" for what in ("start", "end", "axis")]
        new += [rewriting.constant(n, np.array([v], np.int64))
                for n, v in zip(names, given, strict=True)]  # fmt: skip
        cut = Node(branch.made, "Slice", (name, *names), (branch.made,), opset=SLICE_OPSET)
        places[branch.made] = (*places[branch.made], cut)
        start = end
    return new


def _side_by_side(*arrays: np.ndarray) -> np.ndarray:
    return np.concatenate(arrays, axis=-1)
