"""Weights of 4 or 8 bits in blocks: MatMul and Gemm become ONNX Runtime's MatMulNBits.

Source: ONNX Runtime, docs/ContribOperators.md, MatMulNBits.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

from vklab.apps.quantization.model import Layer, Model, replace_nodes
from vklab.errors import ModelError

BITS = (4, 8)
BLOCK = 32
DOMAIN = "com.microsoft"


def blocks(weights: np.ndarray, bits: int, size: int = BLOCK) -> tuple[np.ndarray, ...]:
    """Return the codes, scales and zero points of weights [K,N] in blocks along K.

    Each block has codes from 0 to 2**bits - 1 for its own range, which has 0 in it.

    Args:
        weights: float32 weights; K is padded with zeros to a multiple of the size.
        bits: 4 or 8; two codes of 4 bits share a byte, the first in its low half.
        size: numbers of a block.
    """
    terms, columns = weights.shape
    count = -(-terms // size)
    padded = np.zeros((columns, count * size), np.float32)
    padded[:, :terms] = weights.T
    padded = padded.reshape(columns, count, size)
    most = 2**bits - 1
    low, high = np.minimum(padded.min(-1), 0), np.maximum(padded.max(-1), 0)
    scales = ((high - low) / most).astype(np.float32)
    scales[scales == 0] = 1
    zeros = np.clip(np.rint(-low / scales), 0, most).astype(np.uint8)
    codes = np.clip(np.rint(padded / scales[..., None]) + zeros[..., None], 0, most)
    codes = codes.astype(np.uint8)
    if bits == 4:
        codes = codes[..., ::2] | codes[..., 1::2] << 4
        if count % 2:
            zeros = np.pad(zeros, ((0, 0), (0, 1)))
        zeros = zeros[:, ::2] | zeros[:, 1::2] << 4
    return codes, scales, zeros


def rewrite(model: Model, layers: Collection[Layer], bits: int) -> onnx.ModelProto:
    """Return the model with its MatMul and Gemm layers as MatMulNBits.

    Args:
        model: the model.
        layers: the layers to quantise; a Conv is an error.
        bits: 4 or 8.

    Raises ModelError for other bits, and for a model without such a layer.
    """
    if bits not in BITS:
        raise ModelError(f"weights of {bits} bits; choose one of {BITS}")
    chosen = {layer.name: layer for layer in layers if layer.node.op_type != "Conv"}
    if not chosen:
        raise ModelError(
            f"the model has no MatMul or Gemm with constant float32 weights to keep in {bits} bits"
        )
    made = onnx.ModelProto()
    made.CopyFrom(model.proto)
    graph = made.graph
    nodes: list[onnx.NodeProto] = []
    for node in model.proto.graph.node:
        layer = chosen.get(node.name or node.output[0])
        nodes += [node] if layer is None else _product(graph, layer, bits)
    replace_nodes(graph, nodes)
    if DOMAIN not in {each.domain for each in made.opset_import}:
        made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


def _product(graph: onnx.GraphProto, layer: Layer, bits: int) -> list[onnx.NodeProto]:
    """Return the nodes of a layer, and add its constants to a graph."""
    weights = layer.weights if layer.axis == 1 else layer.weights.T
    names = [f"{layer.name}:{part}" for part in ("codes", "scales", "zeros")]
    for name, array in zip(names, blocks(np.ascontiguousarray(weights), bits), strict=True):
        flat = array if name == names[0] else array.reshape(-1)
        graph.initializer.append(numpy_helper.from_array(flat, name))
    bias = layer.node.input[2] if len(layer.node.input) > 2 else ""
    end = layer.node.output[0]
    product = helper.make_node(
        "MatMulNBits",
        [layer.node.input[0], *names],
        [f"{layer.name}:product" if bias else end],
        layer.name,
        domain=DOMAIN,
        K=weights.shape[0],
        N=weights.shape[1],
        bits=bits,
        block_size=BLOCK,
    )
    if not bias:
        return [product]
    return [product, helper.make_node("Add", [f"{layer.name}:product", bias], [end])]
