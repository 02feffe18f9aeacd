"""Cases of placement exercises, drawn by seed: rows, costs, work.

Wirings are irregular, or windows of recorded networks. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vklab_labs.lab_13.schedules import Work
from vklab_labs.lab_13.spreading import Row
from vklab_labs.shared import recorded_graphs

__all__ = ["Moves", "Times", "draw_blocks", "draw_full_rows", "draw_rows", "draw_times",
           "draw_work"]  # fmt: skip

Times = Mapping[str, tuple[int | None, int | None]]  # of each node, on two devices
Moves = Mapping[tuple[str, str], int]  # by maker and reader
Random = np.random.Generator
LETTERS = "abcdefghijklmnop"


def draw_rows(random: Random, count: int) -> tuple[list[Row], list[int]]:
    """Return rows for two devices, and caps that are larger than all rows together."""
    rows: list[Row] = []
    for number in range(count):
        able = (0, 1) if random.random() < 0.75 else (int(random.integers(2)),)
        rows.append((f"n{number}", int(random.choice([1, 1, 2, 3, 5, 8, 13])), able))
    total = sum(size for _, size, _ in rows)
    return rows, [int(total * share) for share in random.uniform(0.45, 0.8, 2)]


def draw_full_rows(random: Random, count: int, free: int = 11) -> tuple[list[Row], list[int]]:
    """Return rows with a single placement that fits: it fills both devices to the last byte.

    Args:
        random: the source of chance.
        count: number of rows.
        free: rows at the beginning that both devices can run; their sizes are powers of two.
    """
    sizes = [1 << int(n) for n in random.permutation(free)]
    sizes += [int(size) for size in random.integers(100, 150, count - free)]  # no early sieve
    placed = [(n + int(random.random() < 0.2)) % 2 for n in range(count)]  # many changes
    rows: list[Row] = [
        (f"n{n}", size, (0, 1) if n < free else (device,))
        for n, (size, device) in enumerate(zip(sizes, placed, strict=True))
    ]
    return rows, [
        sum(size for size, d in zip(sizes, placed, strict=True) if d == device) for device in (0, 1)
    ]


def _window(random: Random, network: str, count: int) -> tuple[list[tuple[int, ...]], list[float]]:
    """Return the wiring of a window of a network, and the share of the most work in each node."""
    part = recorded_graphs.recorded(network).part(random, count)
    number = {node.name: n for n, node in enumerate(part.nodes)}
    most = max(1, *(node.flops for node in part.nodes))
    return (
        [tuple(number[r] for r in reads) for reads in part.predecessors().values()],
        [node.flops / most for node in part.nodes],
    )


def draw_times(random: Random, price: int, count: int, network: str = "") -> tuple[Times, Moves]:
    """Return times of nodes on two devices, and of moves between them.

    Args:
        random: the source of chance.
        price: what every move costs in addition; times are drawn near it.
        count: number of nodes.
        network: a recorded graph; default: an irregular wiring.
    """
    wiring = recorded_graphs.irregular(random, count, reads=(1, 1, 2), reach=4)
    if network:
        wiring, _ = _window(random, network, count)
    times: dict[str, tuple[int | None, int | None]] = {}
    for n in range(count):
        # Small differences in large networks: one node alone is seldom worth two moves.
        most = 6 * price + 8 if count <= 20 else round(1.5 * price) + 8
        one, other = (int(ms) for ms in random.integers(1, most, 2))
        chance = random.random()
        times[f"n{n}"] = (None if chance < 0.06 else one, None if chance > 0.94 else other)
    moves = {
        (f"n{r}", f"n{n}"): int(random.integers(0, price + 2))
        for n, reads in enumerate(wiring)
        for r in reads
    }
    return times, moves


def draw_blocks(random: Random, price: int, network: str, length: int) -> tuple[Times, Moves]:
    """Return times and moves of 48 nodes in blocks of neighbours that are dear to separate.

    One node of each block is much faster on one device, all others are a little faster on the
    other device. So a better placement moves a whole block: small changes do not lead to it.

    Args:
        random: the source of chance.
        price: what every move costs in addition.
        network: a recorded graph.
        length: number of nodes in a block.
    """
    (wiring, _), much = _window(random, network, 48), 8 * price + 10
    times: dict[str, tuple[int | None, int | None]] = {}
    for first in range(0, 48, length):
        names = [f"n{n}" for n in range(first, min(first + length, 48))]
        side, heavy = int(random.integers(2)), names[int(random.integers(len(names)))]
        for name in names:
            pair: list[int | None] = [int(random.integers(1, price + 8))] * 2
            pair[side ^ (name == heavy)] = (pair[0] or 0) + (
                much if name == heavy else int(random.integers(1, 3))
            )
            if name != heavy and random.random() < 0.03:
                pair[int(random.integers(2))] = None
            times[name] = pair[0], pair[1]
    moves = {
        (f"n{r}", f"n{n}"): int(random.integers(0, 2)) + much * (r // length == n // length)
        for n, reads in enumerate(wiring)
        for r in reads
    }
    return times, moves


def draw_work(random: Random, count: int, network: str = "") -> tuple[Work, list[int]]:
    """Return work for two GPUs and a CPU, and caps; the CPU runs everything and has all the room.

    Args:
        random: the source of chance.
        count: number of nodes, at most 16.
        network: a recorded graph; default: an irregular wiring.
    """
    bases = [int(n) for n in random.integers(2, 10, count)]
    wiring = recorded_graphs.irregular(random, count, reads=(1, 1, 2, 2), reach=4)
    if network:
        wiring, shares = _window(random, network, count)
        bases = [2 + round(7 * share**0.3) for share in shares]
    work = {}
    for n, (reads, base) in enumerate(zip(wiring, bases, strict=True)):
        factors = (random.choice(f) for f in ([0.5, 1, 1.5], [0.5, 1, 2], [1, 2, 3]))
        times: list[int | None] = [max(1, round(base * float(f))) for f in factors]
        if random.random() < 0.15:
            times[int(random.integers(2))] = None
        size, move = (int(n) for n in random.integers((1, 1), (9, 5)))
        work[LETTERS[n]] = tuple(times), size, move, tuple(LETTERS[r] for r in reads)
    total = sum(size for _, size, _, _ in work.values())
    return work, [*(int(total * share) for share in random.uniform(0.3, 0.5, 2)), total]
