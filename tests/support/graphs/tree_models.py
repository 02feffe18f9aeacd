"""Random ensembles of decision trees as nodes of ai.onnx.ml, and models of such nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from support.graphs.small_models import model, value

ML = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 5
Leaves = list[tuple[int, int]]


def ml_model(
    node: onnx.NodeProto, kind: int = TensorProto.FLOAT, opset: int = 3,
    shape: Sequence[int | str] = ("N", FEATURES),
) -> Any:  # fmt: skip
    """Return a model of one node that reads X."""
    made = model([node], [value("X", shape, kind)], list(node.output))
    made.opset_import.append(helper.make_opsetid(ML, opset))
    return made


def nodes(
    rng: np.random.Generator, trees: int, depth: int, modes: Sequence[str] = MODES[:1],
    missing: float = 0.0,
) -> tuple[dict[str, list[Any]], Leaves]:  # fmt: skip
    """Return the attributes `nodes_...` of random trees, and the tree and node of each leaf."""
    names = (
        "treeids",
        "nodeids",
        "featureids",
        "modes",
        "values",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    )
    rows: list[tuple[Any, ...]] = []
    leaves: Leaves = []
    for tree in range(trees):
        start = len(rows)

        def grow(left: int, tree: int = tree, start: int = start) -> int:
            own = len(rows) - start
            rows.append(())
            if left == 0 or (left < depth and rng.random() < 0.2):
                leaves.append((tree, own))
                rows[start + own] = (tree, own, 0, "LEAF", 0.0, 0, 0, 0)
                return own
            children = grow(left - 1), grow(left - 1)
            split = float(np.float32(rng.choice([rng.normal(), 0.0, 1.0])))
            rows[start + own] = (
                tree,
                own,
                int(rng.integers(FEATURES)),
                str(rng.choice(modes)),
                split,
                *children,
                int(rng.random() < missing),
            )
            return own

        grow(depth)
    columns = zip(*rows, strict=True)
    return {f"nodes_{n}": list(c) for n, c in zip(names, columns, strict=True)}, leaves


def _weights(
    rng: np.random.Generator, leaves: Leaves, count: int, ids: Sequence[int] | int, prefix: str,
    positive: bool = False,
) -> dict[str, list[Any]]:  # fmt: skip
    """Return weights for some targets of each leaf; a number of `ids` draws as many of them."""
    found: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree, node in leaves:
        chosen = rng.permutation(count)[:ids] if isinstance(ids, int) else ids
        for number in chosen:
            weight = abs(rng.normal()) if positive else rng.normal()
            for name, item in zip(
                found, (tree, node, int(number), float(np.float32(weight))), strict=True
            ):
                found[name].append(item)
    return {f"{prefix}_{name}": values for name, values in found.items()}


def regressor(
    rng: np.random.Generator, targets: int = 1, ids: Sequence[int] | int = 1, trees: int = 7,
    depth: int = 3, modes: Sequence[str] = MODES[:1], missing: float = 0.0, **more: Any,
) -> onnx.NodeProto:  # fmt: skip
    """Return a random TreeEnsembleRegressor."""
    made, leaves = nodes(rng, trees, depth, modes, missing)
    weights = _weights(rng, leaves, targets, ids, "target")
    given = {**made, **weights, "n_targets": targets, **more}
    return helper.make_node("TreeEnsembleRegressor", ["X"], ["y"], "node", domain=ML, **given)


def classifier(
    rng: np.random.Generator, classes: int = 3, ids: Sequence[int] | int = 1, trees: int = 7,
    depth: int = 3, positive: bool = False, **more: Any,
) -> onnx.NodeProto:  # fmt: skip
    """Return a random TreeEnsembleClassifier; its labels are 10, 11 and so on."""
    made, leaves = nodes(rng, trees, depth)
    weights = _weights(rng, leaves, classes, ids, "class", positive)
    given = {"classlabels_int64s": list(range(10, 10 + classes)), **made, **weights, **more}
    return helper.make_node(
        "TreeEnsembleClassifier",
        ["X"],
        ["label", "scores"],
        "node",
        domain=ML,
        **{k: v for k, v in given.items() if v != []},
    )


def features(rng: np.random.Generator, rows: int, dtype: Any = np.float32) -> np.ndarray:
    """Return random features; a tenth of the floats is NaN, and the first row is 0."""
    made = 2 * rng.normal(size=(rows, FEATURES))
    if np.dtype(dtype).kind == "f":
        made[rng.random(made.shape) < 0.1] = np.nan
    made[:1] = 0
    return made.astype(dtype)
