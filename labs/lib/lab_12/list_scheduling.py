"""Natural answers to a scheduling question: rules that place one task after another.

Tasks as in `makespan`, for two devices. Visited by lab 12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vklab_labs.lab_12.makespan import Placed, Tasks, earliest, ready, tails, timetable

__all__ = ["by_critical_path", "greedy", "looking_ahead", "naturals", "one_device"]


def _ends_first(start: int, end: int, device: int, count: int) -> tuple[int, int]:
    return end, device


def greedy(
    tasks: Tasks, key: Callable[[str], float], pick: Callable[[int, int, int, int], Any]
) -> list[list[str]]:
    """Return the lists of the devices by list scheduling.

    Args:
        tasks: the tasks.
        key: the ready task with the smallest key comes next.
        pick: a value from (start, end, device, number of placed tasks); the device with the
            smallest value gets the task.
    """
    table: dict[str, tuple[int, int, int]] = {}
    lists: list[list[str]] = [[], []]
    while len(table) < len(tasks):
        name = min(ready(tasks, table), key=key)
        choices = []
        for device, time in enumerate(tasks[name][0]):
            if time is not None:
                start = earliest(tasks, table, name, device)
                choices.append((device, start, start + time))
        count = len(table)
        table[name] = min(choices, key=lambda c: pick(c[1], c[2], c[0], count))
        lists[table[name][0]].append(name)
    return lists


def by_critical_path(tasks: Tasks) -> list[list[str]]:
    """Return the lists of list scheduling: the longest chain first, where it ends first."""
    tail = tails(tasks)
    return greedy(tasks, lambda name: -tail[name], _ends_first)


def looking_ahead(tasks: Tasks, every: bool = True) -> list[list[str]]:
    """Return the lists of a rule that tries each next step, and ends each by list scheduling.

    The step whose continuation ends first is taken.

    Args:
        tasks: the tasks.
        every: try every ready task, not only the one with the longest chain.
    """
    tail = tails(tasks)
    table: dict[str, tuple[int, int, int]] = {}

    def steps(now: Mapping[str, Placed], names: list[str]) -> list[tuple[str, Placed]]:
        starts = [
            (name, device, earliest(tasks, now, name, device), time)
            for name in names
            for device, time in enumerate(tasks[name][0])
            if time is not None
        ]
        return [(name, (device, start, start + time)) for name, device, start, time in starts]

    def end(now: dict[str, Placed]) -> int:
        while len(now) < len(tasks):
            name = max(ready(tasks, now), key=tail.__getitem__)
            now.update([min(steps(now, [name]), key=lambda step: (step[1][2], step[1][0]))])
        return max(last for _, _, last in now.values())

    while len(table) < len(tasks):
        able = ready(tasks, table)
        names = able if every else [max(able, key=tail.__getitem__)]
        table.update([min(steps(table, names), key=lambda step: end({**table, step[0]: step[1]}))])
    return [[name for name, placed in table.items() if placed[0] == device] for device in (0, 1)]


def one_device(tasks: Tasks) -> list[list[str]]:
    """Return the better of two schedules: all on one device, but for what it cannot run."""
    found = []
    for device in (0, 1):
        lists: list[list[str]] = [[], []]
        for name, (times, _, _) in tasks.items():
            lists[device if times[device] is not None else 1 - device].append(name)
        found.append(lists)
    return min(found, key=lambda lists: _length(tasks, lists))


def naturals(tasks: Tasks, random: np.random.Generator | None = None) -> dict[str, int]:
    """Return the makespan of each natural answer, by its name.

    Args:
        tasks: the tasks.
        random: the source of 60 random orders; None for none.
    """
    tail, position = tails(tasks), {name: n for n, name in enumerate(tasks)}
    least = {n: min(t for t in times if t is not None) for n, (times, _, _) in tasks.items()}
    reads = Counter(read for _, each, _ in tasks.values() for read in each)
    ranks = _ranks(tasks)
    keys: dict[str, Callable[[str], float]] = {
        "first in first out": lambda n: position[n],
        "longest task first": lambda n: -least[n],
        "shortest task first": lambda n: least[n],
        "most dependents first": lambda n: -reads[n],
        "critical path first": lambda n: -tail[n],
        "HEFT without gaps": lambda n: -ranks[n],
    }
    found = {title: greedy(tasks, key, _ends_first) for title, key in keys.items()}
    found["critical path, earliest start"] = greedy(
        tasks, keys["critical path first"], lambda start, end, device, count: (start, end)
    )
    found["round robin"] = greedy(
        tasks, keys["first in first out"], lambda start, end, device, count: (device - count) % 2
    )
    found["one device"] = one_device(tasks)
    lengths = {title: _length(tasks, lists) for title, lists in found.items()}
    if random:
        draws = [dict(zip(tasks, random.random(len(tasks)), strict=True)) for _ in range(60)]
        lengths["best of 60 random orders"] = min(
            _length(tasks, greedy(tasks, draw.__getitem__, _ends_first)) for draw in draws
        )
    return lengths


def _ranks(tasks: Tasks) -> dict[str, float]:
    """Return the longest chain from each task in mean times, half of the transfers included.

    Source: Topcuoglu, Hariri and Wu 2002, the upward rank of HEFT.
    """
    ranks: dict[str, float] = {}
    for name in reversed(list(tasks)):
        known = [time for time in tasks[name][0] if time is not None]
        after = [ranks[other] for other in ranks if name in tasks[other][1]]
        ranks[name] = (
            sum(known) / len(known) + max(after, default=0) + (tasks[name][2] / 2 if after else 0)
        )
    return ranks


def _length(tasks: Tasks, lists: list[list[str]]) -> int:
    return max((end for _, _, end in timetable(tasks, lists).values()), default=0)
