"""Tiny Llama-like models with random weights, and their forward pass in NumPy and float64.

The reference is written from the papers, token by token, and shares no code with the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vklab.apps.llm.weights.gguf import GgufFile
from vklab.apps.llm.weights.stored import StoredTensor
from vklab.apps.quantization import blocks

EPSILON = 1e-5


def tiny_model(
    architecture: str = "llama",
    width: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    hidden: int = 96,
    layers: int = 2,
    vocabulary: int = 45,
    kinds: Mapping[str, str] | None = None,
    tied: bool = True,
    divisors: int = 0,
    **metadata: int | float | str,
) -> GgufFile:
    """Return a model; `kinds` are the block formats of matrices, by a part of their names.

    `divisors` is the number of rotated pairs of elements that have a divisor of their frequency.
    """
    rng = np.random.default_rng([width, heads, layers])
    head = int(metadata.get(f"{architecture}.attention.key_length", width // heads))
    tensors: dict[str, StoredTensor] = {}

    def add(name: str, shape: tuple[int, ...], scale: float, offset: float = 0) -> None:
        values = (rng.standard_normal(shape) * scale + offset).astype(np.float32)
        kind = (
            "F32"
            if len(shape) == 1
            else next((kind for part, kind in (kinds or {}).items() if part in name), "Q8_0")
        )
        tensors[name] = StoredTensor(name, kind, shape, blocks.quantize(kind, values))

    add("token_embd.weight", (vocabulary, width), 1)
    for layer in range(layers):
        part = f"blk.{layer}."
        add(f"{part}attn_norm.weight", (width,), 0.2, 1)
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            add(f"{part}attn_{name}.weight", (count * head, width), width**-0.5)
            if architecture == "qwen2":
                add(f"{part}attn_{name}.bias", (count * head,), 0.5)
            if architecture == "qwen3" and name != "v":
                add(f"{part}attn_{name}_norm.weight", (head,), 0.2, 1)
        add(f"{part}attn_output.weight", (width, heads * head), width**-0.5)
        add(f"{part}ffn_norm.weight", (width,), 0.2, 1)
        for name in ("gate", "up"):
            add(f"{part}ffn_{name}.weight", (hidden, width), width**-0.5)
        add(f"{part}ffn_down.weight", (width, hidden), hidden**-0.5)
    add("output_norm.weight", (width,), 0.2, 1)
    if not tied:
        add("output.weight", (vocabulary, width), width**-0.5)
    if divisors:
        add("rope_freqs.weight", (divisors,), 0.5, 3)
    known = {
        "general.architecture": architecture,
        f"{architecture}.block_count": layers,
        f"{architecture}.embedding_length": width,
        f"{architecture}.context_length": 64,
        f"{architecture}.feed_forward_length": hidden,
        f"{architecture}.attention.head_count": heads,
        f"{architecture}.attention.head_count_kv": kv_heads,
        f"{architecture}.attention.layer_norm_rms_epsilon": EPSILON,
    }
    return GgufFile("tiny.gguf", 3, {**known, **metadata}, tensors)


def logits(file: GgufFile, tokens: list[int]) -> np.ndarray:
    """Return the logits after every token, float64 [tokens, vocabulary]."""
    kind = str(file.metadata["general.architecture"])
    meta = {key.removeprefix(f"{kind}."): value for key, value in file.metadata.items()}
    weights = {
        name: blocks.dequantize(t.block_type, t.data).astype(np.float64).reshape(t.shape)
        for name, t in file.tensors.items()
    }
    heads, kv_heads = meta["attention.head_count"], meta["attention.head_count_kv"]
    x = weights["token_embd.weight"][tokens]
    for layer in range(meta["block_count"]):
        part = {name.removeprefix(f"blk.{layer}."): w for name, w in weights.items()}
        normal = rms(x, part["attn_norm.weight"])
        q, k, v = (
            normal @ part[f"attn_{n}.weight"].T + part.get(f"attn_{n}.bias", 0) for n in "qkv"
        )
        q = turned(q, heads, kind, meta, weights, part.get("attn_q_norm.weight"))
        k = turned(k, kv_heads, kind, meta, weights, part.get("attn_k_norm.weight"))
        mixed = attended(q, k, v.reshape(len(x), kv_heads, -1))
        x = x + mixed.reshape(len(x), -1) @ part["attn_output.weight"].T
        normal = rms(x, part["ffn_norm.weight"])
        gate = normal @ part["ffn_gate.weight"].T
        up = normal @ part["ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ part["ffn_down.weight"].T
    return (
        rms(x, weights["output_norm.weight"])
        @ weights.get("output.weight", weights["token_embd.weight"]).T
    )


def rms(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return x divided by its root mean square along the last axis, and scaled."""
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPSILON) * scale


def turned(x, heads, kind, meta, weights, norm):
    """Return heads [tokens, heads, elements], each pair of elements rotated as a complex number."""
    x = x.reshape(len(x), heads, -1)
    x = x if norm is None else rms(x, norm)
    count = meta.get("rope.dimension_count", x.shape[-1])
    base = meta.get("rope.freq_base", 10000.0)
    divisors = weights.get("rope_freqs.weight", np.ones(count // 2))
    divisors = divisors * meta.get("rope.scaling.factor", 1.0)
    for position in range(len(x)):
        for pair in range(count // 2):
            first, second = (
                (2 * pair, 2 * pair + 1) if kind == "llama" else (pair, pair + count // 2)
            )
            angle = position * base ** (-2 * pair / count) / divisors[pair]
            number = (x[position, :, first] + 1j * x[position, :, second]) * np.exp(1j * angle)
            x[position, :, first], x[position, :, second] = number.real, number.imag
    return x


def attended(q, k, v):
    """Return every token's mix of the values up to it, [tokens, heads, elements]."""
    group = q.shape[1] // k.shape[1]
    result = np.zeros_like(q)
    for token in range(len(q)):
        for head in range(q.shape[1]):
            scores = k[: token + 1, head // group] @ q[token, head] / np.sqrt(q.shape[-1])
            weights = np.exp(scores - scores.max())
            result[token, head] = weights / weights.sum() @ v[: token + 1, head // group]
    return result
