"""TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble: random trees, as ONNX Runtime.

Sums are taken in another order than ONNX Runtime's, so scores may differ by 1e-5; labels must be
equal except where the two largest scores are as close as that.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vklab
from support.checks.check_operator import lacks
from support.graphs.tree_models import (
    FEATURES,
    ML,
    MODES,
    classifier,
    features,
    ml_model,
    regressor,
)
from vklab import ModelError, UnsupportedOperatorError, settings
from vklab.runtime import host

POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
ATOL = 1e-5


def agree(made, X, device, atol=ATOL, only=slice(None)):
    """Compare a model with ONNX Runtime; return its outputs.

    No node runs on the host, unless the device lacks the dtype of the features.
    """
    with settings.settings(FALLBACK=lacks(device, X.dtype)), vklab.load(made, device) as session:
        found = session.run({"X": X})
    expected = host.Reference(made).run({"X": X})
    scores = expected.get("scores")
    for name, truth in expected.items():
        got = found[name]
        assert got.dtype == truth.dtype and got.shape == truth.shape
        if name == "label" and scores is not None:
            top = np.sort(scores, axis=1)[:, -2:]
            clear = ~(np.abs(top[:, 1] - top[:, 0]) <= 2 * atol)  # NaN is clear, too
            np.testing.assert_array_equal(got[clear], truth[clear])
        else:
            np.testing.assert_allclose(got[..., only], truth[..., only], 1e-4, atol)
    return found


@pytest.mark.parametrize("targets, ids", [(1, 1), (2, 2), (3, 1), (12, 5)])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("has_base", [False, True])
def test_regressors(device_index, targets, ids, aggregate, has_base):
    rng = np.random.default_rng([targets, has_base])
    base = {"base_values": [0.5 + number for number in range(targets)]} if has_base else {}
    node = regressor(rng, targets, ids, aggregate_function=aggregate, **base)
    agree(ml_model(node), features(rng, 37), device_index)


@pytest.mark.parametrize("missing", [0.0, 0.5])
@pytest.mark.parametrize("modes", [*((mode,) for mode in MODES), MODES], ids=lambda m: m[-1])
def test_modes_and_missing_values(device_index, modes, missing):
    rng = np.random.default_rng(len(modes))
    node = regressor(rng, modes=modes, missing=missing, depth=4)
    agree(ml_model(node), features(rng, 67), device_index)


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("targets", [1, 2, 3])
def test_transforms_of_targets(device_index, targets, post):
    rng = np.random.default_rng(targets)
    node = regressor(rng, targets, targets, post_transform=post)
    agree(ml_model(node), features(rng, 37), device_index, 1e-4 if post == "PROBIT" else ATOL)


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("has_base", [False, True])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes, ids", [(2, (0,)), (2, (1,)), (2, (0, 1)), (2, 1), (3, 3), (3, 1),
                                          (3, (0, 2)), (11, 1)])  # fmt: skip
def test_classifiers(device_index, classes, ids, positive, has_base, post):
    rng = np.random.default_rng([classes, positive])
    base = {"base_values": [0.1 * number for number in range(1, classes + 1)]} if has_base else {}
    node = classifier(rng, classes, ids, positive=positive, post_transform=post, **base)
    # ONNX Runtime leaves the second score of a single column undefined under PROBIT.
    first = slice(1) if post == "PROBIT" and classes == 2 else slice(None)
    atol = 1e-4 if post == "PROBIT" else ATOL
    agree(ml_model(node), features(rng, 37), device_index, atol, first)


@pytest.mark.parametrize("rows", [0, 1, 3, 1031])
@pytest.mark.parametrize("trees, depth", [(1, 1), (1, 0), (200, 3), (5, 8)])
def test_sizes(device_index, rows, trees, depth):
    rng = np.random.default_rng([rows, trees])
    X = features(rng, rows)
    agree(ml_model(regressor(rng, 1, trees=trees, depth=depth)), X, device_index, 1e-4)
    agree(ml_model(classifier(rng, 3, 3, trees, depth)), X, device_index, 1e-4)


def test_sums_have_the_same_bits_every_time(device_index):
    rng = np.random.default_rng(0)
    X = features(rng, 257)
    with vklab.load(ml_model(regressor(rng, 3, 2, trees=200)), device_index) as session:
        first = session.run(X)["y"]
        assert all(session.run(X)["y"].tobytes() == first.tobytes() for _ in range(5))


@pytest.mark.parametrize("kind, dtype", [(TensorProto.INT32, np.int32), (TensorProto.INT64, "i8")])
def test_integers_as_features(device_index, kind, dtype):
    rng = np.random.default_rng(0)
    agree(ml_model(classifier(rng, 3, 3), kind), features(rng, 37, dtype), device_index)


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
@pytest.mark.parametrize("classes, ids", [(2, (0,)), (3, 3)])
def test_text_labels_are_looked_up_by_the_host(device_index, classes, ids):
    rng = np.random.default_rng(0)
    names = ["no", "yes", "maybe"][:classes]
    made = ml_model(
        classifier(
            rng, classes, ids, positive=True, classlabels_strings=names, classlabels_int64s=[]
        )
    )
    X = features(rng, 37)
    with vklab.load(made, device_index) as session:
        found = session.run(X)
        assert [chunk.place for chunk in session.plan.chunks] == [0, "host"]
        (reason,) = session.host_reasons.values()
    assert "LabelEncoder" in reason and "text" in reason
    expected = host.Reference(made).run({"X": X})
    assert found["label"].tolist() == expected["label"].tolist()
    np.testing.assert_allclose(found["scores"], expected["scores"], 1e-4, ATOL)


def ensemble(**changed):
    """Return a TreeEnsemble of two trees; two of its nodes test for one of several values."""
    tensors = {
        "nodes_modes": np.array([6, 0, 6], np.uint8),
        "nodes_splits": np.array([0, 0.3, 0], np.float32),
        "membership_values": np.array([1, 2, np.nan, -1, 0, 3, np.nan], np.float32),
        "leaf_weights": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
    }
    given = {
        "n_targets": 2,
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 1, 2],
        "nodes_truenodeids": [0, 1, 3],
        "nodes_trueleafs": [1, 1, 1],
        "nodes_falsenodeids": [1, 2, 0],
        "nodes_falseleafs": [0, 1, 1],
        "leaf_targetids": [0, 1, 0, 1],
        **tensors,
        **changed,
    }
    given = {
        name: numpy_helper.from_array(item, name) if isinstance(item, np.ndarray) else item
        for name, item in given.items()
    }
    return ml_model(
        helper.make_node("TreeEnsemble", ["X"], ["y"], "node", domain=ML, **given), opset=5
    )


@pytest.mark.parametrize("post", [0, 3, 4])
@pytest.mark.parametrize("aggregate", range(4))
def test_shared_ensembles(device_index, aggregate, post):
    X = np.random.default_rng(0).integers(-3, 4, (67, FEATURES)).astype(np.float32)
    made = ensemble(aggregate_function=aggregate, post_transform=post)
    agree(made, X, device_index, 1e-4 if post == 4 else ATOL)


def test_what_kernels_leave_to_the_host_is_said(device_index):
    double = ml_model(regressor(np.random.default_rng(0)), TensorProto.DOUBLE)
    for made, words in (
        (double, "kernels exist for float32"),
        (ensemble(post_transform=1), "the other way round"),
        (ensemble(leaf_weights=np.ones(4)), "compare in float32"),
    ):
        with (
            settings.settings(FALLBACK=False),
            pytest.raises(UnsupportedOperatorError, match=words),
            vklab.load(made, device_index) as session,
        ):
            session.run({"X": np.zeros((1, FEATURES), session.inputs[0].dtype)})


DAMAGED = {
    "a circle": ({"nodes_truenodeids": [0, 0, 0]}, "form a circle"),
    "a child that is not there": ({"nodes_truenodeids": [7, 0, 0]}, "node 7 of tree 0, which"),
    "a negative child": ({"nodes_falsenodeids": [-1, 0, 0]}, r"nodes_falsenodeids\[0\]=-1"),
    "a feature that is not there": ({"nodes_featureids": [99, 0, 0]}, "feature 99; X of shape"),
    "a negative feature": ({"nodes_featureids": [-1, 0, 0]}, r"nodes_featureids\[0\]=-1"),
    "lists of other lengths": ({"nodes_values": [0.0]}, "nodes_values has 1 values"),
    "too few modes": ({"nodes_modes": ["LEAF"]}, "1 values for 3 nodes"),
    "an unknown mode": ({"nodes_modes": ["BRANCH_X", "LEAF", "LEAF"]}, "BRANCH_X.*choose LEAF"),
    "a node twice": ({"nodes_nodeids": [0, 1, 1]}, "node 1 of tree 0 is given twice"),
    "no nodes": ({"nodes_nodeids": []}, "ensemble of 0 nodes"),
    "a target that is not there": ({"target_ids": [0, 5]}, r"\[1\]=5 is not in 0 to 0"),
    "too few weights": ({"target_weights": [1.0]}, "1 weights for 2 leaves"),
    "a leaf without weight": ({"target_nodeids": [1, 1]}, "has no weight"),
    "no targets": ({"n_targets": 0}, "at least 1 target"),
    "an unknown sum": ({"aggregate_function": "ALL"}, "choose one of SUM"),
    "an unknown transform": ({"post_transform": "X"}, "choose one of NONE"),
    "too many base values": ({"base_values": [1.0, 2.0]}, "2 base_values for 1"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_ensembles_are_refused(device_index, what):
    changed, words = DAMAGED[what]
    given = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "n_targets": 1,
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }
    given = {name: item for name, item in {**given, **changed}.items() if item != []}
    node = helper.make_node("TreeEnsembleRegressor", ["X"], ["y"], "node", domain=ML, **given)
    with (
        pytest.raises(ModelError, match=words),
        vklab.load(ml_model(node), device_index) as session,
    ):
        session.run(np.zeros((1, FEATURES), np.float32))


@pytest.mark.parametrize("changed, words", [
    ({"nodes_falsenodeids": [0, 2, 0]}, "form a circle"),
    ({"nodes_truenodeids": [9, 1, 3]}, r"\[0\]=9"),
    ({"tree_roots": [0, 3]}, r"tree_roots\[1\]=3"),
    ({"membership_values": np.array([1, np.nan], np.float32)}, "1 lists for 2 nodes"),
    ({"nodes_splits": np.zeros(2, np.float32)}, "2 splits"),
    ({"nodes_modes": np.array([7, 0, 6], np.uint8)}, r"nodes_modes\[0\]=7"),
    ({"aggregate_function": 4}, "aggregate_function=4"),
])  # fmt: skip
def test_damaged_shared_ensembles_are_refused(device_index, changed, words):
    with (
        pytest.raises(ModelError, match=words),
        vklab.load(ensemble(**changed), device_index) as session,
    ):
        session.run(np.zeros((1, FEATURES), np.float32))
