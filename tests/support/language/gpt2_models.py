"""A tiny GPT-2 with random weights, and its forward pass in NumPy and float64."""

from __future__ import annotations

import numpy as np

from vklab.apps.llm.weights.gguf import GgufFile
from vklab.apps.llm.weights.stored import StoredTensor
from vklab.apps.quantization import blocks

EPSILON = 1e-5
HEADS = 4


def tiny_gpt2(width: int = 64, layers: int = 2, vocabulary: int = 45) -> GgufFile:
    """Return a model with matrices in Q8_0, and positions in F16."""
    rng = np.random.default_rng(width)
    tensors: dict[str, StoredTensor] = {}

    def add(name: str, shape: tuple[int, ...], scale: float, offset: float = 0) -> None:
        kind = "F32" if len(shape) == 1 else "F16" if "position" in name else "Q8_0"
        values = (rng.standard_normal(shape) * scale + offset).astype(np.float32)
        tensors[name] = StoredTensor(name, kind, shape, blocks.quantize(kind, values))

    def norm(name: str) -> None:
        add(f"{name}.weight", (width,), 0.2, 1)
        add(f"{name}.bias", (width,), 0.2)

    def linear(name: str, rows: int, columns: int) -> None:
        add(f"{name}.weight", (rows, columns), columns**-0.5)
        add(f"{name}.bias", (rows,), 0.3)

    add("token_embd.weight", (vocabulary, width), 1)
    add("position_embd.weight", (32, width), 1)
    for layer in range(layers):
        norm(f"blk.{layer}.attn_norm")
        linear(f"blk.{layer}.attn_qkv", 3 * width, width)
        linear(f"blk.{layer}.attn_output", width, width)
        norm(f"blk.{layer}.ffn_norm")
        linear(f"blk.{layer}.ffn_up", 4 * width, width)
        linear(f"blk.{layer}.ffn_down", width, 4 * width)
    norm("output_norm")
    return GgufFile(
        "tiny.gguf",
        3,
        {
            "general.architecture": "gpt2",
            "gpt2.block_count": layers,
            "gpt2.embedding_length": width,
            "gpt2.attention.head_count": HEADS,
            "gpt2.context_length": 32,
            "gpt2.attention.layer_norm_epsilon": EPSILON,
        },
        tensors,
    )


def logits(file: GgufFile, tokens: list[int]) -> np.ndarray:
    """Return the logits after every token, float64 [tokens, vocabulary]."""
    w = {
        name: blocks.dequantize(t.block_type, t.data).astype(np.float64).reshape(t.shape)
        for name, t in file.tensors.items()
    }
    x = w["token_embd.weight"][tokens] + w["position_embd.weight"][: len(tokens)]

    def norm(x, name):
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    for layer in range(file.metadata["gpt2.block_count"]):
        part = f"blk.{layer}."
        q, k, v = np.split(linear(norm(x, f"{part}attn_norm"), f"{part}attn_qkv"), 3, axis=-1)
        mixed = np.zeros_like(q)
        for head in np.split(np.arange(q.shape[-1]), HEADS):
            scores = q[:, head] @ k[:, head].T / np.sqrt(len(head))
            scores[np.triu_indices(len(x), 1)] = -np.inf
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ v[:, head]
        x = x + linear(mixed, f"{part}attn_output")
        h = linear(norm(x, f"{part}ffn_norm"), f"{part}ffn_up")
        h = h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + linear(h, f"{part}ffn_down")
    return norm(x, "output_norm") @ w["token_embd.weight"].T
