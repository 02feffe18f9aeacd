"""Plans that find one wrong layer by tests of neighbouring layers: their replay and their cost.

A plan is a list of tests (i, j, fails, passes). A test feeds the truth to the layers i to j, and
tells whether the wrong one is among them; `fails` and `passes` say what follows: ("test", row) or
("layer", index). Visited by lab 17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from vklab_course import words

__all__ = ["OBVIOUS", "Plan", "Split", "built", "cost_of", "draw_layers", "flaw", "path", "total"]

Plan = Sequence[tuple[int, int, tuple[str, int], tuple[str, int]]]
# From the layers that are still suspected to the ends of a test, both of them included.
Split = Callable[[Sequence[int]], tuple[int, int]]
LAYERS, WHOLE = 12, 1000


def flaw(plan: Any, layers: int) -> str:
    """Return what is wrong with the form of a plan, as a sentence; "" if nothing is."""
    if not isinstance(plan, list | tuple) or not plan:
        return f"expected a list of tests, got {words.short(plan)}"
    if len(plan) > 40 * layers:
        return f"{len(plan)} tests; the check reads up to {40 * layers}"
    for number, row in enumerate(plan):
        if not (isinstance(row, list | tuple) and len(row) == 4):
            return f"row {number}: expected (i, j, fails, passes), got {words.short(row)}"
        i, j, *ends = row
        if not (_whole(i) and _whole(j) and 0 <= i <= j < layers):
            return (
                f"row {number} tests layers {words.short(i)} to {words.short(j)}; expected "
                f"0 <= i <= j <= {layers - 1}"
            )
        for end in ends:
            if not (isinstance(end, list | tuple) and len(end) == 2 and _whole(end[1])):
                return f'row {number}: {words.short(end)} is neither ("test", row) nor ("layer", n)'
            kind, place = end
            if kind not in ("test", "layer"):
                return f"row {number}: {words.short(kind)} is neither 'test' nor 'layer'"
            if not 0 <= place < (len(plan) if kind == "test" else layers):
                return f"row {number}: there is no {kind} {place}"
    return ""


def _whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def path(plan: Plan, wrong: int) -> list[int]:
    """Return the rows that are tested if one layer is wrong, and behind them the named layer.

    Raises ValueError with a sentence if the tests go round in a circle.
    """
    rows = [0]
    while len(rows) <= len(plan):
        i, j, fails, passes = plan[rows[-1]]
        kind, place = fails if i <= wrong <= j else passes
        rows.append(int(place))
        if kind == "layer":
            return rows
    raise ValueError(f"if layer {wrong} is wrong, the tests go round in a circle")


def cost_of(row: Sequence[Any], costs: Sequence[int], setup: int) -> int:
    """Return what one test costs: the setup and all layers that it runs."""
    return int(setup + sum(costs[row[0] : row[1] + 1]))


def total(plan: Plan, chances: Sequence[int], costs: Sequence[int], setup: int) -> int:
    """Return the expected cost of a plan in thousandths.

    Raises ValueError with a sentence if some layer is not named.
    """
    spent = 0
    for wrong, chance in enumerate(chances):
        *rows, named = path(plan, wrong)
        if named != wrong:
            raise ValueError(f"if layer {wrong} is wrong, the plan names layer {named}")
        spent += chance * sum(cost_of(plan[row], costs, setup) for row in rows)
    return spent


def built(split: Split, layers: int) -> list[tuple[int, int, tuple[str, int], tuple[str, int]]]:
    """Return the plan that follows a rule: it tells the test of each group of suspects."""
    rows: list[Any] = []

    def place(group: list[int]) -> tuple[str, int]:
        if len(group) == 1:
            return "layer", group[0]
        number = len(rows)
        rows.append(None)
        i, j = split(group)
        inside = [layer for layer in group if i <= layer <= j]
        outside = [layer for layer in group if not i <= layer <= j]
        rows[number] = (i, j, place(inside), place(outside))
        return "test", number

    place([*range(layers)])
    return rows


def _bisection(chances: Sequence[int], costs: Sequence[int], setup: int) -> Split:
    return lambda group: (group[0], group[len(group) // 2 - 1])


def _likeliest(chances: Sequence[int], costs: Sequence[int], setup: int) -> Split:
    return lambda group: (max(group, key=lambda n: chances[n]),) * 2


def _by_cost(chances: Sequence[int], costs: Sequence[int], setup: int) -> Split:
    return lambda group: (max(group, key=lambda n: chances[n] / (setup + costs[n])),) * 2


def _halves(chances: Sequence[int], costs: Sequence[int], setup: int) -> Split:
    def split(group: Sequence[int]) -> tuple[int, int]:
        sums = np.cumsum([chances[n] for n in group])
        last = int(np.argmin(np.abs(2 * sums[:-1] - sums[-1])))
        return group[0], group[last]

    return split


def intervals(group: Sequence[int], layers: int) -> Iterator[tuple[int, int]]:
    """Yield the tests that divide a group of suspects."""
    for i in range(layers):
        for j in range(i, layers):
            inside = sum(i <= n <= j for n in group)
            if 0 < inside < len(group):
                yield i, j


def _information(chances: Sequence[int], costs: Sequence[int], setup: int) -> Split:
    def split(group: Sequence[int]) -> tuple[int, int]:
        whole = sum(chances[n] for n in group) or 1

        def worth(test: tuple[int, int]) -> float:
            share = sum(chances[n] for n in group if test[0] <= n <= test[1]) / whole
            bits = -sum(p * np.log2(p) for p in (share, 1 - share) if p > 0)
            return float(bits / cost_of(test, costs, setup))

        return max(intervals(group, len(chances)), key=worth)

    return split


# Rules for the next test, which look no further than this test.
OBVIOUS: dict[str, Callable[[Sequence[int], Sequence[int], int], Split]] = {
    "bisection": _bisection,
    "likeliest first": _likeliest,
    "chance by cost": _by_cost,
    "halves of chance": _halves,
    "information by cost": _information,
}


def draw_layers(random: np.random.Generator) -> tuple[list[int], list[int]]:
    """Draw chances of LAYERS layers, within a factor of three, and costs from 1 to 9."""
    while True:
        weights = random.uniform(1, 3, LAYERS)
        chances = np.floor(weights / weights.sum() * WHOLE).astype(int)
        chances[np.argsort(random.random(LAYERS))[: WHOLE - chances.sum()]] += 1
        if chances.max() <= 3 * chances.min():
            return chances.tolist(), random.integers(1, 10, LAYERS).tolist()
