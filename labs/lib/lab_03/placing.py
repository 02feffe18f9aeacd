"""Buffers in the heaps of a card without ReBAR: what crosses the bus, and greedy rules.

A buffer is (MiB, MiB that the host writes, MiB that kernels read), a heap (budget, used) in MiB.
Visited by lab 03.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["HEAPS", "OBVIOUS", "greedy", "moved", "rooms"]

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

    orders: dict[str, Callable[[str], float]] = {
        "in the given order": lambda name: 0,
        "largest first": lambda name: -buffers[name][0],
        "smallest first": lambda name: buffers[name][0],
        "most saved first": lambda name: -saved(name),
        "most saved a MiB first": lambda name: -saved(name) / buffers[name][0],
    }
    return {
        title: _total(buffers, heaps, cost, sorted(buffers, key=key))
        for title, key in orders.items()
    }


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
