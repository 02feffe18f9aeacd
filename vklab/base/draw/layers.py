"""Drawing of a layered graph: boxes in columns, columns in bands that are read like lines of text.

The caller chooses the columns. An edge is drawn as a line inside a band; boxes of different bands
name each other in text. Visited by lab 12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from vklab.base.draw import svg

LETTERS, LEFT = 21, 20
WIDE, BETWEEN, LINE, LANE, COLUMNS, NUMBERS = 122, 28, 12, 5, 10, 3


@dataclass
class Box:
    """One box of a drawing: its text, and its position once `chart` has placed it.

    Attributes:
        heading: first line, in bold.
        label: name by which other boxes refer to this one.
        lines: further lines of text.
        about: tooltip.
        colour: colour of the border as #rrggbb; the fill is a lighter shade.
        column: number of its column.
        thick: whether the border is thick.
        sources: keys of the boxes with an edge to this one.
        band: number of its row of columns, set by `chart`.
        lane: number of its lane above the band, for edges that pass over columns.
        x: left edge in pixels, set by `chart`.
        y: top edge in pixels, set by `chart`.
        top: top edge of its band in pixels, set by `chart`.
    """

    heading: str
    label: str
    lines: list[str]
    about: str
    colour: str
    column: int = 0
    thick: bool = False
    sources: set[int] = field(default_factory=set)
    band: int = 0
    lane: int = 0
    x: float = 0
    y: float = 0
    top: float = 0

    @property
    def height(self) -> int:
        """Return the height in pixels."""
        return LINE * (1 + len(self.lines)) + 8


def width_of(boxes: Mapping[int, Box], columns: int = COLUMNS) -> int:
    """Return the width of a chart in pixels, with at most `columns` columns in a band."""
    used = min(max((box.column for box in boxes.values()), default=0) + 1, columns)
    return LEFT * 2 + used * (WIDE + BETWEEN)


def chart(
    boxes: Mapping[int, Box], top: int, columns: int = COLUMNS, ruled: bool = True
) -> tuple[list[str], int]:
    """Return the SVG elements of all boxes below `top`, and the lower end in pixels.

    Args:
        boxes: the boxes, whose positions are set here.
        top: upper end in pixels.
        columns: the most columns in a band.
        ruled: separate the columns by dashed lines, except the first and the last.
    """
    for box in boxes.values():
        box.band = box.column // columns
    _note_far(boxes)
    _give_lanes(boxes)
    by_column: dict[int, list[Box]] = {}
    for box in boxes.values():
        by_column.setdefault(box.column, []).append(box)
    last = max(by_column, default=-1)
    parts: list[str] = []
    for first in range(0, last + 1, columns):
        band = [by_column.get(n, []) for n in range(first, min(first + columns, last + 1))]
        top += 12 + LANE * (1 + max(box.lane for column in band for box in column))
        height = max(_stack(column, n, top) for n, column in enumerate(band))
        for number in range(len(band)):
            if ruled and 0 < first + number < last:
                x = LEFT + (number + 1) * (WIDE + BETWEEN) - BETWEEN / 2
                parts.append(
                    f'<path d="M{x:.0f},{top}v{height}" stroke="#bbb" stroke-dasharray="2 3"/>'
                )
        top += height
    parts += (_line(source, box) for source, box in _pairs(boxes))
    parts += (part for box in boxes.values() for part in _drawn(box))
    return parts, top + 10


def _stack(column: Sequence[Box], number: int, top: int) -> int:
    """Position the boxes of a column below each other; return the height of the column."""
    y = top
    for box in column:
        box.x, box.y, box.top = LEFT + number * (WIDE + BETWEEN), y, top
        y += box.height + 10
    return y - top


def _note_far(boxes: Mapping[int, Box]) -> None:
    """Add to each box the labels of its neighbours in other bands."""
    far: dict[int, list[str]] = {}
    for box in boxes.values():
        away = [n for n in sorted(box.sources) if boxes[n].band != box.band]
        for number in away:
            far.setdefault(number, []).append(box.label)
        if away:
            box.lines.append(_labels("from", [boxes[n].label for n in away]))
    for number, labels in far.items():
        boxes[number].lines.append(_labels("to", labels))


def _labels(word: str, labels: Sequence[str]) -> str:
    more = f" +{len(labels) - NUMBERS}" if len(labels) > NUMBERS else ""
    return svg.shorten(f"{word} {', '.join(labels[:NUMBERS])}{more}", LETTERS)


def _pairs(boxes: Mapping[int, Box]) -> Iterator[tuple[Box, Box]]:
    """Yield the two boxes of each edge inside a band."""
    for box in boxes.values():
        for number in sorted(box.sources):
            if boxes[number].band == box.band:
                yield boxes[number], box


def _give_lanes(boxes: Mapping[int, Box]) -> None:
    """Assign a lane above its band to each box with edges that pass over columns."""
    reach: dict[int, tuple[Box, int]] = {}
    for source, box in _pairs(boxes):
        if box.column - source.column > 1:
            reach[id(source)] = source, max(box.column, reach.get(id(source), (box, 0))[1])
    ends: dict[tuple[int, int], int] = {}
    for source, end in sorted(reach.values(), key=lambda pair: pair[0].column):
        while ends.get((source.band, source.lane), -1) > source.column:
            source.lane += 1
        ends[source.band, source.lane] = end


def _line(source: Box, box: Box) -> str:
    """Return an arrow: a curve to the next column, a lane above the band to farther columns."""
    x, y = source.x + WIDE, source.y + source.height / 2
    to, down = box.x, box.y + box.height / 2
    path = f"C{x + 13:.0f},{y:.0f} {to - 13:.0f},{down:.0f} {to - 4:.0f},{down:.0f}"
    if box.column - source.column > 1:
        y, down, aside = source.y + 8, box.y + 8, 5 + source.lane % 3 * 3
        lane = source.top - 6 - LANE * source.lane
        path = f"H{x + aside:.0f}V{lane:.0f}H{to - 5 - aside:.0f}V{down:.0f}H{to - 4:.0f}"
    return (
        f'<path d="M{x:.0f},{y:.0f}{path}" fill="none" stroke="#555" stroke-linejoin="round"/>'
        f'<path d="M{to:.0f},{down:.0f}l-6,-3v6z" fill="#555"/>'
    )


def _drawn(box: Box) -> Iterator[str]:
    channels = (int(box.colour[i : i + 2], 16) for i in (1, 3, 5))
    light = "".join(f"{255 - (255 - channel) * 3 // 10:02x}" for channel in channels)
    yield (
        f'<g><title>{escape(box.about)}</title><rect x="{box.x:.0f}" y="{box.y:.0f}" '
        f'width="{WIDE}" height="{box.height}" rx="4" fill="#{light}" stroke="{box.colour}" '
        f'stroke-width="{3 if box.thick else 1}"/>'
    )
    heading = svg.shorten(box.heading, LETTERS - 2)
    yield svg.text(box.x + 6, box.y + 14, heading, 'font-weight="bold"')
    for number, line in enumerate(box.lines, 1):
        yield svg.text(box.x + 6, box.y + 14 + LINE * number, line, 'font-size="10"')
    yield "</g>"


def legend(entries: Mapping[str, str], y: int) -> Iterator[str]:
    """Yield the SVG elements of a legend: a text for each colour."""
    x = LEFT
    for words, colour in entries.items():
        yield (
            f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}" fill-opacity="0.4" '
            f'stroke="{colour}"/>'
        )
        yield svg.text(x + 17, y + 10, words)
        x += 36 + 6 * len(words)
