"""Drawings of time and memory: a timeline with lanes, an arena of blocks, a graph in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_arena", "draw_graph", "draw_timeline", "timeline"]

LEFT, WIDTH, ROW = 90, 560, 46


def draw_timeline(
    lanes: Mapping[str, Sequence[tuple[str, float, float, str]]],
    arrows: Sequence[tuple[str, float, str, float]] = (),
    *, alt: str, caption: str, step: int = 0,
) -> Picture:  # fmt: skip
    """Draw what runs when.

    Args:
        lanes, arrows, step: as `timeline` takes them.
        alt, caption: the words of the picture.
    """
    return timeline(lanes, arrows, step).picture(alt, caption)


def timeline(
    lanes: Mapping[str, Sequence[tuple[str, float, float, str]]],
    arrows: Sequence[tuple[str, float, str, float]] = (), step: int = 0, last: float = 0,
) -> Diagram:  # fmt: skip
    """Return a drawing of what runs when: a lane for each processor, time to the right.

    Args:
        lanes: for each lane bars of (words, start, end, colour), in any unit of time.
        arrows: (lane, time, lane, time) of each arrow.
        step: the difference of the numbers below the axis; 0 for none.
        last: the end of the axis; 0: the end of the last bar.
    """
    names = list(lanes)
    side = max(LEFT, 16 + 7.5 * max(map(len, names), default=0))
    drawing = Diagram(int(side + WIDTH) + 10, ROW * len(lanes) + 30)
    last = last or max((end for bars in lanes.values() for _, _, end, _ in bars), default=1)
    for number, (name, bars) in enumerate(lanes.items()):
        y = 8 + ROW * number
        drawing.note((6, y + 20), name, bold=True)
        for words, start, end, colour in bars:
            place = (side + WIDTH * start / last, y, WIDTH * (end - start) / last, 32)
            drawing.box(place, words, colour)
    for source, start, target, end in arrows:
        a, b = names.index(source), names.index(target)
        down = a < b
        drawing.arrow(
            (side + WIDTH * start / last, 8 + ROW * a + 32 * down),
            (side + WIDTH * end / last, 8 + ROW * b + 32 * (not down)),
        )
    y = 8 + ROW * len(lanes)
    drawing.arrow((side, y), (side + WIDTH, y))
    for time in range(0, int(last) + 1, step) if step else ():
        x = side + WIDTH * time / last
        drawing.line((x, y), (x, y + 5)).note((x, y + 17), str(time), anchor="middle", size=11)
    return drawing.note((6, y + 4), "time")


def draw_arena(
    blocks: Sequence[tuple[str, int, str]], *, alt: str, caption: str, least: int = 60,
    start: int = 0,
) -> Picture:  # fmt: skip
    """Draw one memory with its blocks, addresses to the right and written below.

    Args:
        blocks: (words, bytes, colour) of each block, in order.
        alt: the content in words.
        caption: the line below.
        least: least width of a block in pixels, so that its words fit.
        start: address of the first byte.
    """
    total = sum(size for _, size, _ in blocks)
    widths = [max(least, WIDTH * size / total) for _, size, _ in blocks]
    scale = (LEFT + WIDTH - 20) / sum(widths)
    drawing, x, at = Diagram(LEFT + WIDTH + 10, 84), 10.0, start
    for (words, size, colour), width in zip(blocks, widths, strict=True):
        drawing.box((x, 8, width * scale, 44), words, colour)
        drawing.note((x, 70), str(at), size=11)
        x, at = x + width * scale, at + size
    end = str(at) if start else f"{at} bytes"
    return drawing.note((x, 70), end, anchor="end", size=11).picture(alt, caption)


def draw_graph(
    columns: Sequence[Mapping[str, str]], edges: Sequence[tuple[str, str, str]],
    *, alt: str, caption: str,
) -> Picture:  # fmt: skip
    """Draw a graph: boxes in columns from left to right, arrows with words between them.

    Args:
        columns: for each column the words of its boxes and their colours.
        edges: (from, to, words) of each arrow; boxes are named by their words.
        alt: the content in words.
        caption: the line below.
    """
    high, gap = max(map(len, columns)), WIDTH / max(len(columns) - 1, 1)
    drawing, place = Diagram(LEFT + WIDTH + 80, 64 * high + 6), {}
    for number, column in enumerate(columns):
        for row, (words, colour) in enumerate(column.items()):
            x, y = 10 + gap * number, 8 + 64 * (row + (high - len(column)) / 2)
            place[words] = x, y
            drawing.box((x, y, 130, 48), words, colour)
    for source, target, words in edges:
        (x, y), (right, low) = place[source], place[target]
        drawing.arrow((x + 130, y + 24), (right - 2, low + 24), words)
    return drawing.picture(alt, caption)
