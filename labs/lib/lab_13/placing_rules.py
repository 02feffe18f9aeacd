"""Natural rules that place nodes on devices, and what their placements cost.

Rows are those of `spreading`, work is that of `schedules`, times and moves are those of
`placing_cases`. Visited by lab 13.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from vklab_labs.lab_13 import schedules
from vklab_labs.lab_13.placing_cases import Moves, Times
from vklab_labs.lab_13.schedules import Schedule, Work
from vklab_labs.lab_13.spreading import Row

__all__ = ["INFINITE", "by_rule", "changes", "earliest_end", "first_fit", "first_fit_rows",
           "naturals", "network", "one_by_one", "paths", "ranks", "span", "total"]  # fmt: skip

INFINITE = 10**9

# Chooses a device: gets a node and its end on each device that can run it and has room.
Choose = Callable[[str, Mapping[int, int]], int]


def changes(placed: Sequence[int]) -> int:
    """Count the neighbours on different devices."""
    return sum(a != b for a, b in itertools.pairwise(placed))


def first_fit_rows(rows: Sequence[Row], caps: Sequence[int]) -> list[int] | None:
    """Place each row on the first device with room; None if there is none."""
    left, placed = list(caps), []
    for _, size, able in rows:
        device = next((d for d in able if size <= left[d]), None)
        if device is None:
            return None
        left[device] -= size
        placed.append(device)
    return placed


def total(times: Times, moves: Moves, price: int, placed: Mapping[str, int]) -> int:
    """Return the time of all nodes on two devices that take turns, and of the moves between.

    Args:
        times: the times of each node on the two devices.
        moves: what a move from maker to reader takes.
        price: what every move costs in addition.
        placed: the device of each node.
    """
    here = [times[name][device] for name, device in placed.items()]
    apart = [price + size for (a, b), size in moves.items() if placed[a] != placed[b]]
    return sum(INFINITE if ms is None else ms for ms in here) + sum(apart)


def network(times: Times, moves: Moves, price: int) -> dict[str, dict[str, int]]:
    """Return room[start][end]: what each edge of the network of a placement lets through.

    Edges in both directions are there, if only with room 0. INFINITE room is never cut.

    Args:
        times: the times of each node on device 0 and on device 1; None: it cannot run there.
        moves: what a move from maker to reader takes.
        price: what every move costs in addition.
    """
    room: dict[str, dict[str, int]] = {name: {} for name in ("source", *times, "sink")}
    edges: list[tuple[str, str, int | None]] = []
    for name, (one, other) in times.items():
        edges += [("source", name, other), (name, "sink", one)]
    for (maker, reader), move in moves.items():
        edges += [(maker, reader, price + move), (reader, maker, price + move)]
    for start, end, ms in edges:
        room[start][end] = room[start].get(end, 0) + (INFINITE if ms is None else ms)
        room[end].setdefault(start, 0)
    return room


def paths(room: Mapping[str, Mapping[str, int]]) -> dict[str, list[tuple[str, str]]]:
    """Return the edges of a shortest path to each end that the source reaches.

    A path goes through edges that have room. The path to the source is empty.

    Args:
        room: what each edge lets through, as `network` returns it.
    """
    found: dict[str, list[tuple[str, str]]] = {"source": []}
    queue = ["source"]
    for here in queue:
        for there, left in room[here].items():
            if left > 0 and there not in found:
                found[there] = [*found[here], (here, there)]
                queue.append(there)
    return found


def one_by_one(times: Times, moves: Moves, price: int) -> int:
    """Return the total of this rule: the faster device for each node, then moves of single nodes.

    Args:
        times: the times of each node on the two devices.
        moves: what a move from maker to reader takes.
        price: what every move costs in addition.
    """
    placed = {
        name: int(one is None or (other is not None and other < one))
        for name, (one, other) in times.items()
    }
    while True:
        best = total(times, moves, price, placed)
        others = ({**placed, name: 1 - device} for name, device in placed.items())
        placed = min(others, key=lambda p: total(times, moves, price, p))
        if total(times, moves, price, placed) >= best:
            return best


def span(work: Work, plan: Schedule) -> int:
    """Return the makespan of a valid schedule: when its last node ends."""
    return max((end for _, _, end in schedules.schedule(work, plan).values()), default=0)


def by_rule(work: Work, caps: Sequence[int], order: Iterable[str], choose: Choose) -> Schedule:
    """Place nodes one by one, never taken back. Raises LookupError for a node without a device.

    Args:
        work: the nodes.
        caps: the MiB of each device.
        order: the nodes in an order that works.
        choose: chooses one of the devices with room.
    """
    left, free, plan = list(caps), [0] * len(caps), []
    made: dict[str, tuple[int, int]] = {}
    for name in order:
        times, size, _, reads = work[name]
        ends = {}
        for device, ms in enumerate(times):
            if ms is not None and size <= left[device]:
                came = [made[r][1] + (made[r][0] != device) * work[r][2] for r in reads]
                ends[device] = max(free[device], *came, 0) + ms
        if not ends:
            raise LookupError(f"no device has room for {name}")
        device = choose(name, ends)
        free[device] = ends[device]
        left[device] -= size
        made[name] = device, ends[device]
        plan.append((name, device))
    return plan


def first_fit(work: Work, caps: Sequence[int]) -> Schedule:
    """Place each node on the first device that has room, in the given order."""
    return by_rule(work, caps, work, lambda name, ends: min(ends))


def earliest_end(work: Work, caps: Sequence[int], rank: Mapping[str, float]) -> Schedule:
    """Place by rank, largest first, each node where it ends first.

    Args:
        work: the nodes.
        caps: the MiB of each device.
        rank: of each node.

    Source: Topcuoglu, Hariri and Wu 2002, HEFT, with `ranks`; without idle gaps that are filled.
    """
    order = sorted(work, key=lambda name: -rank[name])
    return by_rule(work, caps, order, lambda name, ends: min(ends, key=lambda d: (ends[d], d)))


def ranks(work: Work) -> dict[str, float]:
    """Return for each node the mean time of the longest chain that begins with it, moves included.

    Args:
        work: the nodes.
    """
    rank: dict[str, float] = {}
    for name in reversed(list(work)):
        able = [ms for ms in work[name][0] if ms is not None]
        after = [rank[other] + work[name][2] for other in rank if name in work[other][3]]
        rank[name] = sum(able) / len(able) + max(after, default=0)
    return rank


def naturals(work: Work, caps: Sequence[int], tries: int = 200) -> dict[str, float]:
    """Return the makespan of each natural rule by its name; infinity if it finds no place.

    Args:
        work: the nodes.
        caps: the MiB of each device.
        tries: number of random schedules.
    """
    random, names, ends = np.random.default_rng(0), list(work), range(len(work) + 1)

    def fastest(name: str, ends: Mapping[int, int]) -> int:
        return min(ends, key=lambda d: (work[name][0][d] or 0, d))

    def anywhere(name: str, ends: Mapping[int, int]) -> int:
        return int(random.choice(list(ends)))

    def best(found: Iterable[Schedule]) -> float:
        valid = (plan for plan in found if not schedules.problem(work, caps, plan))
        return min((span(work, plan) for plan in valid), default=np.inf)

    numbers = range(len(caps))
    splits = (
        list(zip(names, [a] * i + [b] * (j - i) + [c] * (len(names) - j), strict=True))
        for a, b, c in itertools.permutations(numbers, 3)
        for i in ends
        for j in ends[i:]
    )
    return {
        "one device": best([(name, d) for name in names] for d in numbers),
        "first fit": span(work, first_fit(work, caps)),
        "fastest device": span(work, by_rule(work, caps, names, fastest)),
        "contiguous split": best(splits),
        "earliest end": span(work, earliest_end(work, caps, dict.fromkeys(work, 0))),
        "HEFT": span(work, earliest_end(work, caps, ranks(work))),
        f"best of {tries} random": best(
            by_rule(work, caps, _shuffled(work, random), anywhere) for _ in range(tries)
        ),
    }


def _shuffled(work: Work, random: np.random.Generator) -> list[str]:
    order: list[str] = []
    while len(order) < len(work):
        able = [n for n in work if n not in order and all(r in order for r in work[n][3])]
        order.append(able[int(random.integers(len(able)))])
    return order
