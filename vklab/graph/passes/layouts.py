"""What a permutation of axes means for the operators that it is moved past.

Knows no graph as a whole (`move_transposes` does).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab.graph.graph import Graph, Node
from vklab.ops import activation, arithmetic, cast, logical, reduction, registry
from vklab.types import TensorInfo

__all__ = ["Change", "absorbed", "before_reshape", "permutation", "through"]

Permutation = tuple[int, ...]
Infos = Mapping[str, TensorInfo]
_ELEMENTWISE = {module.__name__ for module in (activation, arithmetic, cast, logical)}
MOST_TRIES = 8
# Their inputs or results are not what broadcasting makes of each other.
_OTHERWISE = frozenset({"BitCast", "CastLike", "SwiGLU"})


@dataclass(frozen=True)
class Change:
    """How a node computes on the axes before a Transpose.

    Attributes:
        order: the Transpose of its result.
        attributes: its attributes then.
        axes: its second input then, if that names axes.
        is_end: no Transpose is left.
        whole: every constant is turned too, those of one element included.
    """

    order: Permutation
    attributes: Mapping[str, Any]
    axes: np.ndarray | None = None
    is_end: bool = False
    whole: bool = False

    def turns(self, info: TensorInfo) -> bool:
        """Tell whether a constant has to be turned with the values."""
        return self.whole or info.count > 1


def permutation(node: Node, rank: int) -> Permutation:
    """Return the axes of a Transpose."""
    given = node.attributes.get("perm")
    return tuple(reversed(range(rank))) if given is None else tuple(given)


def through(
    infos: Infos, node: Node, order: Permutation, turned: Collection[str]
) -> Change | None:
    """Return what becomes of a node whose inputs lose a Transpose; None if it cannot do without.

    Args:
        turned: values that can be had without it.
    """
    entries = registry.OPERATORS.get((node.domain, node.op_type), ())
    if not entries or node.domain or len(node.outputs) > 1:
        return None
    family = entries[0].function.__module__
    if family == reduction.__name__ and node.op_type.startswith("Reduce"):
        return _reduction(infos, node, order)
    is_concat = node.op_type == "Concat"
    if not is_concat and (family not in _ELEMENTWISE or node.op_type in _OTHERWISE):
        return None
    for info in (infos[name] for name in node.inputs if name):
        is_single = info.count == 1 and not is_concat
        if info.name not in turned and info.constant is None and not is_single:
            return None
        if info.rank > len(order) or (info.name in turned and info.rank < len(order)):
            return None
    if is_concat:
        axis = order[node.attributes["axis"] % len(order)]
        return Change(order, {**node.attributes, "axis": axis}, whole=True)
    return Change(order, node.attributes)


def _reduction(infos: Infos, node: Node, order: Permutation) -> Change | None:
    attributes, axes = dict(node.attributes), None
    given = attributes.get("axes")
    if len(node.inputs) > 1 and node.inputs[1]:
        value = infos[node.inputs[1]].constant
        given = None if value is None else value.tolist()
    if not given:  # all axes, none, or not known yet
        return None
    places = [axis % len(order) for axis in given]
    moved = [order[axis] for axis in places]
    if "axes" in attributes:
        attributes["axes"] = tuple(moved)
    else:
        axes = np.array(moved, np.int64)
    if attributes.get("keepdims", 1):
        return Change(order, attributes, axes)
    left = [order[axis] for axis in range(len(order)) if axis not in places]
    after = tuple(sorted(left).index(axis) for axis in left)
    return Change(after, attributes, axes, is_end=list(after) == sorted(after))


def absorbed(
    graph: Graph, readers: Mapping[str, list[Node]], fixed: Collection[str]
) -> set[str]:
    """Return the values that only Transposes read in the end, so that one more costs nothing.

    In between may stand what a Transpose sinks through, on values that are Transposes too.
    """
    found: set[str] | None = None
    for _ in range(MOST_TRIES):  # each finds fewer: what does not sink holds up what it meets
        carried, ends = _carried(graph, found)
        before, found = found, set()
        for node in reversed(graph.nodes):
            for name in node.outputs:
                behind = readers.get(name, ())
                if behind and name not in fixed and all(
                    (reader.op_type == "Transpose" and not reader.domain)
                    or reader.outputs[0] in ends
                    or (reader.outputs[0] in carried and reader.outputs[0] in found)
                    for reader in behind
                ):  # fmt: skip
                    found.add(name)
        if found == before:
            return found
    return set()


def _carried(
    graph: Graph, sinking: Collection[str] | None
) -> tuple[dict[str, Permutation], set[str]]:
    """Return the values that can be Transposes, and those that a Transpose before them ends in.

    Args:
        sinking: the only ones, beside Transposes, that others may count on; None for all.
    """
    carried: dict[str, Permutation] = {}
    ends: set[str] = set()
    for node in graph.nodes:
        made = node.outputs[0]
        if node.op_type == "Transpose" and not node.domain:
            carried[made] = permutation(node, graph.infos[node.inputs[0]].rank)
            continue
        orders = {carried[name] for name in node.inputs if name in carried}
        if len(orders) != 1:
            continue
        change = through(graph.infos, node, orders.pop(), carried)
        if change is not None and change.is_end:
            ends.add(made)
        elif change is not None and (sinking is None or made in sinking):
            carried[made] = change.order
    return carried, ends


def before_reshape(
    source: Sequence[int], target: Sequence[int], order: Permutation
) -> Permutation | None:
    """Return the permutation of a Reshape's source that is one of its target.

    None where the Reshape joins or cuts axes that the permutation parts.
    """
    blocks = _blocks(source, target)
    starts = {targets[0]: number for number, (_, targets) in enumerate(blocks) if targets}
    if len(starts) < len(blocks):
        return None
    found: list[int] = []
    place = 0
    while place < len(order):
        sources, targets = blocks[starts[order[place]]] if order[place] in starts else ((), ())
        if not targets or order[place : place + len(targets)] != tuple(targets):
            return None
        found += sources
        place += len(targets)
    return tuple(found)


def _blocks(
    source: Sequence[int], target: Sequence[int]
) -> list[tuple[range, range]]:
    """Cut two shapes of one tensor into the shortest runs of axes that match."""
    if 0 in source or math.prod(source) != math.prod(target):
        return []
    blocks: list[tuple[range, range]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        first, second = i, j
        left = right = 1
        while left != right or i == first or j == second:
            if (left <= right and i < len(source)) or j == len(target):
                if i == len(source):
                    break
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        blocks.append((range(first, i), range(second, j)))
    return blocks
