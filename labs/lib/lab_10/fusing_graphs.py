"""Graphs drawn for the exercise on fusion: nets, and parts of BERT. Visited by lab 10."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np

from vklab_labs.lab_10 import fusing
from vklab_labs.shared.recorded_graphs import RecordedGraph, recorded

__all__ = ["Drawn", "bert_work", "draw_work", "net_work"]

Drawn = tuple[fusing.Work, dict[str, int], tuple[str, ...], int]


def net_work(random: np.random.Generator, rows: int, columns: int) -> Drawn:
    """Draw a net: each node reads the one above and the one to the left; every fifth is a core.

    Few sets of nodes can be done, and many orders lead through them. Values have 20 to 80 bytes.

    Args:
        random: the source of chance.
        rows: nodes above each other.
        columns: nodes beside each other.
    """
    count = rows * columns
    cores = set(random.choice(count, count // 5, replace=False).tolist())
    work: dict[str, tuple[str, tuple[str, ...]]] = {}
    for n in range(count):
        reads = (f"n{n - columns}",) * (n >= columns) + (f"n{n - 1}",) * (n % columns > 0)
        if not reads or len(reads) == 1 and random.random() < 0.2:
            reads += (f"x{int(random.integers(3))}",)
        ops = ("Softmax", "MatMul") if n in cores else ("Relu", "Add")
        work[f"n{n}"] = ops[len(reads) > 1], reads
    read = dict.fromkeys(name for _, reads in work.values() for name in reads)
    sizes = {name: int(random.integers(20, 81)) for name in {**work, **read}}
    return work, sizes, tuple(name for name in work if name not in read), 5


def bert_work(random: np.random.Generator, count: int) -> Drawn:
    """Return a window of the recorded BERT with other names, another order and drawn sizes."""
    first = int(random.integers(20, 380 - count))
    part = _bert().window(first, first + count).renamed(random).shuffled(random)
    work, sizes, outputs = fusing.of_recorded(part)
    return work, {name: int(random.integers(20, 81)) for name in sizes}, outputs, 5


def draw_work(
    least_bytes: Callable[[fusing.Masks, float], float], draw: Callable[[], Drawn], share: float,
    moves: bool = False,
) -> tuple[Drawn, dict[str, float]]:  # fmt: skip
    """Draw until no natural answer earns more than a share; return the facts of the graph, too.

    Args:
        least_bytes: returns the fewest bytes of a graph, at most a known number.
        draw: draws a graph.
        share: the most that a natural answer may earn.
        moves: whether answers that move single nodes are among the natural ones.
    """
    while True:
        drawn = draw()
        masks = fusing.Masks(*drawn)
        answers = fusing.natural(masks, 2, moves)
        quick = dict(itertools.islice(answers, 6))  # runs and merges, without chance
        obvious = min(quick["runs from the top"], quick["merge the best pair"])
        if min(quick.values()) < obvious:
            continue
        least = least_bytes(masks, obvious)
        near = obvious - share * (obvious - least)
        if obvious > 1.02 * least and all(found >= near for _, found in answers):
            return drawn, {"natural": obvious, "least": least}


@functools.cache
def _bert() -> RecordedGraph:
    return recorded("bert_base")
