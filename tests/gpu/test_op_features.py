"""Operators of ai.onnx.ml on columns of features: scaling, linear models, lookups."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vklab
from support.checks.check_operator import check_operator, lacks
from support.graphs.tree_models import FEATURES, ML, features, ml_model
from vklab import ModelError, settings
from vklab.runtime import host

DTYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int32": TensorProto.INT32,
          "int64": TensorProto.INT64}  # fmt: skip
POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
SHAPES = [(FEATURES,), (0, FEATURES), (1, FEATURES), (3, FEATURES), (1031, FEATURES)]


def numbers(shape, dtype="float32"):
    made = 3 * np.random.default_rng(shape).normal(size=shape)
    made[:1] = 0
    return made.astype(dtype)


def check(op_type, X, device, opset=3, atol=1e-5, **attributes):
    """Compare a node with ONNX Runtime's; arrays become tensor attributes."""
    given = {
        name: numpy_helper.from_array(item, name) if isinstance(item, np.ndarray) else item
        for name, item in attributes.items()
    }
    node = helper.make_node(op_type, ["X"], ["y"], "node", domain=ML, **given)
    made = ml_model(node, helper.np_dtype_to_tensor_dtype(X.dtype), opset, X.shape)
    with settings.settings(FALLBACK=lacks(device, X.dtype)), vklab.load(made, device) as session:
        found = session.run(X)["y"]
    expected = host.Reference(made).run({"X": X})["y"]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, 1e-5, atol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_scaler(device_index, shape, dtype):
    X = numbers(shape, dtype)
    check("Scaler", X, device_index, scale=[1.5, 2.0, 3.0, -1.0, 0.1], offset=[1.0, 2, 3, 4, 0.3])
    check("Scaler", X, device_index, scale=[1.5], offset=[0.25])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("shape", SHAPES)
def test_normalizer(device_index, shape, norm, dtype):
    check("Normalizer", numbers(shape, dtype), device_index, norm=norm)


@pytest.mark.parametrize("shape", SHAPES)
def test_imputer(device_index, shape):
    X, nan = numbers(shape), float("nan")
    X.ravel()[::3] = nan
    each = [1.0, 2.0, 3.0, 4.0, 5.0]
    check("Imputer", X, device_index, imputed_value_floats=each, replaced_value_float=nan)
    check(
        "Imputer",
        np.nan_to_num(X, nan=7),
        device_index,
        imputed_value_floats=[9.0],
        replaced_value_float=7.0,
    )
    check(
        "Imputer",
        numbers(shape, "int64"),
        device_index,
        imputed_value_int64s=[1, 2, 3, 4, 5],
        replaced_value_int64=0,
    )


@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 3, 5), (1031, 5)])
def test_array_feature_extractor(device_index, shape):
    for constants in ((), (1,)):
        check_operator(
            "ArrayFeatureExtractor",
            inputs=[numbers(shape), np.array([4, 0, 4])],
            device=device_index,
            constants=constants,
            domain=ML,
        )


def test_feature_vectorizer(device_index):
    for wanted in ([3, 2, 4], [5, 1, 2]):
        arrays = [numbers((7, 5)), numbers((7, 1)), numbers((7, 2))]
        check_operator(
            "FeatureVectorizer",
            inputs=arrays,
            device=device_index,
            domain=ML,
            inputdimensions=wanted,
        )


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("targets", [1, 2, 3])
def test_linear_regressor(device_index, targets, post):
    rng = np.random.default_rng(targets)
    given = {"targets": targets, "coefficients": rng.normal(size=5 * targets).tolist()}
    X = 0.1 * numbers((37, 5))
    for more in ({}, {"intercepts": rng.uniform(0.3, 0.6, targets).tolist()}):
        check(
            "LinearRegressor",
            X,
            device_index,
            post_transform=post,
            **given,
            **more,
            atol=1e-3 if post == "PROBIT" else 1e-5,
        )


def linear(classes, post, **labels):
    rng = np.random.default_rng(classes)
    return helper.make_node(
        "LinearClassifier",
        ["X"],
        ["label", "scores"],
        "node",
        domain=ML,
        post_transform=post,
        coefficients=rng.normal(size=5 * classes).tolist(),
        intercepts=rng.uniform(-1, 1, classes).tolist(),
        **labels,
    )


def agree(made, X, device, fallback):
    with settings.settings(FALLBACK=fallback), vklab.load(made, device) as session:
        found = session.run(X)
    expected = host.Reference(made).run({"X": X})
    assert found["label"].tolist() == expected["label"].tolist()
    np.testing.assert_allclose(found["scores"], expected["scores"], 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("classes", [1, 2, 3, 5])
def test_linear_classifier(device_index, classes, post, dtype):
    if classes == 1 and post == "PROBIT":
        pytest.skip("the host computes it: half of its scores are undefined")
    made = ml_model(
        linear(classes, post, classlabels_ints=list(range(7, 7 + max(classes, 2)))), DTYPES[dtype]
    )
    agree(made, numbers((37, 5), dtype), device_index, False)


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_a_linear_classifier_with_text_labels(device_index):
    made = ml_model(linear(3, "SOFTMAX", classlabels_strings=["a", "b", "c"]))
    agree(made, numbers((37, 5)), device_index, True)


@pytest.mark.parametrize("opset", [2, 4])
@pytest.mark.parametrize("values", [
    {"values_int64s": [1, 2, 3, 4, 1 << 40]}, {"values_floats": [1.0, 2.0, 3.0, 4.0, 5.0]},
])  # fmt: skip
def test_label_encoder(device_index, opset, values):
    X = np.random.default_rng(0).integers(-5, 5, (37, FEATURES)) << 33
    keys = [key << 33 for key in (3, -4, 0, 2, 3)]  # the first of equal keys counts
    check("LabelEncoder", X, device_index, opset, keys_int64s=keys, **values)
    F = features(np.random.default_rng(0), 37).round()
    F[1, 1] = -0.0
    for found in ([0.0, 1.0, float("nan"), -2.0, 9.0], [float("nan")]):
        cut = {name: items[: len(found)] for name, items in values.items()}
        check(
            "LabelEncoder",
            F,
            device_index,
            opset,
            keys_floats=found,
            default_int64=9,
            default_float=0.5,
            **cut,
        )


def test_label_encoder_of_tensors(device_index):
    X = features(np.random.default_rng(0), 37, np.float64).round()
    check(
        "LabelEncoder",
        X,
        device_index,
        4,
        keys_tensor=np.array([0.0, 1, np.nan]),
        values_tensor=np.array([5.0, 6, 7]),
        default_tensor=np.array([8.0]),
    )


@pytest.mark.parametrize("op_type, attributes, words", [
    ("Scaler", {"scale": [1.0, 2.0], "offset": [1.0, 2.0]}, "2 scales and 2 offsets for 5"),
    ("Normalizer", {"norm": "L3"}, "choose 'MAX'"),
    ("Imputer", {}, "0 values to impute"),
    ("LinearRegressor", {"coefficients": [1.0]}, "1 coefficients for 1 targets or classes and 5"),
    ("LinearClassifier", {"coefficients": [1.0], "intercepts": [1.0, 2.0]}, "0 labels for 2"),
    ("LabelEncoder", {"keys_floats": [1.0], "values_floats": [1.0, 2.0]}, "1 keys and 2 values"),
    ("LabelEncoder", {"keys_int64s": [1], "values_floats": [1.0]}, "keys are int64, X is float32"),
    ("FeatureVectorizer", {"inputdimensions": [1, 2]}, "1 inputs and inputdimensions"),
])  # fmt: skip
def test_damaged_attributes_are_refused(device_index, op_type, attributes, words):
    outputs = ["label", "scores"] if op_type == "LinearClassifier" else ["y"]
    node = helper.make_node(op_type, ["X"], outputs, "node", domain=ML, **attributes)
    with (
        pytest.raises(ModelError, match=words),
        vklab.load(ml_model(node), device_index) as session,
    ):
        session.run(numbers((2, 5)))
