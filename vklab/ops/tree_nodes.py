"""Check the nodes of decision trees and lay them out for shaders/ops/tree_ensemble.slang.

A damaged ensemble is a ModelError here: on a device or in ONNX Runtime, a child out of range would
read anything, and a circle of nodes would never end. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.once import once

# The comparison of each mode, by its number in the kernel; a leaf has none.
MODES = {"BRANCH_LEQ": "<=", "BRANCH_LT": "<", "BRANCH_GTE": ">=", "BRANCH_GT": ">",
         "BRANCH_EQ": "==", "BRANCH_NEQ": "!="}  # fmt: skip
LEAF, LIST = 6, 7
KIND_BIT, MISSING_BIT = 29, 28
MOST_NODES = 1 << 28
Ints = tuple[int, ...]
Floats = Sequence[float] | np.ndarray


@dataclass(frozen=True, eq=False)
class Trees:
    """Hold the trees of an ensemble as the kernel reads them.

    Attributes:
        nodes: uint32 [n, 4]. A branch: kind << 29 | missing << 28 | feature, the bits of its
            threshold, the numbers of the nodes that follow if it is true and if it is false. A
            leaf: LEAF << 29, the bits of its weight, its target; or LIST << 29, its first weight,
            its number of weights.
        weights: uint32 [w, 2], target and bits of each weight of the leaves with several.
        roots: uint32, the node at which each tree begins.
        steps: the most loop iterations of one row in one tree.
        comparison: the comparison of all branches, or "" if they differ.
        features: the number of columns that the branches read.
        has_all: whether every leaf has a weight for every target.
    """

    nodes: np.ndarray
    weights: np.ndarray
    roots: np.ndarray
    steps: int
    comparison: str
    features: int
    has_all: bool


def bits(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return float32 values by their bits; every NaN has the same."""
    array = np.asarray(values, np.float32)
    return np.where(np.isnan(array), np.float32(np.nan), array).view(np.uint32)


def checked(name: str, values: Sequence[int] | np.ndarray, count: int, end: int) -> np.ndarray:
    """Return integers as an array; ModelError for a wrong number of them, or one out of range.

    Args:
        name: what they are, for the error.
        values: the integers.
        count: how many there must be.
        end: the number that all are below; none is below 0.
    """
    array = np.asarray(values, np.int64) if len(values) else np.zeros(0, np.int64)
    if len(array) != count:
        raise ModelError(f"{name} has {len(array)} values; the ensemble needs {count}")
    outside = np.flatnonzero((array < 0) | (array >= end))
    if len(outside):
        raise ModelError(f"{name}[{outside[0]}]={array[outside[0]]} is not in 0 to {end - 1}")
    return array


@once
def flatten(
    trees: Ints, ids: Ints, features: Ints, modes: tuple[str, ...], yes: Ints, no: Ints,
    missing: Ints, values: Floats, leaf_trees: Ints, leaf_nodes: Ints, leaf_targets: Ints,
    leaf_values: Floats, targets: int,
) -> Trees:  # fmt: skip
    """Return the trees of TreeEnsembleClassifier and TreeEnsembleRegressor.

    Args:
        trees: nodes_treeids.
        ids: nodes_nodeids.
        features: nodes_featureids.
        modes: nodes_modes.
        yes: nodes_truenodeids.
        no: nodes_falsenodeids.
        missing: nodes_missing_value_tracks_true; may be empty.
        values: nodes_values, the thresholds.
        leaf_trees: the tree of each weight.
        leaf_nodes: the node of each weight.
        leaf_targets: the target of each weight.
        leaf_values: the value of each weight.
        targets: the number of targets or classes.

    Source: ONNX TreeEnsembleClassifier-5, TreeEnsembleRegressor-5
    """
    count = len(ids)
    if not 0 < count <= MOST_NODES:
        raise ModelError(f"an ensemble of {count} nodes; there must be 1 to {MOST_NODES}")
    unknown = sorted(set(modes) - {*MODES, "LEAF"})
    if unknown or len(modes) != count:
        raise ModelError(
            f"nodes_modes has {len(modes)} values for {count} nodes, unknown ones are "
            f"{unknown}; choose LEAF, {', '.join(MODES)}"
        )
    values = np.ravel(values)
    if len(values) != count:
        raise ModelError(f"nodes_values has {len(values)} values; the ensemble needs {count}")
    numbers = {name: number for number, name in enumerate((*MODES, "LEAF"))}
    kinds = np.asarray([numbers[mode] for mode in modes])
    place = _Places(trees, ids)
    is_branch = kinds < LEAF
    children = np.zeros((count, 2), np.int64)
    for column, (name, given) in enumerate((("true", yes), ("false", no))):
        found = checked(f"nodes_{name}nodeids", given, count, 1 << 31)
        children[is_branch, column] = place.of(
            f"nodes_{name}nodeids", place.trees[is_branch], found[is_branch]
        )
    tracked = np.asarray(missing, np.int64) == 1 if missing else np.zeros(count, bool)
    if len(tracked) != count:
        raise ModelError(
            f"nodes_missing_value_tracks_true has {len(tracked)} values for {count} nodes"
        )
    columns = checked("nodes_featureids", features, count, MOST_NODES) * is_branch
    branches = np.stack(
        [kinds << KIND_BIT | tracked << MISSING_BIT | columns, bits(values), *children.T], 1
    ).astype(np.uint32)
    owner = place.of(
        "the tree and node of a weight",
        *(
            checked(f"the {what} of the weights", part, len(leaf_targets), 1 << 31)
            for what, part in (("trees", leaf_trees), ("nodes", leaf_nodes))
        ),
    )
    roots = np.flatnonzero(np.diff(place.trees, prepend=-1))
    return arranged(
        branches, is_branch, roots, weighted(owner, leaf_targets, np.ravel(leaf_values), targets)
    )


class _Places:
    """Map the tree and the number of each node to its position."""

    def __init__(self, trees: Ints, ids: Ints) -> None:
        count = len(ids)
        self.trees = checked("nodes_treeids", trees, count, 1 << 31)
        keys = self.trees << 32 | checked("nodes_nodeids", ids, count, 1 << 31)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        twice = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        if len(twice):
            tree, node = divmod(int(self._keys[twice[0]]), 1 << 32)
            raise ModelError(f"node {node} of tree {tree} is given twice")
        if len(np.unique(self.trees)) != np.count_nonzero(np.diff(self.trees, prepend=-1)):
            raise UnsupportedOperatorError(
                "the nodes of a tree do not follow each other in nodes_treeids"
            )

    def of(self, name: str, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return the positions of nodes; ModelError for one that does not exist."""
        wanted = trees << 32 | nodes
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        gone = np.flatnonzero(self._keys[at] != wanted)
        if len(gone):
            raise ModelError(
                f"{name} names node {nodes[gone[0]]} of tree {trees[gone[0]]}, which does not exist"
            )
        return self._order[at]


Weights = tuple[np.ndarray, np.ndarray, np.ndarray, int]


def weighted(owner: np.ndarray, targets: Sequence[int], values: np.ndarray, count: int) -> Weights:
    """Return the weights of leaves, checked, in the order of the leaves.

    Args:
        owner: the node of each weight.
        targets: the target of each weight.
        values: the value of each weight.
        count: the number of targets.
    """
    if len(values) != len(owner):
        raise ModelError(f"{len(values)} weights for {len(owner)} leaves")
    numbers = checked("the targets of the weights", targets, len(owner), count)
    order = np.argsort(owner, kind="stable")
    return owner[order], numbers[order], bits(values)[order], count


def arranged(
    nodes: np.ndarray, is_branch: np.ndarray, roots: np.ndarray, weights: Weights
) -> Trees:
    """Return checked nodes with their leaves written in.

    Args:
        nodes: uint32 [n, 4], all branches as the kernel reads them.
        is_branch: which nodes are branches.
        roots: the node at which each tree begins.
        weights: as `weighted` returns them.
    """
    owner, targets, values, count = weights
    kept = ~is_branch[owner]  # old converters gave weights to branches, too; these mean nothing
    owner, targets, values = owner[kept], targets[kept], values[kept]
    if count == 1:  # ONNX Runtime reads only the first weight of a leaf
        owner, first = np.unique(owner, return_index=True)
        targets, values = targets[first], values[first]
    starts = np.searchsorted(owner, np.arange(len(nodes)))
    lengths = np.searchsorted(owner, np.arange(len(nodes)), side="right") - starts
    bare = np.flatnonzero(~is_branch & (lengths == 0))
    if len(bare):
        raise ModelError(f"leaf {bare[0]} has no weight")
    single, several = ~is_branch & (lengths == 1), ~is_branch & (lengths > 1)
    nodes[single] = 0
    nodes[single, 0] = LEAF << KIND_BIT
    nodes[single, 1], nodes[single, 2] = values[starts[single]], targets[starts[single]]
    nodes[several, 0] = np.uint32(LIST << KIND_BIT)
    nodes[several, 1], nodes[several, 2] = starts[several], lengths[several]
    used = np.unique(nodes[is_branch, 0] >> KIND_BIT)
    signs = list(MODES.values())
    columns = (nodes[is_branch, 0] & (MOST_NODES - 1)).astype(np.int64)
    pairs = np.unique(owner * count + targets) if count <= 1 << 20 else owner
    return Trees(
        nodes,
        np.stack([targets, values], 1).astype(np.uint32),
        roots.astype(np.uint32),
        _depth(nodes, is_branch) + int(lengths.max()) + 2,
        (signs[used[0]] if len(used) else "<=") if len(used) < 2 else "",
        int(columns.max(initial=-1)) + 1,
        len(pairs) == np.count_nonzero(~is_branch) * count,
    )


def _depth(nodes: np.ndarray, is_branch: np.ndarray) -> int:
    """Return the most branches on a path; ModelError if nodes form a circle.

    Nodes are taken away from the tops, those without a parent left first.
    Source: Kahn, Topological Sorting of Large Networks (1962)
    """
    children = nodes[:, 2:].astype(np.int64)
    parents = np.bincount(children[is_branch].ravel(), minlength=len(nodes))
    tops, taken, depth = np.flatnonzero(parents == 0), 0, 0
    while len(tops):
        taken += len(tops)
        below = children[tops[is_branch[tops]]].ravel()
        np.subtract.at(parents, below, 1)
        tops = np.unique(below[parents[below] == 0])
        depth += 1
    if taken < len(nodes):
        raise ModelError(
            f"{len(nodes) - taken} nodes, one is number "
            f"{np.flatnonzero(parents > 0)[0]}, form a circle: no path from them ends"
        )
    return depth
