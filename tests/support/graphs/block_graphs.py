"""Graphs of one operator of ours that reads weights in blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from support.graphs.block_cases import moderate_blocks
from vklab.graph.graph import Graph, Node
from vklab.ops.blocks import words
from vklab.types import TensorInfo

EPSILON = 1e-5


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


def gated_graph(name, elements, x, norm=True, count=37):
    """Return a graph: y = SiLU(n G') * (n B'), with n the norm of x, and the norm's scale."""
    graph = block_graph("MatMulBlocks", moderate_blocks(name, count, elements), name, elements, x)
    held = words(moderate_blocks(name, count, elements, 1))
    scale = np.random.default_rng(2).uniform(0.5, 2, elements).astype(np.float32)
    constants = {
        "g": TensorInfo("g", "uint32", held.shape, held),
        "scale": TensorInfo("scale", "float32", scale.shape, scale),
    }
    product = graph.nodes[0]
    read = "n" if norm else "x"
    nodes = (
        *(
            (Node("norm", "RMSNormalization", ("x", "scale"), ("n",), {"epsilon": EPSILON}),)
            if norm
            else ()
        ),
        replace(product, name="gate", inputs=(read, "g"), outputs=("gate",)),
        replace(product, name="up", inputs=(read, "w"), outputs=("up",)),
        Node("swish", "Swish", ("gate",), ("swish",)),
        Node("mul", "Mul", ("swish", "up"), ("y",)),
    )
    return replace(
        graph,
        opset=24,
        nodes=nodes,
        opsets={"": 24, "vklab": 1},
        initializers={**graph.initializers, **constants},
        infos={**graph.infos, **constants},
    ), scale
