"""Dispatch ensembles of decision trees: one pass through the trees, one from sums to scores.

`tree_nodes` checks and lays out the nodes. Thresholds and weights are float32, as in ONNX Runtime
for such inputs; sums are taken in the order of the trees, block by block. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.body import Expansion
from vklab.ops.class_scores import BINARY, ML, MULTICLASS, TARGETS, Scoring, labelled, scored
from vklab.ops.dtypes import table, type_defines
from vklab.ops.inputs import require
from vklab.ops.once import once
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.ops.tree_groups import flatten_shared
from vklab.ops.tree_nodes import Floats, Trees, flatten
from vklab.types import Dispatch, TensorInfo

TYPES = frozenset({"float32", "int32", "int64"})
# Invocations that occupy a device: few rows are walked by several blocks of trees.
INVOCATIONS = 8192
STEPS = 60_000  # loop iterations of an invocation in one dispatch
IN_REGISTERS = 8  # the most targets whose sums an invocation keeps in registers
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")  # TreeEnsemble's numbers of both
POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NODE_LISTS = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids",
              "missing_value_tracks_true")  # fmt: skip
COMBINES = {"SUM": "a+b", "AVERAGE": "a+b", "MIN": "(b<a?b:a)", "MAX": "(b>a?b:a)"}


def _rows_and_columns(X: TensorInfo) -> tuple[int, int]:
    """Return the rows and columns of an ensemble's input; a vector is one row."""
    require(TYPES, X)
    if X.rank not in (1, 2):
        raise ModelError(f"X of shape {X.shape} must be rows of features: a matrix or a vector")
    return (X.dims[0] if X.rank == 2 else 1), X.dims[-1]


def ensemble_scores(
    X: TensorInfo, trees: Trees, targets: int, aggregate: str
) -> tuple[tuple[Dispatch, ...], TensorInfo]:
    """Return the dispatch that walks all trees, and its sums: float32 [blocks, rows, targets].

    Args:
        X: the features.
        trees: the ensemble.
        targets: the number of targets or classes.
        aggregate: a key of COMBINES.
    """
    (rows, columns), count = _rows_and_columns(X), len(trees.roots)
    if trees.features > columns:
        raise ModelError(
            f"the ensemble reads feature {trees.features - 1}; X of shape {X.shape} "
            f"has {columns} columns"
        )
    least = -(-count * trees.steps // STEPS)
    wanted = min(INVOCATIONS // max(rows, 1), count, max(1, STEPS // (8 * targets)))
    each = -(-count // max(least, wanted, 1))
    blocks = -(-count // each)
    sums = output("float32", (blocks, rows, targets))
    reads = [
        ("x_buffer", X),
        ("n_buffer", table(trees.nodes, "uint32")),
        ("r_buffer", table(trees.roots, "uint32")),
    ]
    if len(trees.weights):
        reads.append(("w_buffer", table(trees.weights, "uint32")))
    dispatch = Dispatch(
        kernel="tree_ensemble",
        reads=tuple(reads),
        writes=(("s_buffer", sums),),
        workgroups=grid(-(-blocks * rows // WORKGROUP)),
        push=(
            ("count", blocks * rows),
            ("rows", rows),
            ("columns", columns),
            ("trees", count),
            ("each", each),
            ("targets", targets),
        ),
        defines=(
            *type_defines("X", X.dtype)[:2],
            ("COMBINE", COMBINES[aggregate]),
            ("COMPARE", trees.comparison or "<="),
            ("MIXED", str(int(not trees.comparison))),
            ("LISTS", str(int(len(trees.weights) > 0))),
            ("TARGETS", str(targets if targets <= IN_REGISTERS else 0)),
        ),
        flops=rows * count * trees.steps,
        iterations=each * trees.steps + targets,
    )
    return ((dispatch,) if rows else ()), sums


def _numbers(floats: Sequence[float], tensor: np.ndarray | None, name: str) -> Floats:
    """Return an attribute that is a list or a tensor of float32."""
    if tensor is not None and floats:
        raise ModelError(f"{name} and {name}_as_tensor are both given; give one of them")
    if tensor is not None and tensor.dtype != np.float32:
        raise UnsupportedOperatorError(
            f"{name}_as_tensor is {tensor.dtype}; kernels compare in float32"
        )
    return floats if tensor is None else tensor


def _trees(given: Mapping[str, Any], leaves: tuple[Any, Any, Any, Any], targets: int) -> Trees:
    """Return the ensemble of attributes by name, and of the lists of the weights."""
    return flatten(
        *(given[f"nodes_{name}"] for name in NODE_LISTS),
        _numbers(given["nodes_values"], given["nodes_values_as_tensor"], "nodes_values"),
        *leaves,
        targets,
    )


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(
    X: TensorInfo,
    *,
    aggregate_function: str = "SUM",
    base_values: Sequence[float] = (),
    base_values_as_tensor: ndarray | None = None,
    n_targets: int = 0,
    nodes_falsenodeids: Sequence[int] = (),
    nodes_featureids: Sequence[int] = (),
    nodes_hitrates: Sequence[float] = (),
    nodes_hitrates_as_tensor: ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] = (),
    nodes_modes: Sequence[str] = (),
    nodes_nodeids: Sequence[int] = (),
    nodes_treeids: Sequence[int] = (),
    nodes_truenodeids: Sequence[int] = (),
    nodes_values: Sequence[float] = (),
    nodes_values_as_tensor: ndarray | None = None,
    post_transform: str = "NONE",
    target_ids: Sequence[int] = (),
    target_nodeids: Sequence[int] = (),
    target_treeids: Sequence[int] = (),
    target_weights: Sequence[float] = (),
    target_weights_as_tensor: ndarray | None = None,
) -> Result:
    """Combine the weights of the leaves that each row reaches. Source: TreeEnsembleRegressor-5."""
    if aggregate_function not in COMBINES or n_targets < 1:
        raise ModelError(
            f"aggregate_function={aggregate_function!r} and n_targets={n_targets}; "
            f"choose one of {', '.join(COMBINES)} and at least 1 target"
        )
    weights = _numbers(target_weights, target_weights_as_tensor, "target_weights")
    trees = _trees(locals(), (target_treeids, target_nodeids, target_ids, weights), n_targets)
    base = _numbers(base_values, base_values_as_tensor, "base_values")
    return _regressed(X, trees, n_targets, aggregate_function, post_transform, base)


def _regressed(
    X: TensorInfo, trees: Trees, targets: int, aggregate: str, post_transform: str,
    base: Floats = (),
) -> Result:  # fmt: skip
    dispatches, sums = ensemble_scores(X, trees, targets, aggregate)
    divisor = len(trees.roots) if aggregate == "AVERAGE" else 1
    scoring = Scoring(TARGETS, post_transform, COMBINES[aggregate], base, divisor)
    (result,), last = scored(sums, scoring)
    return Result((result,), (*dispatches, *last), (sums,))


@operator("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(
    X: TensorInfo,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Sequence[int] = (),
    leaf_weights: ndarray,
    membership_values: ndarray | None = None,
    n_targets: int = 0,
    nodes_falseleafs: Sequence[int] = (),
    nodes_falsenodeids: Sequence[int] = (),
    nodes_featureids: Sequence[int] = (),
    nodes_hitrates: ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] = (),
    nodes_modes: ndarray,
    nodes_splits: ndarray,
    nodes_trueleafs: Sequence[int] = (),
    nodes_truenodeids: Sequence[int] = (),
    post_transform: int = 0,
    tree_roots: Sequence[int] = (),
) -> Result:
    """Combine the weights of the leaves that each row reaches. Source: ONNX TreeEnsemble-5."""
    require(TYPES, X)  # the dtype of X first: it is the reason that a reader understands
    ends = len(AGGREGATES), len(POST_TRANSFORMS)
    if not (0 <= aggregate_function < ends[0] and 0 <= post_transform < ends[1] and n_targets > 0):
        raise ModelError(
            f"{aggregate_function=}, {post_transform=}, {n_targets=}: they must be "
            f"below {ends[0]}, below {ends[1]}, and at least 1"
        )
    if POST_TRANSFORMS[post_transform] in ("SOFTMAX", "LOGISTIC"):
        raise UnsupportedOperatorError(
            f"post_transform={post_transform}: in ONNX 1 is SOFTMAX and "
            "2 LOGISTIC, in ONNX Runtime the other way round"
        )
    trees = flatten_shared(
        tree_roots,
        nodes_featureids,
        nodes_modes,
        _numbers((), nodes_splits, "nodes_splits"),
        _numbers((), membership_values, "membership_values"),
        nodes_truenodeids,
        nodes_trueleafs,
        nodes_falsenodeids,
        nodes_falseleafs,
        nodes_missing_value_tracks_true,
        leaf_targetids,
        _numbers((), leaf_weights, "leaf_weights"),
        n_targets,
    )
    return _regressed(
        X, trees, n_targets, AGGREGATES[aggregate_function], POST_TRANSFORMS[post_transform]
    )


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(
    X: TensorInfo,
    *,
    base_values: Sequence[float] = (),
    base_values_as_tensor: ndarray | None = None,
    class_ids: Sequence[int] = (),
    class_nodeids: Sequence[int] = (),
    class_treeids: Sequence[int] = (),
    class_weights: Sequence[float] = (),
    class_weights_as_tensor: ndarray | None = None,
    classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    nodes_falsenodeids: Sequence[int] = (),
    nodes_featureids: Sequence[int] = (),
    nodes_hitrates: Sequence[float] = (),
    nodes_hitrates_as_tensor: ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] = (),
    nodes_modes: Sequence[str] = (),
    nodes_nodeids: Sequence[int] = (),
    nodes_treeids: Sequence[int] = (),
    nodes_truenodeids: Sequence[int] = (),
    nodes_values: Sequence[float] = (),
    nodes_values_as_tensor: ndarray | None = None,
    post_transform: str = "NONE",
) -> Result | Expansion:
    """Return label and scores of each row's best class. Source: TreeEnsembleClassifier-5."""
    if classlabels_strings:
        return labelled("TreeEnsembleClassifier", X, locals(), "classlabels_int64s")
    classes = len(classlabels_int64s)
    weights = _numbers(class_weights, class_weights_as_tensor, "class_weights")
    if classes < 2:
        raise UnsupportedOperatorError(f"{classes} class labels; kernels take two or more")
    trees = _trees(locals(), (class_treeids, class_nodeids, class_ids, weights), classes)
    dispatches, sums = ensemble_scores(X, trees, classes, "SUM")
    column = _column(class_ids, weights) if classes == 2 else 0
    scoring = Scoring(
        MULTICLASS if classes > 2 else BINARY,
        post_transform,
        COMBINES["SUM"],
        _numbers(base_values, base_values_as_tensor, "base_values"),
        labels=classlabels_int64s if classes > 2 or column else (0, 1),
        column=column,
    )
    outputs, last = scored(sums, scoring)
    return Result(outputs, (*dispatches, *last), (sums,))


@once
def _column(ids: Sequence[int], weights: Floats) -> int:
    """Return 0 if both of two classes have weights; else 1, or 2 if one is negative.

    With weights for one class only, the other class has the rest of the score.
    """
    return 0 if len(set(ids)) != 1 else 2 if np.less(weights, 0).any() else 1
