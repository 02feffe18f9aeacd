"""Matrices and caches of Llama models, as exercise 14b-3 takes them, and recorded speeds.

Shapes: the models' config.json (LLaMA 7B to 30B, Llama 2 70B, Llama 3 8B, TinyLlama 1.1B). Mixes
are llama.cpp's, by `vklab.apps.llm.weights.mixes`. Visited by lab 14b.
"""

from __future__ import annotations

from vklab.apps.llm.weights import mixes

__all__ = ["BYTES", "LESSON", "RECORDED", "cache_of", "matrices_of"]

# By name: layers, width, hidden, heads, heads of keys and values, words.
SHAPES = {
    "1.1B": (22, 2048, 5632, 32, 4, 32000),
    "7B": (32, 4096, 11008, 32, 32, 32000),
    "8B": (32, 4096, 14336, 32, 8, 128256),
    "13B": (40, 5120, 13824, 40, 40, 32000),
    "30B": (60, 6656, 17920, 52, 52, 32000),
    "70B": (80, 8192, 28672, 64, 8, 32000),
}
# By format: weights and bytes of a block. Source: ggml-common.h.
BYTES = {
    "F16": (1, 2),
    "Q8_0": (32, 34),
    "Q6_K": (256, 210),
    "Q5_K": (256, 176),
    "Q4_K": (256, 144),
    "Q3_K": (256, 110),
    "Q2_K": (256, 84),
    "IQ2_XXS": (256, 66),
}
# The lesson's times of a token: GPU, GB/s, model, format, ms. Bandwidths of the last three GPUs:
# the vendors' pages.
LESSON = (
    ("A100", 2039, "7B", "Q4_K_M", 9),
    ("MI250X", 1638, "7B", "Q4_K_M", 12),
    ("Max 1550", 3277, "7B", "Q4_K_M", 22),
    ("RTX 4090", 1008, "7B", "Q4_K_M", 8),
    ("M2 Ultra", 800, "7B", "Q4_K_M", 18),
    ("M2 Ultra", 800, "13B", "Q4_K_M", 28),
    ("M2 Ultra", 800, "30B", "Q4_K_M", 55),
    ("M2 Ultra", 800, "70B", "Q4_K_M", 140),
)

# The same, measured by vklab without a context, 2026-11-28: docs/language_models.json.
RECORDED = (
    ("H200", 4800, "1.1B", "F16", 1.072),
    ("H200", 4800, "1.1B", "Q4_K_M", 0.711),
    ("H200", 4800, "8B", "Q4_K_M", 2.051),
    ("H200", 4800, "8B", "Q8_0", 2.716),
)


def matrices_of(model: str, kind: str) -> list[tuple[int, int, str, int]]:
    """Return (rows, columns, format, rows that a token reads) of each matrix.

    Args:
        model: a key of SHAPES.
        kind: a format for all matrices, or one of llama.cpp's mixes.
    """
    layers, width, hidden, heads, kv_heads, count = SHAPES[model]
    kept = width // heads * kv_heads
    shapes = {"token_embd.weight": (count, width), "output.weight": (count, width)}
    for layer in range(layers):
        for name, shape in (
            ("attn_q", (width, width)),
            ("attn_k", (kept, width)),
            ("attn_v", (kept, width)),
            ("attn_output", (width, width)),
            ("ffn_gate", (hidden, width)),
            ("ffn_up", (hidden, width)),
            ("ffn_down", (width, hidden)),
        ):
            shapes[f"blk.{layer}.{name}.weight"] = shape
    kinds = dict.fromkeys(shapes, kind)
    if kind in mixes.MIXES:
        columns = {name: shape[1] for name, shape in shapes.items()}
        kinds = mixes.of_names(columns, kind, layers, is_shared=model == "70B")
    return [
        (*shape, kinds[name], 1 if name == mixes.TABLE else shape[0])
        for name, shape in shapes.items()
    ]


def cache_of(model: str, context: int) -> dict[str, int]:
    """Return the sizes of a model's cache in halves.

    Args:
        model: a key of SHAPES.
        context: the tokens in it.
    """
    layers, width, _, heads, kv_heads, _ = SHAPES[model]
    return {"layers": layers, "heads": heads, "kv_heads": kv_heads, "head_size": width // heads,
            "element_bytes": 2, "context": context}  # fmt: skip
