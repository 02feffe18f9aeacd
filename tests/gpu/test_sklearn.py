"""Models of scikit-learn as skl2onnx exports them: no host node, results as ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from vklab import settings
from vklab.runtime import host

pytestmark = pytest.mark.full
ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed")
skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")

from sklearn import datasets, linear_model, preprocessing, tree  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

# skl2onnx 1.20 cannot export the histogram boosting of this scikit-learn: it raises a ValueError.
MODELS = {
    "a forest": lambda: ensemble.RandomForestClassifier(20, random_state=0),
    "extra trees": lambda: ensemble.ExtraTreesClassifier(20, random_state=0),
    "a tree": lambda: tree.DecisionTreeClassifier(random_state=0),
    "boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0),
    "regression by a forest": lambda: ensemble.RandomForestRegressor(20, random_state=0),
    "regression by extra trees": lambda: ensemble.ExtraTreesRegressor(20, random_state=0),
    "regression by a tree": lambda: tree.DecisionTreeRegressor(random_state=0),
    "regression by boosting": lambda: ensemble.GradientBoostingRegressor(random_state=0),
    "logistic regression": lambda: make_pipeline(
        preprocessing.StandardScaler(), linear_model.LogisticRegression()),
    "linear regression": lambda: make_pipeline(
        preprocessing.MinMaxScaler(), linear_model.LinearRegression()),
    "normalized": lambda: make_pipeline(
        preprocessing.Normalizer(), linear_model.RidgeClassifier()),
}  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_exported_models(device_index, name, classes):
    estimator = MODELS[name]()
    X, y = datasets.make_classification(301, 11, n_informative=6, n_classes=classes, random_state=0)
    X = X.astype(np.float32)
    is_classifier = hasattr(estimator, "predict_proba") or "normalized" in name
    estimator.fit(X, y if is_classifier else X[:, 0] * X[:, 1])
    options = {"zipmap": False} if is_classifier else None
    made = skl2onnx.to_onnx(estimator, X[:1], options=options,
                            target_opset={"": 17, "ai.onnx.ml": 3})  # fmt: skip
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
