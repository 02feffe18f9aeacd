"""Concept diagrams: boxes, arrows and words, as SVG on a white page that both themes can show."""

from __future__ import annotations

from collections.abc import Sequence

from vklab.base.draw.svg import PALETTE, svg, text
from vklab_course.picture import Picture, picture

__all__ = ["COLOURS", "Diagram", "draw_steps"]

COLOURS = dict(
    zip(
        ("blue", "orange", "green", "pink", "sky", "red", "yellow", "grey"),
        PALETTE,
        strict=True,
    )
)
LINE = 15
KEYS = 'data-lm-suppress-shortcuts="true"'  # arrow keys move the slider, not JupyterLab's cells
HEAD = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto-start-reverse"><path d="M0,0L8,4L0,8z" fill="#222"/>'
    "</marker></defs>"
)


class Diagram:
    """A drawing that grows by boxes, arrows and notes; `picture` ends it.

    All positions are in pixels, from the upper left corner.
    """

    def __init__(self, width: int = 640, height: int = 200) -> None:
        self.width, self.height = width, height
        self._parts = [HEAD]

    def box(
        self, place: tuple[float, float, float, float], words: str = "", colour: str = "blue",
        *, dashed: bool = False, filled: bool = True, bold: bool = False, shade: float = 0.22,
    ) -> Diagram:  # fmt: skip
        """Draw a box with centred lines of text.

        Args:
            place: left, top, width and height.
            words: the text; a line break starts a new line.
            colour: one of COLOURS.
            dashed: draw a dashed border, for what does not exist yet.
            filled: fill with a light shade of the colour.
            bold: write in bold.
            shade: opacity of the fill, from 0 to 1; text stays readable up to 0.6.
        """
        x, y, width, height = place
        line = ' stroke-dasharray="5 4"' if dashed else ""
        fill = f'fill="{COLOURS[colour]}" fill-opacity="{shade:.2f}"' if filled else 'fill="#fff"'
        size = f'width="{width:g}" height="{height:g}"'
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" {size} rx="4" {fill} '
            f'stroke="{COLOURS[colour]}" stroke-width="1.5"{line}/>'
        )
        lines = words.split("\n") if words else []
        first = y + height / 2 + 4 - LINE * (len(lines) - 1) / 2
        weight = ' font-weight="bold"' if bold else ""
        for number, words_of_line in enumerate(lines):
            self._parts.append(
                text(
                    x + width / 2,
                    first + LINE * number,
                    words_of_line,
                    f'text-anchor="middle" font-size="12"{weight}',
                )
            )
        return self

    def arrow(
        self, start: tuple[float, float], end: tuple[float, float], words: str = "",
        *, both: bool = False, dashed: bool = False,
    ) -> Diagram:  # fmt: skip
        """Draw an arrow with a note at its middle.

        Args:
            start: where it begins.
            end: where its tip is.
            words: the note.
            both: draw a tip at both ends.
            dashed: draw a dashed line.
        """
        (x, y), (right, low) = start, end
        tips = 'marker-end="url(#tip)"' + (' marker-start="url(#tip)"' if both else "")
        line = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="M{x:g},{y:g}L{right:g},{low:g}" stroke="#222" fill="none" '
            f'stroke-width="1.3" {tips}{line}/>'
        )
        if words:
            self.note(((x + right) / 2, (y + low) / 2 - 5), words, anchor="middle")
        return self

    def line(self, start: tuple[float, float], end: tuple[float, float]) -> Diagram:
        """Draw a thin line without tips."""
        (x, y), (right, low) = start, end
        self._parts.append(
            f'<path d="M{x:g},{y:g}L{right:g},{low:g}" stroke="#222" fill="none" stroke-width="1"/>'
        )
        return self

    def dot(self, place: tuple[float, float], radius: float = 4) -> Diagram:
        """Draw a small black disc, such as the start of a path."""
        self._parts.append(
            f'<circle cx="{place[0]:g}" cy="{place[1]:g}" r="{radius:g}" fill="#222"/>'
        )
        return self

    def note(
        self, place: tuple[float, float], words: str, *, anchor: str = "start", size: int = 12,
        bold: bool = False,
    ) -> Diagram:  # fmt: skip
        """Write lines of text.

        Args:
            place: left end (or middle, or right end) and baseline of the first line.
            words: the text; a line break starts a new line.
            anchor: start, middle or end.
            size: height of the letters.
            bold: write in bold.
        """
        weight = ' font-weight="bold"' if bold else ""
        for number, line in enumerate(words.split("\n")):
            self._parts.append(
                text(
                    place[0],
                    place[1] + (size + 3) * number,
                    line,
                    f'text-anchor="{anchor}" font-size="{size}"{weight}',
                )
            )
        return self

    def picture(self, alt: str, caption: str) -> Picture:
        """Return the drawing with its alt text and caption."""
        return picture(svg(alt, self.width, self.height, self._parts), alt, caption)


def draw_steps(pages: Sequence[tuple[Diagram, str]], caption: str) -> Picture:
    """Return drawings that follow each other in time: a box shows one, a slider moves them.

    A notebook that JupyterLab does not trust has no slider that works: there the box scrolls.

    Args:
        pages: drawings of equal size, each with its alt text.
        caption: the lines below.
    """
    (width, high), last = (pages[0][0].width, pages[0][0].height), len(pages) - 1
    slider = (
        f'<input type="range" min="0" max="{last}" value="0" aria-label="step" {KEYS} '
        'style="display:block;width:300px" '
        f'oninput="this.nextElementSibling.scrollTop=this.value*{high}">'
    )
    box = (
        f'<div style="height:{high}px;max-width:{width + 20}px;overflow-y:scroll;'
        'border:1px solid #999" tabindex="0" '
        f'{KEYS} onscroll="this.previousElementSibling.value=this.scrollTop/{high}">'
    )
    shown = "".join(
        f'<div style="height:{high}px;overflow:hidden">{page.picture(alt, caption).html}</div>'
        for page, alt in pages
    )
    more = f"{caption} {last + 1} pictures: move the slider, or scroll in the box."
    return Picture(f"{slider}{box}{shown}</div>", " ".join(alt for _, alt in pages), more)
