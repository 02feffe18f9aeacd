"""Static quantisation: QuantizeLinear and DequantizeLinear around the layers of a model.

Decides which values travel in codes; `graph/passes/fuse_quantized` makes integer products of them.
Source: ONNX Runtime, "Quantize ONNX models", section on QDQ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from vklab.apps.quantization import codes
from vklab.apps.quantization.codes import Scale
from vklab.apps.quantization.model import Layer, Model

# Operators whose results are among their operands' numbers: codes keep their scale.
MOVES = frozenset({"Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
ACTIVATIONS = frozenset({"Clip", "Relu"})
POOLS = frozenset({"AveragePool", "GlobalAveragePool"})


def roots(model: Model, layers: Collection[Layer]) -> dict[str, str]:
    """Return every value that travels in codes, with the value whose scale it has.

    The inputs of layers do, and both operands of an Add after a layer. An operator that only moves
    numbers hands the scale on.

    Args:
        model: the model.
        layers: the layers to quantise.
    """
    makers = {name: node for node in model.proto.graph.node for name in node.output}
    found: dict[str, str] = {}

    def mark(name: str) -> None:
        chain = [name]
        while (maker := makers.get(chain[-1])) is not None and maker.op_type in MOVES:
            chain.append(maker.input[0])
        found.update(dict.fromkeys(chain, chain[-1]))

    for layer in layers:
        mark(layer.node.input[0])
    ends = {_end(model, layer) for layer in layers}
    for node in model.proto.graph.node:
        operands = [name for name in node.input if name not in model.constants]
        if node.op_type == "Add" and len(operands) == 2 and ends & set(operands):
            for name in operands:
                mark(name)
            ends.add(_after(model, node.output[0]))
        elif node.op_type in POOLS and node.input[0] in ends:
            mark(node.input[0])
    return {name: root for name, root in found.items() if root not in model.constants}


def _end(model: Model, layer: Layer) -> str:
    return _after(model, layer.node.output[0])


def _after(model: Model, name: str) -> str:
    """Return the value after the activation that alone reads a value, or the value itself."""
    reader = model.only_reader(name)
    return reader.output[0] if reader is not None and reader.op_type in ACTIVATIONS else name


def measured(model: Model, layers: Collection[Layer]) -> list[str]:
    """Return the values whose ranges `insert` needs."""
    return list(dict.fromkeys(roots(model, layers).values()))


def insert(
    model: Model, layers: Collection[Layer], scales: Mapping[str, Scale], per_channel: bool = True
) -> onnx.ModelProto:
    """Return the model with its layers between scalings, weights and biases in codes.

    Args:
        model: the model.
        layers: the layers to quantise.
        scales: the scale of each value of `measured`.
        per_channel: whether each filter has a scale of its own.
    """
    builder = _Builder(model)
    renamed: dict[str, str] = {}
    of_value = {name: scales[root] for name, root in roots(model, layers).items()}
    chosen = {layer.name: layer for layer in layers}
    given = {value.name for value in model.inputs}
    for name in (value for value in of_value if value in given):
        renamed[name] = builder.pair(name, of_value[name])
    for node in model.proto.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [renamed.get(name, name) for name in node.input]
        layer = chosen.get(node.name or node.output[0])
        if layer is not None:
            builder.weigh(copy, layer, of_value[node.input[0]], per_channel)
        builder.nodes.append(copy)
        for name in node.output:
            if name in of_value:
                renamed[name] = builder.pair(name, of_value[name])
    return builder.result()


class _Builder:
    """Nodes and constants of a model in the making."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, array: np.ndarray) -> str:
        """Add a constant and return its name."""
        self.constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def _scaling(self, op_type: str, name: str, made: str, scale: Scale, owner: str) -> str:
        inputs = [
            name,
            self.constant(f"{owner}:scale", scale.steps),
            self.constant(f"{owner}:zero", scale.zeros),
        ]
        node = helper.make_node(op_type, inputs, [made], made)
        if scale.axis is not None:
            node.attribute.append(helper.make_attribute("axis", scale.axis))
        self.nodes.append(node)
        return made

    def pair(self, name: str, scale: Scale) -> str:
        """Add a QuantizeLinear and a DequantizeLinear of a value; return the second's result."""
        codes_of = self._scaling("QuantizeLinear", name, f"{name}:codes", scale, name)
        return self._scaling("DequantizeLinear", codes_of, f"{name}:real", scale, name)

    def weigh(self, node: onnx.NodeProto, layer: Layer, x: Scale, per_channel: bool) -> None:
        """Replace the weights and the bias of a layer's node by codes.

        Args:
            node: the node, which is changed.
            layer: the layer.
            x: the scale of the layer's input.
            per_channel: whether each filter has a scale of its own.
        """
        scale = codes.of_weights(layer.weights, layer.axis if per_channel else None)
        made = self.constant(f"{layer.name}:weights", codes.quantized(layer.weights, scale))
        node.input[1] = self._scaling("DequantizeLinear", made, f"{made}:real", scale, made)
        bias = self.model.array(layer.node.input[2]) if len(layer.node.input) > 2 else None
        filters = layer.weights.shape[layer.axis]
        if bias is None or bias.shape != (filters,):
            return
        steps = np.broadcast_to(scale.steps * x.steps, (filters,)).astype(np.float32)
        limit = 2**31 - 1
        numbers = np.clip(np.rint(bias.astype(np.float64) / steps), -limit, limit).astype(np.int32)
        of_bias = Scale("int32", steps, np.zeros(filters, np.int32), 0)
        name = self.constant(f"{layer.name}:bias", numbers)
        node.input[2] = self._scaling("DequantizeLinear", name, f"{name}:real", of_bias, name)

    def result(self) -> onnx.ModelProto:
        """Return the model, without the constants that it no longer reads."""
        made = onnx.ModelProto()
        made.CopyFrom(self.model.proto)
        graph = made.graph
        read = {name for node in self.nodes for name in node.input}
        read |= {value.name for value in graph.output}
        kept = [each for each in graph.initializer if each.name in read]
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        live = [
            node
            for node in self.nodes
            if node.op_type not in ("Constant", "Identity") or read & set(node.output)
        ]
        graph.node.extend(live)
        graph.initializer.extend([*kept, *(self.constants[n] for n in self.constants if n in read)])
        return made
