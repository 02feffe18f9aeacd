"""Constant weights and biases of a product whose weights a DequantizeLinear makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vklab.graph.graph import Node
from vklab.graph.passes import quantized
from vklab.graph.passes.matching import PatternSearch

BYTES = frozenset({"int8", "uint8"})
TURNED = (1, 0)


@dataclass(frozen=True)
class Weights:
    """Codes with the zero point and scale of each filter; `axis` has the filters."""

    codes: np.ndarray
    zeros: np.ndarray
    scales: np.ndarray
    axis: int

    def less_zeros(self, codes: np.ndarray) -> np.ndarray:
        """Return codes less their zero points as int16 [filters, numbers of one]."""
        rows = np.moveaxis(codes.astype(np.int16), self.axis, 0).reshape(len(self.scales), -1)
        return np.asarray(rows - self.zeros[:, None].astype(np.int16))


def weights_of(search: PatternSearch, node: Node) -> Weights | None:
    """Return the weights of a Conv, Gemm or MatMul; None unless they are dequantized constants."""
    maker = search.makers.get(node.inputs[1])
    turned = False
    if maker is not None and maker.op_type == "Transpose" and not maker.domain:
        if maker.attributes.get("perm", TURNED) != TURNED:
            return None
        maker, turned = search.makers.get(maker.inputs[0]), True
    if maker is None or not quantized.is_scaling(maker, "DequantizeLinear"):
        return None
    codes, scale = (search.info(name).constant for name in maker.inputs[:2])
    zero = search.info(maker.inputs[2]).constant if len(maker.inputs) > 2 else np.zeros(1, np.int8)
    if codes is None or scale is None or zero is None or str(codes.dtype) not in BYTES:
        return None
    if str(scale.dtype) != "float32" or maker.attributes.get("block_size"):
        return None
    if node.op_type != "Conv" and codes.ndim != 2:
        return None
    axis = 0 if node.op_type == "Conv" or node.attributes.get("transB", 0) else 1
    axis ^= turned
    filters = codes.shape[axis]
    given = maker.attributes.get("axis", 1) % max(codes.ndim, 1)
    if scale.size > 1 and (given != axis or scale.shape != (filters,)):
        return None
    zeros, scales = (np.broadcast_to(a.reshape(-1), (filters,)) for a in (zero, scale))
    return Weights(codes, zeros, scales, axis)


def bias_of(search: PatternSearch, node: Node, filters: int) -> np.ndarray | None:
    """Return the bias of a product as a number for each filter; None if it is no constant.

    Args:
        search: the graph, indexed.
        node: the product.
        filters: the number of filters.
    """
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    if not name:
        return np.zeros(filters, np.float32)
    info = search.info(name)
    if info.constant is None or info.dtype != "float32" or info.count not in (1, filters):
        return None
    if info.count > 1 and info.dims[-1] != filters:
        return None
    return np.broadcast_to(info.constant.reshape(-1), (filters,))
