"""Graphs whose orders differ, drawn by seed, and what natural orders of them need.

Visited by lab 09b.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vklab_labs.lab_09.live_bytes import END, as_work, live_bytes
from vklab_labs.shared.grouping import Work
from vklab_labs.shared.recorded_graphs import RecordedGraph, irregular, recorded

__all__ = ["beside", "natural_orders", "random_order", "window", "wiring"]


def window(chance: np.random.Generator, name: str, least: int, most: int) -> Work:
    """Return a part of a recorded graph with new names, at a batch of 1 to 4.

    Args:
        chance: the source of chance.
        name: the recorded graph.
        least: smallest number of nodes.
        most: one more than the largest.
    """
    graph = _at_batch(name, int(chance.integers(1, 5)))
    return as_work(graph.part(chance, int(chance.integers(least, most))).renamed(chance))


@functools.cache
def _at_batch(name: str, batch: int) -> RecordedGraph:
    return recorded(name, batch)


def wiring(chance: np.random.Generator, count: int) -> Work:
    """Return an irregular graph with results of 1 to 32 bytes."""
    reads = irregular(chance, count, reach=int(chance.integers(5, 9)))
    read = {other for each in reads for other in each}
    work = {
        f"n{n}": (int(chance.integers(1, 33)), tuple(f"n{r}" for r in each))
        for n, each in enumerate(reads)
    }
    return work | {END: (0, tuple(f"n{n}" for n in range(count) if n not in read))}


def beside(one: Work, other: Work) -> Work:
    """Return two graphs as one; their ends become one."""
    named = {
        letter + n: (size, tuple(letter + r for r in reads))
        for letter, work in (("a", one), ("b", other))
        for n, (size, reads) in work.items()
    }
    ends = (*named.pop("a" + END)[1], *named.pop("b" + END)[1])
    return named | {END: (0, ends)}


def random_order(work: Work, chance: np.random.Generator) -> list[str]:
    """Return a random topological order: of the ready nodes, one is drawn at each step."""
    readers: dict[str, list[str]] = {name: [] for name in work}
    for name, (_, reads) in work.items():
        for read in reads:
            readers[read].append(name)
    waits, order = {name: len(reads) for name, (_, reads) in work.items()}, list[str]()
    able = [name for name in work if not waits[name]]
    while able:
        order.append(able.pop(int(chance.integers(len(able)))))
        for name in readers[order[-1]]:
            waits[name] -= 1
            able += [name] * (not waits[name])
    return order


def natural_orders(work: Work, tries: int = 200) -> dict[str, int]:
    """Return the peak of each natural answer, by its name; of several tie rules the best counts.

    Args:
        work: the nodes.
        tries: number of random orders; 0 for none.
    """
    readers = {n: [m for m in work if n in work[m][1]] for n in work}
    place = {n: number for number, n in enumerate(work)}
    depth: dict[str, int] = {}
    for n in work:
        depth[n] = 1 + max((depth[read] for read in work[n][1]), default=0)

    def frees(n: str, done: Mapping[str, int]) -> int:
        return sum(work[r][0] for r in work[n][1] if all(m in done or m == n for m in readers[r]))

    def greedy(key: Callable[[str, Mapping[str, int]], Any]) -> int:
        waits, done = {n: len(reads) for n, (_, reads) in work.items()}, dict[str, int]()
        able = [n for n in work if not waits[n]]
        while able:
            name = min(able, key=lambda n: key(n, done))
            able.remove(name)
            done[name] = len(done)
            for m in readers[name]:
                waits[m] -= 1
                able += [m] * (not waits[m])
        return max(live_bytes(work, list(done)))

    def rule(key: Callable[[str, Mapping[str, int]], Any]) -> int:
        return min(
            greedy(lambda n, done: (key(n, done), place[n])),
            greedy(lambda n, done: (key(n, done), -place[n])),
        )

    def backward(tie: Callable[[str], float]) -> int:
        waits, later = {n: len(readers[n]) for n in work}, dict[str, int]()
        able = [n for n in work if not waits[n]]

        def added(n: str) -> int:  # live bytes before n, less those after it
            new = (r for r in work[n][1] if not any(m in later for m in readers[r]))
            return sum(work[r][0] for r in new) - work[n][0]

        while able:
            name = min(able, key=lambda n: (added(n), tie(n)))
            able.remove(name)
            later[name] = len(later)
            for read in work[name][1]:
                waits[read] -= 1
                able += [read] * (not waits[read])
        return max(live_bytes(work, [*later][::-1]))

    chance = random.Random(0)
    found = {
        "as given": max(live_bytes(work, list(work))),
        "by depth": rule(lambda n, done: depth[n]),
        "depth-first": rule(lambda n, done: -max((done[r] for r in work[n][1]), default=-1)),
        "smallest first": rule(lambda n, done: work[n][0]),
        "least live after": rule(lambda n, done: work[n][0] - frees(n, done)),
        "frees most": rule(lambda n, done: (-frees(n, done), work[n][0])),
        "from the end": min(backward(place.__getitem__), backward(lambda n: -place[n])),
    }
    if not tries:
        return found
    tried = (greedy(lambda n, done: chance.random()) for _ in range(tries))
    return found | {f"best of {tries} random": min(tried)}
