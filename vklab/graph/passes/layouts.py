"""Rules for moving a Transpose past other operators: new attributes, axes and permutations.

Rewrites no graph (`move_transposes` does). Visited by lab 10.
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

Permutation = tuple[int, ...]
Infos = Mapping[str, TensorInfo]
_ELEMENTWISE = {module.__name__ for module in (activation, arithmetic, cast, logical)}
MOST_TRIES = 8
# Element-wise operators whose inputs or outputs do not broadcast.
_NOT_BROADCASTING = frozenset({"BitCast", "CastLike", "SwiGLU"})


@dataclass(frozen=True)
class Change:
    """Changes to a node that moves from after a Transpose to before it.

    Attributes:
        order: permutation of the Transpose that then follows the node.
        attributes: the node's new attributes.
        axes: the node's new second input, if that input names axes.
        is_end: tells that no Transpose has to follow.
        whole: tells that constants of one element are transposed too.
    """

    order: Permutation
    attributes: Mapping[str, Any]
    axes: np.ndarray | None = None
    is_end: bool = False
    whole: bool = False

    def is_transposed(self, info: TensorInfo) -> bool:
        """Tell whether a constant input has to be transposed too."""
        return self.whole or info.count > 1


def permutation(node: Node, rank: int) -> Permutation:
    """Return the permutation of a Transpose of a value of some rank."""
    given = node.attributes.get("perm")
    return tuple(reversed(range(rank))) if given is None else tuple(given)


def through(
    infos: Infos, node: Node, order: Permutation, transposed: Collection[str]
) -> Change | None:
    """Return the changes to a node that moves before a Transpose; None if it cannot move.

    Args:
        infos: the graph's values by name.
        node: a node that reads at least one transposed value.
        order: permutation of the Transpose.
        transposed: names of the values whose untransposed form is available.
    """
    entries = registry.OPERATORS.get((node.domain, node.op_type), ())
    if not entries or node.domain or len(node.outputs) > 1:
        return None
    family = entries[0].function.__module__
    if family == reduction.__name__ and node.op_type.startswith("Reduce"):
        return _reduction(infos, node, order)
    is_concat = node.op_type == "Concat"
    if not is_concat and (family not in _ELEMENTWISE or node.op_type in _NOT_BROADCASTING):
        return None
    for info in (infos[name] for name in node.inputs if name):
        is_single = info.count == 1 and not is_concat
        if info.name not in transposed and info.constant is None and not is_single:
            return None
        if info.rank > len(order) or (info.name in transposed and info.rank < len(order)):
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
    if not given:  # all axes, no axes, or axes known only at run time
        return None
    reduced = [axis % len(order) for axis in given]
    moved = [order[axis] for axis in reduced]
    if "axes" in attributes:
        attributes["axes"] = tuple(moved)
    else:
        axes = np.array(moved, np.int64)
    if attributes.get("keepdims", 1):
        return Change(order, attributes, axes)
    left = [order[axis] for axis in range(len(order)) if axis not in reduced]
    after = tuple(sorted(left).index(axis) for axis in left)
    return Change(after, attributes, axes, is_end=list(after) == sorted(after))


def absorbed(graph: Graph, readers: Mapping[str, list[Node]], fixed: Collection[str]) -> set[str]:
    """Return the values after which a new Transpose costs nothing: only Transposes read them.

    Between the value and its Transposes may be nodes that a Transpose can move past.

    Args:
        graph: a graph whose values have infos.
        readers: the nodes that read each value.
        fixed: values that keep their names and axes.
    """
    found: set[str] | None = None
    for _ in range(MOST_TRIES):  # each try finds fewer: a node that stays stops those before it
        carried, ends = _carried(graph, found)
        before, found = found, set()
        for node in reversed(graph.nodes):
            for name in node.outputs:
                behind = readers.get(name, ())
                if (
                    behind
                    and name not in fixed
                    and all(
                        (reader.op_type == "Transpose" and not reader.domain)
                        or reader.outputs[0] in ends
                        or (reader.outputs[0] in carried and reader.outputs[0] in found)
                        for reader in behind
                    )
                ):
                    found.add(name)
        if found == before:
            return found
    return set()


def _carried(
    graph: Graph, sinking: Collection[str] | None
) -> tuple[dict[str, Permutation], set[str]]:
    """Return the values that can be a Transpose's output, with its permutation, and its ends.

    An end is the output of a node that no Transpose has to follow. `sinking` holds the outputs of
    the nodes that a Transpose may move past; None allows all.
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
    """Return the permutation before a Reshape that equals a permutation after it.

    None if the Reshape joins or splits axes that the permutation separates.

    Args:
        source: shape before the Reshape.
        target: shape after the Reshape.
        order: permutation of the target's axes.
    """
    blocks = _blocks(source, target)
    starts = {targets[0]: number for number, (_, targets) in enumerate(blocks) if targets}
    if len(starts) < len(blocks):
        return None
    moved: list[int] = []
    while order:
        sources, targets = blocks[starts[order[0]]] if order[0] in starts else ((), ())
        if not targets or order[: len(targets)] != tuple(targets):
            return None
        moved += sources
        order = order[len(targets) :]
    return tuple(moved)


def _blocks(source: Sequence[int], target: Sequence[int]) -> list[tuple[range, range]]:
    """Return the shortest runs of source and target axes with equal products of sizes."""
    if 0 in source or math.prod(source) != math.prod(target):
        return []
    blocks: list[tuple[range, range]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        first, second = i, j
        left = right = 1
        while left != right or i == first or j == second:
            # At equal products the side without an axis takes one: an axis of 1 joins no other.
            is_left = left < right or (left == right and i == first)
            if (is_left and i < len(source)) or j == len(target):
                if i == len(source):
                    break
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        blocks.append((range(first, i), range(second, j)))
    return blocks
