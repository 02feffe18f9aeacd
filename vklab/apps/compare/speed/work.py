"""Work of a model, counted on its ONNX graph: operations of products, and bytes that must move.

What no implementation can avoid without another algorithm: Winograd's convolutions do fewer
operations, a cache may save bytes.
"""

from __future__ import annotations

from math import prod

import onnx
from onnx import helper

Shapes = dict[str, tuple[int, ...]]


def counted(model: onnx.ModelProto) -> tuple[int, int]:
    """Return floating-point operations, and the bytes of weights, inputs and outputs.

    A multiply-add counts as two operations. Open dimensions count as 1.
    """
    shapes = _shapes(model)
    flops = sum(_flops(node, shapes) for node in model.graph.node)
    constants = {tensor.name for tensor in model.graph.initializer}
    size = sum(_tensor_bytes(tensor) for tensor in model.graph.initializer)
    ends = [*(v for v in model.graph.input if v.name not in constants), *model.graph.output]
    for value in ends:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        size += prod(shapes.get(value.name, ())) * dtype.itemsize
    return flops, size


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    return prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _shapes(model: onnx.ModelProto) -> Shapes:
    """Return the shape of every value that ONNX's shape inference knows."""
    light = onnx.ModelProto()
    light.CopyFrom(_without_weights(model))
    graph = onnx.shape_inference.infer_shapes(light).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        shapes[value.name] = tuple(dim.dim_value or 1 for dim in dims)
    return shapes


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its large initializers as inputs: inference copies what it is given."""
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    light.graph.output.extend(model.graph.output)
    light.graph.value_info.extend(model.graph.value_info)
    large = {t.name for t in model.graph.initializer if prod(t.dims) > 64}
    light.graph.input.extend(v for v in model.graph.input)
    known = {v.name for v in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in large:
            light.graph.initializer.append(tensor)
        elif tensor.name not in known:
            light.graph.input.append(helper.make_tensor_value_info(
                tensor.name, tensor.data_type, tensor.dims))  # fmt: skip
    return light


def _flops(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Return the operations of a product or convolution; 0 for another node."""
    made = prod(shapes.get(node.output[0], (0,)))
    second = shapes.get(node.input[1], ()) if len(node.input) > 1 else ()
    if node.op_type in ("Conv", "ConvTranspose"):
        first = shapes.get(node.input[0], (1,))
        terms = prod(second[1:])  # of one output of a convolution, of one input of a transposed one
        return 2 * terms * (made if node.op_type == "Conv" else prod(first))
    if node.op_type == "MatMul" and second:
        return 2 * made * second[-2 if len(second) > 1 else 0]
    if node.op_type == "Gemm" and second:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        return 2 * made * second[1 if attributes.get("transB") else 0]
    return 0
