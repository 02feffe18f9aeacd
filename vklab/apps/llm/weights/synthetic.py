"""Write GGUF files of real shapes with random weights, for measurements of speed.

One random tensor for each shape and format serves all layers. The mix Q4_K_M is that of `mixes`;
the other types are pure.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from vklab.apps.llm.weights import mixes
from vklab.apps.llm.weights.gguf import Value
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.apps.llm.weights.stored import StoredTensor
from vklab.errors import ModelError
from vklab.ops.blocks import FORMATS

MIX = "Q4_K_M"
TYPES = ("F16", "Q8_0", "Q4_K", "Q6_K", MIX)
EPSILON = 1e-5
# Numbers of llama.cpp's enum llama_ftype, which it prints.
FILE_TYPES = {"F16": 1, "Q8_0": 7, "Q4_K": 14, "Q6_K": 18, MIX: mixes.MIXES[MIX].file_type}
# A block's scale times this is the standard deviation of its weights; of minima, times the scale.
SPREADS = {"Q8_0": 73.6, "Q4_K": 207.0, "Q6_K": 1370.0}
MINIMUM = 7.5


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama-like model."""

    name: str
    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    words: int
    context: int = 8192

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Return rows and columns of the matrices of a layer, by the part of their name."""
        kept = self.width // self.heads * self.kv_heads
        width, hidden = self.width, self.hidden
        return {
            "attn_q": (width, width),
            "attn_k": (kept, width),
            "attn_v": (kept, width),
            "attn_output": (width, width),
            "ffn_gate": (hidden, width),
            "ffn_up": (hidden, width),
            "ffn_down": (width, hidden),
        }


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("tiny", 2, 256, 512, 4, 2, 512, 2048),
        Shape("1.1B", 22, 2048, 5632, 32, 4, 32000),
        Shape("8B", 32, 4096, 14336, 32, 8, 128256),
    )
}


def write(path: str | os.PathLike[str], shape: str, kind: str) -> None:
    """Write a file of random weights.

    Args:
        path: the file.
        shape: a key of SHAPES.
        kind: one of TYPES.

    Raises ModelError for an unknown shape or type.
    """
    if shape not in SHAPES or kind not in TYPES:
        raise ModelError(
            f"unknown shape {shape!r} or type {kind!r}; shapes are "
            f"{', '.join(SHAPES)}, types {', '.join(TYPES)}"
        )
    sizes = SHAPES[shape]
    known: dict[tuple[str, tuple[int, int]], np.ndarray] = {}
    norm = np.ones(sizes.width, "<f4").view(np.uint8)
    tensors: list[StoredTensor] = []
    matrices = {"token_embd.weight": sizes.width, "output.weight": sizes.width} | {
        f"blk.{layer}.{part}.weight": dims[1]
        for layer in range(sizes.layers)
        for part, dims in sizes.matrices().items()
    }
    kinds = mixes.of_names(matrices, kind, sizes.layers) if kind == MIX else {}

    def add(name: str, dims: tuple[int, int]) -> None:
        block = kinds.get(f"{name}.weight", kind)
        if (block, dims) not in known:
            known[block, dims] = _random(block, dims, len(known))
        tensors.append(StoredTensor(f"{name}.weight", block, dims, known[block, dims]))

    add("token_embd", (sizes.words, sizes.width))
    for layer in range(sizes.layers):
        for part, dims in sizes.matrices().items():
            add(f"blk.{layer}.{part}", dims)
        tensors += [
            StoredTensor(f"blk.{layer}.{part}_norm.weight", "F32", (sizes.width,), norm)
            for part in ("attn", "ffn")
        ]
    tensors.append(StoredTensor("output_norm.weight", "F32", (sizes.width,), norm))
    add("output", (sizes.words, sizes.width))
    write_gguf(path, _metadata(sizes, kind), tensors)


def _metadata(sizes: Shape, kind: str) -> dict[str, Value]:
    """Return the metadata of a file without a tokenizer."""
    return {
        "general.architecture": "llama",
        "general.name": f"random {sizes.name} {kind}",
        "general.file_type": FILE_TYPES[kind],
        "general.quantization_version": 2,
        "llama.block_count": sizes.layers,
        "llama.context_length": sizes.context,
        "llama.embedding_length": sizes.width,
        "llama.feed_forward_length": sizes.hidden,
        "llama.attention.head_count": sizes.heads,
        "llama.attention.head_count_kv": sizes.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": EPSILON,
        "llama.rope.dimension_count": sizes.width // sizes.heads,
        "llama.vocab_size": sizes.words,
        "tokenizer.ggml.model": "none",
    }


def _random(block: str, dims: tuple[int, int], seed: int) -> np.ndarray:
    """Return random rows in blocks, whose values have about the spread of trained weights."""
    rng, spread = np.random.default_rng(seed), dims[1] ** -0.5
    if block == "F16":  # one of eight powers of two below twice the spread, and random digits
        exponents = 15 + int(np.log2(spread)) - rng.integers(0, 8, dims, np.uint16)
        bits = rng.integers(0, 1 << 16, dims, np.uint16) & 0x83FF | exponents << 10
        return bits.astype("<u2").view(np.uint8)
    raw = np.frombuffer(rng.bytes(dims[0] * FORMATS[block].row_bytes(dims[1])), np.uint8).copy()
    fields = raw.view(FORMATS[block].fields)
    fields["d"] = spread / SPREADS[block]
    if "dmin" in FORMATS[block].fields.fields:  # type: ignore[operator]
        fields["dmin"] = MINIMUM * spread / SPREADS[block]
    return raw.reshape(dims[0], -1)
