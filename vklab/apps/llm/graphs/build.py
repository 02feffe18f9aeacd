"""Collect nodes, inputs and constants of a language model's graph from a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab.apps.llm.graphs import unused
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.apps.llm.weights.stored import StoredTensor
from vklab.errors import ModelError
from vklab.graph.graph import Graph, Node
from vklab.ops import cache
from vklab.types import TensorInfo

OPSET = 24


@dataclass(frozen=True)
class BoundedCache:
    """A cache of fixed size, written in place.

    Attributes:
        kind: its format: F16, F32 or Q8_0.
        batch: its sequences.
        counts_parts: whether attention over parts of a sequence is one dispatch, which counts the
            parts that are done, not two.
    """

    kind: str = "F16"
    batch: int = 1
    counts_parts: bool = True


@dataclass(frozen=True)
class Rotation:
    """Rotation of heads by rotary embeddings; the constants "cos" and "sin" hold the angles.

    `turned` is the elements of a head that are rotated; `neighbours` tells whether a pair is two
    neighbours, not two elements half of `turned` apart.
    """

    turned: int
    neighbours: bool


def floats(tensor: StoredTensor, shape: tuple[int, ...]) -> np.ndarray:
    """Return a small tensor as float32: a norm's scale or a bias."""
    if tensor.block_type not in ("F32", "F16") or tensor.shape != shape:
        raise ModelError(f"tensor {tensor} must be F32 or F16 of shape {shape}")
    dtype = "<f4" if tensor.block_type == "F32" else "<f2"
    return tensor.data.reshape(-1).view(dtype).astype(np.float32, copy=False).reshape(shape)


def _blocks(tensor: StoredTensor) -> dict[str, Any]:
    return {"block_type": tensor.block_type, "N": tensor.shape[0], "K": tensor.shape[1]}


class GraphBuild:
    """A graph in the making: nodes, inputs, and constants by name.

    Args:
        file: the file whose tensors become constants.
        context: the most positions.
        bounded: the form of the cache; None for a cache that grows by each run's steps.

    Raises ModelError for metadata that asks for what vklab does not compute.
    """

    def __init__(self, file: GgufFile, context: int, bounded: BoundedCache | None = None) -> None:
        unused.require_known(file)
        self.file = file
        self.context = context
        self.bounded = bounded
        self.constants: dict[str, np.ndarray] = {}
        self._nodes: list[Node] = []
        self._inputs: list[TensorInfo] = []
        self._outputs: list[str] = []
        self._counters = ""
        if bounded:
            self.take("tokens", "int32", (bounded.batch, "steps"))
            for name in ("lengths", "counts"):
                self.take(name, "int32", (bounded.batch,))
        else:
            for name in ("tokens", "positions"):
                self.take(name, "int64", ("batch", "steps"))

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
            op_type: the operator; one of blocks or of a bounded cache is of the domain "vklab".
            inputs: the names of the values that the node reads.
            to: the name of the first output; default a new one.
            outputs: the number of outputs.
            more: the node's attributes.
        """
        name = to or f"{op_type.lower()}_{len(self._nodes)}"
        made = (name, *(f"{name}.{i}" for i in range(1, outputs)))
        domain = "vklab" if op_type.endswith("Blocks") or op_type.startswith("Cache") else ""
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
            raise ModelError(
                f"{self.file.name}: {tensor} must have {rows or 'some'} rows of {columns}"
            )
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

    @property
    def positions(self) -> str:
        """Return the value that numbers the steps, [batch, steps]."""
        if not self.bounded:
            return "positions"
        return self.add("CachePositions", "tokens", "lengths", context=self.context)

    def attention(
        self, inputs: tuple[str, str, str], layer: int, heads: int, kv_heads: int, size: int,
        rotation: Rotation | None = None,
    ) -> str:  # fmt: skip
        """Add attention over a layer's cache and the new tokens.

        Args:
            inputs: queries, keys and values, [batch, steps, heads * size].
            layer: the number in the names of the cache's inputs and outputs.
            heads: the heads of the queries.
            kv_heads: the heads of keys and values.
            size: the elements of a head.
            rotation: how queries and keys are rotated first; None for not at all.
        """
        unused.require_attention(self.file, size, self.context)
        made = (f"attention.{layer}", f"key.{layer}", f"value.{layer}")
        self._outputs += made[1:]
        if self.bounded:
            return self._bounded(inputs, made, heads, kv_heads, size, rotation)
        q, k, v = inputs
        if rotation:
            q, k = (
                self.add(
                    "RotaryEmbedding",
                    x,
                    "cos",
                    "sin",
                    "positions",
                    num_heads=count,
                    interleaved=int(rotation.neighbours),
                    rotary_embedding_dim=rotation.turned if rotation.turned < size else 0,
                )
                for x, count in ((q, heads), (k, kv_heads))
            )
        shape = ("batch", kv_heads, "past", size)
        past = [self.take(f"past_{name}", "float32", shape) for name in made[1:]]
        self._nodes.append(
            Node(
                made[0],
                "Attention",
                (q, k, v, "", *past),
                made,
                {"is_causal": 1, "q_num_heads": heads, "kv_num_heads": kv_heads},
            )
        )
        return made[0]

    def _bounded(
        self, inputs: tuple[str, str, str], made: tuple[str, str, str], heads: int, kv_heads: int,
        size: int, rotation: Rotation | None,
    ) -> str:  # fmt: skip
        """Add attention over a bounded cache: two updates in place, then the attention itself."""
        assert self.bounded, "the cache is bounded"
        words = cache.row_words(size, self.bounded.kind)
        shape = (self.bounded.batch, kv_heads, self.context, words)
        angles = ("cos", "sin") if rotation else ()
        turn = (
            {"turned": rotation.turned, "interleaved": int(rotation.neighbours)}
            if (rotation)
            else {}
        )
        past = [self.take(f"past_{name}", "uint32", shape) for name in made[1:]]
        given = (inputs[0], *past, "lengths", "counts", *(angles or ("", "")), *inputs[1:])
        outputs: tuple[str, ...] = made
        if self.bounded.counts_parts:  # zeros again after each layer, so one value serves all
            given = (*given, self._counters or self.add("CacheCounters", "lengths"))
            self._counters = f"counters.{made[0]}"
            outputs = (*made, self._counters)
        self._nodes.append(
            Node(
                made[0], "CacheAttention", given, outputs, {"num_heads": heads, **turn}, "vklab", 1
            )
        )
        return made[0]

    @property
    def head(self) -> str:
        """Return the matrix of the logits: the file's own, or the embedding if there is none."""
        return "output.weight" if "output.weight" in self.file.tensors else "token_embd.weight"

    def last(self, x: str) -> str:
        """Return the last step of [batch, steps, elements], as one step."""
        if self.bounded:
            return self.add("CacheLast", x, "counts")
        return self.add("Gather", x, self.constant("last", np.array([-1], np.int64)), axis=1)

    def graph(self) -> Graph:
        """Return the finished graph; ModelError for tensors of a model that it does not read."""
        unused.require_read(self.file)
        constants = {
            name: TensorInfo(name, str(value.dtype), value.shape, value)
            for name, value in self.constants.items()
        }
        return Graph(
            self.file.text("general.name", self.file.name),
            OPSET,
            tuple(self._nodes),
            tuple(self._inputs),
            ("logits", *self._outputs),
            constants,
            {info.name: info for info in (*self._inputs, *constants.values())},
            {"": OPSET, "vklab": 1},
        )
