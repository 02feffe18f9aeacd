"""Pictures of nodes on devices: splits, capability, a cut, schedules. Visited by lab 13."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from vklab.graph.graph import Graph
from vklab_course.picture import Picture
from vklab_labs.lab_13 import schedules
from vklab_labs.lab_13.placing_rules import span
from vklab_labs.lab_13.schedules import DEVICES, Schedule, Work
from vklab_labs.shared.diagram import Diagram
from vklab_labs.shared.lanes import draw_timeline
from vklab_labs.shared.networks import draw_network

__all__ = ["COLOURS", "draw_cut", "draw_questions", "draw_roads", "draw_schedule", "draw_split",
           "draw_work"]  # fmt: skip

COLOURS = ("blue", "orange", "green")


def draw_roads() -> Picture:
    """Draw two devices, each with memory of its own, and the way between them."""
    page = Diagram(640, 150)
    for n, colour in enumerate(COLOURS[:2]):
        page.box((6 + 430 * n, 10, 190, 34), f"GPU {n}", colour, bold=True)
        page.box((6 + 430 * n, 70, 190, 34), "its memory: weights, values", colour)
        page.arrow((101 + 430 * n, 44), (101 + 430 * n, 70), both=True)
    page.box((262, 70, 108, 34), "host memory", "grey")
    page.arrow((196, 87), (262, 87), "copy").arrow((370, 87), (436, 87), "copy")
    page.note(
        (320, 136),
        "A value that crosses is copied, and the reader cannot start before.",
        anchor="middle",
    )
    return page.picture(
        "Two GPUs with memory of their own; a value goes from one through host memory to the "
        "other.",
        "Each device reads its own memory only. A transfer takes time in which the reader waits.",
    )


def draw_split(
    graph: Graph, devices: Mapping[str, int] | Sequence[int], caption: str,
    names: Sequence[str] = DEVICES,
) -> Picture:  # fmt: skip
    """Draw a shaped graph with a colour for each device, and the MiB of weights of each node.

    Args:
        graph: the graph.
        devices: the device number of each node, by name or in the order of nodes.
        caption: the line below.
        names: the devices.
    """

    def mib(node: str, reads: Sequence[str]) -> list[str]:
        size = sum(graph.initializers[r].size_bytes for r in reads if r in graph.initializers)
        return [node, f"{size / 2**20:.1f} MiB"] if size >= 1 << 19 else [node]

    listed = [(n.name, n.op_type, [*n.reads], [*n.outputs]) for n in graph.nodes]
    placed = {
        n.name: devices[n.name] if isinstance(devices, Mapping) else devices[number]
        for number, n in enumerate(graph.nodes)
    }
    used = sorted({*placed.values()})
    runs = ", ".join(
        f"{len([*group])} nodes on {names[d]}" for d, group in itertools.groupby(placed.values())
    )
    return draw_network(
        listed,
        alt=f"The nodes in order: {runs}.",
        caption=caption,
        colours={name: COLOURS[d] for name, d in placed.items()},
        notes={name: mib(name, reads) for name, _, reads, _ in listed},
        legend={COLOURS[d]: names[d] for d in used},
    )


def draw_questions() -> Picture:
    """Draw the questions that decide whether a device can run a node."""
    page = Diagram(690, 118).box((8, 36, 90, 40), "node", "sky", bold=True)
    page.arrow((98, 56), (134, 56))
    for n, words in enumerate(
        ("operator with\na kernel?", "features of\nthis device?", "limits of\nthis device?")
    ):
        page.box((134 + 162 * n, 32, 122, 48), words, "yellow")
        page.arrow((256 + 162 * n, 56), (296 + 162 * n, 56), "yes")
        page.arrow((195 + 162 * n, 80), (195 + 162 * n, 104))
        page.note((203 + 162 * n, 100), "no: a reason")
    return page.box((620, 36, 62, 40), "can run", "green").picture(
        "A node is asked three questions: operator, features, limits. Each no gives a reason.",
        "Asked once for each node and each device. A refusal names what is missing.",
    )


def draw_cut() -> Picture:
    """Draw three nodes between two devices, with every price, and the cheapest cut."""
    page = Diagram(640, 236)
    page.box((10, 78, 110, 50), "device 0\n(source)", "blue", bold=True)
    page.box((520, 78, 110, 50), "device 1\n(sink)", "orange", bold=True)
    for row, (name, colour, one, other) in enumerate(
        (
            ("a", "blue", 2, 9),
            ("b", "orange", 8, 3),
            ("c", "blue", 2, 9),
        )
    ):
        y = 27 + 76 * row
        page.box((285, y - 17, 70, 34), name, colour)
        page.arrow((120, 96 + 7 * row), (285, y)).arrow((355, y), (520, 96 + 7 * row))
        middle = (y + 96 + 7 * row) / 2 - 6
        page.note((202, middle), str(other), anchor="middle", bold=name == "b")
        page.note((438, middle), str(one), anchor="middle", bold=name != "b")
        if row:
            page.arrow((320, y - 59), (320, y - 17), both=True)
            page.note((330, y - 33), "2", bold=True)
    page.note(
        (320, 226),
        "b on device 1, a and c on device 0: edges with bold prices "
        "are cut, 3 + 2 + 2 for nodes, 2 + 2 for moves: 11",
        anchor="middle",
        size=11,
    )
    return page.picture(
        "Nodes a, b and c between a source (device 0) and a sink (device 1). Edges from the source "
        "carry the time on device 1: 9, 3, 9. Edges to the sink carry the time on device 0: 2, 8, "
        "2. Moves between neighbours cost 2.",
        "Each edge has a price. A placement cuts the edges between its two sides: their sum is its "
        "time.",
    )


def draw_work(work: Work, caption: str) -> Picture:
    """Draw the nodes of a list of work, with times, weights and moves."""
    nodes = [(name, name, list(reads), [name]) for name, (_, _, _, reads) in work.items()]
    notes = {
        name: [
            "ms " + " ".join("-" if t is None else str(t) for t in times),
            f"{size} MiB, move {move}",
        ]
        for name, (times, size, move, _) in work.items()
    }
    told = "; ".join(
        f"{name} reads {', '.join(reads) or 'nothing'}, {' '.join(notes[name])}"
        for name, (_, _, _, reads) in work.items()
    )
    late: dict[str, int] = {}  # the latest column of each node: few lines cross
    for name in reversed(list(work)):
        late[name] = min((late[n] for n in late if name in work[n][3]), default=1) - 1
    columns = {name: column - min(late.values()) for name, column in late.items()}
    return draw_network(
        nodes,
        alt=told,
        caption=caption,
        notes=notes,
        columns=columns,
        colours=dict.fromkeys(work, "sky"),
    )


def draw_schedule(work: Work, caps: Sequence[int], plan: Schedule, caption: str) -> Picture:
    """Draw a schedule: a lane for each device, an arrow for each move.

    Args:
        work: the nodes.
        caps: the MiB of each device.
        plan: (name, device) of each node.
        caption: the line below; what is wrong with the schedule stands behind it.
    """
    wrong = schedules.problem(work, caps, plan)
    if wrong:
        return Diagram(640, 40).box((10, 4, 620, 30), wrong, "red").picture(wrong, caption)
    made = schedules.schedule(work, plan)
    lanes: dict[str, list[tuple[str, float, float, str]]] = {}
    titles = []
    for d, device in enumerate(DEVICES):
        used = sum(work[name][1] for name, other in plan if other == d)
        titles.append(f"{device}: {used} of {caps[d]} MiB")
        bars = ((name, *place) for name, place in made.items())
        lanes[titles[-1]] = [(n, start, end, COLOURS[d]) for n, on, start, end in bars if on == d]
    arrows = [
        (titles[made[r][0]], made[r][2], titles[made[name][0]], made[r][2] + work[r][2])
        for name in made
        for r in work[name][3]
        if made[r][0] != made[name][0]
    ]
    told = "; ".join(
        f"{name} on {DEVICES[d]} from {start} to {end}" for name, (d, start, end) in made.items()
    )
    return draw_timeline(
        lanes,
        arrows,
        alt=f"{told}. In all {span(work, plan)} ms.",
        caption=f"{caption} In all {span(work, plan)} ms.",
        step=5,
    )
