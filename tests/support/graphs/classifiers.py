"""Models as skl2onnx writes scikit-learn's classifiers: a forest with a ZipMap, text as input."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from support.graphs.small_models import model, value


def _forest() -> onnx.NodeProto:
    """Return one tree with two leaves: class 1 where the first feature is above 0."""
    return helper.make_node(
        "TreeEnsembleClassifier",
        ["X"],
        ["label", "scores"],
        "forest",
        domain="ai.onnx.ml",
        classlabels_int64s=[0, 1],
        post_transform="NONE",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[0.0, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        nodes_hitrates=[1.0, 1.0, 1.0],
        nodes_missing_value_tracks_true=[0, 0, 0],
        class_treeids=[0, 0, 0, 0],
        class_nodeids=[1, 1, 2, 2],
        class_ids=[0, 1, 0, 1],
        class_weights=[0.75, 0.25, 0.125, 0.875],
    )


def _with_ml(made: onnx.ModelProto) -> onnx.ModelProto:
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return made


def forest(zipmap: bool = True, features: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Return a random forest; its probabilities are a sequence of maps, skl2onnx's default.

    Features of the type DOUBLE have no kernel.
    """
    label = value("label", ("N",), TensorProto.INT64)
    if not zipmap:
        return _with_ml(model([_forest()], [value("X", ("N", 3), features)], [label, "scores"]))
    zipped = helper.make_node(
        "ZipMap",
        ["scores"],
        ["probabilities"],
        "zipmap",
        domain="ai.onnx.ml",
        classlabels_int64s=[0, 1],
    )
    kind = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    maps = helper.make_value_info("probabilities", helper.make_sequence_type_proto(kind))
    return _with_ml(model([_forest(), zipped], [value("X", ("N", 3), features)], [label, maps]))


def encoder() -> onnx.ModelProto:
    """Return a model with a column of text and a column of numbers as inputs."""
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["city"],
            ["code"],
            "encoder",
            domain="ai.onnx.ml",
            keys_strings=["Bonn", "Ulm"],
            values_floats=[1.0, 2.0],
            default_float=-1.0,
        ),
        helper.make_node("Add", ["code", "size"], ["y"], "add"),
    ]
    city = value("city", ("N", 1), TensorProto.STRING)
    return _with_ml(model(nodes, [city, value("size", ("N", 1))], [value("y", ("N", 1))]))
