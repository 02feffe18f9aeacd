"""SVG drawings as text. All output is deterministic, escaped, and readable on light and dark pages.

Colours are the Okabe-Ito palette, which colour-blind readers can tell apart. Visited by labs 00
and 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from vklab.base.draw import bytes_text

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


def shorten(text: str, width: int) -> str:
    """Return a text of at most `width` characters; a longer text loses its middle."""
    if len(text) <= width:
        return text
    kept = max(width - 3, 1)
    return f"{text[: kept - kept // 2]}...{text[len(text) - kept // 2 :]}"[:width]


def svg(title: str, width: int, height: int, parts: Iterable[str], background: str = "#fff") -> str:
    """Return a complete SVG drawing, on a white page unless another background is given.

    Args:
        title: title, which screen readers read aloud.
        width: width in pixels.
        height: height in pixels.
        parts: SVG elements.
        background: colour of the page; "" for that of the document around.
    """
    style = f"max-width:100%;background:{background}" if background else "max-width:100%"
    page = f'<rect width="{width}" height="{height}" fill="{background}"/>' if background else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" role="img" aria-label="{escape(title)}" '
        f'style="{style}" font-family="sans-serif" font-size="11">'
        f"<title>{escape(title)}</title>{page}"
        f"{''.join(parts)}</svg>"
    )


def text(x: float, y: float, words: str, style: str = "") -> str:
    """Return an SVG text element.

    Args:
        x: left end of the text in pixels.
        y: baseline of the text in pixels.
        words: the text, which is escaped.
        style: more SVG attributes.
    """
    fill = "" if "fill=" in style else ' fill="#222"'
    gap = " " if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{fill}{gap}{style}>{escape(words)}</text>'


Lives = Sequence[tuple[str, int, int, int, int]]


def memory_map_svg(title: str, boxes: Lives, steps: int, size_bytes: int, bound: int = 0) -> str:
    """Return an SVG drawing of `memory_map` with a title.

    Args:
        title: title of the drawing.
        boxes: as for `memory_map`.
        steps: number of steps on the time axis.
        size_bytes: height of the memory in bytes.
        bound: lower bound in bytes, drawn as a line.
    """
    heading = text(70, 16, title, 'font-size="13"')
    return svg(
        title, 640, 276, [heading, *memory_map((70, 36, 558, 198), boxes, steps, size_bytes, bound)]
    )


def memory_map(
    frame: tuple[int, int, int, int], boxes: Lives, steps: int, size_bytes: int, bound: int = 0
) -> list[str]:
    """Return the SVG elements of a memory map: lifetimes to the right, addresses upwards.

    Args:
        frame: left, top, width and height of the plot in pixels; the axes take 60 on its left and
            36 below.
        boxes: (label, first step, last step, offset in bytes, size in bytes) of each value.
        steps: number of steps on the time axis.
        size_bytes: height of the memory in bytes.
        bound: lower bound in bytes for every packing, drawn as a line.
    """
    left, top, width, height = frame
    across, up = width / max(steps, 1), height / max(size_bytes, 1)
    parts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>'
    ]
    for number, (label, first, last, offset, size) in enumerate(boxes):
        x, w, h = left + across * first, across * (last - first + 1), up * size
        y = top + height - up * (offset + size)
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{max(h, 1):.1f}" '
            f'fill="{PALETTE[number % len(PALETTE)]}" fill-opacity="0.6" stroke="#fff" '
            f'stroke-width="0.5"><title>{escape(label)}: {bytes_text(size)}, dispatches {first} to '
            f"{last}</title></rect>"
        )
        if h >= 12 and w >= 36:
            parts.append(text(x + 3, y + h / 2 + 4, shorten(label, int((w - 4) / 6.5))))
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = top + height * (1 - share)
        parts.append(f'<path d="M{left - 4},{y:.1f}h4" stroke="#888"/>')
        words = bytes_text(round(size_bytes * share)) if share else "0"
        parts.append(text(left - 7, y + 4, words, 'text-anchor="end"'))
    apart = next(n * 10**k for k in range(9) for n in (1, 2, 5) if across * n * 10**k >= 44)
    for step in range(0, steps, apart):
        x = left + across * (step + 0.5)
        parts.append(f'<path d="M{x:.1f},{top + height}v4" stroke="#888"/>')
        parts.append(text(x, top + height + 15, str(step), 'text-anchor="middle"'))
    parts.append(text(left + width / 2, top + height + 30, "dispatch", 'text-anchor="middle"'))
    if bound:
        y = top + height - up * bound
        parts.append(f'<path d="M{left},{y:.1f}h{width}" stroke="#000" stroke-dasharray="6 4"/>')
        words = f"lower bound {bytes_text(bound)}"
        parts.append(text(left + width, y - 4, words, 'text-anchor="end"'))
    return parts
