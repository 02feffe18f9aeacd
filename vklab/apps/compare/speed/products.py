"""Models of one matrix product, and of eight equal convolutions: the kernels by themselves.

Their rows are compared by device time, since copies of large inputs would hide the kernels.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
from onnx import TensorProto, helper

from vklab.errors import ModelError

__all__ = ["CONVOLUTIONS", "PRODUCTS", "build", "convolutions", "is_one",
           "product"]  # fmt: skip

PRODUCTS = ("matmul_2048x2048x2048", "matmul_4096x4096x4096", "matmul_8192x8192x8192",
            "matmul_4095x4095x4095", "matmul_1000x3000x777", "matmul_1x8192x8192",
            "matmul_16x8192x8192")  # fmt: skip
CONVOLUTIONS = ("conv8_64x56x56", "conv8_256x28x28", "conv8_512x14x14")
LAYERS = 8


NAME = re.compile(r"(matmul|conv8)_(\d+)x(\d+)x(\d+)")


def is_one(name: str) -> bool:
    """Tell whether a name is that of a product or of eight convolutions."""
    return NAME.fullmatch(name) is not None


def build(name: str) -> onnx.ModelProto | None:
    """Build matmul_MxKxN or conv8_CxHxW; None for another name."""
    match = NAME.fullmatch(name)
    if not match:
        return None
    sizes = tuple(int(size) for size in match.groups()[1:])
    if not all(sizes):
        raise ModelError(f"{name!r}: each size is at least 1")
    return (product if match[1] == "matmul" else convolutions)(*sizes)


def product(rows: int, terms: int, columns: int) -> onnx.ModelProto:
    """Build x [rows, terms] times a weight of [terms, columns], of variance 1 / terms.

    Args:
        rows: rows of x.
        terms: terms of each sum.
        columns: columns of the weight.
    """
    random = np.random.default_rng(0)
    weight = random.standard_normal((terms, columns), np.float32) * np.float32(terms**-0.5)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    return _model(f"matmul_{rows}x{terms}x{columns}", [node], (rows, terms), (rows, columns),
                  {"w": weight})  # fmt: skip


def convolutions(channels: int, height: int, width: int) -> onnx.ModelProto:
    """Build eight 3x3 convolutions with bias and ReLU that keep channels and size.

    Args:
        channels: channels of each layer.
        height: height of the image.
        width: width of the image.
    """
    random = np.random.default_rng(0)
    nodes, weights, value = [], {}, "x"
    for layer in range(LAYERS):
        shape = (channels, channels, 3, 3)
        scale = np.float32((2 / (9 * channels)) ** 0.5)
        weights[f"w{layer}"] = random.standard_normal(shape, np.float32) * scale
        weights[f"b{layer}"] = random.standard_normal(channels, np.float32) * np.float32(0.1)
        made = "y" if layer == LAYERS - 1 else f"relu{layer}"
        nodes.append(helper.make_node("Conv", [value, f"w{layer}", f"b{layer}"], [f"conv{layer}"],
                                      f"conv{layer}", kernel_shape=[3, 3], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"conv{layer}"], [made], f"relu{layer}"))
        value = made
    shape = (1, channels, height, width)
    return _model(f"conv8_{channels}x{height}x{width}", nodes, shape, shape, weights)


def _model(
    name: str, nodes: list[onnx.NodeProto], given: tuple[int, ...], made: tuple[int, ...],
    weights: dict[str, np.ndarray],
) -> onnx.ModelProto:  # fmt: skip
    """Return a model from x to y.

    Args:
        name: name of the graph.
        nodes: the nodes.
        given: shape of x.
        made: shape of y.
        weights: initializers by name.
    """
    model = onnx.ModelProto(ir_version=8, producer_name="vklab.apps.compare.speed.products")
    model.opset_import.add(domain="", version=17)
    model.graph.name = name
    model.graph.node.extend(nodes)
    model.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, given))
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, made))
    for key, array in weights.items():  # filled in place: make_tensor would copy 256 MiB
        tensor = model.graph.initializer.add(name=key, dims=array.shape)
        tensor.data_type, tensor.raw_data = TensorProto.FLOAT, array.tobytes()
    return model
