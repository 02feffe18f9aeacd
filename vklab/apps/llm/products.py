"""Graphs of the products of a language model, one for each shape and format of its matrices."""

from __future__ import annotations

from collections import Counter

from vklab.apps.llm.gguf import GgufFile
from vklab.apps.llm.stored import StoredTensor
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

LAYER = "blk."  # names of a layer's tensors begin with it


def layer_matrices(file: GgufFile) -> list[tuple[StoredTensor, int]]:
    """Return one matrix of each shape and format in the layers of a model, and their number.

    Neither the embedding nor the matrix of the logits is among them: a prompt multiplies no other
    row by these than the last.
    """
    found = {name: tensor for name, tensor in file.tensors.items()
             if name.startswith(LAYER) and len(tensor.shape) == 2}  # fmt: skip
    counts = Counter((tensor.block_type, tensor.shape) for tensor in found.values())
    first = {(tensor.block_type, tensor.shape): tensor for tensor in reversed(found.values())}
    return [(first[kind], count) for kind, count in counts.items()]


def product_graph(tensor: StoredTensor, rows: int, dtype: str) -> Graph:
    """Return a graph of one node: rows x times the transpose of a matrix.

    Args:
        tensor: the matrix, as its file stores it.
        rows: the rows of x.
        dtype: the dtype of x and of the result.
    """
    weight = TensorInfo(tensor.name, "uint32", tensor.words.shape, tensor.words)
    x = TensorInfo("x", dtype, (rows, tensor.shape[1]))
    node = Node("product", "MatMulBlocks", ("x", tensor.name), ("y",), {
        "block_type": tensor.block_type, "N": tensor.shape[0], "K": tensor.shape[1]}, "vklab", 1)
    return Graph(str(tensor), 24, (node,), (x,), ("y",), {tensor.name: weight},
                 {info.name: info for info in (x, weight)}, {"": 24, "vklab": 1})  # fmt: skip
