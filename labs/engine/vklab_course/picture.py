"""picture: a figure with the alt text and the caption that every picture of a lab must have."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

__all__ = ["Picture", "picture"]

DPI = 110
SVG = re.compile(r"<svg\b(?:(?!<svg\b).)*?</svg>", re.DOTALL)


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

    SVG becomes the source of an <img>: JupyterLab removes <svg> from a notebook that it does not
    trust, and keeps an <img>.

    Args:
        figure: a matplotlib figure (closed afterwards), SVG text, the bytes of a PNG file, or an
            object that draws itself as HTML or SVG.
        alt: the content in words, for a reader who cannot see the picture.
        caption: one sentence below the picture.
    """
    if not alt.strip() or not caption.strip():
        raise ValueError("a picture needs alt text and a caption")
    if hasattr(figure, "savefig"):
        figure = _png(figure)
    if isinstance(figure, bytes):
        encoded = base64.b64encode(figure).decode()
        return Picture(_image(f"png;base64,{encoded}", alt), alt, caption)
    for name in ("_repr_svg_", "_repr_html_"):
        if hasattr(figure, name):
            figure = getattr(figure, name)()
            break
    text = str(figure)
    html = SVG.sub(lambda found: _vector(found[0], alt), text)
    if not SVG.fullmatch(text):
        html = f'<div role="img" aria-label="{escape(alt, quote=True)}">{html}</div>'
    return Picture(html, alt, caption)


def _image(source: str, alt: str) -> str:
    return f'<img src="data:image/{source}" alt="{escape(alt, quote=True)}" style="max-width:100%">'


def _vector(svg: str, alt: str) -> str:
    # Percent signs instead of base64: words of a drawing stay readable in a notebook's file.
    return _image("svg+xml," + quote(svg, safe=" ,;:/=()"), alt)


def _png(figure: Any) -> bytes:
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
    return data.getvalue()


def _close(figure: Any) -> None:
    # The inline backend would draw an open figure again at the end of the cell.
    import matplotlib.pyplot

    matplotlib.pyplot.close(figure)
