"""Tolerance of 8-bit models: noise of their steps, followed to the outputs in float64."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from vklab.apps.compare.backend import Steps
from vklab.apps.compare.judging import errors, steps
from vklab.apps.compare.onnxruntime import models
from vklab.apps.compare.truth import oracle
from vklab.runtime import host, tolerances

RANDOM = np.random.default_rng(4)
X = RANDOM.uniform(-1, 1, (3, 40)).astype(np.float32)
V, W = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((40, 64), (64, 50)))


def network():
    """Return y = relu(x V) W."""
    nodes = [
        helper.make_node("MatMul", ["x", "V"], ["dot"]),
        helper.make_node("Relu", ["dot"], ["relu"]),
        helper.make_node("MatMul", ["relu", "W"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(
        nodes,
        "net",
        infos[:1],
        infos[1:],
        [numpy_helper.from_array(V, "V"), numpy_helper.from_array(W, "W")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


MODEL = network()
TRUTH = oracle.of_graph(MODEL, {"x": X}).layers
RELU = float(TRUTH["relu"].max()) / 255
QUANTISED = Steps(
    {"x": 2 / 255, "relu": RELU, "y": float(np.abs(TRUTH["y"]).max()) / 127},
    {"V": np.abs(V).max(0, keepdims=True) / 127, "W": np.abs(W).max(0, keepdims=True) / 127},
)


def rounded(array, step, low=-np.inf, high=np.inf):
    return step * np.clip(np.round(array / step), low, high)


def eight_bit(most=255, factor=1.0):
    """Return y with every value rounded; `most` and `factor` plant a clipped range, a scale."""
    v, w = (rounded(each, QUANTISED.weights[name]) for each, name in ((V, "V"), (W, "W")))
    relu = rounded(np.maximum(rounded(X, 2 / 255) @ v, 0), RELU, 0, most)
    return rounded(relu @ (w * factor), QUANTISED.values["y"])


def test_the_noise_of_one_step_is_that_of_the_formula():
    alone = {
        "value": Steps({"relu": 0.5}),
        "weight": Steps({}, {"W": np.full((1, 50), 0.25)}),
        "output": Steps({"y": 0.5}),
    }
    wanted = {
        "value": 0.5 * np.sqrt((W**2).sum(0).mean()),
        "output": 0.5,
        "weight": 0.25 * np.sqrt((TRUTH["relu"] ** 2).sum(1).mean()),
    }
    for kind, given in alone.items():
        found = steps.deviation(MODEL, {"x": X}, TRUTH, given)["y"]
        assert found == pytest.approx(wanted[kind] / np.sqrt(12), rel=0.1), kind


def test_rounding_stays_inside_and_a_wrong_backend_does_not():
    found = steps.deviation(MODEL, {"x": X}, TRUTH, QUANTISED)
    tolerance = steps.allowed(found, TRUTH)
    assert "6 standard deviations" in tolerance.reason and tolerance.atol < 0.1
    assert errors.share(eight_bit(), TRUTH["y"], tolerance) < 0.9
    assert errors.share(eight_bit(most=127), TRUTH["y"], tolerance) > 2
    assert errors.share(eight_bit(factor=1.25), TRUTH["y"], tolerance) > 2


def test_no_steps_allow_the_error_of_float32():
    found = steps.deviation(MODEL, {"x": X}, TRUTH, Steps())
    assert found == {"y": 0} and steps.allowed(found, TRUTH) == tolerances.model("float32")


def test_tiny_steps_allow_the_error_of_float32_too():
    given = Steps({"y": 1e-12})
    tolerance = steps.allowed(steps.deviation(MODEL, {"x": X}, TRUTH, given), TRUTH)
    made = np.maximum(X @ V, 0) @ W
    assert 0 < errors.share(made, TRUTH["y"], tolerance) < 1


def test_steps_are_read_by_the_names_of_the_float32_model():
    scales = {
        "x_scale": np.float32(0.5),
        "W_scale": np.float32([1, 2, 3]),
        "y_scale": np.float32(0.25),
        "W_quantized": np.zeros((4, 3), np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "zero"], ["x_Q"]),
        helper.make_node("DequantizeLinear", ["x_Q", "x_scale", "zero"], ["x_DQ"]),
        helper.make_node("DequantizeLinear", ["W_quantized", "W_scale", "zeros"], ["W"], axis=1),
        helper.make_node("QuantizeLinear", ["y_QuantizeLinear_Input", "y_scale", "zero"], ["y_Q"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [],
        [],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in scales.items()],
    )
    found = models.steps_of(helper.make_model(graph))
    assert found.values == {"x": 0.5, "y": 0.25}
    np.testing.assert_array_equal(found.weights["W"], [[1, 2, 3]])


@pytest.mark.slow
def test_the_tools_of_onnxruntime_keep_inside_on_a_model():
    quantised = models.to_int8(network(), None, {"x": X})
    found = models.steps_of(quantised)
    assert {"x", "relu"} <= found.values.keys() and {"V", "W"} == found.weights.keys()
    runtime = host.load_onnxruntime()
    session = runtime.InferenceSession(
        quantised.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    [made] = session.run(None, {"x": X})
    tolerance = steps.allowed(steps.deviation(MODEL, {"x": X}, TRUTH, found), TRUTH)
    assert 0.05 < errors.share(made, TRUTH["y"], tolerance) < 1
