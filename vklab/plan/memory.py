"""Assign offsets in arenas to values by their lifetimes.

Values whose lifetimes do not overlap may share memory (aliasing). Visited by labs 00 and 11.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vklab.base import draw
from vklab.base.late import Door
from vklab.errors import PlanError

# The largest minStorageBufferOffsetAlignment that Vulkan allows a device to require.
ALIGNMENT_BYTES = 256
# Names of arenas. The runtime creates one buffer for each arena of inputs, outputs and activations;
# from the second arena of a kind on, the name ends with a number ("activations1"). Each weight has
# an arena of its own, named by this prefix and the weight's name; `runtime.weights` packs several
# of them into one buffer.
INPUTS, OUTPUTS, ACTIVATIONS, WEIGHTS = "inputs", "outputs", "activations", "weights:"
# Arenas of values that move between devices and never reach the caller.
ARRIVING, LEAVING = "arriving", "leaving"
# Most values to reorder: the time of one trial grows with the pairs of overlapping lifetimes.
MOST_REORDERED = 2048
# Most comparisons of two values in the search for a better order.
MOST_COMPARED = 1 << 17


def round_up(count: int, multiple: int = ALIGNMENT_BYTES) -> int:
    """Return the smallest multiple that is not below `count`."""
    return -(-count // multiple) * multiple


def reserved(size_bytes: int) -> int:
    """Return the bytes to reserve for a size: a size of `plan.templates` grows to its bound."""
    return int(getattr(size_bytes, "reserved", lambda: size_bytes)())


@dataclass(frozen=True)
class Lifetime:
    """A value's bytes, from the step that writes it (`first`) to the last step that reads it."""

    name: str
    size_bytes: int
    first: int
    last: int
    alignment_bytes: int = ALIGNMENT_BYTES

    @property
    def length_bytes(self) -> int:
        """Return the bytes that the value occupies: its size, aligned, at least one unit."""
        return round_up(max(self.size_bytes, 1), self.alignment_bytes)


@dataclass(frozen=True)
class Slot:
    """A range of bytes: an arena, an offset in it, and a size."""

    arena: str
    offset_bytes: int
    size_bytes: int

    def overlaps(self, other: Slot) -> bool:
        """Tell whether two slots share a byte."""
        return self.arena == other.arena and max(self.offset_bytes, other.offset_bytes) < min(
            self.offset_bytes + self.size_bytes, other.offset_bytes + other.size_bytes
        )

    def __str__(self) -> str:
        return f"{self.arena}[{self.offset_bytes}:{self.offset_bytes + self.size_bytes}]"


@dataclass(frozen=True)
class MemoryPlan:
    """Slots of all values, sizes of all arenas, and the lifetimes from which they follow."""

    slots: dict[str, Slot]
    arenas: dict[str, int]
    lifetimes: tuple[Lifetime, ...]
    lower_bound_bytes: int

    @property
    def arena_bytes(self) -> int:
        """Return the bytes of the arenas of activations."""
        return sum(size for name, size in self.arenas.items() if name.startswith(ACTIVATIONS))

    @property
    def weights_bytes(self) -> int:
        """Return the bytes of all weights."""
        return sum(size for name, size in self.arenas.items() if name.startswith(WEIGHTS))

    def __str__(self) -> str:
        return (
            f"memory: {draw.bytes_text(self.arena_bytes)} of activations (lower bound "
            f"{draw.bytes_text(self.lower_bound_bytes)}), "
            f"{draw.bytes_text(self.weights_bytes)} of weights"
        )

    __repr__ = __str__

    @property
    def steps(self) -> int:
        """Return the number of steps that the lifetimes span."""
        return max((life.last for life in self.lifetimes), default=0) + 1

    _repr_html_ = Door[str]("vklab.plan.report.picture", "memory_svg")


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Return the largest sum of bytes alive at one step: no packing is smaller.

    Source: Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020
    """
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
    """Return an aligned offset for every value, and the size of their arena in bytes.

    Each value goes to the lowest gap that is free during its whole lifetime. The order decides the
    size, and no order is always best: the earliest value first is tried; if that misses the lower
    bound, and the values are not too many, so are others. Without aliasing no bytes are shared.
    Source: Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020
    """
    earliest = sorted(lifetimes, key=lambda life: (life.first, -life.size_bytes, life.name))
    if not aliasing:
        offsets, size = {}, 0
        for life in earliest:
            offsets[life.name] = round_up(size, life.alignment_bytes)
            size = offsets[life.name] + life.length_bytes
        return offsets, size
    packing, bound = _sweep(earliest), lower_bound(lifetimes)
    if packing[1] > bound and len(lifetimes) <= MOST_REORDERED:
        packing = min(packing, _search(earliest, bound), key=lambda each: each[1])
    return packing


def _sweep(lifetimes: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    """Place values by first step; a value whose lifetime has ended frees its bytes (first fit).

    Source: Knuth, The Art of Computer Programming, volume 1, section 2.5
    """
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
            (i, round_up(start, alignment))
            for i, (start, stop) in enumerate(gaps)
            if stop - round_up(start, alignment) >= length
        )
        start, end = gaps[number]
        left = [(start, offset), (offset + length, end)]
        gaps[number : number + 1] = [gap for gap in left if gap[0] < gap[1]]
        heapq.heappush(alive, (life.last, offset, offset + length))
        offsets[life.name] = offset
        size = max(size, offset + length)
    return offsets, size


def _free(gaps: list[tuple[int, float]], start: int, stop: float) -> None:
    """Insert a gap into the sorted gaps, joined with adjacent ones."""
    number = bisect.bisect(gaps, (start, stop))
    first = last = number
    if number and gaps[number - 1][1] == start:
        start, first = gaps[number - 1][0], number - 1
    if gaps[number][0] == stop:  # the last gap is endless: one always follows
        stop, last = gaps[number][1], number + 1
    gaps[first:last] = [(start, stop)]


def _search(lifetimes: Sequence[Lifetime], bound: int) -> tuple[dict[str, int], int]:
    """Place values in several orders, then improve the best order by local search.

    A step moves a value at the top of the arena forward; a packing that is no larger is kept. The
    random numbers are seeded: equal lifetimes get equal offsets.
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
        tops = [
            i
            for i, life in enumerate(order)
            if i and offsets[life.name] + life.length_bytes == size
        ]
        if not tops:
            break
        top = chance.choice(tops)
        tried = list(order)
        tried.insert(chance.randrange(top), tried.pop(top))
        packing = _place(tried, neighbours)
        if packing[1] <= size:
            order, (offsets, size) = tried, packing
    return offsets, size


def _neighbours(lifetimes: Iterable[Lifetime]) -> dict[str, list[Lifetime]]:
    """Return for each value those whose lifetimes overlap its own; sorted by first step."""
    neighbours: dict[str, list[Lifetime]] = {}
    alive: list[Lifetime] = []
    for life in lifetimes:
        alive = [other for other in alive if other.last >= life.first]
        neighbours[life.name] = list(alive)
        for other in alive:
            neighbours[other.name].append(life)
        alive.append(life)
    return neighbours


def _place(
    lifetimes: Iterable[Lifetime], neighbours: Mapping[str, Sequence[Lifetime]]
) -> tuple[dict[str, int], int]:
    """Place values in the given order, each in the lowest gap between its placed neighbours."""
    offsets: dict[str, int] = {}
    size = 0
    for life in lifetimes:
        length, offset = life.length_bytes, 0
        placed = [
            (offsets[other.name], other) for other in neighbours[life.name] if other.name in offsets
        ]
        for start, other in sorted(placed, key=lambda pair: pair[0]):
            if start - offset >= length:
                break
            offset = max(offset, round_up(start + other.length_bytes, life.alignment_bytes))
        offsets[life.name] = offset
        size = max(size, offset + length)
    return offsets, size


def check_offsets(lifetimes: Sequence[Lifetime], offsets: Mapping[str, int], size: int) -> None:
    """Raise PlanError unless every value is in the arena, aligned, and overlaps no live value.

    Labs swap `assign_offsets`, so its result is checked before a device uses it.

    Args:
        lifetimes: the values to place.
        offsets: their offsets in bytes, by name.
        size: size of the arena in bytes.
    """
    for life in lifetimes:
        offset = offsets.get(life.name)
        if not isinstance(offset, int) or offset < 0 or offset % life.alignment_bytes:
            raise PlanError(
                f"{life.name} is placed at {offset!r}; offsets are multiples of "
                f"{life.alignment_bytes} from 0 on"
            )
        if offset + life.size_bytes > size:
            raise PlanError(
                f"{life.name} ends at byte {offset + life.size_bytes} of an arena of {size}"
            )
    alive: list[tuple[int, int, str]] = []  # (start, stop, name) by start, all apart
    ends: list[tuple[int, tuple[int, int, str]]] = []  # heap of (last step, box)
    for life in sorted(lifetimes, key=lambda life: life.first):
        while ends and ends[0][0] < life.first:
            del alive[bisect.bisect_left(alive, heapq.heappop(ends)[1])]
        offset = offsets[life.name]
        box = (offset, offset + life.size_bytes, life.name)
        number = bisect.bisect(alive, box)
        for below, above in itertools.pairwise(
            [*alive[max(number - 1, 0) : number], box, *alive[number : number + 1]]
        ):
            if below[1] > above[0]:
                raise PlanError(
                    f"{below[2]} and {above[2]} are both alive at step {life.first} and share bytes"
                )
        alive.insert(number, box)
        heapq.heappush(ends, (life.last, box))


def pack(
    sizes: Iterable[tuple[str, int]], arena: str, limit_bytes: int
) -> tuple[dict[str, Slot], dict[str, int]]:
    """Return slots one after the other, without aliasing, and the size of each arena.

    Args:
        sizes: (name, bytes) of each value.
        arena: name of the arenas; a number is appended from the second on.
        limit_bytes: largest size of one arena; a single value may exceed it.
    """
    slots: dict[str, Slot] = {}
    arenas: dict[str, int] = {}
    current = arena
    for name, size in sizes:
        offset = arenas.get(current, 0)
        length = max(round_up(reserved(size)), ALIGNMENT_BYTES)
        if offset and offset + length > limit_bytes:
            current = f"{arena}{len(arenas)}"
            offset = 0
        slots[name] = Slot(current, offset, size)
        arenas[current] = offset + length
    return slots, arenas
