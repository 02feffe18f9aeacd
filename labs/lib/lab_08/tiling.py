"""Products of matrices as pictures: strips and tiles, blocks of registers, neighbours, steps.

Visited by labs 08 and 08b.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_block", "draw_neighbours", "draw_overlap", "draw_speeds", "draw_tile"]

CELL = 12.0


def _grid(page: Diagram, place: tuple[float, float], rows: int, columns: int, name: str) -> None:
    """Draw an empty matrix with its name above."""
    x, y = place
    page.box((x, y, columns * CELL, rows * CELL), "", "grey", filled=False)
    page.note((x + columns * CELL / 2, y - 6), name, anchor="middle", bold=True)


def draw_tile(side: int = 4, cells: int = 12) -> Picture:
    """Draw a product with one tile of y, and the strips of a and b that it needs.

    Args:
        side: rows and columns of the tile.
        cells: rows and columns of each matrix.
    """
    page = Diagram(690, 210)
    top, left, edge, first = 40.0, (20, 260, 500), cells * CELL, 4
    for x, name in zip(left, ("a", "b", "y = a b"), strict=True):
        _grid(page, (x, top), cells, cells, name)
    at = first * CELL
    page.box((left[0], top + at, edge, side * CELL), "", "blue")
    page.box((left[1] + at, top, side * CELL, edge), "", "orange")
    page.box((left[2] + at, top + at, side * CELL, side * CELL), "tile", "green", bold=True)
    for number in range(cells // side):
        shift, shade = number * side * CELL, 0.55 if number == 1 else 0.0
        page.box((left[0] + shift, top + at, side * CELL, side * CELL), "", "blue", shade=shade)
        page.box((left[1] + at, top + shift, side * CELL, side * CELL), "", "orange", shade=shade)
    page.note((212, top + at + 18), "times", anchor="middle")
    page.note((452, top + at + 18), "gives", anchor="middle")
    return page.picture(
        "A tile of y needs a strip of rows of a and a strip of columns of b, both cut into steps.",
        "A tile of y needs a strip of a and a strip of b. One step along k (dark) is loaded into "
        "shared memory, used by the whole workgroup, and replaced by the next step.",
    )


def draw_neighbours() -> Picture:
    """Draw where eight neighbours load from a and b: down a column of y, and along a row."""
    page, k, line = Diagram(560, 320), 5, 2
    for row, (words, is_down) in enumerate(
        (("naive: neighbours go down a column of y", True), ("coalesced: along a row of y", False))
    ):
        top = 56 + 160 * row
        page.note((10, top - 34), words, bold=True)
        for x, name in ((10, "a"), (200, "b"), (390, "y")):
            _grid(page, (x, top), 8, 8, name)
            for edge in range(1, 8):
                page.line((x, top + CELL * edge), (x + 8 * CELL, top + CELL * edge))
        for lane in range(8):
            down, across = (lane, line) if is_down else (line, lane)
            for x, colour, cell in (
                (10, "orange", (down, k)),
                (200, "orange", (k, across)),
                (390, "green", (down, across)),
            ):
                place = (x + CELL * cell[1], top + CELL * cell[0], CELL, CELL)
                page.box(place, "", colour, shade=0.6)
    return page.picture(
        "Naive: eight neighbours load eight rows of a and one element of b. Coalesced: one element "
        "of a and eight elements side by side of b.",
        "One step of k, here k = 5. Orange: what eight neighbours load together. Green: what they "
        "compute. A row lies in memory from left to right; each row of this picture is one sector.",
    )


def draw_block(high: int = 4, wide: int = 2) -> Picture:
    """Draw the block of results of one invocation with what one step of k loads for it.

    Args:
        high: rows of the block.
        wide: columns of the block.
    """
    page, size = Diagram(560, 44 + 34 * high + 46), 34
    left, top = 200, 62
    page.note((left + size * wide / 2, 16), "from b", anchor="middle")
    page.note((left - 62, top + size * high / 2 + 4), "from a", anchor="end")
    for column in range(wide):
        page.box((left + size * column, 24, size - 4, size - 6), f"b{column}", "orange")
    for row in range(high):
        page.box((left - 52, top + size * row, size + 6, size - 4), f"a{row}", "blue")
        for column in range(wide):
            place = (left + size * column, top + size * row, size - 4, size - 4)
            page.box(place, f"{row},{column}", "green")
    page.note(
        (left + size * wide + 24, top + 18),
        f"{high} + {wide} loads,\n{high} x {wide} multiply-adds:\n"
        f"{(high + wide) / (high * wide):.3g} loads for each",
    )
    return page.picture(
        f"A block of {high} x {wide} sums; each step loads {high} elements of a and {wide} of b.",
        f"One invocation with {high} x {wide} sums in registers. One sum alone needs 2 loads for "
        "each multiply-add.",
    )


def draw_overlap() -> Picture:
    """Draw loads and multiplications of a tiled kernel with one buffer and with two."""
    page = Diagram(700, 190)
    for row, (words, is_double) in enumerate((("one buffer", False), ("two buffers", True))):
        top = 30 + 84 * row
        page.note((8, top + 8), words, bold=True)
        x = 110.0
        for step in range(4):
            if is_double:
                if step < 3:
                    page.box((110 + 96 * step, top - 14, 90, 24), f"load {step}", "blue")
                if step:
                    place = (110 + 96 * step, top + 14, 90, 24)
                    page.box(place, f"multiply {step - 1}", "green")
                page.box((202 + 96 * step, top - 14, 3, 52), "", "grey", shade=1)
            elif step < 3:
                page.box((x, top - 14, 90, 24), f"load {step}", "blue")
                page.box((x + 92, top - 14, 3, 52), "", "grey", shade=1)
                page.box((x + 97, top + 14, 90, 24), f"multiply {step}", "green")
                page.box((x + 189, top - 14, 3, 52), "", "grey", shade=1)
                x += 194
    return page.picture(
        "One buffer: load, barrier, multiply, barrier. Two buffers: the next load beside each "
        "multiplication, one barrier a step.",
        "Narrow bars: barriers. With two buffers the next step is loaded while this one is "
        "multiplied.",
    )


def draw_speeds(columns: Mapping[str, Mapping[str, float]], caption: str) -> Picture:
    """Draw speeds of kernels as bars on a logarithmic axis, a column for each device.

    Args:
        columns: GFLOP/s by kernel, by the device's title.
        caption: text below the picture.
    """
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    base = 34 + 24 * len(names)
    page, said = Diagram(90 + 330 * len(columns), base + 34), []
    for row, name in enumerate(names):
        page.note((84, 46 + 24 * row), name, anchor="end", bold=True)
    for number, (title, speeds) in enumerate(columns.items()):
        left = 92 + 330 * number
        page.note((left, 16), title[:44], bold=True)
        first = math.floor(math.log10(min(speeds.values())))
        decades = max(2, math.ceil(math.log10(max(speeds.values()))) - first)
        decade = 220 / decades
        page.line((left, base), (left + 220, base))
        for power in range(decades + 1):
            x = left + decade * power
            page.line((x, base), (x, base + 5))
            page.note((x, base + 18), f"{10.0 ** (first + power):,g}", anchor="middle", size=10)
        for row, name in enumerate(names):
            if name not in speeds:
                page.note((left, 46 + 24 * row), "not measured here")
                continue
            long = max(2.0, decade * (math.log10(speeds[name]) - first))
            colour = "orange" if name == "runtime" else "blue"
            page.box((left, 34 + 24 * row, long, 16), "", colour, shade=0.6)
            page.note(
                (left + long + 5, 46 + 24 * row),
                f"{speeds[name]:,.3g} GFLOP/s"
                if speeds[name] < 1000
                else f"{speeds[name]:,.0f} GFLOP/s",
            )
            said.append(f"{title}, {name}: {speeds[name]:.3g}")
    return page.picture("GFLOP/s. " + "; ".join(said), caption)
