"""Pack lifetimes into an arena by the classical rules, and verify a packing by a student.

A rule is an order in which values get their places, and a fit: which free gap a value gets.
Visited by lab 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import vklab
from vklab import settings
from vklab.plan import memory
from vklab.plan import plan as plans
from vklab.plan.memory import Lifetime, MemoryPlan
from vklab.vulkan.memory import FreeRanges
from vklab_course.piece import Piece
from vklab_labs.shared import recorded_graphs
from vklab_labs.shared.offsets import Assign, unshared, verified, whole
from vklab_labs.shared.recorded_graphs import RecordedGraph

__all__ = ["FITS", "LOWEST", "Node", "ORDERS", "bound_text", "compared", "drawn_lifetimes",
           "in_place_gains", "largest_first", "merged", "one_unit_lower", "overhead", "pack_by",
           "plain", "planned_memory", "resized", "size_changes", "sizes_matter",
           "sizes_text"]  # fmt: skip

Order = Callable[[Lifetime, Sequence[Lifetime]], float]
Gap = tuple[int, float]
Node = tuple[str, tuple[str, ...], tuple[str, ...]]
UNIT = 256


def _crowd(life: Lifetime, others: Sequence[Lifetime]) -> float:
    return -sum(o.length_bytes for o in others if o.first <= life.last and life.first <= o.last)


# The smallest number gets its place first; equal ones in the order in which they are written.
ORDERS: Mapping[str, Order] = {
    "by birth": lambda life, others: life.first,
    "by lifetime length": lambda life, others: life.first - life.last,
    "by crowd": _crowd,
    "by size": lambda life, others: -life.size_bytes,
}
# Which of the gaps that are large enough: the smallest number; equal ones the lowest.
FITS: Mapping[str, Callable[[Gap], float]] = {
    "first fit": lambda gap: 0.0,
    "best fit": lambda gap: gap[1] - gap[0],
    "worst fit": lambda gap: -(gap[1] - gap[0]) if math.isfinite(gap[1]) else 1.0,
}


def pack_by(
    lifetimes: Sequence[Lifetime], order: str, fit: str = "first fit"
) -> tuple[dict[str, int], int]:
    """Return the offsets by one of the classical rules, and the size of the arena.

    Args:
        lifetimes: the values; every alignment divides `UNIT`.
        order: a key of ORDERS.
        fit: a key of FITS.
    """
    born = sorted(lifetimes, key=lambda life: (life.first, -life.size_bytes, life.name))
    offsets: dict[str, int] = {}
    placed: list[Lifetime] = []
    for life in sorted(born, key=lambda life: ORDERS[order](life, born)):
        used = sorted(
            (offsets[o.name], offsets[o.name] + o.length_bytes)
            for o in placed
            if o.first <= life.last and life.first <= o.last
        )
        ends, gaps = [0, *(end for _, end in used)], []
        for number, (start, _) in enumerate([*used, (math.inf, 0)]):
            low = memory.round_up(max(ends[: number + 1]), life.alignment_bytes)
            if start - low >= life.length_bytes:
                gaps.append((low, start))
        offsets[life.name] = min(gaps, key=FITS[fit])[0]
        placed.append(life)
    return offsets, max((offsets[o.name] + o.length_bytes for o in placed), default=0)


def overhead(lifetimes: Sequence[Lifetime], order: str, fit: str = "first fit") -> float:
    """Return by how many percent an arena is larger than the largest live set.

    Args:
        lifetimes: the values.
        order: a key of ORDERS.
        fit: a key of FITS.
    """
    return 100 * (pack_by(lifetimes, order, fit)[1] / memory.lower_bound(lifetimes) - 1)


def compared(planned: Mapping[str, MemoryPlan]) -> dict[str, dict[str, float]]:
    """Return the percent above the largest live set by rule and network, and for 20 drawn sets."""
    rules = [("by birth", fit) for fit in FITS] + [(name, "first fit") for name in ORDERS][1:]
    seeded = [drawn_lifetimes(seed) for seed in range(20)]
    table = {}
    for order, fit in rules:
        cells = {name: overhead(plan.lifetimes, order, fit) for name, plan in planned.items()}
        cells["20 drawn"] = sum(overhead(each, order, fit) for each in seeded) / len(seeded)
        table[f"{order}, {fit}"] = cells
    return table


def sizes_matter(lifetimes: Sequence[Lifetime], count: int = 20) -> tuple[int, int, int, int]:
    """Return how many sizes there are, how many values are live at once, and two counts of misses.

    A miss is a set of the same lifetimes with other sizes on which by size ends above the bound:
    first with exchanged sizes, then with drawn ones.
    """
    live = [sum(o.first <= life.first <= o.last for o in lifetimes) for life in lifetimes]
    exchanged, drawn = (
        sum(overhead(resized(lifetimes, seed, new), "by size") > 0 for seed in range(count))
        for new in (False, True)
    )
    return len({life.size_bytes for life in lifetimes}), max(live, default=0), exchanged, drawn


def size_changes(name: str) -> tuple[int, int, int]:
    """Return how many nodes keep the size, change it by a factor of 2 or 4, or otherwise.

    Compared are the bytes of the first result and of the largest value that the node reads; nodes
    that read only weights are not counted.
    """
    nodes, sizes = plain(recorded_graphs.recorded(name))
    ratios = [
        sizes[writes[0]] / max(sizes[read] for read in reads) for _, reads, writes in nodes if reads
    ]
    same, twos = ratios.count(1), sum(ratio in (0.25, 0.5, 2, 4) for ratio in ratios)
    return same, twos, len(ratios) - same - twos


def sizes_text(name: str, lifetimes: Sequence[Lifetime]) -> str:
    """Return two lines: the counts of `sizes_matter`, and those of `size_changes`."""
    different, live, exchanged, drawn = sizes_matter(lifetimes)
    same, twos, others = size_changes(name)
    return (
        f"{name:14}{different:3} sizes, at most {live} values live; misses of 20: "
        f"{exchanged:2} exchanged, {drawn:2} drawn\n"
        f"{'':14}{same:3} nodes keep the size, {twos} change it by 2 or 4, {others} otherwise"
    )


def bound_text(name: str, total: int, plan: MemoryPlan) -> str:
    """Return a line: the sum of all sizes, the largest live set, and the arena of a plan.

    Args:
        name: the network.
        total: bytes of all its values.
        plan: where they lie.
    """
    bound = plan.lower_bound_bytes
    return (
        f"{name:14}{len(plan.lifetimes):4} values {total / 2**20:6.1f} MiB, largest live set"
        f"{bound / 2**20:5.1f} ({total / bound:4.1f} times less), arena"
        f"{plan.arena_bytes / 2**20:5.1f}"
    )


def planned_memory(name: str, **switches: int | str) -> MemoryPlan:
    """Return the memory that the runtime plans for a recorded network, on the first device.

    Nothing runs, so the plan assumes 64-bit integers: without them BERT's ends after a few nodes.
    Winograd's convolutions, whose scratch tensors only some devices need, are left out.

    Args:
        name: the network.
        switches: settings of the runtime, such as DISABLE_IN_PLACE=1.
    """
    with settings.settings(**{"DISABLE_PASSES": "winograd", **switches}):
        graph = recorded_graphs.runtime_graph(name)
        inputs = {info.name: info for info in graph.inputs}
        first = vklab.devices()[0]
        first = replace(first, features=first.features | {"shaderInt64"})
        return plans.make_plan(graph, inputs, [first]).memory


def plain(graph: RecordedGraph) -> tuple[list[Node], dict[str, int]]:
    """Return (operator, reads, writes) of each node, weights left out, and the bytes of values."""
    nodes = [(node.op_type, graph.activations(node), node.outputs) for node in graph.nodes]
    return nodes, {name: graph.size_bytes(name) for name in graph.shapes}


def drawn_lifetimes(seed: int, count: int = 40) -> tuple[Lifetime, ...]:
    """Return lifetimes of an irregular wiring, each size drawn from 1 to 64 units."""
    random = np.random.default_rng(seed)
    last = list(range(count))
    for number, reads in enumerate(recorded_graphs.irregular(random, count)):
        for read in reads:
            last[read] = number
    return tuple(
        Lifetime(f"v{n}", UNIT * int(random.integers(1, 65)), n, last[n], UNIT)
        for n in range(count)
    )


def in_place_gains(name: str) -> list[tuple[str, int, int]]:
    """Return ("with fusion" or "without fusion", bytes of the arena, bytes with in-place results).

    Args:
        name: a recorded network.
    """
    rows = []
    for words, off in (("without fusion", 1), ("with fusion", 0)):
        apart = planned_memory(name, DISABLE_FUSION=off, DISABLE_IN_PLACE=1)
        mine = planned_memory(name, DISABLE_FUSION=off)
        rows.append((words, apart.arena_bytes, mine.arena_bytes))
    return rows


def resized(lifetimes: Sequence[Lifetime], seed: int, drawn: bool) -> tuple[Lifetime, ...]:
    """Return the same lifetimes with other sizes.

    Args:
        lifetimes: the values.
        seed: of the random numbers.
        drawn: draw each size from 1 to 64 units; else exchange the sizes among the values.
    """
    random = np.random.default_rng(seed)
    sizes = [int(size) for size in random.permutation([life.size_bytes for life in lifetimes])]
    if drawn:
        sizes = [UNIT * int(count) for count in random.integers(1, 65, len(lifetimes))]
    return tuple(
        replace(life, size_bytes=size) for life, size in zip(lifetimes, sizes, strict=True)
    )


def merged(
    lives: Mapping[str, tuple[int, int]], taken: Mapping[str, str]
) -> dict[str, tuple[int, int]]:
    """Return lifetimes of bytes: one for each value and all results that overwrite it in turn.

    Args:
        lives: first and last step by value, in the order of their first steps.
        taken: for each in-place result the operand that it overwrites.
    """
    owner: dict[str, str] = {}
    spans: dict[str, tuple[int, int]] = {}
    for name, (first, last) in lives.items():
        owner[name] = owner.get(taken.get(name, ""), name)
        start, end = spans.get(owner[name], (first, last))
        spans[owner[name]] = start, max(end, last)
    return spans


def one_unit_lower(answer: Callable[..., Any]) -> Callable[..., tuple[dict[str, int], int]]:
    """Return a function that packs as `answer` does, and then moves the highest value down."""

    def assign(lifetimes: Sequence[Lifetime], aliasing: bool = True) -> tuple[dict[str, int], int]:
        offsets, size = answer(lifetimes, aliasing)
        top = max(lifetimes, key=lambda life: offsets[life.name])
        return {**offsets, top.name: offsets[top.name] - top.alignment_bytes}, size

    return assign


# ------------------------------------------------------------ the piece of exercise 2


def largest_first(lowest_offset: Callable[[int, list[tuple[int, int]], int], Any]) -> Assign:
    """Return a function with the signature of `assign_offsets` that asks for one value at a time.

    The largest value comes first; `lowest_offset` gets the bytes that live values have by then.
    """

    def assign(lifetimes: Sequence[Lifetime], aliasing: bool = True) -> tuple[dict[str, int], int]:
        offsets: dict[str, int] = {}
        placed: list[Lifetime] = []
        for life in sorted(lifetimes, key=lambda life: -life.size_bytes):
            taken = [
                (offsets[o.name], offsets[o.name] + o.length_bytes)
                for o in placed
                if not aliasing or (o.first <= life.last and life.first <= o.last)
            ]
            offset = whole(lowest_offset(life.size_bytes, taken, life.alignment_bytes))
            if not isinstance(offset, int) or isinstance(offset, bool):
                raise AssertionError(
                    f"the offset of {life.name} is {offset!r}, and no whole number"
                )
            offsets[life.name] = offset
            placed.append(life)
        return offsets, max((offsets[o.name] + o.length_bytes for o in placed), default=0)

    return assign


def _first_fit(params: Mapping[str, Any]) -> Callable[..., int | None]:
    """Return the first fit of the runtime's free ranges behind the signature of exercise 11-2."""

    def lowest_offset(
        size: int, taken: Sequence[tuple[int, int]], alignment: int = params["align"]
    ) -> int | None:
        length = max(size, 1)
        top = max((stop for _, stop in taken), default=0) + length + alignment
        ranges, behind = FreeRanges(0), 0
        for begin, stop in (*sorted(taken), (top, top)):
            ranges.give_back(behind, max(begin - behind, 0))
            behind = max(behind, stop)
        return ranges.take(length, alignment)

    return lowest_offset


LOWEST = Piece(
    "assign_offsets",
    "vklab.plan.memory.assign_offsets",
    {"11-2": _first_fit},
    lambda answer: verified(largest_first(answer.value)),
    unshared,
)
