"""Graphs of one operator of ours that reads weights in blocks."""

from __future__ import annotations

import numpy as np

from vklab.graph.graph import Graph, Node
from vklab.ops.blocks import words
from vklab.types import TensorInfo


def block_graph(
    op_type: str, data: np.ndarray, block_type: str, elements: int, x: np.ndarray | None, **more
) -> Graph:
    """Return a graph: y = op_type(x, weights), with weights given as rows of bytes."""
    held = words(data)
    weights = TensorInfo("w", "uint32", held.shape, held)
    given = () if x is None else (TensorInfo("x", str(x.dtype), x.shape),)
    names = ("x", "w") if op_type == "MatMulBlocks" else ("w", *(info.name for info in given))
    attributes = {"block_type": block_type, "N": len(data), "K": elements, **more}
    node = Node("node", op_type, names, ("y",), attributes, "vklab", 1)
    infos = {info.name: info for info in (*given, weights)}
    return Graph("test", 21, (node,), given, ("y",), {"w": weights}, infos, {"": 21, "vklab": 1})
