"""Map of the course: which lab needs which, and on which paths it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from textwrap import wrap

from vklab_course.author.lab import Lab
from vklab_course.picture import Picture
from vklab_course.student.paths import CoursePath
from vklab_labs.shared.diagram import Diagram

__all__ = ["direct", "draw_map", "placed"]

WIDTH, HEIGHT, ACROSS, DOWN, LINE = 94, 46, 124, 58, 13
PATH_COLOURS = ("orange", "blue", "green", "pink", "red", "sky")
Cell = tuple[int, int]  # column and row


def draw_map(labs: Mapping[str, Lab], paths: Sequence[CoursePath]) -> Picture:
    """Draw the labs, an arrow from each to those that need it, and a square for each path.

    An arrow is left out where a longer way says the same.
    """
    needs = {n: direct(n, labs) for n in labs}
    cells, ways = placed(needs)
    rows = max((row for _, row in cells.values()), default=0) + 1
    columns = max((column for column, _ in cells.values()), default=0) + 1
    page = Diagram(ACROSS * columns - ACROSS + WIDTH + 16, DOWN * rows + 34)
    for way in ways:
        for start, end in pairwise(way):
            (x, y), (right, low) = _corner(cells[start]), _corner(cells[end])
            begin, tip = (x + WIDTH, y + HEIGHT / 2), (right, low + HEIGHT / 2)
            if end in labs:
                page.arrow(begin, (right - 2, tip[1]))
            else:  # past a column, through a cell that no lab has
                page.line(begin, tip).line(tip, (right + WIDTH, tip[1]))
    colours = dict(zip((path.name for path in paths), cycle(PATH_COLOURS), strict=False))
    for number, lab in labs.items():
        _draw_lab(page, _corner(cells[number]), lab)
        on = [path.name for path in paths if any(number == s.lab.number for s in path.stops)]
        for place, name in enumerate(on):
            x, y = _corner(cells[number])
            page.box((x + WIDTH - 14 * (place + 1), y + 4, 10, 10), "", colours[name], shade=0.8)
    x = 8.0
    for path in paths:
        page.box((x, DOWN * rows + 10, 10, 10), "", colours[path.name], shade=0.8)
        page.note((x + 16, DOWN * rows + 20), path.title)
        x += 40 + 7 * len(path.title)
    told = [f"{n} needs {' and '.join(needs[n])}" for n in labs if needs[n]]
    return page.picture(
        "Which lab needs which: " + "; ".join(told) + ".",
        "An arrow leads from a lab to those that need it. A square says on which path a lab lies.",
    )


def direct(number: str, labs: Mapping[str, Lab]) -> list[str]:
    """Return the labs that a lab needs, without those that another one of them needs."""

    def behind(one: str) -> set[str]:
        there = [n for n in labs[one].before if n in labs]
        return {*there, *(n for each in there for n in behind(each))}

    there = [n for n in labs[number].before if n in labs]
    return [n for n in there if not any(n in behind(other) for other in there)]


def placed(needs: Mapping[str, Sequence[str]]) -> tuple[dict[str, Cell], list[list[str]]]:
    """Return the cell of each lab, and the way of each arrow over free cells, which get names."""
    column: dict[str, int] = {}

    def column_of(name: str) -> int:
        if name not in column:
            column[name] = max((column_of(n) + 1 for n in needs[name]), default=0)
        return column[name]

    for name in needs:
        column_of(name)
    ways, sources = [], {name: list(given) for name, given in needs.items()}
    for name, given in needs.items():
        for source in given:
            between = range(column[source] + 1, column[name])
            way = [source, *(f"{source}>{name}>{place}" for place in between), name]
            column |= dict(zip(way[1:-1], between, strict=True))
            sources |= {b: [a] for a, b in zip(way, way[1:-1], strict=False)}
            sources[name] = [way[-2] if n == source else n for n in sources[name]]
            ways.append(way)
    return _cells(column, sources), ways


def _cells(column: Mapping[str, int], sources: Mapping[str, Sequence[str]]) -> dict[str, Cell]:
    """Return the cell of each name: in the columns' rows near the names that it is joined to."""
    if not column:
        return {}
    targets = {name: [n for n, given in sources.items() if name in given] for name in column}
    names = [[n for n in column if column[n] == place] for place in range(1 + max(column.values()))]
    widest = names.index(max(names, key=len))
    row: dict[str, int] = {}

    def put(place: int, joined: Mapping[str, Sequence[str]]) -> None:
        near = {n: [row[other] for other in joined[n] if other in row] for n in names[place]}
        wanted = {n: sum(rows) / len(rows) if rows else 0.0 for n, rows in near.items()}
        last = -1
        for name in sorted(wanted, key=lambda one: (wanted[one], one)):
            last = row[name] = max(last + 1, int(wanted[name]))

    for place in range(len(names)):
        put(place, sources if place else dict.fromkeys(names[0], ()))
    for place in reversed(range(widest)):
        put(place, targets)
    return {name: (column[name], row[name]) for name in column}


def _corner(cell: Cell) -> tuple[float, float]:
    return 8.0 + ACROSS * cell[0], 8.0 + DOWN * cell[1]


def _draw_lab(page: Diagram, corner: tuple[float, float], lab: Lab) -> None:
    x, y = corner
    page.box((x, y, WIDTH, HEIGHT), "", "grey", filled=False)
    page.note((x + 6, y + 15), lab.number, bold=True)
    lines = wrap(lab.name.partition("_")[2].replace("_", " "), 15)
    first = y + (36 if len(lines) == 1 else 28)
    for number, line in enumerate(lines[:2]):
        page.note((x + 6, first + LINE * number), line, size=11)
