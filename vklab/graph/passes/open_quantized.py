"""open_quantized: write QLinearConv and QLinearMatMul as the nodes that they stand for.

`fuse_quantized` makes one integer product of these, whose kernels are the faster ones.
Visited by lab 10.
"""

from __future__ import annotations

import numpy as np

from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.graph.passes.quantized import Rewrite
from vklab.ops import words
from vklab.types import TensorInfo

OPSET = 13
KINDS = {"QLinearConv": "Conv", "QLinearMatMul": "MatMul"}


def open_quantized(graph: Graph) -> Graph:
    """Replace products of codes by DequantizeLinear, a product of floats, and QuantizeLinear.

    Source: ONNX QLinearConv-10, QLinearMatMul-21
    """
    work = Rewrite(graph)
    for node in graph.nodes:
        if node.op_type in KINDS and not node.domain and _is_known(work, node):
            _open(work, node)
    return work.result()


def _operands(node: Node) -> tuple[tuple[str, str, str], tuple[str, str, str], tuple[str, str]]:
    """Return codes, scale and zero point of x and of the weights; scale and zero point of y."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.inputs[:8]
    return (x, x_scale, x_zero), (w, w_scale, w_zero), (y_scale, y_zero)


def _is_known(work: Rewrite, node: Node) -> bool:
    """Tell whether words can compute a product: constant weights, one scale for x and one for y."""
    x, weights, y = _operands(node)
    infos = [work.infos[name] for name in (*x[1:], *weights, *y, *node.inputs[8:])]
    if any(info.constant is None for info in infos) or work.infos[x[0]].constant is not None:
        return False
    one = (*x[1:], *y)
    rank = work.infos[weights[0]].rank
    fits = rank in (3, 4) if node.op_type == "QLinearConv" else rank == 2
    return (
        fits
        and all(work.infos[name].count == 1 for name in one)
        and all(work.infos[name].dtype in words.CODES for name in (x[0], weights[0]))
        and all(work.infos[name].dtype == "float32" for name in (x[1], weights[1], y[0]))
    )


def _open(work: Rewrite, node: Node) -> None:
    x, weights, y = _operands(node)
    (name,) = node.outputs
    is_conv = node.op_type == "QLinearConv"
    axis = {"axis": 0 if is_conv else 1}
    real = [internal(name, f"open{i}") for i in range(3)]
    bias, constants = _bias(work, node, internal(name, "open_bias"))
    nodes = [
        Node(internal(name, "open_x"), "DequantizeLinear", x, (real[0],), opset=OPSET),
        Node(internal(name, "open_w"), "DequantizeLinear", weights, (real[1],), axis, opset=OPSET),
        Node(
            node.name,
            KINDS[node.op_type],
            (real[0], real[1], *bias),
            (real[2],),
            node.attributes,
            opset=OPSET,
        ),
        Node(internal(name, "open_y"), "QuantizeLinear", (real[2], *y), (name,), opset=OPSET),
    ]
    work.put(node, nodes, constants)


def _bias(work: Rewrite, node: Node, name: str) -> tuple[tuple[str, ...], tuple[TensorInfo, ...]]:
    """Return the bias of a QLinearConv in float32, if it has one."""
    codes = work.infos[node.inputs[8]].constant if len(node.inputs) > 8 else None
    steps = [work.infos[node.inputs[number]].constant for number in (1, 4)]
    if codes is None or steps[0] is None or steps[1] is None:
        return (), ()
    real = codes * (steps[0].astype(np.float64) * steps[1].reshape(-1))
    info = rewriting.constant(name, real.reshape(-1).astype(np.float32))
    return (info.name,), (info,)
