"""An ONNX model to be quantised: its constants, its readers, and the layers with weights.

Decides which nodes can be quantised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from vklab.errors import ModelError
from vklab.graph import onnx_import

LAYERS = ("Conv", "Gemm", "MatMul")


@dataclass(frozen=True)
class Layer:
    """A node with constant weights; `axis` is the axis of its filters."""

    node: onnx.NodeProto
    name: str
    weights: np.ndarray
    axis: int


class Model:
    """A model with its constants by name, Constant and Identity nodes resolved.

    Args:
        proto: the model; it is not changed.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = proto
        self.constants: dict[str, onnx.TensorProto] = {
            value.name: value for value in proto.graph.initializer
        }
        for node in proto.graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
            elif node.op_type == "Identity" and node.input[0] in self.constants:
                self.constants[node.output[0]] = self.constants[node.input[0]]
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in proto.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.outputs = {value.name for value in proto.graph.output}
        names = {value.name for value in proto.graph.initializer}
        self.inputs = [value for value in proto.graph.input if value.name not in names]

    def array(self, name: str) -> np.ndarray | None:
        """Return the value of a constant; None for any other value."""
        found = self.constants.get(name)
        return None if found is None else numpy_helper.to_array(found)

    def layers(self) -> list[Layer]:
        """Return the nodes that can be quantised, in order; ModelError if there are none."""
        found = []
        for node in self.proto.graph.node:
            if node.op_type not in LAYERS or node.domain:
                continue
            weights = self.array(node.input[1])
            known = weights is not None and weights.dtype == np.float32 and weights.size
            if weights is None or not known or node.input[0] in self.constants:
                continue
            if node.op_type != "Conv" and (weights.ndim != 2 or not self._is_plain(node)):
                continue
            turned = any(each.name == "transB" and each.i for each in node.attribute)
            axis = 0 if node.op_type == "Conv" or turned else 1
            found.append(Layer(node, node.name or node.output[0], weights, axis))
        if not found:
            raise ModelError(
                f"the model has no node to quantise: {', '.join(LAYERS)} with "
                "constant float32 weights"
            )
        return found

    @staticmethod
    def _is_plain(node: onnx.NodeProto) -> bool:
        """Tell whether a Gemm only multiplies and adds."""
        wanted = {"alpha": 1.0, "beta": 1.0, "transA": 0}
        return all(
            onnx.helper.get_attribute_value(each) == wanted.get(each.name, each.i)
            for each in node.attribute
        )

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        """Return the node that alone reads a value; None if there are others, or it is output."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None


def read(path: Path) -> Model:
    """Return a model from a file, its external data included; ModelError if it is none."""
    proto, folder = onnx_import.load_proto(path)
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    if folder is not None:
        onnx.external_data_helper.load_external_data_for_model(made, str(folder))
    return Model(made)


def replace_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Give a graph other nodes, and keep only the initializers that they read."""
    read = {name for node in nodes for name in node.input}
    kept = [each for each in graph.initializer if each.name in read]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
