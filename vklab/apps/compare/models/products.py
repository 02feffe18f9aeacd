"""Models of one matrix product, and of eight equal convolutions: the kernels by themselves.

Their rows are compared by device time, since copies of large inputs would hide the kernels.
"""

from __future__ import annotations

import re

import onnx

from vklab.apps.compare.models.builder import Builder
from vklab.errors import ModelError

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
    made = Builder(f"matmul_{rows}x{terms}x{columns}", (rows, terms), "y")
    made.matmul("product", terms, columns)
    return made.finish((rows, columns))


def convolutions(channels: int, height: int, width: int) -> onnx.ModelProto:
    """Build eight 3x3 convolutions with bias and ReLU that keep channels and size.

    Args:
        channels: channels of each layer.
        height: height of the image.
        width: width of the image.
    """
    shape = (1, channels, height, width)
    made = Builder(f"conv8_{channels}x{height}x{width}", shape, "y")
    for layer in range(LAYERS):
        made.conv(f"conv{layer}", (channels, channels), 3)
        made.add("Relu", f"relu{layer}")
    return made.finish(shape)
