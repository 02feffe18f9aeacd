"""Schedules of tasks on devices: the table of times that an order gives, and a bound on its length.

Tasks are {name: (times, reads, move)}: the time on each device (None: it cannot run there), the
tasks whose results it reads, and the time that its own result takes to another device.
Visited by lab 12.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab.plan.place.search import Search
from vklab_course import words
from vklab_course.piece import Given
from vklab_labs.shared.placements import cheapest_path, placement_piece, prices_of
from vklab_labs.shared.recorded_graphs import RecordedGraph

__all__ = ["EXAMPLE", "SCHEDULE", "Placed", "Tasks", "bounds", "draw_tasks", "earliest", "flaw",
           "outlook", "ready", "tails", "timetable"]  # fmt: skip

Tasks = Mapping[str, tuple[Sequence[int | None], Sequence[str], int]]
Placed = tuple[int, int, int]  # device, start, end
EXAMPLE: Tasks = {"a": ((2, 2), (), 4), "b": ((2, 4), ("a",), 3), "c": ((6, 3), ("a",), 1),
                  "d": ((3, 1), ("c",), 4), "e": ((4, 3), (), 1),
                  "f": ((1, 1), ("e",), 1)}  # fmt: skip


def ready(tasks: Tasks, done: Collection[str]) -> list[str]:
    """Return the tasks that are not done, and whose inputs are."""
    return [
        n
        for n, (_, reads, _) in tasks.items()
        if n not in done and all(read in done for read in reads)
    ]


def earliest(tasks: Tasks, table: Mapping[str, Placed], name: str, device: int) -> int:
    """Return when a task can start on a device, behind all that the table has there.

    Args:
        tasks: the tasks.
        table: device, start and end of the tasks that are placed.
        name: the task, whose inputs are placed.
        device: the device.
    """
    arrivals = (
        table[read][2] + (tasks[read][2] if table[read][0] != device else 0)
        for read in tasks[name][1]
    )
    return max((0, *arrivals, *(end for at, _, end in table.values() if at == device)))


def timetable(tasks: Tasks, order: Iterable[Iterable[str]]) -> dict[str, Placed]:
    """Return device, start and end of each task, if each device runs its list in order.

    Every task starts as soon as its device is free and its inputs have arrived. Tasks that wait
    for each other forever are missing from the table.
    """
    lists, table = [[*names] for names in order], dict[str, Placed]()
    moved = True
    while moved:
        moved = False
        for device, names in enumerate(lists):
            while names and all(read in table for read in tasks[names[0]][1]):
                name = names.pop(0)
                start = earliest(tasks, table, name, device)
                table[name] = device, start, start + (tasks[name][0][device] or 0)
                moved = True
    return table


def flaw(tasks: Tasks, lists: Any) -> str:
    """Return what is wrong with a schedule of two devices, as a sentence; "" if nothing is."""
    if not (
        isinstance(lists, list | tuple)
        and len(lists) == 2
        and all(
            isinstance(names, list | tuple) and all(type(name) is str for name in names)
            for names in lists
        )
    ):
        return f"expected two lists of names, got {words.short(lists)}"
    times = Counter(name for names in lists for name in names)
    for name in {**tasks, **times}:
        if times[name] != (name in tasks):
            return (
                f"{words.short(name)} is {times[name]} times in your lists, expected "
                f"{int(name in tasks)}"
            )
    for device, names in enumerate(lists):
        for name in names:
            if tasks[name][0][device] is None:
                return f"{name} cannot run on device {device}"
    stuck = sorted(set(tasks) - set(timetable(tasks, lists)))
    return (
        ""
        if not stuck
        else (
            f"deadlock: {', '.join(stuck)} never start, because each of them waits for a task that "
            "its device has later in its list, or for another of them"
        )
    )


def tails(tasks: Tasks) -> dict[str, int]:
    """Return the least time from the start of each task to the end of its longest chain."""
    found: dict[str, int] = {}
    for name in reversed(list(tasks)):
        after = [found[other] for other in found if name in tasks[other][1]]
        found[name] = min(t for t in tasks[name][0] if t is not None) + max(after, default=0)
    return found


def outlook(tasks: Tasks) -> Callable[[Mapping[str, Placed]], tuple[float, int]]:
    """Return a function that says how a schedule of two devices can go on from a table.

    The function takes a table of placed tasks. It returns the earliest end that is still possible,
    by the longest chain and by the work that is left, and the sum of the times at which the two
    devices become free. Each device runs the tasks that are not in the table after those that are.
    """
    tail = tails(tasks)
    least = {n: min(t for t in times if t is not None) for n, (times, _, _) in tasks.items()}
    behind, total = {name: tail[name] - least[name] for name in tasks}, sum(least.values())

    def look(table: Mapping[str, Placed]) -> tuple[float, int]:
        chain, free, left = 0, [0, 0], total
        for name, (device, _, end) in table.items():
            left -= least[name]
            free[device] = max(free[device], end)
            chain = max(chain, end + behind[name])
        return max(chain, (sum(free) + left) / 2), sum(free)

    return look


def bounds(tasks: Tasks, devices: int) -> dict[str, int]:
    """Return three times that no schedule can beat: it needs the largest of them.

    Tasks are in an order that works.
    """
    least = {n: min(t for t in times if t is not None) for n, (times, _, _) in tasks.items()}
    bound_to = [
        sum(
            least[n]
            for n, (times, _, _) in tasks.items()
            if all((t is None) == (d != device) for d, t in enumerate(times))
        )
        for device in range(devices)
    ]
    return {
        "critical path": max(tails(tasks).values(), default=0),
        "work over devices": math.ceil(sum(least.values()) / devices),
        "work of one device": max(bound_to),
    }


def draw_tasks(graph: RecordedGraph, random: np.random.Generator, letter: str = "n") -> Tasks:
    """Return the nodes of a graph as tasks for two devices, with drawn times.

    A Relu belongs to the node that it reads. Times grow with the work of a node. One device is
    faster, by up to three times; one node in five runs on one device only. A result takes from 1
    to 6 to the other device.

    Args:
        graph: the graph.
        random: the source of chance.
        letter: the first letter of the names.
    """
    names: dict[str, str] = {}
    tasks: dict[str, tuple[tuple[int | None, ...], tuple[str, ...], int]] = {}
    before = graph.predecessors()
    for node in graph.nodes:
        reads = tuple(dict.fromkeys(names[other] for other in before[node.name]))
        if node.op_type == "Relu" and reads:
            names[node.name] = reads[0]
            continue
        name = names[node.name] = f"{letter}{len(tasks)}"
        fast = 1 + round(math.sqrt(min(node.flops, 4e8)) / 3e3)
        times: list[int | None] = [fast, round(fast * random.uniform(1, 3))]
        if random.random() < 0.2:
            times[1] = None
        order = random.permutation(2)
        tasks[name] = (times[order[0]], times[order[1]]), reads, int(random.integers(1, 7))
    return tasks


# ------------------------------------------------------------------- the piece of exercise 4


def _runtime_lists(params: Mapping[str, Any]) -> Callable[[Tasks], list[list[str]]]:
    """Return the runtime's cheapest path behind the signature of exercise 4.

    The path lets the devices take turns; each of them runs its tasks in the given order.
    """

    def schedule(tasks: Tasks) -> list[list[str]]:
        moves = {(read, n): tasks[read][2] for n, (_, reads, _) in tasks.items() for read in reads}
        placed = cheapest_path({name: times for name, (times, _, _) in tasks.items()}, moves)
        return [[name for name, device in placed.items() if device == d] for d in (0, 1)]

    return schedule


def _scheduling(schedule: Given, search: Search) -> Sequence[int]:
    """Ask an answer about the nodes of a search, in nanoseconds; its lists tell their devices."""
    times, moves = prices_of(search.workload, lambda p, d: search.allowed[d][p], unit_ns=1)
    tasks: dict[str, tuple[Sequence[int | None], Sequence[str], int]] = {
        name: (
            row,
            tuple(maker for maker, reader in moves if reader == name),
            max((price for (maker, _), price in moves.items() if maker == name), default=0),
        )
        for name, row in times.items()
    }
    lists = schedule.value(tasks)
    wrong = flaw(tasks, lists)
    assert not wrong, wrong
    return [int(name in lists[1]) for name in tasks]


SCHEDULE = placement_piece("12-4", _runtime_lists, _scheduling)
