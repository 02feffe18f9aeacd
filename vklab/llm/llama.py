"""Build the graph of a Llama-like model from a GGUF file, of the runtime's own operators.

Decides names, shapes and order of the nodes; the weights stay blocks in the mapped file. Llama,
Qwen2 and Qwen3 differ in biases, in norms of heads, and in the pairs that rotary embeddings rotate.
Visited by lab 19. Source: Touvron et al., "LLaMA", 2023; ggml's names of tensors and metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab.errors import ModelError
from vklab.graph.graph import Graph, Node
from vklab.llm.gguf import GgufFile
from vklab.llm.stored import StoredTensor
from vklab.types import TensorInfo

__all__ = ["ARCHITECTURES", "LlamaSizes", "llama_graph"]

OPSET = 24
# Whether rotary embeddings rotate neighbours (else element i and i + half), by architecture.
ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False}
MOST_CONTEXT = 1 << 20


@dataclass(frozen=True)
class LlamaSizes:
    """Sizes of one model, from its metadata; `head` is the elements of one head."""

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    rotated: int
    context: int
    epsilon: float
    base: float
    scale: float

    @classmethod
    def of(cls, file: GgufFile) -> LlamaSizes:
        """Return the sizes of a file's model; ModelError for what is missing or impossible."""
        name = file.text("general.architecture")
        if name not in ARCHITECTURES:
            raise ModelError(f"{file.name} holds a {name!r} model; graphs are built for "
                             f"{', '.join(ARCHITECTURES)}")  # fmt: skip

        def size(key: str, default: int | None = None) -> int:
            value = file.number(f"{name}.{key}", default)
            if not isinstance(value, int) or value < 1:
                raise ModelError(f"{file.name}: metadata '{name}.{key}' is {value}, no size")
            return value

        heads, width = size("attention.head_count"), size("embedding_length")
        head = size("attention.key_length", width // heads or 1)
        kind = file.text(f"{name}.rope.scaling.type", "none")
        if kind not in ("none", "linear"):
            raise ModelError(f"{file.name} scales rotary embeddings by {kind!r}; 'linear' is known")
        found = cls(
            name, size("block_count"), width, heads, size("attention.head_count_kv", heads), head,
            size("rope.dimension_count", head), size("context_length"),
            float(file.number(f"{name}.attention.layer_norm_rms_epsilon")),
            float(file.number(f"{name}.rope.freq_base", 10000.0)),
            float(file.number(f"{name}.rope.scaling.factor", 1.0)) if kind == "linear" else 1.0,
        )  # fmt: skip
        found.check(file)
        return found

    def check(self, file: GgufFile) -> None:
        """Raise ModelError for sizes that do not fit each other or the file."""
        size = file.metadata.get(f"{self.architecture}.attention.value_length", self.head)
        if size != self.head:
            raise ModelError(f"{file.name}: keys have {self.head} elements, values {size!r:.40}")
        if self.heads % self.kv_heads or self.rotated > self.head or self.rotated % 2:
            raise ModelError(f"{file.name}: {self.heads} heads, {self.kv_heads} of keys and values "
                             f"and {self.rotated} of {self.head} elements rotated do not fit")
        if self.layers > len(file.tensors):
            raise ModelError(f"{file.name}: metadata promises {self.layers} layers, the file has "
                             f"{len(file.tensors)} tensors")  # fmt: skip
        if not 0 < self.epsilon < 1 or not self.base > 1 or not self.scale > 0:
            raise ModelError(f"{file.name}: epsilon {self.epsilon}, frequency base {self.base} and "
                             f"scaling factor {self.scale} are no sizes of a model")


def llama_graph(
    file: GgufFile, context: int | None = None, every_logit: bool = False
) -> Graph:
    """Return the graph of a model.

    Its inputs are `tokens` and `positions`, int64 [batch, steps], and for layer i the cache
    `past_key.i` and `past_value.i`, float32 [batch, heads, past, head]. Its outputs are `logits`,
    float32 [batch, 1 or steps, tokens of the vocabulary], and the longer caches `key.i`, `value.i`.

    Args:
        file: the GGUF file; its weights are not copied.
        context: the most positions; default the model's own. Tables of angles have this length.
        every_logit: return the logits after every token, not after the last only.

    Raises ModelError for metadata or tensors that are missing or do not fit.
    """
    sizes = LlamaSizes.of(file)
    length = sizes.context if context is None else context
    if not 1 <= length <= min(sizes.context, MOST_CONTEXT):
        raise ModelError(f"{file.name} is trained for {sizes.context} positions; a context of "
                         f"{length} is not among 1 to {min(sizes.context, MOST_CONTEXT)}")
    build = _Build(file, sizes)
    for name in ("tokens", "positions"):
        build.take(name, "int64", ("batch", "steps"))
    embedding = build.matrix("token_embd.weight", None, sizes.width)
    x = build.add("GatherBlocks", "token_embd.weight", "tokens", **_blocks(embedding))
    for layer in range(sizes.layers):
        x = build.add("Add", x, build.attention(x, layer))
        x = build.add("Add", x, build.feed_forward(x, layer))
    if not every_logit:
        x = build.add("Gather", x, build.constant("last", np.array([-1], np.int64)), axis=1)
    x = build.norm(x, "output_norm.weight", sizes.width)
    tied = "output.weight" not in file.tensors
    name = "token_embd.weight" if tied else "output.weight"
    build.project(x, name, embedding.shape[0], sizes.width, to="logits")
    # Last: by now the sizes are those of tensors in the file, not only of its metadata.
    build.constants["cos"], build.constants["sin"] = _angles(file, sizes, length)
    return build.graph()


def _angles(
    file: GgufFile, sizes: LlamaSizes, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines [positions, pairs]. Source: Su et al., "RoFormer", 2021."""
    pairs = sizes.rotated // 2
    frequencies = sizes.base ** (-2 * np.arange(pairs) / sizes.rotated) / sizes.scale
    if "rope_freqs.weight" in file.tensors:  # Llama 3.1: a divisor for each pair
        frequencies = frequencies / _floats(file.tensor("rope_freqs.weight"), (pairs,))
    angles = np.arange(length)[:, None] * frequencies
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _floats(tensor: StoredTensor, shape: tuple[int, ...]) -> np.ndarray:
    """Return a small tensor as float32: a norm's scale or a bias."""
    if tensor.block_type not in ("F32", "F16") or tensor.shape != shape:
        raise ModelError(f"tensor {tensor} must be F32 or F16 of shape {shape}")
    dtype = "<f4" if tensor.block_type == "F32" else "<f2"
    return tensor.data.reshape(-1).view(dtype).astype(np.float32, copy=False).reshape(shape)


def _blocks(tensor: StoredTensor) -> Mapping[str, Any]:
    return {"block_type": tensor.block_type, "N": tensor.shape[0], "K": tensor.shape[1]}


class _Build:
    """A graph in the making: nodes, inputs, and constants by name."""

    def __init__(self, file: GgufFile, sizes: LlamaSizes) -> None:
        self.file = file
        self.sizes = sizes
        self.constants: dict[str, np.ndarray] = {}
        self._nodes: list[Node] = []
        self._inputs: list[TensorInfo] = []
        self._outputs: list[str] = []

    def take(self, name: str, dtype: str, shape: tuple[int | str, ...]) -> str:
        """Add an input of the graph."""
        self._inputs.append(TensorInfo(name, dtype, shape))
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        """Add a constant, once for each name."""
        self.constants.setdefault(name, value)
        return name

    def add(self, op_type: str, *inputs: str, to: str = "", outputs: int = 1, **more: Any) -> str:
        """Add a node and return its first output; further outputs are called NAME.1, NAME.2."""
        name = to or f"{op_type.lower()}_{len(self._nodes)}"
        made = (name, *(f"{name}.{i}" for i in range(1, outputs)))
        domain = "vklab" if op_type.endswith("Blocks") else ""
        self._nodes.append(Node(name, op_type, inputs, made, more, domain, int(bool(domain))))
        return name

    def matrix(self, name: str, rows: int | None, columns: int) -> StoredTensor:
        """Add a matrix of weights as words; ModelError if its shape is not the wanted one."""
        tensor = self.file.tensor(name)
        if len(tensor.shape) != 2 or tensor.shape != (rows or tensor.shape[0], columns):
            raise ModelError(f"{self.file.name}: {tensor} must have {rows or 'some'} rows of "
                             f"{columns}")  # fmt: skip
        self.constant(name, tensor.words)
        return tensor

    def project(self, x: str, name: str, rows: int, columns: int, to: str = "") -> str:
        """Multiply by a matrix, and add its bias where the file has one."""
        y = self.add("MatMulBlocks", x, name, to=to, **_blocks(self.matrix(name, rows, columns)))
        bias = name.removesuffix("weight") + "bias"
        if bias not in self.file.tensors:
            return y
        values = _floats(self.file.tensor(bias), (rows,))
        return self.add("Add", y, self.constant(bias, values))

    def norm(self, x: str, name: str, size: int) -> str:
        """Normalise the last axis by its root mean square, and scale it."""
        scale = self.constant(name, _floats(self.file.tensor(name), (size,)))
        return self.add("RMSNormalization", x, scale, epsilon=self.sizes.epsilon)

    def attention(self, x: str, layer: int) -> str:
        """Add a layer's attention over the cache and the new tokens."""
        of, part = self.sizes, f"blk.{layer}."
        x = self.norm(x, f"{part}attn_norm.weight", of.width)
        counts = {"q": of.heads, "k": of.kv_heads, "v": of.kv_heads}
        q, k, v = (self.project(x, f"{part}attn_{name}.weight", count * of.head, of.width)
                   for name, count in counts.items())  # fmt: skip
        q, k = (self._turned(x, f"{part}attn_{name}_norm.weight", counts[name])
                for name, x in (("q", q), ("k", k)))  # fmt: skip
        shape = ("batch", of.kv_heads, "past", of.head)
        past = [self.take(f"past_{name}.{layer}", "float32", shape) for name in ("key", "value")]
        y = f"attention.{layer}"
        node = Node(y, "Attention", (q, k, v, "", *past), (y, f"key.{layer}", f"value.{layer}"),
                    {"is_causal": 1, "q_num_heads": of.heads, "kv_num_heads": of.kv_heads})
        self._nodes.append(node)
        self._outputs += node.outputs[1:]
        return self.project(y, f"{part}attn_output.weight", of.width, of.heads * of.head)

    def _turned(self, x: str, norm: str, heads: int) -> str:
        """Rotate each head by its position, after its norm where the file has one."""
        of = self.sizes
        if norm in self.file.tensors:
            apart = self.constant(f"heads.{heads}", np.array([0, 0, heads, of.head], np.int64))
            flat = self.constant(f"flat.{heads}", np.array([0, 0, heads * of.head], np.int64))
            x = self.add("Reshape", self.norm(self.add("Reshape", x, apart), norm, of.head), flat)
        return self.add("RotaryEmbedding", x, "cos", "sin", "positions", num_heads=heads,
                        interleaved=int(ARCHITECTURES[of.architecture]),
                        rotary_embedding_dim=of.rotated if of.rotated < of.head else 0)

    def feed_forward(self, x: str, layer: int) -> str:
        """Add a layer's feed-forward part. Source: Shazeer 2020, SwiGLU."""
        part, width = f"blk.{layer}.", self.sizes.width
        hidden = self.file.tensor(f"{part}ffn_gate.weight").shape[0]
        x = self.norm(x, f"{part}ffn_norm.weight", width)
        gate, up = (self.project(x, f"{part}ffn_{name}.weight", hidden, width)
                    for name in ("gate", "up"))  # fmt: skip
        return self.project(self.add("Mul", self.add("Swish", gate), up),
                            f"{part}ffn_down.weight", width, hidden)  # fmt: skip

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
