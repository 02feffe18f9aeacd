"""Layers of a Core ML NeuralNetwork on a device, against NumPy: one network holds all of them."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.models import mil_cases
from vklab.apps.compare.coreml import protobuf
from vklab.apps.compare.coreml.network import network_layers, neural_network

pytestmark = pytest.mark.slow
X = mil_cases.IMAGE
ROWS = mil_cases.ROWS
TABLE = mil_cases.normal(4, 9)
MATRIX = mil_cases.normal(13, 6)
WEIGHTS = {"scale": (4,), "bias": (4,), "gamma": (4,), "beta": (4,), "mean": (4,)}
VECTORS = {name: mil_cases.normal(*shape) for name, shape in WEIGHTS.items()}
VARIANCE = np.float32([1, 0.5, 2, 0.25])


def column(name):
    """Return a vector of channels."""
    return VECTORS[name].reshape(-1, 1, 1)


def _linear(x):
    return 0.5 * x + 0.25


# layer type, inputs, parameters (arrays are weights), NumPy's result
CASES = [
    ("convolution", "x", {"outputChannels": 6, "kernelChannels": 4, "nGroups": 1,
     "kernelSize": [3, 3], "stride": [2, 2], "weights": mil_cases.KERNEL, "hasBias": True,
     "bias": mil_cases.SHIFT, "valid.paddingAmounts.borderAmounts": 1},
     lambda x: mil_cases.conv2d(x, mil_cases.KERNEL, mil_cases.SHIFT, 2, 1)),
    ("pooling", "x", {"kernelSize": [3, 3], "stride": [2, 2], "valid.paddingAmounts": None},
     lambda x: mil_cases.pool2d(x, 3, 2, 0, 0, np.max)),
    ("pooling", "x", {"type": 1, "kernelSize": [3, 3], "stride": [2, 2],
     "avgPoolExcludePadding": True, "valid.paddingAmounts.borderAmounts": 1},
     lambda x: mil_cases.pool2d(x, 3, 2, 1, np.nan, np.nanmean)),
    ("pooling", "x", {"type": 1, "globalPooling": True}, lambda x: x.mean((2, 3), keepdims=True)),
    ("activation", "x", {"linear.alpha": 0.5, "linear.beta": 0.25}, _linear),
    ("activation", "x", {"leakyReLU.alpha": 0.25}, lambda x: np.where(x < 0, x / 4, x)),
    ("activation", "x", {"ELU.alpha": 0.5}, lambda x: np.where(x < 0, np.expm1(x) / 2, x)),
    ("activation", "x", {"thresholdedReLU.alpha": 0.5}, lambda x: np.where(x >= 0.5, x, 0)),
    ("activation", "x", {"sigmoidHard.alpha": 0.25, "sigmoidHard.beta": 0.5},
     lambda x: np.clip(x / 4 + 0.5, 0, 1)),
    ("activation", "x", {"scaledTanh.alpha": 2.0, "scaledTanh.beta": 0.5},
     lambda x: 2 * np.tanh(x / 2)),
    ("activation", "x", {"ReLU": None}, lambda x: np.maximum(x, 0)),
    ("activation", "x", {"tanh": None}, np.tanh),
    ("activation", "x", {"sigmoid": None}, lambda x: 1 / (1 + np.exp(-x))),
    ("activation", "x", {"softsign": None}, lambda x: x / (1 + np.abs(x))),
    ("activation", "x", {"softplus": None}, lambda x: np.log1p(np.exp(x))),
    ("innerProduct", "rows", {"inputChannels": 13, "outputChannels": 7,
     "weights": mil_cases.MATRIX, "hasBias": True, "bias": mil_cases.OFFSETS},
     lambda x: x @ mil_cases.MATRIX.T + mil_cases.OFFSETS),
    ("batchedMatmul", "rows", {"weightMatrixFirstDimension": 13, "weightMatrixSecondDimension": 6,
     "weights": MATRIX, "hasBias": True, "bias": mil_cases.SHIFT},
     lambda x: x @ MATRIX + mil_cases.SHIFT),
    ("batchedMatmul", "rows rows", {"transposeB": True}, lambda x, y: x @ y.transpose(0, 2, 1)),
    ("add", "x x", {}, lambda x, y: x + y), ("add", "x", {"alpha": 1.5}, lambda x: x + 1.5),
    ("multiply", "x x x", {}, lambda x, y, z: x * y * z),
    ("multiply", "x", {"alpha": 1.5}, lambda x: x * 1.5),
    ("addBroadcastable", "x rows1", {}, lambda x, y: x + y),
    ("subtractBroadcastable", "x rows1", {}, lambda x, y: x - y),
    ("multiplyBroadcastable", "x rows1", {}, lambda x, y: x * y),
    ("divideBroadcastable", "rows1 positive", {}, lambda x, y: x / y),
    ("powBroadcastable", "positive positive", {}, np.power),
    ("tanh", "x", {}, np.tanh), ("copy", "x", {}, lambda x: x),
    ("erf", "x", {}, np.vectorize(mil_cases.math.erf)),
    ("gelu", "x", {"mode": 2}, lambda x: x / (1 + np.exp(-1.702 * x))),
    ("scale", "x", {"shapeScale": [4], "scale": VECTORS["scale"], "hasBias": True,
     "shapeBias": [4], "bias": VECTORS["bias"]}, lambda x: x * column("scale") + column("bias")),
    ("batchnorm", "x", {"channels": 4, "epsilon": 1e-3, "gamma": VECTORS["gamma"],
     "beta": VECTORS["beta"], "mean": VECTORS["mean"], "variance": VARIANCE},
     lambda x: (x - column("mean")) / np.sqrt(VARIANCE.reshape(-1, 1, 1) + 1e-3)
     * column("gamma") + column("beta")),
    ("mvn", "x", {"normalizeVariance": True, "epsilon": 1e-3},
     lambda x: mil_cases.layer_norm(x, None, None, (2, 3), 1e-3)),
    ("mvn", "x", {"acrossChannels": True, "normalizeVariance": True, "epsilon": 1e-3},
     lambda x: mil_cases.layer_norm(x, None, None, (1, 2, 3), 1e-3)),
    ("layerNormalization", "rows", {"normalizedShape": [13], "eps": 1e-3,
     "gamma": mil_cases.GAMMA, "beta": mil_cases.BETA},
     lambda x: mil_cases.layer_norm(x, mil_cases.GAMMA, mil_cases.BETA, (2,), 1e-3)),
    ("softmaxND", "x", {"axis": 1}, lambda x: mil_cases.softmax(x, 1)),
    ("reduceMean", "x", {"axes": [2], "keepDims": True}, lambda x: x.mean(2, keepdims=True)),
    ("reduceSum", "x", {"reduceAll": True, "keepDims": True},
     lambda x: x.sum(keepdims=True)),
    ("embeddingND", "numbers", {"embeddingSize": 4, "vocabSize": 9, "weights": TABLE},
     lambda n: TABLE.T[n[..., 0].astype(int)]),
    ("loadConstantND", "", {"shape": [4, 9], "data": TABLE}, lambda: TABLE),
    ("reshapeStatic", "x", {"targetShape": [4, -1]}, lambda x: x.reshape(4, -1)),
    ("transpose", "x", {"axes": [0, 2, 3, 1]}, lambda x: x.transpose(0, 2, 3, 1)),
    ("sliceStatic", "x", {"beginIds": [0, 1, 2, 4], "endIds": [0, 3, 0, 0],
     "strides": [1, 1, 2, -1], "beginMasks": [False, False, False, True],
     "endMasks": [False, False, True, True],
     "squeezeMasks": [True, False, False, False]}, lambda x: x[0, 1:3, 2::2, ::-1]),
    ("squeeze", "x", {"axes": [0]}, lambda x: x[0]),
    ("squeeze", "x", {"squeezeAll": True}, lambda x: x[0]),
    ("expandDims", "x", {"axes": [-1]}, lambda x: x[..., None]),
    ("splitND", "x", {"axis": 1, "numSplits": 2}, lambda x: x[:, :2]),
    ("splitND", "x", {"axis": 1, "splitSizes": [3, 1]}, lambda x: x[:, :3]),
    ("concatND", "x x", {"axis": 1}, lambda x, y: np.concatenate([x, y], 1)),
]  # fmt: skip
GIVEN = {"x": X, "rows": ROWS, "rows1": ROWS[:1, :1, :1],
         "positive": np.abs(ROWS) + np.float32(0.5),
         "numbers": np.float32([[[3], [0]], [[8], [8]]])}  # fmt: skip


def fill(parameters, fields):
    """Set parameters: numbers, lists, weights, and messages by path."""
    for path, value in fields.items():
        *outer, name = path.split(".")
        target = parameters
        for step in outer:
            target = getattr(target, step)
        if value is None:
            getattr(target, name).SetInParent()
        elif name == "borderAmounts":
            for _ in range(2):
                target.borderAmounts.add(startEdgeSize=value, endEdgeSize=value)
        elif isinstance(value, np.ndarray):
            getattr(target, name).floatValue.extend(value.reshape(-1).tolist())
        elif isinstance(value, list):
            getattr(target, name).extend(value)
        else:
            setattr(target, name, value)


def test_layers_agree_with_numpy(device, tmp_path):
    model = protobuf.message_class("Model")()
    model.specificationVersion = 4
    model.neuralNetwork.arrayInputShapeMapping = 1
    for name, array in GIVEN.items():
        given = model.description.input.add(name=name).type.multiArrayType
        given.shape.extend(array.shape)
        given.dataType = 65568
    for number, (kind, inputs, fields, _) in enumerate(CASES):
        layer = model.neuralNetwork.layers.add(name=f"layer {number}")
        layer.input.extend(inputs.split())
        layer.output.extend([f"y{number}"] + [f"y{number}_1"] * (kind == "splitND"))
        getattr(layer, kind).SetInParent()
        fill(getattr(layer, kind), fields)
        model.description.output.add(name=f"y{number}")
    path = tmp_path / "layers.mlmodel"
    path.write_bytes(model.SerializeToString())
    with vklab.load(neural_network.import_model(path), device) as session:
        made = session.run(GIVEN)
    problems = []
    for number, (kind, inputs, fields, function) in enumerate(CASES):
        wanted = np.asarray(function(*(GIVEN[name].astype(np.float64) for name in inputs.split())))
        got = made[f"y{number}"]
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-5, atol=2e-5):
            problems.append(f"{kind} {list(fields)}: {got.shape} for {wanted.shape}")
    assert not problems, "\n".join(problems)
    assert {kind for kind, *_ in CASES} == set(network_layers.LAYERS)
