"""Builder of ONNX models node by node, with weights by He's rule. Visited by lab 09."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

# Gains of He's rule, factors of the variance: a ReLU drops half of it, a plain product none.
BEFORE_RELU, LINEAR = 2.0, 1.0


def add_tensor(graph: onnx.GraphProto, name: str, array: NDArray[Any]) -> str:
    """Add an initializer with the array's values, and return its name.

    Args:
        graph: receives the initializer, which is filled in place: `make_tensor`, `make_graph` and
            `make_model` would each copy 1 GiB of weights.
        name: its name.
        array: its values.
    """
    tensor = graph.initializer.add(name=name, dims=array.shape)
    tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.raw_data = array.tobytes()
    return name


class Builder:
    """A model under construction: every `add` appends a node that reads the last node's output.

    Args:
        name: name of the graph.
        shape: shape of the input, which is called `image` if it has four dimensions, else `x`.
        output: name of the output.
        opset: version of ONNX's operators.
    """

    def __init__(self, name: str, shape: tuple[int, ...], output: str, opset: int = 17) -> None:
        self.model = onnx.ModelProto(ir_version=8, producer_name="vklab.apps.compare.models")
        self.model.opset_import.add(domain="", version=opset)
        self.graph = self.model.graph
        self.graph.name = name
        self.value, self.output = "image" if len(shape) == 4 else "x", output
        info = helper.make_tensor_value_info(self.value, TensorProto.FLOAT, shape)
        self.graph.input.append(info)
        self.random = np.random.default_rng(0)

    def add(self, op_type: str, name: str, *initializers: str, **attributes: Any) -> None:
        """Append a node; its output value has the node's name.

        Args:
            op_type: its operator.
            name: its name.
            *initializers: its inputs after the first.
            **attributes: its attributes.
        """
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
        return add_tensor(self.graph, name, array)

    def weight(self, name: str, shape: tuple[int, ...], terms: int, gain: float) -> str:
        """Add random weights, and return the initializer's name.

        Source: He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015, equation 10

        Args:
            name: its name.
            shape: its shape.
            terms: products in each sum that reads it.
            gain: factor of the variance.
        """
        array = self.random.standard_normal(shape, np.float32)
        array *= np.float32((gain / terms) ** 0.5)
        return self.tensor(name, array)

    def bias(self, name: str, shape: tuple[int, ...]) -> str:
        """Add a bias that is small, but large enough that its omission shows."""
        return self.weight(name, shape, 1, 0.01)

    def conv(self, name: str, channels: tuple[int, int], kernel_size: int) -> None:
        """Append a convolution with bias that keeps height and width; a ReLU must follow.

        Args:
            name: its name.
            channels: channels of its input and of its output.
            kernel_size: height and width of its kernel.
        """
        inputs, outputs = channels
        shape = (outputs, inputs, kernel_size, kernel_size)
        weight = self.weight(f"{name}_w", shape, inputs * kernel_size**2, BEFORE_RELU)
        bias = self.bias(f"{name}_b", (outputs,))
        square, pads = [kernel_size] * 2, [kernel_size // 2] * 4
        self.add("Conv", name, weight, bias, kernel_shape=square, pads=pads)

    def matmul(self, name: str, rows: int, columns: int) -> None:
        """Append a product.

        Args:
            name: its name.
            rows: rows of the weight.
            columns: columns of the weight.
        """
        self.add("MatMul", name, self.weight(f"{name}_w", (rows, columns), rows, LINEAR))

    def gemm(self, name: str, inputs: int, outputs: int, gain: float) -> None:
        """Append a linear layer with a weight of [outputs, inputs], PyTorch's layout.

        Args:
            name: its name.
            inputs: elements of a row of its input.
            outputs: elements of a row of its output.
            gain: as of `weight`.
        """
        weight = self.weight(f"{name}_w", (outputs, inputs), inputs, gain)
        self.add("Gemm", name, weight, self.bias(f"{name}_b", (outputs,)), transB=1)

    def max_pool(self, name: str, size: int) -> None:
        """Append max pooling over size x size windows that do not overlap."""
        self.add("MaxPool", name, kernel_shape=[size] * 2, strides=[size] * 2)

    def reshape(self, name: str, *shape: int) -> None:
        """Append a reshape to `shape`."""
        self.add("Reshape", name, self.tensor(f"{name}_shape", np.array(shape, np.int64)))
