"""Picture of one block of a block format: its bytes by field, and its numbers before and after.

Source: ggml's block structures, GGUF version 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vklab.apps.quantization.blocks import dequantize, quantize
from vklab.base.draw import svg
from vklab.errors import ModelError
from vklab.ops import blocks

WIDTH, BAR, CHART, GAP = 640, 26, 160, 22
# Pale colours of the Okabe-Ito palette, in turn for the fields; blue for what is stored.
FIELDS = ("#fbe3bd", "#f3dbe8", "#c9ece0", "#cfe3f3", "#fad6c2")
GIVEN, STORED = "#9a9a9a", "#3b6ea5"
MEANINGS = {
    "d": "scale", "m": "least", "dmin": "scale of minima", "scales": "scales of groups",
    "qs": "codes", "ql": "low bits", "qh": "high bits", "x": "numbers",
}  # fmt: skip


class BlockPicture:
    """First block of a row of numbers, as a format stores it; a notebook shows it.

    Attributes:
        block_type: the name of the format.
        given: the numbers, float32.
        data: the bytes of the block, uint8.
        stored: the numbers that the bytes mean, float32.

    Args:
        block_type: the name of a format in `ops.blocks.FORMATS`.
        values: numbers, of which the first block is taken.

    Raises ModelError for an unknown format, too few numbers, and numbers that it cannot store.
    """

    def __init__(self, block_type: str, values: np.ndarray) -> None:
        block = blocks.block_format(block_type)
        row = np.asarray(values, np.float32).reshape(-1)
        if len(row) < block.elements:
            raise ModelError(
                f"a block of {block_type} has {block.elements} numbers, not {len(row)}"
            )
        self.block_type = block_type
        self.given = row[: block.elements].copy()
        self.data = quantize(block_type, self.given)
        self.stored = dequantize(block_type, self.data)

    @property
    def fields(self) -> list[tuple[str, int]]:
        """Return the name and the bytes of each field, in the order of the block's bytes."""
        kinds: Any = blocks.block_format(self.block_type).fields.fields
        ordered = sorted(kinds.items(), key=lambda item: item[1][1])
        return [(name, kind[0].itemsize) for name, kind in ordered]

    @property
    def bits(self) -> float:
        """Return the bits of one number."""
        return 8 * self.data.size / self.given.size

    def __str__(self) -> str:
        error = abs(self.stored - self.given).max()
        return (
            f"{self.block_type}: {self.given.size} numbers in {self.data.size} bytes, "
            f"{self.bits:g} bits each, largest error {error:.3g}"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts, at = [], 0.0
        for number, (name, size) in enumerate(self.fields):
            wide = WIDTH * size / self.data.size
            parts.append(
                f'<rect x="{at:.1f}" y="{GAP}" width="{max(wide - 1, 1):.1f}" '
                f'height="{BAR}" fill="{FIELDS[number % len(FIELDS)]}"><title>{name}: '
                f"{MEANINGS[name]}, {size} bytes</title></rect>"
            )
            if wide > 8 * len(name) + 8:
                parts.append(svg.text(at + wide / 2, GAP + BAR - 8, name, 'text-anchor="middle"'))
            at += wide
        shown = ", ".join(f"{name} {size}" for name, size in self.fields)
        heading = f"{self}; bytes: {shown} (dots: given, lines: stored)"
        parts += [svg.text(0, GAP - 8, heading), *self._chart(2 * GAP + BAR)]
        return svg.svg(str(self), WIDTH, 2 * GAP + BAR + CHART + 8, parts)

    def _chart(self, top: int) -> list[str]:
        """Return the numbers before, as grey dots, and after, as blue lines.

        Args:
            top: where the chart begins.
        """
        both = np.concatenate([self.given, self.stored])
        low, high = min(float(both.min()), 0.0), max(float(both.max()), 0.0)
        span, step = high - low or 1.0, WIDTH / self.given.size

        def y(number: float) -> float:
            return top + CHART * (high - number) / span

        lines = [
            f'<line x1="0" x2="{WIDTH}" y1="{y(0):.1f}" y2="{y(0):.1f}" stroke="{GIVEN}" '
            'stroke-width="0.5"/>'
        ]
        for place, (given, stored) in enumerate(zip(self.given, self.stored, strict=True)):
            middle = (place + 0.5) * step
            lines.append(
                f'<line x1="{middle - step / 2:.1f}" x2="{middle + step / 2:.1f}" '
                f'y1="{y(stored):.1f}" y2="{y(stored):.1f}" stroke="{STORED}" '
                'stroke-width="2"/>'
            )
            lines.append(f'<circle cx="{middle:.1f}" cy="{y(given):.1f}" r="1.6" fill="{GIVEN}"/>')
        return lines
