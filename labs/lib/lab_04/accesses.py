"""Pictures of a traced kernel: invocation -> element maps, and counts of reads."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vklab_course.picture import Picture, picture
from vklab_labs.lab_04.trace import Traced
from vklab_labs.shared.diagram import COLOURS

__all__ = ["draw_access_counts", "draw_invocation_map", "draw_owners"]

# Workgroups in one map of lines; lines an invocation from which on few of them are drawn.
BANDS, CROWDED = 4, 8
MOST_NUMBERS = 64  # workgroups whose numbers have room in a matrix


def _said(traced: Traced, name: str) -> str:
    """Return what was written and by how many, in words."""
    rows, count = traced.of(name), traced.size[0] * traced.size[1]
    writers, writes = len(np.unique(rows[:, :2], axis=0)), traced.writes[name]
    outside = int((_is_outside(rows, traced.lengths[name])).sum())
    often = int((writes > 1).sum())
    return (
        f"{count} invocations: {writers} write, {count - writers} do not. {name} has "
        f"{writes.size} elements: {int((writes > 0).sum())} are written"
        + f", {often} of them more than once" * bool(often)
        + f". Writes outside: {outside}."
        + " The log is full." * traced.full
    )


def _is_outside(rows: np.ndarray, end: int) -> np.ndarray:
    return (rows[:, 2] < 0) | (rows[:, 2] >= end)


def draw_invocation_map(traced: Traced, name: str = "y") -> Picture:
    """Draw a line from each invocation to each element of a buffer that it writes.

    Args:
        traced: the trace of a kernel with a grid of one dimension.
        name: the buffer.
    """
    said, groups = _said(traced, name), traced.size[0] // traced.local[0]
    rows, end = traced.of(name), traced.lengths[name]
    key = (
        " Upper squares: invocations, hollow if they write nothing. "
        f"Lower squares: elements of {name}, hollow if nobody writes them."
    )
    key += " Black: written more than once." * bool((traced.writes[name] > 1).any())
    key += " Orange: outside of the buffer." * bool(_is_outside(rows, end).any())
    key += f" Drawn are the first {BANDS} of {groups} workgroups." * (groups > BANDS)
    drawn = rows
    if len(rows) > CROWDED * traced.size[0]:
        drawn = rows[rows[:, 0] % traced.local[0] == 0]
        key += " Of so many lines only those of the first invocation of each workgroup are drawn."
    return picture(_lines(rows, drawn, traced, name), alt=said, caption=said + key)


def _lines(rows: np.ndarray, drawn: np.ndarray, traced: Traced, name: str) -> Figure:
    """Draw a band for each workgroup: its invocations, and below them their share of elements."""
    local, end = traced.local[0], traced.lengths[name]
    groups = traced.size[0] // local
    bands, share = min(groups, BANDS), local * max(1, -(-end // traced.size[0]))
    figure = Figure((10, 1.3 * bands))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.012, 1.012), ylim=(-2 * bands + 1.35, 1.6))
    axes.axis("off")
    active, written = set(rows[:, 0].tolist()), set(rows[:, 2].tolist())
    again = set(np.flatnonzero(traced.writes[name] > 1).tolist())
    for band in range(bands):
        first, begin, top = band * local, band * share, 1 - 2 * band
        colour = COLOURS[("blue", "sky")[band % 2]]
        _marks(axes, top, local, [(colour, first + n in active) for n in range(local)])
        stop = max([end, *(e + 1 for e in written if begin <= e < begin + share)])
        _marks(
            axes,
            top - 1,
            share,
            [
                ("black" if e in again else COLOURS["green" if e < end else "red"], e in written)
                for e in range(begin, min(begin + share, stop))
            ],
        )
        paper = {"color": "white", "pad": 1.0}
        axes.text(
            0,
            top + 0.23,
            f"workgroup {band}: invocations {first} to {first + local - 1}",
            bbox=paper,
        )
        last = min(begin + share, end) - 1
        words = f"{name}: elements {begin} to {last}" if last >= begin else f"{name} has ended"
        axes.text(0, top - 1.23, words, va="top", color="#00684b", bbox=paper)
    for i, _, element in drawn.tolist():
        band, into = i // local, element // share
        outside = not 0 <= element < end
        if band >= bands or (not 0 <= into < bands and not outside):
            continue
        x, y = (i % local + 0.5) / local, 1 - 2 * band
        inside = 0 <= into < bands
        low = ((element % share + 0.5) / share, -2 * into) if inside else (1.01, y - 1)
        colour = COLOURS["red" if outside else ("blue", "sky")[band % 2]]
        axes.plot([x, low[0]], [y - 0.14, low[1] + 0.14], color=colour, lw=0.7, zorder=0)
    return figure


def _marks(axes: Axes, y: float, of: int, marks: list[tuple[str, bool]]) -> None:
    # 72 points an inch: a mark takes two thirds of the space between marks.
    fills = [colour if filled else "white" for colour, filled in marks]
    axes.scatter(
        [(n + 0.5) / of for n in range(len(marks))],
        [y] * len(marks),
        c=fills,
        s=min(64, (440 / of) ** 2),
        edgecolors=[colour for colour, _ in marks],
        marker="s",
        linewidths=0.8,
    )


def draw_owners(traced: Traced, name: str, shape: tuple[int, int]) -> Picture:
    """Draw a grid of invocations and a matrix, with the colours and numbers of the workgroups.

    Args:
        traced: the trace of a kernel.
        name: the buffer.
        shape: rows and columns of the matrix.
    """
    (wide, high), local, end = traced.size, traced.local, traced.lengths[name]
    figure = Figure((9.5, 3.9))
    left, right = figure.subplots(1, 2)
    invocations, elements = np.full((high, wide, 3), 0.88), np.full((end, 3), 1.0)
    places: dict[tuple[int, int], tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for x, y, element in traced.of(name).tolist():
        group = (x // local[0], y // local[1])
        colour = _group_colour(
            group[0] / max(wide // local[0] - 1, 1), group[1] / max(high // local[1] - 1, 1)
        )
        # Neighbours differ in lightness, too, for readers who do not tell all colours apart.
        invocations[y, x] = colour if sum(group) % 2 else 0.4 * colour + 0.6
        mine, written = places.setdefault(group, ([], []))
        mine.append((x, y))
        if 0 <= element < end:
            elements[element] = invocations[y, x]
            written.append((element % shape[1], element // shape[1]))
    times = traced.writes[name]
    elements[times > 1] = 0.1
    left.imshow(invocations)
    left.set_title(f"{wide} x {high} invocations (grey: writes nothing)", fontsize=10)
    left.set(xlabel="id.x", ylabel="id.y")
    right.imshow(elements.reshape(*shape, 3))
    right.set_title(
        f"elements of {name}, with their workgroup\nwhite, never written: "
        f"{(times == 0).sum()}; black, written again: {(times > 1).sum()}",
        fontsize=10,
    )
    right.set(xlabel="column", ylabel="row")
    if len(places) <= MOST_NUMBERS:
        for group, (mine, written) in places.items():
            _number(left, group, mine, invocations)
            _number(right, group, written, elements.reshape(*shape, 3))
    said = _said(traced, name)
    return picture(
        figure,
        alt=said,
        caption=said + " The two numbers on a block are its workgroup: along x, along y.",
    )


def _number(axes: Axes, group: tuple[int, int], cells: list[tuple[int, int]], colours: np.ndarray
            ) -> None:  # fmt: skip
    """Write a workgroup's number on its cells, at the one that is next to their middle."""
    if cells:
        middle = np.mean(cells, axis=0)
        x, y = min(cells, key=lambda cell: float(np.abs(np.array(cell) - middle).sum()))
        dark = colours[y, x] @ (0.3, 0.59, 0.11) < 0.5
        axes.text(
            x,
            y,
            f"{group[0]}, {group[1]}",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if dark else "black",
        )


def _group_colour(across: float, down: float) -> np.ndarray:
    """Mix four colours, one for each corner of the grid, so that no two workgroups look alike."""
    corners = [np.array(to_rgb(COLOURS[name])) for name in ("blue", "yellow", "pink", "green")]
    top = (1 - across) * corners[0] + across * corners[1]
    return (1 - down) * top + down * ((1 - across) * corners[2] + across * corners[3])


def draw_access_counts(traced: Traced, name: str, shape: tuple[int, int], most: int) -> Picture:
    """Draw how often each element of a matrix was read.

    Args:
        traced: the trace of a kernel.
        name: the buffer.
        shape: rows and columns of the matrix.
        most: the count of the last colour, the same for pictures to compare.
    """
    counts = traced.reads[name].reshape(shape)
    figure = Figure((min(9.5, 2 + 0.13 * shape[1]), min(4.5, 1 + 0.13 * shape[0])))
    axes = figure.subplots()
    drawn = axes.imshow(counts, cmap="cividis", vmin=0, vmax=most)
    axes.set_title(f"reads of each element of {name}", fontsize=10)
    figure.colorbar(drawn, ax=axes, ticks=MaxNLocator(integer=True))
    said = (
        f"Each small square is an element of {name}; its colour is the number of its reads, "
        f"from {counts.min()} to {counts.max()}. All {counts.size} elements together: "
        f"{counts.sum()} reads."
    )
    return picture(figure, alt=said, caption=said)
