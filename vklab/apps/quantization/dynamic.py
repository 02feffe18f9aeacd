"""Dynamic quantisation: the codes of activations are chosen in each run, those of weights once.

Needs no calibration data.
Source: ONNX DynamicQuantizeLinear-11, MatMulInteger-10, ConvInteger-10.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

from vklab.apps.quantization import codes
from vklab.apps.quantization.model import Layer, Model


def rewrite(
    model: Model, layers: Collection[Layer], per_channel: bool = True
) -> onnx.ModelProto:
    """Return the model with each layer as DynamicQuantizeLinear and a product of integers.

    Args:
        model: the model.
        layers: the layers to quantise.
        per_channel: whether each filter has a scale of its own.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model.proto)
    graph = made.graph
    chosen = {layer.name: layer for layer in layers}
    shared: set[str] = set()
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    for node in model.proto.graph.node:
        layer = chosen.get(node.name or node.output[0])
        if layer is None:
            nodes.append(node)
            continue
        x = node.input[0]
        if x not in shared:
            shared.add(x)
            parts = [f"{x}:{part}" for part in ("codes", "scale", "zero")]
            nodes.append(helper.make_node("DynamicQuantizeLinear", [x], parts, f"{x}:quantize"))
        added, more = _product(model, layer, per_channel)
        nodes += added
        constants |= more
    read = {name for node in nodes for name in node.input}
    kept = [each for each in graph.initializer if each.name in read]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items())
    return made


def _product(
    model: Model, layer: Layer, per_channel: bool
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Return the nodes and the constants that compute a layer from codes."""
    node, name = layer.node, layer.name
    weights, axis = layer.weights, layer.axis
    if node.op_type != "Conv" and axis == 0:
        weights, axis = np.ascontiguousarray(weights.T), 1
    scale = codes.of_weights(weights, axis if per_channel else None)
    shape = (1, -1) + (1,) * (weights.ndim - 2) if node.op_type == "Conv" else (-1,)
    constants = {f"{name}:weights": codes.quantized(weights, scale),
                 f"{name}:scale": scale.steps.reshape(shape if per_channel else ())}  # fmt: skip
    x = node.input[0]
    op_type = "ConvInteger" if node.op_type == "Conv" else "MatMulInteger"
    product = helper.make_node(op_type, [f"{x}:codes", f"{name}:weights", f"{x}:zero"],
                               [f"{name}:sums"], name)  # fmt: skip
    if node.op_type == "Conv":
        product.attribute.extend(node.attribute)
    bias = node.input[2] if len(node.input) > 2 else ""
    end = node.output[0]
    wide = helper.make_node("Cast", [f"{name}:sums"], [f"{name}:wide"], to=onnx.TensorProto.FLOAT)
    steps = [product, wide,
             helper.make_node("Mul", [f"{x}:scale", f"{name}:scale"], [f"{name}:step"]),
             helper.make_node("Mul", [f"{name}:wide", f"{name}:step"],
                              [f"{name}:real" if bias else end])]  # fmt: skip
    if bias:
        array = model.array(bias)
        if array is not None:
            constants[f"{name}:bias"] = array.reshape(shape) if array.size > 1 else array
        steps.append(helper.make_node("Add", [f"{name}:real", f"{name}:bias" if array is not None
                                              else bias], [end]))  # fmt: skip
    return steps, constants
