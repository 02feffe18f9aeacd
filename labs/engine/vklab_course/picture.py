"""picture: a figure with the alt text and the caption that every picture of a lab must have."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["Picture", "picture"]

DPI = 110


@dataclass(frozen=True)
class Picture:
    """An image as HTML, with its alt text and caption."""

    html: str
    alt: str
    caption: str

    def __repr__(self) -> str:
        return f"picture: {self.caption}"

    def _repr_html_(self) -> str:
        return (
            f'<figure style="margin:.4em 0 .4em .43em">{self.html}'
            f'<figcaption style="font-style:italic">{escape(self.caption)}</figcaption></figure>'
        )


def picture(figure: Any, alt: str, caption: str) -> Picture:
    """Return a drawing with alt text and a caption.

    Args:
        figure: a matplotlib figure (closed afterwards), SVG text, or an object that draws itself
            as HTML or SVG.
        alt: the content in words, for a reader who cannot see the picture.
        caption: one sentence below the picture.
    """
    if not alt.strip() or not caption.strip():
        raise ValueError("a picture needs alt text and a caption")
    if hasattr(figure, "savefig"):
        return Picture(_png(figure, alt), alt, caption)
    for name in ("_repr_svg_", "_repr_html_"):
        if hasattr(figure, name):
            figure = getattr(figure, name)()
            break
    html = f'<div role="img" aria-label="{escape(alt, quote=True)}">{figure}</div>'
    return Picture(html, alt, caption)


def _png(figure: Any, alt: str) -> str:
    data = io.BytesIO()
    # A white background keeps axes and labels readable in a dark theme.
    figure.savefig(
        data,
        format="png",
        dpi=DPI,
        bbox_inches="tight",
        facecolor="white",
        metadata={"Software": None},
    )
    _close(figure)
    encoded = base64.b64encode(data.getvalue()).decode()
    return (
        f'<img src="data:image/png;base64,{encoded}" alt="{escape(alt, quote=True)}" '
        'style="max-width:100%">'
    )


def _close(figure: Any) -> None:
    # The inline backend would draw an open figure again at the end of the cell.
    import matplotlib.pyplot

    matplotlib.pyplot.close(figure)
