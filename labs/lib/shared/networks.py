"""Pictures of whole graphs: a box for each node, in columns by depth. Visited by labs 09 to 13."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vklab.base.draw import layers, svg
from vklab.base.draw.layers import LEFT, Box
from vklab_course.picture import Picture, picture
from vklab_labs.shared.diagram import COLOURS

__all__ = ["Drawn", "draw_network"]

# A node as plain data: name, op_type, the values that it reads, the values that it writes.
Drawn = tuple[str, str, Sequence[str], Sequence[str]]
TOP, LEGEND = 6, 22
COLUMNS = 5  # as wide as a page; the reader of a plan has ten


def draw_network(
    nodes: Iterable[Drawn], *, alt: str, caption: str, colours: Mapping[str, str] | None = None,
    notes: Mapping[str, Sequence[str]] | None = None, legend: Mapping[str, str] | None = None,
    columns: Mapping[str, int] | None = None,
) -> Picture:  # fmt: skip
    """Draw nodes from left to right; more than five columns continue in a new row.

    Args:
        nodes: the nodes; values that no node writes are not drawn.
        alt: the content in words.
        caption: the line below.
        colours: for each node name one of COLOURS, default grey.
        notes: for each node name lines of text below the operator; default the name.
        legend: for each colour its meaning.
        columns: for each node name its column; default the length of the longest path to it.
    """
    listed = list(nodes)
    colours, notes, legend = colours or {}, notes or {}, legend or {}
    makers = {value: n for n, node in enumerate(listed) for value in node[3] if value}
    sources = [
        {makers[value] for value in node[2] if makers.get(value, n) != n}
        for n, node in enumerate(listed)
    ]
    depths = _depths(sources)
    boxes = {}
    for number, (name, op_type, reads, writes) in enumerate(listed):
        about = f"{name}: {', '.join(writes)} = {op_type}({', '.join(reads)})"
        colour = COLOURS[colours.get(name, "grey")]
        column = (columns or {}).get(name, depths[number])
        box = boxes[number] = Box(
            op_type, name, list(notes.get(name, [name])), about, colour, column
        )
        box.sources = sources[number]
    top = TOP + (LEGEND if legend else 0)
    parts, bottom = layers.chart(boxes, top, COLUMNS, ruled=False)
    entries = {words: COLOURS[colour] for colour, words in legend.items()}
    wide = LEFT * 2 + sum(36 + 6 * len(words) for words in entries)
    parts += layers.legend(entries, 8)
    width = max(layers.width_of(boxes, COLUMNS), wide)
    return picture(svg.svg(alt, width, bottom, parts), alt, caption)


def _depths(sources: Sequence[set[int]]) -> list[int]:
    """Return the length of the longest path to each node; a node in a cycle ends the search."""
    depths = [0] * len(sources)
    for _ in sources:  # one round suffices in topological order
        new = [max((depths[n] + 1 for n in before), default=0) for before in sources]
        if new == depths:
            break
        depths = new
    return depths
