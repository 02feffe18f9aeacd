"""Which bytes every value lives in: lifetimes, aliasing, arenas.

Values whose lifetimes do not meet may share memory. Visited by lab 11.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vklab import draw
from vklab.errors import PlanError

__all__ = ["ALIGNMENT_BYTES", "Lifetime", "MemoryPlan", "Slot", "WEIGHTS", "assign_offsets",
           "check_offsets", "lower_bound", "pack", "round_up"]  # fmt: skip

# The largest minStorageBufferOffsetAlignment that Vulkan allows a device to ask for.
ALIGNMENT_BYTES = 256
# Before the name of a weight: the arena that it is to the plan.
WEIGHTS = "weights:"
# Trying another order takes time that grows with the pairs of values that live together.
MOST_REORDERED = 2048
# How often one value is compared with another until a better order is given up.
MOST_COMPARED = 1 << 17


def round_up(count: int, multiple: int = ALIGNMENT_BYTES) -> int:
    """Return the smallest multiple that is not below `count`."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class Lifetime:
    """One value's bytes, from the step that writes it to the last step that reads it."""

    name: str
    size_bytes: int
    first: int
    last: int
    alignment_bytes: int = ALIGNMENT_BYTES

    @property
    def length_bytes(self) -> int:
        """Return the bytes that it takes from its neighbours, never none."""
        return round_up(max(self.size_bytes, 1), self.alignment_bytes)


@dataclass(frozen=True)
class Slot:
    """A place: an arena, an offset in it, and a length."""

    arena: str
    offset_bytes: int
    size_bytes: int

    def overlaps(self, other: Slot) -> bool:
        """Tell whether both share a byte."""
        start = max(self.offset_bytes, other.offset_bytes)
        end = min(self.offset_bytes + self.size_bytes, other.offset_bytes + other.size_bytes)
        return self.arena == other.arena and start < end

    def __str__(self) -> str:
        return f"{self.arena}[{self.offset_bytes}:{self.offset_bytes + self.size_bytes}]"


@dataclass(frozen=True)
class MemoryPlan:
    """The slot of every value, the size of every arena, and the lifetimes that led there."""

    slots: dict[str, Slot]
    arenas: dict[str, int]
    lifetimes: tuple[Lifetime, ...]
    lower_bound_bytes: int

    @property
    def arena_bytes(self) -> int:
        """Return the bytes of the arenas that activations share."""
        return sum(size for name, size in self.arenas.items() if name.startswith("activations"))

    @property
    def weights_bytes(self) -> int:
        """Return the bytes of all weights."""
        return sum(size for name, size in self.arenas.items() if name.startswith("weights"))

    def __str__(self) -> str:
        return (
            f"memory: {draw.bytes_text(self.arena_bytes)} of activations (lower bound "
            f"{draw.bytes_text(self.lower_bound_bytes)}), "
            f"{draw.bytes_text(self.weights_bytes)} of weights"
        )

    @property
    def steps(self) -> int:
        """Return how many steps the lifetimes span."""
        return max((life.last for life in self.lifetimes), default=0) + 1


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Return the largest sum of bytes alive at one step: no packing can be smaller."""
    changes: dict[int, int] = {}
    for life in lifetimes:
        length = round_up(life.size_bytes, life.alignment_bytes)
        changes[life.first] = changes.get(life.first, 0) + length
        changes[life.last + 1] = changes.get(life.last + 1, 0) - length
    alive = largest = 0
    for step in sorted(changes):
        alive += changes[step]
        largest = max(largest, alive)
    return largest


def assign_offsets(
    lifetimes: Sequence[Lifetime], aliasing: bool = True
) -> tuple[dict[str, int], int]:
    """Return an aligned offset for every value, and the bytes that all of them take together.

    Each value goes to the lowest gap that is free during its whole life. The order matters and
    none is best for all: earliest first is tried, and unless that is as good as can be, or the
    values are very many, some others. Without aliasing every value gets bytes of its own.
    """
    earliest = sorted(lifetimes, key=lambda life: (life.first, -life.size_bytes, life.name))
    if not aliasing:
        offsets, size = {}, 0
        for life in earliest:
            offsets[life.name] = round_up(size, life.alignment_bytes)
            size = offsets[life.name] + life.length_bytes
        return offsets, size
    found, bound = _sweep(earliest), lower_bound(lifetimes)
    if found[1] > bound and len(lifetimes) <= MOST_REORDERED:
        found = min(found, _search(earliest, bound), key=lambda each: each[1])
    return found


def _sweep(lifetimes: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    """Place values in the order in which they are born; what has died leaves its bytes."""
    offsets: dict[str, int] = {}
    size = 0
    gaps: list[tuple[int, float]] = [(0, math.inf)]
    alive: list[tuple[int, int, int]] = []  # heap of (last step, start, stop)
    for life in lifetimes:
        while alive and alive[0][0] < life.first:
            _, start, stop = heapq.heappop(alive)
            _free(gaps, start, stop)
        length, alignment = life.length_bytes, life.alignment_bytes
        number, offset = next(
            (i, round_up(start, alignment)) for i, (start, stop) in enumerate(gaps)
            if stop - round_up(start, alignment) >= length
        )  # fmt: skip
        start, end = gaps[number]
        left = [(start, offset), (offset + length, end)]
        gaps[number : number + 1] = [gap for gap in left if gap[0] < gap[1]]
        heapq.heappush(alive, (life.last, offset, offset + length))
        offsets[life.name] = offset
        size = max(size, offset + length)
    return offsets, size


def _free(gaps: list[tuple[int, float]], start: int, stop: float) -> None:
    """Put a gap among the others, in order, joined with those that it touches."""
    number = bisect.bisect(gaps, (start, stop))
    first = last = number
    if number and gaps[number - 1][1] == start:
        start, first = gaps[number - 1][0], number - 1
    if gaps[number][0] == stop:  # the last gap has no end: there is always one behind
        stop, last = gaps[number][1], number + 1
    gaps[first:last] = [(start, stop)]


def _search(lifetimes: Sequence[Lifetime], bound: int) -> tuple[dict[str, int], int]:
    """Place values in several orders; then, in the best, again and again bring forward what ends
    last, and keep what is no worse. Chance is seeded: the same values get the same places.
    """
    neighbours = _neighbours(lifetimes)
    crowd = {n: sum(peer.length_bytes for peer in peers) for n, peers in neighbours.items()}
    keys: tuple[Callable[[Lifetime], tuple[int, int, str]], ...] = (
        lambda life: (-life.size_bytes, life.first, life.name),
        lambda life: (life.first - life.last, -life.size_bytes, life.name),
        lambda life: (-crowd[life.name], -life.size_bytes, life.name),
    )
    orders = [sorted(lifetimes, key=key) for key in keys]
    placed = [_place(order, neighbours) for order in orders]
    best = min(range(len(orders)), key=lambda number: placed[number][1])
    order, (offsets, size) = orders[best], placed[best]
    chance = random.Random(0)
    for _ in range(MOST_COMPARED // (len(order) + sum(map(len, neighbours.values())))):
        if size <= bound:
            break
        tops = [i for i, life in enumerate(order)
                if i and offsets[life.name] + life.length_bytes == size]  # fmt: skip
        if not tops:
            break
        top = chance.choice(tops)
        tried = list(order)
        tried.insert(chance.randrange(top), tried.pop(top))
        found = _place(tried, neighbours)
        if found[1] <= size:
            order, (offsets, size) = tried, found
    return offsets, size


def _neighbours(lifetimes: Iterable[Lifetime]) -> dict[str, list[Lifetime]]:
    """Return those that live together with each; values come in the order of their births."""
    found: dict[str, list[Lifetime]] = {}
    alive: list[Lifetime] = []
    for life in lifetimes:
        alive = [other for other in alive if other.last >= life.first]
        found[life.name] = list(alive)
        for other in alive:
            found[other.name].append(life)
        alive.append(life)
    return found


def _place(
    lifetimes: Iterable[Lifetime], neighbours: Mapping[str, Sequence[Lifetime]]
) -> tuple[dict[str, int], int]:
    """Place values in any order, each at the lowest gap between those that it lives with."""
    offsets: dict[str, int] = {}
    size = 0
    for life in lifetimes:
        length, offset = life.length_bytes, 0
        placed = [(offsets[other.name], other) for other in neighbours[life.name]
                  if other.name in offsets]  # fmt: skip
        for start, other in sorted(placed, key=lambda pair: pair[0]):
            if start - offset >= length:
                break
            offset = max(offset, round_up(start + other.length_bytes, life.alignment_bytes))
        offsets[life.name] = offset
        size = max(size, offset + length)
    return offsets, size


def check_offsets(lifetimes: Sequence[Lifetime], offsets: Mapping[str, int], size: int) -> None:
    """Raise PlanError unless every value lies in the arena, aligned, and apart from its peers.

    `assign_offsets` is a seam that labs swap: what it returns is checked before a device trusts it.
    """
    for life in lifetimes:
        offset = offsets.get(life.name)
        if not isinstance(offset, int) or offset < 0 or offset % life.alignment_bytes:
            raise PlanError(f"{life.name} is placed at {offset!r}; offsets are multiples of "
                            f"{life.alignment_bytes} from 0 on")  # fmt: skip
        if offset + life.size_bytes > size:
            raise PlanError(f"{life.name} ends at byte {offset + life.size_bytes} of an arena of "
                            f"{size}")  # fmt: skip
    alive: list[tuple[int, int, str]] = []  # (start, stop, name) by start, all apart
    ends: list[tuple[int, tuple[int, int, str]]] = []  # heap of (last step, box)
    for life in sorted(lifetimes, key=lambda life: life.first):
        while ends and ends[0][0] < life.first:
            del alive[bisect.bisect_left(alive, heapq.heappop(ends)[1])]
        offset = offsets[life.name]
        box = (offset, offset + life.size_bytes, life.name)
        number = bisect.bisect(alive, box)
        for below, above in itertools.pairwise([*alive[max(number - 1, 0) : number], box,
                                                *alive[number : number + 1]]):  # fmt: skip
            if below[1] > above[0]:
                raise PlanError(f"{below[2]} and {above[2]} are both alive at step {life.first} "
                                "and share bytes")  # fmt: skip
        alive.insert(number, box)
        heapq.heappush(ends, (life.last, box))


def pack(
    sizes: Iterable[tuple[str, int]], arena: str, limit_bytes: int
) -> tuple[dict[str, Slot], dict[str, int]]:
    """Lay values one after the other, in as many arenas as the limit on one asks for.

    Args:
        sizes: (name, bytes) of each value.
        arena: name of the arenas; a number is appended from the second on.
        limit_bytes: most bytes of one arena; a single value may exceed it.
    """
    slots: dict[str, Slot] = {}
    arenas: dict[str, int] = {}
    current = arena
    for name, size in sizes:
        offset = arenas.get(current, 0)
        length = max(round_up(size), ALIGNMENT_BYTES)
        if offset and offset + length > limit_bytes:
            current = f"{arena}{len(arenas)}"
            offset = 0
        slots[name] = Slot(current, offset, size)
        arenas[current] = offset + length
    return slots, arenas
