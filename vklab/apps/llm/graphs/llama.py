"""Build the graph of a Llama-like model from a GGUF file, of the runtime's own operators.

Decides names, shapes and order of the nodes; the weights stay blocks in the mapped file. Llama,
Qwen2 and Qwen3 differ in biases, in norms of heads, and in the pairs that rotary embeddings rotate.
Source: Touvron et al., "LLaMA", 2023; ggml's names of tensors and metadata.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vklab.apps.llm.graphs import build
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.errors import ModelError
from vklab.graph.graph import Graph

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
    magnitude: float

    @classmethod
    def of(cls, file: GgufFile) -> LlamaSizes:
        """Return the sizes of a file's model; ModelError for what is missing or impossible."""
        name = file.text("general.architecture")
        if name not in ARCHITECTURES:
            raise ModelError(
                f"{file.name} holds a {name!r} model; graphs are built for "
                f"{', '.join(ARCHITECTURES)}"
            )
        size = file.size
        heads, width = size("attention.head_count"), size("embedding_length")
        head = size("attention.key_length", width // heads or 1)
        rope = f"{name}.rope"  # llama.cpp's defaults: linear, and an older name of the factor
        kind = file.text(f"{rope}.scaling.type", "linear")
        if kind not in ("none", "linear"):
            raise ModelError(f"{file.name} scales rotary embeddings by {kind!r}; 'linear' is known")
        older = file.number(f"{rope}.scale_linear", 0.0)
        scale = float(file.number(f"{rope}.scaling.factor", older)) or 1.0  # 0 is none, too
        found = cls(
            name,
            size("block_count"),
            width,
            heads,
            size("attention.head_count_kv", heads),
            head,
            size("rope.dimension_count", head),
            size("context_length"),
            float(file.number(f"{name}.attention.layer_norm_rms_epsilon")),
            float(file.number(f"{rope}.freq_base", 10000.0)),
            scale if kind == "linear" else 1.0,
            float(file.number(f"{rope}.scaling.attn_factor", 1.0)),
        )
        found.check(file)
        return found

    def check(self, file: GgufFile) -> None:
        """Raise ModelError for sizes that do not fit each other or the file."""
        size = file.metadata.get(f"{self.architecture}.attention.value_length", self.head)
        if size != self.head:
            raise ModelError(f"{file.name}: keys have {self.head} elements, values {size!r:.40}")
        if self.heads % self.kv_heads or self.rotated > self.head or self.rotated % 2:
            raise ModelError(
                f"{file.name}: {self.heads} heads, {self.kv_heads} of keys and values "
                f"and {self.rotated} of {self.head} elements rotated do not fit"
            )
        if self.layers > len(file.tensors):
            raise ModelError(
                f"{file.name}: metadata promises {self.layers} layers, the file has "
                f"{len(file.tensors)} tensors"
            )
        numbers = (self.epsilon, self.base, self.scale, self.magnitude)
        if not all(0 < number < math.inf for number in numbers) or not self.epsilon < 1 < self.base:
            raise ModelError(
                f"{file.name}: epsilon {self.epsilon}, frequency base {self.base}, "
                f"scaling factor {self.scale} and factor of attention "
                f"{self.magnitude} are no sizes of a model"
            )


def llama_graph(
    file: GgufFile,
    context: int | None = None,
    every_logit: bool = False,
    bounded: build.BoundedCache | None = None,
) -> Graph:
    """Return the graph of a model, with the inputs and outputs of `models.model_graph`.

    Args:
        file: the GGUF file; its weights are not copied.
        context: the most positions; default the model's own. Tables of angles have this length.
        every_logit: return the logits after every token, not after the last only.
        bounded: the form of a cache of `context` positions; None for a cache that grows.

    Raises ModelError for metadata or tensors that are missing or do not fit.
    """
    sizes = LlamaSizes.of(file)
    length = sizes.context if context is None else context
    if not 1 <= length <= min(sizes.context, MOST_CONTEXT):
        raise ModelError(
            f"{file.name} is trained for {sizes.context} positions; a context of "
            f"{length} is not among 1 to {min(sizes.context, MOST_CONTEXT)}"
        )
    made = build.GraphBuild(file, length, bounded)
    layers = _Layers(made, sizes)
    x = made.embed("token_embd.weight", None, sizes.width, "tokens")
    for layer in range(sizes.layers):
        x = made.add("Add", x, layers.attention(x, layer))
        x = made.add("Add", x, layers.feed_forward(x, layer))
    x = layers.norm(x if every_logit else made.last(x), "output_norm.weight", sizes.width)
    made.project(x, made.head, file.tensor("token_embd.weight").shape[0], sizes.width, to="logits")
    # Last: by now the sizes are those of tensors in the file, not only of its metadata.
    made.constants["cos"], made.constants["sin"] = _angles(file, sizes, length)
    return made.graph()


def _angles(file: GgufFile, sizes: LlamaSizes, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines [positions, pairs]. Source: Su et al., "RoFormer", 2021."""
    pairs = sizes.rotated // 2
    frequencies = sizes.base ** (-2 * np.arange(pairs) / sizes.rotated) / sizes.scale
    if "rope_freqs.weight" in file.tensors:  # Llama 3.1: a divisor for each pair
        frequencies = frequencies / build.floats(file.tensor("rope_freqs.weight"), (pairs,))
    angles = np.arange(length)[:, None] * frequencies
    made = []
    for turned in (np.cos, np.sin):
        values = turned(angles)
        values *= sizes.magnitude  # in place: tables of a long context are large
        made.append(values.astype(np.float32))
    return made[0], made[1]


class _Layers:
    """Parts of a model's layers, added to a graph in the making."""

    def __init__(self, made: build.GraphBuild, sizes: LlamaSizes) -> None:
        self.build = made
        self.sizes = sizes

    def norm(self, x: str, name: str, size: int) -> str:
        """Normalise the last axis by its root mean square, and scale it."""
        scale = self.build.vector(name, size)
        return self.build.add("RMSNormalization", x, scale, epsilon=self.sizes.epsilon)

    def attention(self, x: str, layer: int) -> str:
        """Add a layer's attention over the cache and the new tokens."""
        of, part = self.sizes, f"blk.{layer}."
        x = self.norm(x, f"{part}attn_norm.weight", of.width)
        counts = {"q": of.heads, "k": of.kv_heads, "v": of.kv_heads}
        q, k, v = (
            self.build.project(x, f"{part}attn_{name}.weight", count * of.head, of.width)
            for name, count in counts.items()
        )
        q, k = (
            self._normed(x, f"{part}attn_{name}_norm.weight", counts[name])
            for name, x in (("q", q), ("k", k))
        )
        rotation = build.Rotation(of.rotated, ARCHITECTURES[of.architecture])
        y = self.build.attention((q, k, v), layer, of.heads, of.kv_heads, of.head, rotation)
        return self.build.project(y, f"{part}attn_output.weight", of.width, of.heads * of.head)

    def _normed(self, x: str, norm: str, heads: int) -> str:
        """Normalise each head where the file has a norm of heads."""
        of, made = self.sizes, self.build
        if norm not in made.file.tensors:
            return x
        apart = made.constant(f"heads.{heads}", np.array([0, 0, heads, of.head], np.int64))
        flat = made.constant(f"flat.{heads}", np.array([0, 0, heads * of.head], np.int64))
        return made.add("Reshape", self.norm(made.add("Reshape", x, apart), norm, of.head), flat)

    def feed_forward(self, x: str, layer: int) -> str:
        """Add a layer's feed-forward part. Source: Shazeer 2020, SwiGLU."""
        part, width, made = f"blk.{layer}.", self.sizes.width, self.build
        hidden = made.file.tensor(f"{part}ffn_gate.weight").shape[0]
        x = self.norm(x, f"{part}ffn_norm.weight", width)
        gate, up = (
            made.project(x, f"{part}ffn_{name}.weight", hidden, width) for name in ("gate", "up")
        )
        return made.project(
            made.add("Mul", made.add("Swish", gate), up), f"{part}ffn_down.weight", width, hidden
        )
