"""A table of latencies that is computed for a clock that falls, in blocks and in turns.

Visited by lab 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["WORK", "blocks", "draw_clock", "means", "turns"]

WORK = {"A": 1.00, "B": 1.05}  # milliseconds of a run at the full clock
RUNS = 200


def clock(run: int, runs: int) -> float:
    """Return the clock during a run, as a share of the full clock: it falls by 20 %."""
    return 1.0 - 0.2 * run / (runs - 1)


def blocks(order: Sequence[str], runs: int = RUNS) -> list[str]:
    """Return which provider runs when: all runs of the first one, then all of the next."""
    return [name for name in order for _ in range(runs // len(order))]


def turns(order: Sequence[str], runs: int = RUNS) -> list[str]:
    """Return which provider runs when, in turns; every second round goes backwards."""
    there_and_back = [*order, *reversed(order)]
    return [there_and_back[run % len(there_and_back)] for run in range(runs)]


def means(schedule: Sequence[str], work: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the mean milliseconds of each provider on the clock that falls.

    Args:
        schedule: which provider runs when.
        work: milliseconds of a run of each at the full clock; default: WORK.
    """
    took: dict[str, list[float]] = {}
    for run, name in enumerate(schedule):
        took.setdefault(name, []).append((work or WORK)[name] / clock(run, len(schedule)))
    return {name: round(sum(each) / len(each), 3) for name, each in sorted(took.items())}


def draw_clock() -> Picture:
    """Draw which provider runs at which clock, in blocks and in turns."""
    page = Diagram(700, 150)
    for row, (words, schedule) in enumerate(
        (
            ("A first", blocks("AB", 20)),
            ("B first", blocks("BA", 20)),
            ("in turns", turns("AB", 20)),
        )
    ):
        page.note((6, 34 + 38 * row), words)
        for run, name in enumerate(schedule):
            high = 28 * clock(run, 20)
            place = (80 + 30 * run, 44 - high + 38 * row, 26, high)
            page.box(place, name, "blue" if name == "A" else "orange")
    page.note((80, 145), "time to the right; height: the clock, from 100 % to 80 %")
    return page.picture(
        "Three rows of 20 runs on a clock that falls. A first: A has the ten high ones. B first: "
        "B has them. In turns: A B B A and so on.",
        "Who meets the high clock? In blocks the first one, in turns both.",
    )
