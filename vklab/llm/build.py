"""Collect nodes, inputs and constants of a language model's graph from a GGUF file.

Visited by lab 19.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vklab.errors import ModelError
from vklab.graph.graph import Graph, Node
from vklab.llm.gguf import GgufFile
from vklab.llm.stored import StoredTensor
from vklab.types import TensorInfo

__all__ = ["GraphBuild", "floats"]

OPSET = 24


def floats(tensor: StoredTensor, shape: tuple[int, ...]) -> np.ndarray:
    """Return a small tensor as float32: a norm's scale or a bias."""
    if tensor.block_type not in ("F32", "F16") or tensor.shape != shape:
        raise ModelError(f"tensor {tensor} must be F32 or F16 of shape {shape}")
    dtype = "<f4" if tensor.block_type == "F32" else "<f2"
    return tensor.data.reshape(-1).view(dtype).astype(np.float32, copy=False).reshape(shape)


def _blocks(tensor: StoredTensor) -> dict[str, Any]:
    return {"block_type": tensor.block_type, "N": tensor.shape[0], "K": tensor.shape[1]}


class GraphBuild:
    """A graph in the making: nodes, inputs, and constants by name."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.constants: dict[str, np.ndarray] = {}
        self._nodes: list[Node] = []
        self._inputs: list[TensorInfo] = []
        self._outputs: list[str] = []

    def take(self, name: str, dtype: str, shape: tuple[int | str, ...]) -> str:
        """Add an input of the graph, and return its name.

        Args:
            name: the name.
            dtype: the dtype.
            shape: sizes, and names for open dimensions.
        """
        self._inputs.append(TensorInfo(name, dtype, shape))
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        """Add a constant, once for each name."""
        self.constants.setdefault(name, value)
        return name

    def add(self, op_type: str, *inputs: str, to: str = "", outputs: int = 1, **more: Any) -> str:
        """Add a node and return its first output; further outputs are called NAME.1, NAME.2.

        Args:
            op_type: the operator; one that ends in "Blocks" is of the domain "vklab".
            inputs: the names of the values that the node reads.
            to: the name of the first output; default a new one.
            outputs: the number of outputs.
            more: the node's attributes.
        """
        name = to or f"{op_type.lower()}_{len(self._nodes)}"
        made = (name, *(f"{name}.{i}" for i in range(1, outputs)))
        domain = "vklab" if op_type.endswith("Blocks") else ""
        self._nodes.append(Node(name, op_type, inputs, made, more, domain, int(bool(domain))))
        return name

    def matrix(self, name: str, rows: int | None, columns: int) -> StoredTensor:
        """Add a matrix of weights as words; ModelError if its shape is not the wanted one.

        Args:
            name: the tensor's name.
            rows: the wanted number of rows; None for any.
            columns: the wanted number of columns.
        """
        tensor = self.file.tensor(name)
        if len(tensor.shape) != 2 or tensor.shape != (rows or tensor.shape[0], columns):
            raise ModelError(f"{self.file.name}: {tensor} must have {rows or 'some'} rows of "
                             f"{columns}")  # fmt: skip
        self.constant(name, tensor.words)
        return tensor

    def vector(self, name: str, size: int) -> str:
        """Add a norm's scale or a bias as float32."""
        return self.constant(name, floats(self.file.tensor(name), (size,)))

    def project(self, x: str, name: str, rows: int, columns: int, to: str = "") -> str:
        """Multiply by the transpose of a matrix, and add its bias where the file has one.

        Args:
            x: the value to multiply.
            name: the tensor's name, which ends in "weight".
            rows: the wanted number of rows: the elements of the result.
            columns: the wanted number of columns: the elements of x.
            to: the name of the result; default a new one.
        """
        bias = name.removesuffix("weight") + "bias"
        weights = _blocks(self.matrix(name, rows, columns))
        if bias not in self.file.tensors:
            return self.add("MatMulBlocks", x, name, to=to, **weights)
        y = self.add("MatMulBlocks", x, name, **weights)
        return self.add("Add", y, self.vector(bias, rows), to=to)

    def embed(self, name: str, rows: int | None, columns: int, indices: str) -> str:
        """Select rows of a matrix.

        Args:
            name: the tensor's name.
            rows: the wanted number of rows; None for any.
            columns: the wanted number of columns.
            indices: the value that holds the numbers of the rows.
        """
        matrix = self.matrix(name, rows, columns)
        return self.add("GatherBlocks", name, indices, **_blocks(matrix))

    def attention(self, inputs: tuple[str, str, str], layer: int, heads: int, kv_heads: int,
                  size: int) -> str:  # fmt: skip
        """Add attention over a layer's cache and the new tokens.

        Args:
            inputs: queries, keys and values, [batch, steps, heads * size].
            layer: the number in the names of the cache's inputs and outputs.
            heads: the heads of the queries.
            kv_heads: the heads of keys and values.
            size: the elements of a head.
        """
        shape = ("batch", kv_heads, "past", size)
        past = [self.take(f"past_{name}.{layer}", "float32", shape) for name in ("key", "value")]
        y = f"attention.{layer}"
        made = (y, f"key.{layer}", f"value.{layer}")
        self._nodes.append(Node(y, "Attention", (*inputs, "", *past), made, {
            "is_causal": 1, "q_num_heads": heads, "kv_num_heads": kv_heads}))
        self._outputs += made[1:]
        return y

    @property
    def head(self) -> str:
        """Return the matrix of the logits: the file's own, or the embedding if there is none."""
        return "output.weight" if "output.weight" in self.file.tensors else "token_embd.weight"

    def last(self, x: str) -> str:
        """Return the last step of [batch, steps, elements], as one step."""
        return self.add("Gather", x, self.constant("last", np.array([-1], np.int64)), axis=1)

    def graph(self) -> Graph:
        """Return the finished graph."""
        constants = {name: TensorInfo(name, str(value.dtype), value.shape, value)
                     for name, value in self.constants.items()}  # fmt: skip
        return Graph(
            self.file.text("general.name", self.file.name), OPSET, tuple(self._nodes),
            tuple(self._inputs), ("logits", *self._outputs), constants,
            {info.name: info for info in (*self._inputs, *constants.values())},
            {"": OPSET, "vklab": 1},
        )  # fmt: skip
