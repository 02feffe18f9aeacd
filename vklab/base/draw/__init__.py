"""HTML tables and sizes as text, by which plans and devices show themselves in notebooks.

All output is deterministic, escaped, and readable on light and dark pages. Colours are the
Okabe-Ito palette, which colour-blind readers can tell apart. Visited by labs 00 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["bytes_text", "table_html", "time_text"]


def bytes_text(count: int) -> str:
    """Return a number of bytes as text with a binary unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def time_text(nanoseconds: float) -> str:
    """Return a duration as text with the unit that keeps it short."""
    for limit, scale, unit in ((1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if abs(nanoseconds) < limit:
            return f"{nanoseconds / scale:.1f} {unit}"
    return f"{nanoseconds / 1e9:.2f} s"


def table_html(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table with a caption; every cell is escaped.

    Args:
        title: the caption.
        headers: one text for each column.
        rows: the cells of each row.
    """
    head = "".join(f'<th scope="col" style="text-align:left">{escape(h)}</th>' for h in headers)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="text-align:left">{escape(str(cell))}</td>' for cell in row)
        + "</tr>"
        for row in rows
    )
    caption = f'<caption style="text-align:left;font-weight:bold">{escape(title)}</caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
