"""Small pictures as text: HTML tables and SVG drawings that plans and devices show of themselves.

Everything is deterministic, escaped, and readable on light and dark pages. Colours are the
Okabe-Ito palette, which colour-blind readers can tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["PALETTE", "bytes_text", "memory_map_svg", "table_html", "time_text"]

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


def bytes_text(count: int) -> str:
    """Write a number of bytes with a binary unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def time_text(nanoseconds: float) -> str:
    """Write a duration with the unit that keeps it short."""
    for limit, scale, unit in ((1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if abs(nanoseconds) < limit:
            return f"{nanoseconds / scale:.1f} {unit}"
    return f"{nanoseconds / 1e9:.2f} s"


def table_html(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Draw a table with a caption; every cell is escaped."""
    head = "".join(f'<th scope="col" style="text-align:left">{escape(h)}</th>' for h in headers)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="text-align:left">{escape(str(cell))}</td>' for cell in row)
        + "</tr>"
        for row in rows
    )
    caption = f'<caption style="text-align:left;font-weight:bold">{escape(title)}</caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def memory_map_svg(
    title: str, boxes: Sequence[tuple[str, int, int, int, int]], steps: int, size_bytes: int
) -> str:
    """Draw lifetimes packed in memory: time runs right, addresses run up.

    Args:
        boxes: (label, first step, last step, offset in bytes, size in bytes) of each value.
        steps: number of steps on the time axis.
        size_bytes: height of the memory.
    """
    width, height, left, top = 640, 260, 70, 28
    plot_width, plot_height = width - left - 12, height - top - 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" role="img" aria-label="{escape(title)}" '
        'style="max-width:100%;background:#fff" font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        f'<text x="{left}" y="16" font-size="13" fill="#222">{escape(title)}</text>',
        f'<rect x="{left}" y="{top}" width="{plot_width}" height="{plot_height}" '
        'fill="none" stroke="#888"/>',
    ]
    for number, (label, first, last, offset, size) in enumerate(boxes):
        x = left + plot_width * first / max(steps, 1)
        w = plot_width * (last - first + 1) / max(steps, 1)
        h = plot_height * size / max(size_bytes, 1)
        y = top + plot_height - plot_height * (offset + size) / max(size_bytes, 1)
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{max(h, 1):.1f}" '
            f'fill="{PALETTE[number % len(PALETTE)]}" fill-opacity="0.75" stroke="#fff">'
            f"<title>{escape(label)}: {bytes_text(size)}</title></rect>"
        )
        if h >= 12 and w >= 7 * len(label):
            parts.append(
                f'<text x="{x + 4:.1f}" y="{y + h / 2 + 4:.1f}" fill="#111">{escape(label)}</text>'
            )
    parts += [
        f'<text x="{left - 6}" y="{top + 10}" text-anchor="end" fill="#222">'
        f"{bytes_text(size_bytes)}</text>",
        f'<text x="{left - 6}" y="{top + plot_height}" text-anchor="end" fill="#222">0</text>',
        f'<text x="{left}" y="{height - 12}" fill="#222">dispatch 0</text>',
        f'<text x="{left + plot_width}" y="{height - 12}" text-anchor="end" fill="#222">'
        f"dispatch {max(steps - 1, 0)}</text>",
        "</svg>",
    ]
    return "".join(parts)
