"""Pictures of parity: the ladder of floats, errors of layers, a map of blame, the tree of a plan.

Visited by lab 17.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vklab_course.picture import Picture
from vklab_labs.lab_17 import plans
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_blame", "draw_chain", "draw_ladder", "draw_local", "draw_tree"]

Layers = Sequence[Mapping[str, Any]]


def draw_ladder() -> Picture:
    """Draw float32 around zero and around 1 as rungs with whole numbers."""
    page = Diagram(700, 150)
    page.note((6, 14), "around zero", bold=True).note((380, 14), "around 1", bold=True)
    rungs = (("-2 tiny", "-2"), ("-tiny", "-1"), ("-0 and 0", "0"), ("tiny", "1"), ("2 tiny", "2"))
    for number, (value, steps) in enumerate(rungs):
        x = 6 + 68 * number
        page.box((x, 26, 62, 30), value, "blue").box((x, 72, 62, 26), steps, "grey")
    for number, value in enumerate(("1 - 2e", "1 - e", "1", "1 + 2e", "1 + 4e")):
        left = 380 + 63 * number
        steps = f"n{number - 2:+d}" if number != 2 else "n"
        page.box((left, 26, 57, 30), value, "orange").box((left, 72, 57, 26), steps, "grey")
    page.note((6, 120), "tiny = 2^-149: the same step up to 2^-125")
    page.note((380, 120), "e = 2^-24, n = 127 * 2^23: below 1 a step\nis e, above it 2e")
    return page.picture(
        "Two rows of boxes. Around zero: minus two tiny, minus tiny, both zeros, tiny, two tiny "
        "have the numbers -2 to 2. Around one: 1 - 2e, 1 - e, 1, 1 + 2e, 1 + 4e have the numbers "
        "n - 2 to n + 2, with e = 2^-24.",
        "float32 as a ladder of whole numbers. A ULP is one rung, however long it is.",
    )


def draw_local() -> Picture:
    """Draw the error of a layer alone, and of all layers before it."""
    page = Diagram(700, 176)
    for row, (words, fed) in enumerate((("cumulative", False), ("local", True))):
        y = 34 + 84 * row
        page.note((6, y + 22), words, bold=True)
        for n, name in enumerate(("norm", "product", "softmax")):
            x = 170 + 180 * n
            page.box((x, y, 90, 36), name, "orange" if not n else "blue")
            if fed:
                page.box((x - 66, y + 4, 50, 28), "truth", "green").arrow(
                    (x - 16, y + 18), (x, y + 18)
                )
                page.arrow((x + 45, y + 36), (x + 45, y + 58))
            elif n:
                page.arrow((x - 90, y + 18), (x, y + 18), "wrong")
    page.note((170, 20), "wrong by itself").note((350, 20), "right, but fed wrong values")
    page.note((190, 172), "wrong").note((372, 172), "right").note((552, 172), "right")
    return page.picture(
        "Above, three layers in a row: the first is wrong, so the values of all three are wrong. "
        "Below, each layer is fed the truth: only the first returns wrong values.",
        "A cumulative error is that of all layers so far. A local error is that of one layer.",
    )


def draw_chain() -> Picture:
    """Draw a graph with branches, of which one is wrong, in its order of execution."""
    page = Diagram(700, 150)
    places = {"norm": (6, 55), "q": (126, 10), "k": (126, 55), "v": (126, 100), "scores": (270, 32),
              "softmax": (400, 32), "mix": (530, 55)}  # fmt: skip
    wrong = {"q", "scores", "softmax", "mix"}
    for number, (name, (x, y)) in enumerate(places.items(), 1):
        text = f"{number} {name}" + (" ✕" if name in wrong else "")
        page.box((x, y, 100, 34), text, "orange" if name in wrong else "blue", bold=name == "q")
    for a, b in (("norm", "q"), ("norm", "k"), ("norm", "v"), ("q", "scores"), ("k", "scores"),
                 ("scores", "softmax"), ("softmax", "mix"), ("v", "mix")):  # fmt: skip
        (x, y), (right, low) = places[a], places[b]
        page.arrow((x + 100, y + 17), (right, low + 17))
    return page.picture(
        "Seven layers in their order: norm, q, k, v, scores, softmax, mix. q is wrong, and with it "
        "scores, softmax and mix. k and v, which come after q in the order, are right.",
        "A graph is no chain: layers 3 and 4 are right, although layer 2 is wrong.",
    )


def _text(share: float | None) -> str:
    if share is None:
        return "-"
    if math.isinf(share):
        return "✕ lost"
    return f"{share:.0%}" if share <= 1 else f"✕ {share:.2g} x"


def draw_blame(
    columns: Mapping[str, Layers], blamed: Mapping[str, str | None], caption: str
) -> Picture:
    """Draw local and cumulative shares by layer and backend; the blamed layer has a frame.

    Args:
        columns: layers by the name of a backend.
        blamed: by the same names, what the student's function returned.
        caption: the line below.
    """
    names = list(dict.fromkeys(row["name"] for rows in columns.values() for row in rows))
    wide = min(130, 600 // max(len(columns), 1))
    page = Diagram(110 + wide * len(columns), 40 + 24 * len(names) + 26)
    for n, name in enumerate(names):
        page.note((100, 57 + 24 * n), name, anchor="end")
    for c, (backend, rows) in enumerate(columns.items()):
        x = 110 + wide * c
        page.note((x, 14), backend, bold=True, size=11).note((x, 32), "local, cumulative", size=10)
        for row in rows:
            y = 40 + 24 * names.index(row["name"])
            for side, key in enumerate(("local", "cumulative")):
                share = row[key]
                failed = share is not None and share > 1
                shade = 0.08 if share is None else min(0.6, 0.12 + 0.3 * min(share, 1))
                place = (x + side * (wide / 2 - 2), y, wide / 2 - 4, 20)
                page.box(place, "", "orange" if failed else "blue", shade=shade)
                page.note((place[0] + place[2] / 2, y + 14), _text(share), anchor="middle", size=9)
            if blamed.get(backend) == row["name"]:
                page.box((x - 2, y - 2, wide - 4, 24), "", "red", shade=0)
    y = 40 + 24 * len(names) + 14
    page.note(
        (6, y), "Share of the tolerance; ✕: too large. A red frame: the layer to blame.", size=11
    )
    told = "; ".join(f"{name}: {blamed.get(name) or 'no layer'} is blamed" for name in columns)
    return page.picture(
        f"Shares of {len(names)} layers on {len(columns)} backends. {told}.", caption
    )


def draw_tree(
    plan: plans.Plan, chances: Sequence[int], costs: Sequence[int], setup: int, caption: str
) -> Picture:
    """Draw the tests of a plan as a tree.

    Args:
        plan: its rows.
        chances: of the layers, in thousandths.
        costs: of the layers.
        setup: cost of any test.
        caption: the line below.
    """
    layers = range(len(chances))
    paths = {wrong: plans.path(plan, wrong) for wrong in layers}
    order = sorted(layers, key=lambda wrong: _turns(plan, paths[wrong], wrong))
    spots = {wrong: 30 + 56 * n for n, wrong in enumerate(order)}
    depth = max(len(rows) for rows in paths.values())
    page = Diagram(60 + 56 * len(chances), 46 * depth + 30)
    level, middle = dict[int, int](), dict[int, float]()
    for number in range(len(plan)):
        below = [spots[wrong] for wrong in layers if number in paths[wrong][:-1]]
        if below:
            middle[number] = sum(below) / len(below)
            level[number] = next(
                rows.index(number) for rows in paths.values() if number in rows[:-1]
            )
    for number, x in middle.items():
        y = 8 + 46 * level[number]
        for kind, place in plan[number][2:]:
            if kind == "test" and place in middle:
                page.line((x, y + 24), (middle[place], y + 46))
            elif kind == "layer":
                page.line((x, y + 24), (spots[place], y + 46))
                page.box((spots[place] - 22, y + 46, 44, 34), f"{place}\n{chances[place]}", "green")
        i, j, *_ = plan[number]
        price = plans.cost_of(plan[number], costs, setup)
        page.box((x - 27, y, 54, 26), f"{i}-{j}: {price}", "blue", shade=0.12)
    mean = plans.total(plan, chances, costs, setup) / plans.WHOLE
    return page.picture(
        f"A tree of {len(middle)} tests; the deepest layer is found after {depth - 1} of them. "
        f"The expected cost is {mean:g}.",
        caption,
    )


def _turns(plan: plans.Plan, rows: Sequence[int], wrong: int) -> list[bool]:
    """Return for each test on the way to a layer whether it passes: fails stand on the left."""
    return [not plan[row][0] <= wrong <= plan[row][1] for row in rows[:-1]]
