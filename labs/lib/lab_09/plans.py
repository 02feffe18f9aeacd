"""Pictures of plans: what a plan holds, which shapes stop it, its cache, live bytes by step.

Visited by lab 09b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from vklab_course.picture import Picture, picture
from vklab_labs.lab_09 import growing_plans, live_bytes
from vklab_labs.shared import networks
from vklab_labs.shared.diagram import Diagram
from vklab_labs.shared.grouping import Work

__all__ = ["draw_branches", "draw_first_part", "draw_kinds", "draw_live", "draw_modes",
           "draw_profiles", "draw_stages", "draw_tree"]  # fmt: skip


def draw_stages() -> Picture:
    """Draw the four stages from a file to a running program, and where memory begins."""
    page = Diagram(700, 128)
    for n, (words, colour) in enumerate(
        (
            ("ONNX file\nnodes, weights", "grey"),
            ("Graph\nnodes, descriptors", "blue"),
            ("Plan\ndispatches, offsets", "blue"),
            ("Program\nbuffers, commands", "orange"),
        )
    ):
        page.box((6 + 178 * n, 34, 140, 48), words, colour)
    for n, words in enumerate(("import", "plan", "prepare")):
        page.arrow((146 + 178 * n, 58), (184 + 178 * n, 58))
        page.note((165 + 178 * n, 24), words, anchor="middle")
    page.line((524, 64), (524, 112))
    page.note((516, 106), "descriptors: names, dtypes, shapes, offsets", anchor="end", bold=True)
    page.note((532, 106), "memory of a device", bold=True)
    return page.picture(
        "A file is imported as a Graph, planned as a Plan, and prepared as a Program. Only the "
        "Program has device memory.",
        "A Graph and a Plan describe tensors. Only the last step reserves memory on a device.",
    )


def draw_kinds() -> Picture:
    """Draw three nodes whose output shape depends on shapes, on a value, on data."""
    page = Diagram(710, 136)
    for n, (title, op, reads, makes, colour) in enumerate(
        (
            ("shapes decide", "MatMul", "x [3,4]\nw [4,5]", "[3,5]", "green"),
            ("a value decides", "Reshape", "x [3,4]\nto = ?", "[?,?]", "orange"),
            ("all of the data decide", "NonZero", "x [3,4]", "[2,?]", "red"),
        )
    ):
        left = 8 + 234 * n
        page.note((left, 18), title, bold=True)
        page.box((left, 34, 56, 44), reads, "grey")
        page.box((left + 76, 34, 66, 44), op, colour)
        page.box((left + 162, 34, 42, 44), makes, "grey")
        page.arrow((left + 56, 56), (left + 74, 56)).arrow((left + 142, 56), (left + 160, 56))
    page.note((8, 104), "known while planning")
    page.note((242, 104), "known if the value of to is known\nwhile planning; else it waits")
    page.note((476, 104), "the node runs in a buffer of the\nlargest size; its readers wait")
    return page.picture(
        "MatMul's shape follows from the shapes of its inputs, Reshape's from the value of its "
        "second input, NonZero's from all numbers of its input.",
        "Three kinds of shape rules. The question is what each rule reads.",
    )


def draw_first_part(name: str, planned: Sequence[str], missing: Mapping[str, str]) -> Picture:
    """Draw one of MODELS with its planned nodes.

    Args:
        name: the model.
        planned: names of the nodes that are planned.
        missing: the values that the other nodes wait for.
    """
    nodes = growing_plans.MODELS[name][1]
    waits = ", ".join(f"the {what} of {value}" for value, what in missing.items()) or "nothing"
    return networks.draw_network(
        nodes,
        alt=f"The nodes of {name}; planned: {', '.join(planned)}.",
        caption=f"Your answer for the model {name}. The plan waits for {waits}.",
        colours={node[0]: "green" if node[0] in planned else "grey" for node in nodes},
        notes={name: [f"{name} makes {', '.join(makes)}"] for name, _, _, makes in nodes},
        legend={"green": "planned", "grey": "waits"},
    )


def draw_tree() -> Picture:
    """Draw the tree of plan caches of the model "select"."""
    page = Diagram(700, 166)
    page.box((8, 62, 96, 44), "root cache\nkey of x", "blue")
    for n, (key, sizes) in enumerate(
        (("x float32 [3,4]", ("[2,5]", "[2,9]")), ("x float32 [1,4]", ("[2,2]",)))
    ):
        y = 34 + 84 * n
        page.box((196, y - 12, 128, 44), "entry: product,\nnonzero", "green")
        page.arrow((104, 84), (194, y + 10))
        page.note((100, 36 + 108 * n), key, size=11)
        page.box((352, y - 12, 96, 44), "its own cache\nkey of where", "blue")
        page.arrow((324, y + 10), (350, y + 10), "")
        for m, size in enumerate(sizes):
            low = y - 24 + 42 * m if len(sizes) > 1 else y - 6
            page.box((560, low, 132, 32), "entry: turn, pick, ...", "green")
            page.arrow((448, y + 10), (558, low + 16))
            page.note((470, low + 12 if not m else low + 30), f"where {size}", size=11)
    return page.picture(
        "A root cache has two entries, one for each shape of x. Each entry has a cache of its own "
        "for the rest, with one entry for each size that NonZero returned.",
        "The plans of the model select. The later keys also hold dtype and shape of a, not shown.",
    )


def draw_modes() -> Picture:
    """Draw the work of three calls, eager and ahead of time, as rows of steps."""
    page = Diagram(700, 158)
    page.note((6, 40), "eager", bold=True)
    page.note((6, 110), "ahead", bold=True).note((6, 127), "of time", bold=True)
    for run in range(2):
        for n, words in enumerate(("Conv", "Relu", "Add")):
            left = 104 + 296 * run + 96 * n
            page.box((left, 8, 88, 54), f"shape,\nmemory,\n{words}", "orange")
    page.box((104, 96, 184, 36), "all shapes, all memory,\nfusion, commands", "blue")
    for run in range(2):
        page.box((304 + 196 * run, 96, 180, 36), "Conv + Relu + Add", "green")
    page.note((104, 78), "first run", size=11).note((400, 78), "second run", size=11)
    page.note((104, 148), "once", size=11).note((304, 148), "first run", size=11)
    page.note((500, 148), "second run", size=11)
    return page.picture(
        "Eager: each run does shape, memory and kernel for each operator. Ahead of time: one step "
        "decides everything, and each run only starts one fused kernel.",
        "The same three operators, run twice. No scale: the boxes are steps, not times.",
    )


def draw_branches() -> Picture:
    """Draw the small graph BRANCHES."""
    nodes = [(n, work) for n, work in live_bytes.BRANCHES.items() if n != live_bytes.END]
    return networks.draw_network(
        [(n, f"{n}: {size}", reads, [n]) for n, (size, reads) in nodes],
        alt="x is read by a and d; a, b, c and d, e, f are branches; g reads c and f.",
        caption="A graph with two branches. Each box: the node and the bytes of its result. The "
        "node end, not drawn, reads g.",
        notes={n: [] for n, _ in nodes},
    )


def draw_live(work: Work, orders: Mapping[str, Sequence[str]]) -> Picture:
    """Draw orders as rows of steps with their live bytes; the peak of each row is red.

    Args:
        work: a small graph.
        orders: orders of its nodes, by their titles.
    """
    page = Diagram(700, 52 * len(orders) + 8)
    for row, (words, order) in enumerate(orders.items()):
        y, sums = 6 + 52 * row, live_bytes.live_bytes(work, order)
        page.note((6, y + 26), words, bold=True)
        for step, (name, live) in enumerate(zip(order, sums, strict=True)):
            colour = "red" if live == max(sums) else "green"
            page.box((112 + 65 * step, y, 58, 42), f"{name}\n{live}", colour)
    rows = (f"{words}: {', '.join(order)}" for words, order in orders.items())
    return page.picture(
        f"Orders of one graph with live bytes under each node. {'; '.join(rows)}.",
        "Two orders of one graph. Below each node: bytes alive while it runs. Orange: the peak.",
    )


def draw_profiles(
    profiles: Mapping[str, Sequence[int]], bound: int, caption: str, unit: str = "bytes"
) -> Picture:
    """Draw live bytes by step, one line for each order, and the bound as a dashed line.

    Args:
        profiles: for each order the bytes alive at each step.
        bound: bytes that no order can go below.
        caption: the line below.
        unit: "bytes" or "KiB".
    """
    scale = 1024 if unit == "KiB" else 1
    figure = Figure(figsize=(7.4, 3.0))
    axes = figure.subplots()
    for (words, sizes), colour in zip(profiles.items(), ("#d55e00", "#0072b2"), strict=False):
        heights = [size / scale for size in sizes]
        axes.step(range(len(heights)), heights, where="mid", color=colour, label=words)
    axes.axhline(bound / scale, color="#444", linestyle="--", linewidth=1, label="lower bound")
    axes.set_xlabel("step of the order")
    axes.set_ylabel(f"live {unit}")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, 1.0))
    peaks = ", ".join(f"{words}: {max(sizes) / scale:.4g}" for words, sizes in profiles.items())
    alt = f"Live {unit} by step. Peaks: {peaks}; lower bound {bound / scale:.4g}."
    return picture(figure, alt, caption)
