"""Listings of code side by side, with lines marked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from html import escape

from vklab_course.picture import Picture, picture

__all__ = ["draw_listings"]

COLUMN = 53  # letters in a line of half a page; a page has about 760 pixels, a letter 6.6


def draw_listings(listings: Mapping[str, str], marked: Collection[str], caption: str) -> Picture:
    """Draw texts side by side, two in a row, each below its title; a wide text has its own row.

    Args:
        listings: the texts by title.
        marked: lines with one of these words have a coloured ground.
        caption: the line below.
    """
    blocks = []
    for title, text in listings.items():
        lines = [
            f'<span style="background:#fde7bd">{escape(line)}</span>'
            if any(word in line for word in marked)
            else escape(line)
            for line in text.strip("\n").splitlines()
        ]
        share = 90 if max(map(len, text.splitlines()), default=0) > COLUMN else 45
        blocks.append(
            f'<div style="flex:1 1 {share}%;min-width:22em;background:#fff;color:#222;'
            'padding:.3em .6em">'
            f'<b>{escape(title)}</b><pre style="font:11px monospace;line-height:1.35;margin:.2em 0;'
            f'color:#222;background:#fff;overflow-x:auto">{chr(10).join(lines)}</pre></div>'
        )
    html = f'<div style="display:flex;flex-wrap:wrap;gap:.4em">{"".join(blocks)}</div>'
    return picture(html, f"Listings of one kernel: {', '.join(listings)}.", caption)
