"""Pictures of formats: what fits, changes of perplexity with their errors, a mix by matrix.

Visited by lab 14b.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vklab_course.data import data
from vklab_course.picture import Picture
from vklab_labs.lab_14.formats_mixes import Options, options_of
from vklab_labs.shared.diagram import Diagram

__all__ = ["SHAPES", "draw_changes", "draw_fits", "draw_mix", "losses_of", "recorded", "table"]

# Rows and columns of the matrices of data/novels_llama.gguf.
OF_LAYER = {"attn_q": (256, 256), "attn_k": (128, 256), "attn_v": (128, 256),
            "attn_output": (256, 256), "ffn_gate": (768, 256), "ffn_up": (768, 256),
            "ffn_down": (256, 768)}  # fmt: skip
SHAPES = {"token_embd.weight": (2048, 256)} | {
    f"blk.{layer}.{name}.weight": shape for layer in range(4) for name, shape in OF_LAYER.items()
}
SHADES = {"Q4_K": "blue", "Q5_K": "sky", "Q6_K": "orange", "Q8_0": "red"}


def recorded() -> dict[str, Any]:
    """Return the record of formats of data/novels_llama.gguf."""
    path = data("recorded/formats_novels_llama.json")
    return dict(json.loads(path.read_text("utf-8")))


def table() -> tuple[list[str], list[Options]]:
    """Return the names of the 29 matrices, and the bytes and divergence of each by format."""
    divergence = recorded()["divergence"]
    return list(SHAPES), [options_of(shape, divergence[name]) for name, shape in SHAPES.items()]


def losses_of(kind: str) -> np.ndarray:
    """Return the recorded losses, float64 in nats, of all matrices in one format."""
    return np.array(recorded()["losses"][kind]) / 1e4


def draw_fits(rows: Sequence[tuple[str, int, int]], memory: int, caption: str) -> Picture:
    """Draw the bytes of models beside a device's memory.

    Args:
        rows: title, bytes with the cache, and the longest context.
        memory: the bytes of the device.
        caption: the line below.
    """
    page, scale = Diagram(700, 34 * len(rows) + 34), 360 / max(size for _, size, _ in rows)
    limit = 110 + scale * memory
    page.note((limit, 14), f"{memory / 1e9:g} GB", anchor="middle", bold=True)
    for n, (title, size, tokens) in enumerate(rows):
        y, fits = 24 + 34 * n, size <= memory
        page.note((4, y + 17), title)
        page.box((110, y, scale * size, 26), f"{size / 1e9:.1f} GB", "blue" if fits else "orange")
        at_most = f"up to {tokens:,} tokens" if tokens else "no token fits"
        page.note((max(110 + scale * size, limit) + 10, y + 17), at_most)
    page.line((limit, 18), (limit, 30 + 34 * len(rows)))
    return page.picture("; ".join(f"{t}: {s / 1e9:.1f} GB, {k} tokens" for t, s, k in rows), caption)


def draw_changes(rows: Mapping[str, Any], width: float, allowed: float, caption: str) -> Picture:
    """Draw changes of perplexity as dots with intervals, and the limit.

    Args:
        rows: by format (percent, error, verdict).
        width: half of an interval, in errors.
        allowed: the limit in percent.
        caption: the line below.
    """
    page = Diagram(700, 34 * len(rows) + 44)
    ends = [p + s * width * e for p, e, _ in rows.values() for s in (-1, 1)] + [allowed, 0.0]
    low, high = min(ends) - 0.1, max(ends) + 0.1

    def x(percent: float) -> float:
        return 70 + 430 * (percent - low) / (high - low)

    for percent, words in ((0.0, "0 %"), (allowed, f"{allowed:g} % allowed")):
        page.line((x(percent), 20), (x(percent), 34 * len(rows) + 34))
        page.note((x(percent), 14), words, anchor="middle")
    for n, (kind, (percent, error, verdict)) in enumerate(rows.items()):
        y = 42 + 34 * n
        page.note((4, y + 4), kind, bold=True).dot((x(percent), y))
        page.line((x(percent - width * error), y), (x(percent + width * error), y))
        page.note((515, y + 4), f"{percent:+.2f} % ± {error:.2f}: {verdict}")
    told = (f"{k}: {p:+.2f} percent, error {e:.2f}, {v}" for k, (p, e, v) in rows.items())
    return page.picture("; ".join(told), caption)


def draw_mix(names: Sequence[str], matrices: Sequence[Options], mix: Sequence[str],
             caption: str) -> Picture:  # fmt: skip
    """Draw the bytes and the divergence of each matrix of a mix.

    Args:
        names: the matrices.
        matrices: their formats, with bytes and divergence.
        mix: the chosen format of each.
        caption: the line below.
    """
    page = Diagram(700, 15 * len(names) + 42)
    chosen = [options[kind] for options, kind in zip(matrices, mix, strict=True)]
    widest = [max(pair[n] for pair in chosen) or 1 for n in range(2)]
    page.note((190, 14), f"bytes: {sum(s for s, _ in chosen):,}", bold=True)
    page.note((450, 14), f"divergence: {sum(d for _, d in chosen):,}", bold=True)
    for n, (name, kind, pair) in enumerate(zip(names, mix, chosen, strict=True)):
        y = 22 + 15 * n
        page.note((4, y + 11), name.removesuffix(".weight"), size=10)
        page.note((142, y + 11), kind, size=10)
        for left, value, most in zip((190, 450), pair, widest, strict=True):
            page.box((left, y + 1, max(1, 200 * value / most), 12), "", SHADES.get(kind, "grey"))
            page.note((left + 4 + 200 * value / most, y + 11), f"{value:,}", size=9)
    told = (f"{n}: {k}, {s} bytes, {d}" for n, k, (s, d) in zip(names, mix, chosen, strict=True))
    return page.picture("; ".join(told), caption)
