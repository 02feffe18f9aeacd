"""Files of ncnn for chains of additions, convolutions, pools and linear layers, without pnnx.

pnnx works on a chain of a thousand nodes for minutes. As it does, biases and ReLU are joined with
the layer before them. Other models are left to it.

Source: https://github.com/Tencent/ncnn/wiki/param-and-model-file-structure
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MAGIC = "7767517"
FLAT_RANK = 2
PLAIN = np.uint32(0).tobytes()  # of weights in float32, as they are


def write(model: onnx.ModelProto, param: Path, weights: Path) -> bool:
    """Write both files of a model; return False if a node is not in the table.

    Args:
        model: the model.
        param: file of the layers.
        weights: file of the weights.
    """
    with weights.open("wb") as file:
        layers = _Layers(model, file)
        if not all(layers.add(node) for node in model.graph.node):
            return False
        layers.finish()
    lines = [f"Input in0 0 1 {layers.first}", *map(str, layers.made)]
    param.write_text("\n".join([MAGIC, f"{len(lines)} {len(lines)}", *lines, ""]), "ascii")
    return True


class _Layer:
    """One line of the file of layers, with weights that are written when no bias can follow."""

    def __init__(self, kind: str, name: str, values: tuple[str, str], **numbers: Any) -> None:
        self.kind, self.name, self.values = kind, name, values
        self.numbers = {int(key[1:]): value for key, value in numbers.items()}
        self.arrays: list[np.ndarray] = []

    def __str__(self) -> str:
        numbers = " ".join(f"{key}={value}" for key, value in sorted(self.numbers.items()))
        return f"{self.kind} {self.name} 1 1 {' '.join(self.values)} {numbers}".rstrip()


class _Layers:
    """Layers under construction.

    Args:
        model: the model.
        file: file of the weights.
    """

    def __init__(self, model: onnx.ModelProto, file: IO[bytes]) -> None:
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._output, self._file = model.graph.output[0].name, file
        self.first = next(v.name for v in model.graph.input if v.name not in self._tensors)
        self.made: list[_Layer] = []

    def add(self, node: onnx.NodeProto) -> bool:
        """Add the layer of a node; return False if there is none for it."""
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        method = getattr(self, f"_{node.op_type.lower()}", None)
        return method is not None and bool(method(node, given))

    def finish(self) -> None:
        """Name the output, and write the weights."""
        for layer in self.made:
            if layer.arrays:
                self._file.write(PLAIN)
            for array in layer.arrays:
                self._file.write(np.ascontiguousarray(array, np.float32).data)
        self.made[-1].values = (self.made[-1].values[0], "out0")

    def _array(self, name: str) -> np.ndarray | None:
        if name not in self._tensors:
            return None
        array = numpy_helper.to_array(self._tensors[name])
        return array.reshape(self._shapes.get(name, array.shape))

    def _append(self, kind: str, node: onnx.NodeProto, **numbers: Any) -> _Layer:
        layer = _Layer(
            kind, node.name or node.output[0], (node.input[0], node.output[0]), **numbers
        )
        self.made.append(layer)
        return layer

    def _renamed(self, node: onnx.NodeProto) -> None:
        """Let the last layer make the value of a node that is joined with it."""
        self.made[-1].values = (self.made[-1].values[0], node.output[0])

    def _follows(self, node: onnx.NodeProto, *kinds: str) -> bool:
        last = self.made[-1] if self.made else None
        return last is not None and last.kind in kinds and last.values[1] == node.input[0]

    def _conv(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
        weight = self._array(node.input[1])
        if (
            weight is None
            or given.get("group", 1) != 1
            or any(stride != 1 for stride in given.get("strides", (1, 1)))
        ):
            return False
        height, width = weight.shape[2:]
        layer = self._append(
            "Convolution",
            node,
            _0=weight.shape[0],
            _1=width,
            _11=height,
            _4=width // 2,
            _14=height // 2,
            _5=0,
            _6=weight.size,
        )
        layer.arrays = [weight]
        return len(node.input) < 3 or self._bias(self._array(node.input[2]))

    def _bias(self, bias: np.ndarray | None) -> bool:
        """Join a bias with the last layer."""
        layer = self.made[-1]
        flag = 5 if layer.kind == "Convolution" else 1
        if bias is None or layer.numbers.get(flag) or bias.size != layer.numbers[0]:
            return False
        layer.numbers[flag] = 1
        layer.arrays.append(bias)
        return True

    def _add(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
        constant = self._array(node.input[1])
        if self._follows(node, "Convolution", "InnerProduct") and self._bias(constant):
            self._renamed(node)
            return True
        if constant is None or constant.size != 1:
            return False
        self._append("BinaryOp", node, _0=0, _1=1, _2=f"{float(constant.reshape(())):e}")
        return True

    def _relu(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
        if self._follows(node, "Convolution", "InnerProduct"):
            self.made[-1].numbers[9] = 1
            self._renamed(node)
        else:
            self._append("ReLU", node)
        return True

    def _maxpool(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
        size = given["kernel_shape"][0]
        self._append("Pooling", node, _0=0, _1=size, _2=given["strides"][0], _5=1)
        return not any(given.get("pads", (0,)))

    def _reshape(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
        shape = self._array(node.input[1])
        if shape is None:
            return False
        if node.input[0] in self._tensors:  # of a weight
            self._tensors[node.output[0]] = self._tensors[node.input[0]]
            self._shapes[node.output[0]] = tuple(map(int, shape))
            return True
        self._append("Flatten", node)
        return shape.size == FLAT_RANK and int(shape[0]) == 1

    def _linear(self, node: onnx.NodeProto, weight: np.ndarray) -> None:
        """Append a linear layer with a weight of [outputs, inputs]."""
        layer = self._append("InnerProduct", node, _0=weight.shape[0], _1=0, _2=weight.size)
        layer.arrays = [weight]

    def _matmul(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
        weight = self._array(node.input[1])
        if weight is None or not self.made:  # a product alone has rows, which are no batch here
            return False
        self._linear(node, weight.T)
        return True

    def _gemm(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
        weight = self._array(node.input[1])
        if weight is None or not self.made:
            return False
        self._linear(node, weight if given.get("transB") else weight.T)
        return self._bias(self._array(node.input[2]))

    def _softmax(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
        self._append("Softmax", node, _0=0, _1=1)
        return True
