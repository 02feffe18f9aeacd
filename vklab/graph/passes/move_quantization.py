"""move_quantization: an operator that only moves or compares numbers works on codes directly.

DequantizeLinear - MaxPool - QuantizeLinear with one scale and zero point is MaxPool of codes.
Visited by labs 10 and 14.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import quantized
from vklab.graph.passes.quantized import Rewrite

__all__ = ["move_quantization"]

MOVES = frozenset({"Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def move_quantization(graph: Graph) -> Graph:
    """Remove the scaling around operators that keep the order of numbers.

    Source: ONNX Runtime, "Quantize ONNX models", section on QDQ
    """
    work = Rewrite(graph)
    for node in graph.nodes:
        y = quantized.codes_written(work.search, node)
        moved = work.search.makers.get(node.inputs[0]) if y else None
        if y is None or moved is None or moved.op_type not in MOVES or moved.domain:
            continue
        x = quantized.codes_read(work.search, moved.inputs[0])
        if x is None or replace(x, name="") != replace(y, name="") or any(moved.outputs[1:]):
            continue
        inputs = (x.name, *moved.inputs[1:])
        named = Node(f"{y.name}:moved", moved.op_type, inputs, node.outputs, moved.attributes,
                     opset=moved.opset)  # fmt: skip
        work.put(node, [named])
    return work.result()
