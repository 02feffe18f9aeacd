"""Buffers in the heaps of a card without ReBAR: what crosses the bus, greedy rules, and a bound.

A buffer is (MiB, MiB that the host writes, MiB that kernels read), a heap (budget, used) in MiB.
Visited by lab 03.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

__all__ = ["HEAPS", "OBVIOUS", "greedy", "linear_bound", "moved", "rooms"]

Buffer = tuple[int, int, int]
Buffers = Mapping[str, Buffer]
Heaps = Mapping[str, tuple[int, int]]
HEAPS = ("device", "window", "host")
# The rules of `greedy` that do not look at what a buffer costs.
OBVIOUS = ("in the given order", "largest first", "smallest first")


def moved(buffer: Buffer, heap: str) -> int:
    """Return the MiB that cross the bus in a run for a buffer in one of `HEAPS`."""
    size, written, read = buffer
    return {"device": size if written else 0, "window": written, "host": read}[heap]


def rooms(heaps: Heaps) -> dict[str, int]:
    """Return the MiB that may be used of each heap: 95 % of its budget, less what is used."""
    return {name: budget - -(-budget // 20) - used for name, (budget, used) in heaps.items()}


def greedy(buffers: Buffers, heaps: Heaps) -> dict[str, int]:
    """Return the MiB over the bus by greedy rule: one buffer after the other, never taken back.

    Each buffer goes to the cheapest heap that still has room; the rules differ in the order.
    """
    cost = {name: {heap: moved(buffer, heap) for heap in HEAPS} for name, buffer in buffers.items()}

    def saved(name: str) -> int:
        return cost[name]["host"] - min(cost[name].values())

    def regret(name: str) -> int:
        first, second, _ = sorted(cost[name].values())
        return second - first

    orders: dict[str, Callable[[str], float]] = {
        "in the given order": lambda name: 0,
        "largest first": lambda name: -buffers[name][0],
        "smallest first": lambda name: buffers[name][0],
        "most saved first": lambda name: -saved(name),
        "most saved a MiB first": lambda name: -saved(name) / buffers[name][0],
        "most to lose first": lambda name: -regret(name),
        "most to lose a MiB first": lambda name: -regret(name) / buffers[name][0],
    }
    return {title: _total(buffers, heaps, cost, sorted(buffers, key=key))
            for title, key in orders.items()}  # fmt: skip


def _total(
    buffers: Buffers, heaps: Heaps, cost: Mapping[str, Mapping[str, int]], order: list[str]
) -> int:
    """Return the MiB over the bus when buffers are placed in this order.

    Args:
        buffers: the buffers.
        heaps: the heaps.
        cost: MiB over the bus by buffer and heap.
        order: names of the buffers.
    """
    left, total = rooms(heaps), 0
    for name in order:
        size, costs = buffers[name][0], cost[name]
        heap = min((heap for heap in HEAPS if left[heap] >= size), key=costs.__getitem__)
        left[heap] -= size
        total += costs[heap]
    return total


def linear_bound(buffers: Buffers, heaps: Heaps) -> float:
    """Return the fewest MiB over the bus if buffers could be cut: no placement needs less.

    By duality this is the largest value of a sum, over prices of a MiB in both heaps of the card.
    It is largest at prices where two lines meet at which a buffer changes its heap.
    Source: Fisher, "The Lagrangian Relaxation Method for Solving Integer Programming", 1981
    """
    room = rooms(heaps)
    costs = [(b[0], *(moved(b, heap) for heap in HEAPS)) for b in buffers.values()]
    lines = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)]  # a * device's price + b * window's price = c
    for size, device, window, host in costs:
        lines += [(size, 0, host - device), (0, size, host - window),
                  (size, -size, window - device)]  # fmt: skip
    best = 0.0
    for (a, b, c), (d, e, f) in combinations(lines, 2):
        crossing = a * e - b * d
        if abs(crossing) < 1e-9:
            continue
        x, y = (c * e - b * f) / crossing, (a * f - c * d) / crossing
        if min(x, y) > -1e-9:
            total = sum(min(device + x * size, window + y * size, host)
                        for size, device, window, host in costs)  # fmt: skip
            best = max(best, total - x * room["device"] - y * room["window"])
    return best
