"""move_quantization: an operator that only moves or compares numbers works on codes directly.

DequantizeLinear - MaxPool becomes MaxPool - DequantizeLinear, until a QuantizeLinear with the same
scale and zero point follows: both are no-ops then. Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import quantized
from vklab.graph.passes.quantized import Rewrite

MOVES = frozenset({"Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def move_quantization(graph: Graph) -> Graph:
    """Move DequantizeLinear behind operators that keep numbers, and remove it before its inverse.

    Source: ONNX Runtime, "Quantize ONNX models", section on QDQ
    """
    for _ in graph.nodes:  # each DequantizeLinear passes one operator at a time
        moved = _moved(graph)
        if moved is graph:
            break
        graph = moved
    return graph


def _moved(graph: Graph) -> Graph:
    """Return the graph with each DequantizeLinear at most one operator further."""
    work = Rewrite(graph)
    for node in graph.nodes:
        x = quantized.codes_read(work.search, node.inputs[0]) if node.inputs else None
        if x is None:
            continue
        if node.op_type in MOVES and not node.domain and not any(node.outputs[1:]):
            scaling = work.search.makers[node.inputs[0]]
            codes = internal(node.outputs[0], "moved codes")
            moved = replace(node, inputs=(x.name, *node.inputs[1:]), outputs=(codes,))
            work.put(
                node,
                [
                    moved,
                    replace(
                        scaling,
                        name=internal(node.name, "moved scaling"),
                        inputs=(codes, *scaling.inputs[1:]),
                        outputs=node.outputs,
                    ),
                ],
            )
        elif (y := quantized.codes_written(work.search, node)) and (
            replace(x, name="") == replace(y, name="")
        ):
            work.put(node, [Node(node.name, "Identity", (x.name,), node.outputs, opset=13)])
    return work.result()
