"""Pictures of passes: graphs before and after, groups, counts as bars. Visited by lab 10."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from vklab_course.picture import Picture
from vklab_labs.lab_10 import fusing
from vklab_labs.lab_10.rewriting import PlainGraph
from vklab_labs.shared.diagram import Diagram
from vklab_labs.shared.networks import draw_network

__all__ = ["draw_bars", "draw_circle", "draw_fused", "draw_graph", "draw_passes", "draw_rounds"]

GROUPS = ("blue", "orange", "green", "pink", "sky", "yellow", "red")
WIDTH, LEFT = 740, 220


def draw_graph(graph: PlainGraph, caption: str, after: PlainGraph | None = None) -> Picture:
    """Draw a graph of plain data; orange: what `after`, a rewritten graph, no longer has.

    Args:
        graph: the graph.
        caption: the line below.
        after: the same graph after a rule.
    """
    kept = None if after is None else {node[0] for node in after["nodes"]}
    gone = {node[0] for node in graph["nodes"] if kept is not None and node[0] not in kept}
    colours = {
        made: "orange" if made in gone else "green" if made in graph["outputs"] else "blue"
        for made, *_ in graph["nodes"]
    }
    notes = {
        made: [f"{made} = {', '.join(reads)}", *([f"perm {tuple(perm)}"] if perm else [])]
        for made, _, reads, perm in graph["nodes"]
    }
    legend = {"blue": "node", "green": "makes an output"} | ({"orange": "removed"} if gone else {})
    lines = "; ".join(f"{made} = {op}({', '.join(reads)})" for made, op, reads, _ in graph["nodes"])
    return draw_network(
        [(made, op, reads, (made,)) for made, op, reads, _ in graph["nodes"]],
        colours=colours,
        notes=notes,
        legend=legend,
        alt=f"a graph: {lines}",
        caption=caption,
    )


def draw_passes() -> Picture:
    """Draw passes as functions from graph to graph, with a verifier between them."""
    page = Diagram(WIDTH, 128)
    for number, words in enumerate(("fold\nconstants", "drop\nno-ops", "drop\ndead nodes")):
        x = 70 + 230 * number
        page.box((x, 20, 110, 44), words, "blue", bold=True)
        page.arrow((x - 66 if number else 10, 42), (x - 2, 42), "" if number else "graph")
        if number < 2:
            page.arrow((x + 110, 42), (x + 130, 42))
            page.box((x + 132, 24, 30, 36), "?", "green", bold=True)
    page.arrow((640, 42), (706, 42), "graph")
    page.note((217, 84), "verifier", anchor="middle").note((447, 84), "verifier", anchor="middle")
    page.line((690, 50), (690, 108)).line((690, 108), (36, 108)).arrow((36, 108), (36, 50))
    page.note((360, 122), "again, until a round changes nothing", anchor="middle")
    return page.picture(
        "three passes in a row, each from a graph to a graph, with a verifier "
        "between two of them; an arrow leads from the end back to the start",
        "Passes are functions from a graph to a graph.",
    )


def draw_rounds() -> Picture:
    """Draw a measure that falls with each step, and a pair of rules that undo each other."""
    page = Diagram(WIDTH, 150)
    for step, (words, high) in enumerate((("7 nodes", 98), ("5", 70), ("4", 56), ("3", 42))):
        page.box((20 + 70 * step, 118 - high, 56, high), words, "blue")
    page.note((20, 140), "each step lowers a whole number: it ends", size=12)
    page.box((400, 50, 110, 44), "x + x", "orange").box((590, 50, 110, 44), "2 * x", "orange")
    page.arrow((512, 60), (586, 60), "rule 1").arrow((588, 84), (514, 84))
    page.note((550, 106), "rule 2", anchor="middle")
    page.note((400, 140), "two rules that undo each other: it never ends", size=12)
    return page.picture(
        "left: bars of 7, 5, 4 and 3 nodes; right: rule 1 turns x + x into 2 * x, "
        "and rule 2 turns it back",
        "When does rewriting end?",
    )


def draw_circle() -> Picture:
    """Draw two groups that are fine one by one, and wait for each other."""
    page = Diagram(WIDTH, 170)
    page.box((60, 10, 230, 56), "", "blue", shade=0.12).note((70, 24), "group 0", size=11)
    page.box((60, 100, 230, 56), "", "orange", shade=0.12).note((70, 152), "group 1", size=11)
    for x, y, words, colour in (
        (80, 28, "a", "blue"),
        (210, 28, "d", "blue"),
        (80, 106, "b", "orange"),
        (210, 106, "c", "orange"),
    ):
        page.box((x, y, 60, 32), words, colour, bold=True)
    page.arrow((110, 60), (110, 104)).arrow((240, 104), (240, 62))
    page.note((330, 40), "b reads a: group 1 needs group 0 first.")
    page.note((330, 62), "d reads c: group 0 needs group 1 first.")
    page.note(
        (330, 92),
        "No group can run first, although neither of them\nhas a path that leaves "
        "it and comes back.",
    )
    return page.picture(
        "group 0 holds a and d, group 1 holds b and c; b reads a, and d reads c",
        "Two groups that wait for each other in a circle.",
    )


def draw_fused(
    work: fusing.Work, sizes: Mapping[str, int], outputs: Collection[str], most: int,
    groups: Sequence[Sequence[str]], caption: str,
) -> Picture:  # fmt: skip
    """Draw nodes in the colours of their groups, with the number of bytes that the groups move.

    Args:
        work: the nodes.
        sizes: bytes of each value.
        outputs: the outputs of the graph.
        most: most buffers of a group.
        groups: the names of each group.
        caption: the line below; what is wrong with the groups is added.
    """
    place = {name: number for number, group in enumerate(groups) for name in group}
    colours = {name: GROUPS[number % len(GROUPS)] for name, number in place.items()}
    notes = {
        name: [
            f"{name}: {sizes[name]} byte{'s' * (sizes[name] != 1)}",
            f"reads {', '.join(reads)}",
            f"group {place.get(name, '?')}",
        ]
        for name, (_, reads) in work.items()
    }
    read = dict.fromkeys(name for _, reads in work.values() for name in reads)
    given = ", ".join(f"{name} {sizes[name]} bytes" for name in read if name not in work)
    broken = fusing.broken_rule(work, outputs, most, groups)
    total = fusing.moved(work, sizes, outputs, groups)
    cost = f"{len(groups)} kernel{'s move' if len(groups) > 1 else ' moves'} {total} bytes."
    listed = "; ".join(" ".join(group) for group in groups)
    return draw_network(
        [(name, op, reads, (name,)) for name, (op, reads) in work.items()],
        colours=colours,
        notes=notes,
        alt=f"nodes and their groups: {listed}",
        caption=f"{caption} Inputs: {given}. {f'Not allowed: {broken}.' if broken else cost}",
    )


def draw_bars(rows: Mapping[str, Mapping[str, float]], unit: str, caption: str) -> Picture:
    """Draw numbers as bars: a block for each row, a bar for each of its names.

    Args:
        rows: for each row numbers by name.
        unit: what the numbers count.
        caption: the line below.
    """
    count = sum(map(len, rows.values()))
    page, y = Diagram(WIDTH, 26 * count + 14 * len(rows) + 8), 8.0
    for row, numbers in rows.items():
        top = max([1.0, *numbers.values()])
        page.note((6, y + 15), row, bold=True)
        for number, (name, value) in enumerate(numbers.items()):
            page.note((LEFT - 8, y + 15), name, anchor="end")
            page.box((LEFT, y, max(2.0, 400 * value / top), 20), "", GROUPS[number % 7], shade=0.5)
            page.note((LEFT + 400 * value / top + 12, y + 15), f"{value:,g} {unit}")
            y += 26
        y += 14
    listed = "; ".join(
        f"{row}: " + ", ".join(f"{name} {value:g}" for name, value in each.items())
        for row, each in rows.items()
    )
    return page.picture(f"{unit} as bars. {listed}", caption)
