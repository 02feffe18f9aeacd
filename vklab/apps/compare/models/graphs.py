"""Build the benchmark models in memory, with fixed random weights.

Decides each model's graph and weights; the callers decide how it is run and timed. The weights
follow He's rule, so that the logits are of order one and every error shows. The models are those
of VKML's published benchmark, plus `mini_classifier`. Visited by lab 09.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from vklab.apps.compare import models
from vklab.apps.compare.models import inputs as graph_inputs
from vklab.apps.compare.models.builder import BEFORE_RELU, LINEAR, Builder
from vklab.errors import ModelError

_CLASSES = 10


def chain_add(n: int) -> onnx.ModelProto:
    """Build a chain of n Adds of 0.001 to one float32, to measure the cost of a node.

    The constant is not zero, so that no rewrite of x + 0 removes the nodes.
    """
    if n < 1:
        raise ModelError(f"chain_add needs at least 1 node, not {n}")
    network = Builder(f"chain_add_{n}", (1,), "y")
    network.tensor("c", np.array([0.001], np.float32))
    for index in range(1, n + 1):
        network.add("Add", f"add{index}", "c")
    return network.finish((1,))


def mnist12() -> onnx.ModelProto:
    """Build the graph of the ONNX model zoo's mnist-12, with its opset, SAME_UPPER and Reshapes."""
    network = Builder("mnist12", (1, 1, 28, 28), "logits", opset=12)
    # The zoo's graph keeps the last weight in the convolution's layout and reshapes it first.
    kernel = network.weight("matmul_kernel", (16, 4, 4, _CLASSES), 256, LINEAR)
    shape = network.tensor("matmul_w_shape", np.array([256, _CLASSES], np.int64))
    node = helper.make_node("Reshape", [kernel, shape], ["matmul_w"], "reshape_w")
    network.graph.node.append(node)
    for index, inputs, outputs, pool_size in ((1, 1, 8, 2), (2, 8, 16, 3)):
        weight = network.weight(f"conv{index}_w", (outputs, inputs, 5, 5), inputs * 25, BEFORE_RELU)
        network.add("Conv", f"conv{index}", weight, kernel_shape=[5, 5], auto_pad="SAME_UPPER")
        network.add("Add", f"add{index}", network.bias(f"add{index}_b", (outputs, 1, 1)))
        network.add("Relu", f"relu{index}")
        network.max_pool(f"maxpool{index}", pool_size)
    network.reshape("reshape", 1, 256)
    network.add("MatMul", "matmul", "matmul_w")
    network.add("Add", "add3", network.bias("add3_b", (1, _CLASSES)))
    return network.finish((1, _CLASSES))


def mlp() -> onnx.ModelProto:
    """Build 784-256-128-10 linear layers with ReLU between and Softmax after."""
    network = Builder("mlp", (1, 1, 28, 28), "probabilities")
    network.reshape("reshape", 1, 784)
    network.gemm("gemm1", 784, 256, BEFORE_RELU)
    network.add("Relu", "relu1")
    network.gemm("gemm2", 256, 128, BEFORE_RELU)
    network.add("Relu", "relu2")
    network.gemm("gemm3", 128, _CLASSES, LINEAR)
    network.add("Softmax", "softmax", axis=1)
    return network.finish((1, _CLASSES))


def _convolutions(
    name: str, layers: Iterable[tuple[int, int]], pooled: frozenset[int]
) -> onnx.ModelProto:
    """Build convolutions of (channels, kernel size), halved after `pooled`, and a classifier."""
    network = Builder(name, (1, 1, 28, 28), "probabilities")
    inputs, size = 1, 28
    for index, (outputs, kernel_size) in enumerate(layers, start=1):
        network.conv(f"conv{index}", (inputs, outputs), kernel_size)
        network.add("Relu", f"relu{index}")
        if index in pooled:
            network.max_pool(f"maxpool{index}", 2)
            size //= 2
        inputs = outputs
    network.reshape("reshape", 1, inputs * size**2)
    network.matmul("matmul", inputs * size**2, _CLASSES)
    network.add("Add", "add", network.bias("add_b", (_CLASSES,)))
    network.add("Softmax", "softmax", axis=1)
    return network.finish((1, _CLASSES))


def conv_few() -> onnx.ModelProto:
    """Build three 3x3 convolutions of 16, 512 and 512 channels and a classifier."""
    return _convolutions("conv_few", [(16, 3), (512, 3), (512, 3)], frozenset({1}))


def conv_many() -> onnx.ModelProto:
    """Build four wide convolutions and a classifier: 259 MiB of weights, 7.7 GFLOP.

    VKML does not publish the channels; these match its published size and shares of time.
    """
    layers = [(768, 3), (512, 3), (512, 7), (2048, 7)]
    return _convolutions("conv_many", layers, frozenset({1, 2, 4}))


def conv_deep() -> onnx.ModelProto:
    """Build twelve 3x3 convolutions of 256 channels at full size and a classifier: 11 GFLOP."""
    return _convolutions("conv_deep", [(64, 3), *[(256, 3)] * 12], frozenset())


def mlp_batch() -> onnx.ModelProto:
    """Build 784-4096-4096-4096-10 linear layers with ReLU between, for 512 rows: 38 GFLOP."""
    network = Builder("mlp_batch", (512, 784), "logits")
    widths = [784, 4096, 4096, 4096]
    for index, (rows, columns) in enumerate(itertools.pairwise(widths), start=1):
        network.gemm(f"gemm{index}", rows, columns, BEFORE_RELU)
        network.add("Relu", f"relu{index}")
    network.gemm("gemm4", 4096, _CLASSES, LINEAR)
    return network.finish((512, _CLASSES))


def _matmuls(name: str, widths: list[int]) -> onnx.ModelProto:
    """Build a product for every pair of neighbours in 784, *widths, 10, and Softmax."""
    network = Builder(name, (1, 1, 28, 28), "probabilities")
    network.reshape("reshape", 1, 784)
    rows = 784
    for index, columns in enumerate([*widths, _CLASSES], start=1):
        network.matmul(f"matmul{index}", rows, columns)
        rows = columns
    network.add("Softmax", "softmax", axis=1)
    return network.finish((1, _CLASSES))


def matmul_1layers() -> onnx.ModelProto:
    """Build one hidden layer of 337920, no bias: 1.0 GiB of weights, each read once."""
    return _matmuls("matmul_1layers", [337920])


def matmul_16layers() -> onnx.ModelProto:
    """Build sixteen hidden layers of 4096, no bias, no activation: 0.95 GiB of weights."""
    return _matmuls("matmul_16layers", [4096] * 16)


def load_mini_classifier() -> ModuleType:
    """Import `exporting`, which exports MiniClassifier and needs PyTorch."""
    note = "(data/mini_classifier.onnx of the repository is the same model, exported)"
    return models.load(
        "exporting", f"MiniClassifier {note} is written", "pip install torch onnxscript"
    )


def mini_classifier() -> onnx.ModelProto:
    """Export MiniClassifier from PyTorch: input float32 [1, 3, 32, 32], logits [1, 10]."""
    model: onnx.ModelProto = load_mini_classifier().export()
    return model


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{f"chain_add_{n}": functools.partial(chain_add, n) for n in (1, 10, 100, 1000, 10000)},
    "mnist12": mnist12,
    "mlp": mlp,
    "conv_few": conv_few,
    "conv_many": conv_many,
    "conv_deep": conv_deep,
    "matmul_1layers": matmul_1layers,
    "matmul_16layers": matmul_16layers,
    "mini_classifier": mini_classifier,
    "mlp_batch": mlp_batch,
}
"""Every benchmark model by name; `build` knows a chain_add of any other length as well."""


def build(name: str) -> onnx.ModelProto:
    """Build the model called `name`: a key of MODELS, or chain_add_N for any N >= 1."""
    if match := re.fullmatch(r"chain_add_(\d+)", name):
        return chain_add(int(match[1]))
    if name not in MODELS:
        known = ", ".join(["chain_add_N", *(key for key in MODELS if "chain" not in key)])
        raise ModelError(f"unknown benchmark model {name!r}; choose among {known}")
    return MODELS[name]()


def sample_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Return random inputs for every graph input of `model`; symbolic dimensions become 1.

    Floating-point values are standard normal, integers 0 to 9. The same seed gives the same values.
    Raises ModelError for an input that is not a tensor of numbers of known rank.
    """
    # A stream apart from the weights': an input must not equal a row of the first weight.
    return graph_inputs.drawn(model, np.random.default_rng([seed, 1]), 10)
