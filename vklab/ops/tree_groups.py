"""Lay out the trees of TreeEnsemble, ONNX's newer form, for shaders/ops/tree_ensemble.slang.

Its branches and leaves have lists of their own, and a branch may test for one of several values.
`tree_nodes` has the older form and what both share. Visited by lab 09.
"""

from __future__ import annotations

import numpy as np

from vklab.errors import ModelError
from vklab.ops.once import once
from vklab.ops.tree_nodes import (
    KIND_BIT,
    MISSING_BIT,
    MOST_NODES,
    Ints,
    Trees,
    arranged,
    bits,
    checked,
    weighted,
)

EQUAL, MEMBER = 4, 6  # modes


@once
def flatten_shared(
    roots: Ints, features: Ints, modes: np.ndarray, splits: np.ndarray, values: np.ndarray,
    yes: Ints, yes_leafs: Ints, no: Ints, no_leafs: Ints, missing: Ints, leaves: Ints,
    weights: np.ndarray, targets: int,
) -> Trees:  # fmt: skip
    """Return the trees of TreeEnsemble, whose branches and leaves have lists of their own.

    A test for one of several values becomes a chain of comparisons.

    Args:
        roots: tree_roots.
        features: nodes_featureids.
        modes: nodes_modes.
        splits: nodes_splits, the thresholds.
        values: membership_values, the values of each such node ended by NaN.
        yes: nodes_truenodeids.
        yes_leafs: nodes_trueleafs.
        no: nodes_falsenodeids.
        no_leafs: nodes_falseleafs.
        missing: nodes_missing_value_tracks_true; may be empty.
        leaves: leaf_targetids.
        weights: leaf_weights.
        targets: n_targets.

    Source: ONNX TreeEnsemble-5
    """
    modes, splits, values, weights = map(np.ravel, (modes, splits, values, weights))
    count = len(features)
    kinds = checked("nodes_modes", modes, count, MEMBER + 1)
    if not 0 < count <= MOST_NODES or len(splits) != count or not roots:
        raise ModelError(
            f"{count} nodes, {len(splits)} splits, {len(roots)} roots; each node "
            "needs a split, each tree a root"
        )
    groups = _groups(values, np.flatnonzero(kinds == MEMBER))
    base = count + sum(len(group) - 1 for group in groups.values())
    sides = []
    for name, ids, leafs in (("true", yes, yes_leafs), ("false", no, no_leafs)):
        is_leaf = checked(f"nodes_{name}leafs", leafs, count, 2) == 1
        found = checked(f"nodes_{name}nodeids", ids, count, max(count, len(leaves)))
        wrong = np.flatnonzero(found >= np.where(is_leaf, len(leaves), count))
        if len(wrong):
            raise ModelError(
                f"nodes_{name}nodeids[{wrong[0]}]={found[wrong[0]]}; there are "
                f"{count} nodes and {len(leaves)} leaves"
            )
        sides.append(np.where(is_leaf, base + found, found))
    tracked = checked("nodes_missing_value_tracks_true", missing or (0,) * count, count, 2)
    columns = checked("nodes_featureids", features, count, MOST_NODES)
    nodes = np.zeros((base + len(leaves), 4), np.uint32)
    nodes[:count] = np.stack(
        [kinds << KIND_BIT | tracked << MISSING_BIT | columns, bits(splits), *sides], 1
    )
    end = count
    for node, group in groups.items():
        chain = [node, *range(end, end + len(group) - 1)]
        nodes[chain] = nodes[node]
        nodes[chain, 0] = EQUAL << KIND_BIT | tracked[node] << MISSING_BIT | columns[node]
        nodes[chain, 1], nodes[chain[:-1], 3] = bits(group), chain[1:]
        end += len(group) - 1
    owner = base + np.arange(len(leaves))
    return arranged(
        nodes,
        np.arange(len(nodes)) < base,
        checked("tree_roots", roots, len(roots), count),
        weighted(owner, leaves, weights, targets),
    )


def _groups(values: np.ndarray, nodes: np.ndarray) -> dict[int, np.ndarray]:
    """Return the values of each node that tests for one of several; NaN ends each list."""
    parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    found = [part[~np.isnan(part)] for part in parts if len(part)]
    if len(found) != len(nodes) or not all(map(len, found)):
        raise ModelError(
            f"membership_values has {len(found)} lists for {len(nodes)} nodes, or an empty one"
        )
    return dict(zip(nodes.tolist(), found, strict=True))
