"""Build the benchmark models in memory, with fixed random weights.

Decides each model's graph and weights; the callers decide how it is run and timed. The weights
follow He's rule, so that the logits are of order one and every error shows. The models are those
of VKML's published benchmark, plus `mini_classifier`. Visited by lab 09.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from vklab.errors import ModelError, SetupError

__all__ = [
    "MODELS",
    "build",
    "chain_add",
    "conv_deep",
    "conv_few",
    "conv_many",
    "load_mini_classifier",
    "matmul_16layers",
    "matmul_1layers",
    "mini_classifier",
    "mlp",
    "mlp_batch",
    "mnist12",
    "sample_inputs",
]

# Gains of He's rule, factors of the variance: a ReLU drops half of it, a plain product none.
_BEFORE_RELU, _LINEAR = 2.0, 1.0
_CLASSES = 10


class _Network:
    """A model under construction: every `add` appends a node that reads the last node's output."""

    def __init__(self, name: str, shape: tuple[int, ...], output: str, opset: int = 17) -> None:
        # Tensors are filled in place: make_graph and make_model would each copy 1 GiB of weights.
        self.model = onnx.ModelProto(ir_version=8, producer_name="vklab.apps.compare.speed.models")
        self.model.opset_import.add(domain="", version=opset)
        self.graph = self.model.graph
        self.graph.name = name
        self.value, self.output = "image" if len(shape) == 4 else "x", output
        info = helper.make_tensor_value_info(self.value, TensorProto.FLOAT, shape)
        self.graph.input.append(info)
        self.random = np.random.default_rng(0)

    def add(self, op_type: str, name: str, *initializers: str, **attributes: Any) -> None:
        """Append a node; its output value has the node's name."""
        node = helper.make_node(op_type, [self.value, *initializers], [name], name, **attributes)
        self.graph.node.append(node)
        self.value = name

    def finish(self, shape: tuple[int, ...]) -> onnx.ModelProto:
        """Name the last value as the graph's output of `shape`, and return the model."""
        self.graph.node[-1].output[0] = self.output
        info = helper.make_tensor_value_info(self.output, TensorProto.FLOAT, shape)
        self.graph.output.append(info)
        return self.model

    def tensor(self, name: str, array: NDArray[Any]) -> str:
        """Add an initializer with the array's values and return its name."""
        tensor = self.graph.initializer.add(name=name, dims=array.shape)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor.raw_data = array.tobytes()
        return name

    def weight(self, name: str, shape: tuple[int, ...], terms: int, gain: float) -> str:
        """Add random weights for sums of `terms` products, and return the initializer's name.

        Source: He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015, equation 10
        """
        array = self.random.standard_normal(shape, np.float32)
        array *= np.float32((gain / terms) ** 0.5)
        return self.tensor(name, array)

    def bias(self, name: str, shape: tuple[int, ...]) -> str:
        """Add a bias that is small, but large enough that its omission shows."""
        return self.weight(name, shape, 1, 0.01)

    def conv(self, name: str, channels: tuple[int, int], kernel_size: int) -> None:
        """Append a convolution with bias that keeps height and width; a ReLU must follow."""
        inputs, outputs = channels
        shape = (outputs, inputs, kernel_size, kernel_size)
        weight = self.weight(f"{name}_w", shape, inputs * kernel_size**2, _BEFORE_RELU)
        bias = self.bias(f"{name}_b", (outputs,))
        square, pads = [kernel_size] * 2, [kernel_size // 2] * 4
        self.add("Conv", name, weight, bias, kernel_shape=square, pads=pads)

    def matmul(self, name: str, rows: int, columns: int) -> None:
        """Append the product with a weight of [rows, columns]."""
        self.add("MatMul", name, self.weight(f"{name}_w", (rows, columns), rows, _LINEAR))

    def gemm(self, name: str, inputs: int, outputs: int, gain: float) -> None:
        """Append a linear layer with a weight of [outputs, inputs], PyTorch's layout."""
        weight = self.weight(f"{name}_w", (outputs, inputs), inputs, gain)
        self.add("Gemm", name, weight, self.bias(f"{name}_b", (outputs,)), transB=1)

    def max_pool(self, name: str, size: int) -> None:
        """Append max pooling over size x size windows that do not overlap."""
        self.add("MaxPool", name, kernel_shape=[size] * 2, strides=[size] * 2)

    def reshape(self, name: str, *shape: int) -> None:
        """Append a reshape to `shape`."""
        self.add("Reshape", name, self.tensor(f"{name}_shape", np.array(shape, np.int64)))


def chain_add(n: int) -> onnx.ModelProto:
    """Build a chain of n Adds of 0.001 to one float32, to measure the cost of a node.

    The constant is not zero, so that no rewrite of x + 0 removes the nodes.
    """
    if n < 1:
        raise ModelError(f"chain_add needs at least 1 node, not {n}")
    network = _Network(f"chain_add_{n}", (1,), "y")
    network.tensor("c", np.array([0.001], np.float32))
    for index in range(1, n + 1):
        network.add("Add", f"add{index}", "c")
    return network.finish((1,))


def mnist12() -> onnx.ModelProto:
    """Build the graph of the ONNX model zoo's mnist-12, with its opset, SAME_UPPER and Reshapes."""
    network = _Network("mnist12", (1, 1, 28, 28), "logits", opset=12)
    # The zoo's graph keeps the last weight in the convolution's layout and reshapes it first.
    kernel = network.weight("matmul_kernel", (16, 4, 4, _CLASSES), 256, _LINEAR)
    shape = network.tensor("matmul_w_shape", np.array([256, _CLASSES], np.int64))
    node = helper.make_node("Reshape", [kernel, shape], ["matmul_w"], "reshape_w")
    network.graph.node.append(node)
    for index, inputs, outputs, pool_size in ((1, 1, 8, 2), (2, 8, 16, 3)):
        weight = network.weight(
            f"conv{index}_w", (outputs, inputs, 5, 5), inputs * 25, _BEFORE_RELU
        )
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
    network = _Network("mlp", (1, 1, 28, 28), "probabilities")
    network.reshape("reshape", 1, 784)
    network.gemm("gemm1", 784, 256, _BEFORE_RELU)
    network.add("Relu", "relu1")
    network.gemm("gemm2", 256, 128, _BEFORE_RELU)
    network.add("Relu", "relu2")
    network.gemm("gemm3", 128, _CLASSES, _LINEAR)
    network.add("Softmax", "softmax", axis=1)
    return network.finish((1, _CLASSES))


def _convolutions(
    name: str, layers: Iterable[tuple[int, int]], pooled: frozenset[int]
) -> onnx.ModelProto:
    """Build convolutions of (channels, kernel size), halved after `pooled`, and a classifier."""
    network = _Network(name, (1, 1, 28, 28), "probabilities")
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
    network = _Network("mlp_batch", (512, 784), "logits")
    widths = [784, 4096, 4096, 4096]
    for index, (rows, columns) in enumerate(itertools.pairwise(widths), start=1):
        network.gemm(f"gemm{index}", rows, columns, _BEFORE_RELU)
        network.add("Relu", f"relu{index}")
    network.gemm("gemm4", 4096, _CLASSES, _LINEAR)
    return network.finish((512, _CLASSES))


def _matmuls(name: str, widths: list[int]) -> onnx.ModelProto:
    """Build a product for every pair of neighbours in 784, *widths, 10, and Softmax."""
    network = _Network(name, (1, 1, 28, 28), "probabilities")
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
    """Import `mini_classifier`, the only module of this folder that needs PyTorch.

    Raises SetupError when torch is not installed.
    """
    try:
        return importlib.import_module("vklab.apps.compare.speed.mini_classifier")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise SetupError(
            "MiniClassifier is written in PyTorch, which is not installed "
            "(data/mini_classifier.onnx of the repository is the same model, exported)",
            "pip install torch onnxscript",
        ) from error


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
    random = np.random.default_rng([seed, 1])
    constants = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in constants]
    return {value.name: _sample(value, random) for value in values}


def _sample(value: onnx.ValueInfoProto, random: np.random.Generator) -> NDArray[Any]:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or tensor.elem_type == TensorProto.STRING:
        raise ModelError(f"input {value.name!r} is not a tensor of numbers of known rank")
    # HasField, because a dimension of 0 is known, and an unset one is symbolic.
    shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if dtype == np.bool_ or np.issubdtype(dtype, np.integer):
        return random.integers(0, 2 if dtype == np.bool_ else 10, shape).astype(dtype)
    return random.standard_normal(shape, np.float32).astype(dtype)
