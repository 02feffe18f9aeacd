"""Orders of dependent dispatches, counted by the pipelines that they bind. Visited by lab 05."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab_course import words

__all__ = ["EXAMPLE", "Dispatches", "Masks", "binds_of", "broken", "draw_dispatches"]

# name -> (pipeline, names of the dispatches that must come earlier)
Dispatches = Mapping[str, tuple[str, Sequence[str]]]

PIPELINES = ("conv", "relu", "pool", "matmul", "add", "softmax")
EXAMPLE: Dispatches = {
    "d0": ("conv", ()), "d1": ("relu", ()), "d2": ("matmul", ("d0",)), "d3": ("pool", ("d1",)),
    "d4": ("conv", ("d0", "d3")), "d5": ("matmul", ("d4",)), "d6": ("relu", ("d3",)),
    "d7": ("relu", ("d2",)),
}  # fmt: skip


def draw_dispatches(random: np.random.Generator, count: int, pipelines: int) -> Dispatches:
    """Return random dispatches in a valid order, each with up to two of the nine before it.

    Args:
        random: the source of chance.
        count: number of dispatches.
        pipelines: number of pipelines, at most six.
    """
    drawn: dict[str, tuple[str, tuple[str, ...]]] = {}
    for number in range(count):
        near = [f"d{n}" for n in range(max(0, number - 9), number)]
        some = int(random.choice([1, 2, 2])) if number > 2 else 0
        earlier = tuple(random.choice(near, some, replace=False).tolist()) if some else ()
        drawn[f"d{number}"] = PIPELINES[int(random.integers(pipelines))], earlier
    return drawn


class Masks:
    """Dispatches as bits of one number: what is done, and what a bind of a pipeline can do next.

    Args:
        dispatches: the dispatches by name.
        backwards: turn every dependency around.
    """

    def __init__(self, dispatches: Dispatches, backwards: bool = False) -> None:
        bit = {name: 1 << number for number, name in enumerate(dispatches)}
        self.before = dict.fromkeys(bit.values(), 0)
        self.of: dict[str, list[int]] = {}
        for name, (pipeline, earlier) in dispatches.items():
            self.of.setdefault(pipeline, []).append(bit[name])
            for other in earlier:
                first, second = (name, other) if backwards else (other, name)
                self.before[bit[second]] |= bit[first]
        self.full = (1 << len(dispatches)) - 1

    def runs(self, done: int) -> dict[str, int]:
        """Return what is done after all that one bind can do, for each pipeline that can."""
        after = {}
        for pipeline, bits in self.of.items():
            now, last = done, -1
            while now != last:
                last = now
                now |= sum(b for b in bits if not now & b and not self.before[b] & ~now)
            if now != done:
                after[pipeline] = now
        return after

    def binds(self, rule: Callable[[int, int, str], Any]) -> int:
        """Return the binds of a rule, which rates (done before, done after, pipeline)."""
        done, count = 0, 0
        while done != self.full:
            rated = [(rule(done, after, p), after) for p, after in self.runs(done).items()]
            done, count = max(rated, key=lambda each: each[0])[1], count + 1
        return count


def binds_of(dispatches: Dispatches, order: Sequence[str]) -> int:
    """Return the binds of an order: one for each dispatch with another pipeline than before."""
    pipelines = [dispatches[name][0] for name in order]
    return sum(a != b for a, b in zip(["", *pipelines], pipelines, strict=False))


def broken(dispatches: Dispatches, order: Sequence[str]) -> str:
    """Return why an order is not valid, or the empty text.

    Args:
        dispatches: the dispatches by name.
        order: names of dispatches.
    """
    if sorted(order) != sorted(dispatches):
        return f"expected every dispatch once, {words.short(sorted(dispatches))}, got " + (
            words.short(sorted(order))
        )
    place = {name: number for number, name in enumerate(order)}
    for name, (_, earlier) in dispatches.items():
        if late := [other for other in earlier if place[other] > place[name]]:
            return f"{name} reads what {', '.join(late)} writes, and comes before"
    return ""
