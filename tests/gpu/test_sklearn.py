"""Models of scikit-learn as skl2onnx exports them: no host node, results as ONNX Runtime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vklab
from vklab import settings
from vklab.runtime import host

pytestmark = pytest.mark.full

# Steps of each pipeline: the class in sklearn, its arguments. The packages take seconds to import.
# skl2onnx 1.20 cannot export the histogram boosting of this scikit-learn: it raises a ValueError.
MODELS: dict[str, dict[str, dict[str, int]]] = {
    "a forest": {"ensemble.RandomForestClassifier": {"n_estimators": 20, "random_state": 0}},
    "extra trees": {"ensemble.ExtraTreesClassifier": {"n_estimators": 20, "random_state": 0}},
    "a tree": {"tree.DecisionTreeClassifier": {"random_state": 0}},
    "boosting": {"ensemble.GradientBoostingClassifier": {"n_estimators": 10, "random_state": 0}},
    "regression by a forest": {"ensemble.RandomForestRegressor": {"random_state": 0}},
    "regression by extra trees": {"ensemble.ExtraTreesRegressor": {"random_state": 0}},
    "regression by a tree": {"tree.DecisionTreeRegressor": {"random_state": 0}},
    "regression by boosting": {"ensemble.GradientBoostingRegressor": {"random_state": 0}},
    "logistic regression": {
        "preprocessing.StandardScaler": {}, "linear_model.LogisticRegression": {}},
    "linear regression": {
        "preprocessing.MinMaxScaler": {}, "linear_model.LinearRegression": {}},
    "normalized": {"preprocessing.Normalizer": {}, "linear_model.RidgeClassifier": {}},
}  # fmt: skip


def part(name: str) -> Any:
    """Return a class or function of scikit-learn by its module and name."""
    module, _, last = name.rpartition(".")
    whole = f"sklearn.{module}"
    return getattr(pytest.importorskip(whole, reason="scikit-learn is not installed"), last)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_exported_models(device_index, name, classes):
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    steps = [part(step)(**arguments) for step, arguments in MODELS[name].items()]
    estimator = part("pipeline.make_pipeline")(*steps) if len(steps) > 1 else steps[0]
    X, y = part("datasets.make_classification")(
        301, 11, n_informative=6, n_classes=classes, random_state=0
    )
    X = X.astype(np.float32)
    is_classifier = hasattr(estimator, "predict_proba") or "normalized" in name
    estimator.fit(X, y if is_classifier else X[:, 0] * X[:, 1])
    options = {"zipmap": False} if is_classifier else None
    made = skl2onnx.to_onnx(
        estimator, X[:1], options=options, target_opset={"": 17, "ai.onnx.ml": 3}
    )
    with settings.settings(FALLBACK=False), vklab.load(made, device_index) as session:
        for rows in (1, 301):
            fed = {session.inputs[0].name: X[:rows]}
            found, expected = session.run(fed), host.Reference(made).run(fed)
            agree(list(found.values()), list(expected.values()))


def agree(found, expected):
    """Compare scores, and labels except at ties: sums are taken in another order."""
    np.testing.assert_allclose(found[-1], expected[-1], 1e-4, 1e-4)
    if len(found) == 2:
        top = np.sort(expected[1].reshape(len(expected[1]), -1), axis=1)
        margin = top[:, -1] - top[:, -2] if top.shape[1] > 1 else np.abs(top[:, 0])
        clear = margin > 1e-4
        np.testing.assert_array_equal(found[0].ravel()[clear], expected[0].ravel()[clear])
