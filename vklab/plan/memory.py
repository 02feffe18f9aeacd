"""Which bytes every value lives in: lifetimes, aliasing, arenas.

Values whose lifetimes do not meet may share memory. Visited by lab 11.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vklab import draw
from vklab.errors import PlanError

__all__ = [
    "ALIGNMENT_BYTES",
    "Lifetime",
    "MemoryPlan",
    "Slot",
    "assign_offsets",
    "check_offsets",
    "lower_bound",
    "pack",
    "round_up",
]

# The largest minStorageBufferOffsetAlignment that Vulkan allows a device to ask for.
ALIGNMENT_BYTES = 256
# Trying another order takes time that grows with the square of the number of values.
MOST_REORDERED = 2048


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

    def meets(self, other: Lifetime) -> bool:
        """Tell whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


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
        """Return the bytes of the arena that activations share."""
        return self.arenas.get("activations", 0)

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

    def _repr_html_(self) -> str:
        boxes = [
            (life.name, life.first, life.last, self.slots[life.name].offset_bytes, life.size_bytes)
            for life in self.lifetimes
        ]
        steps = max((life.last for life in self.lifetimes), default=0) + 1
        return draw.memory_map_svg(str(self), boxes, steps, self.arena_bytes)


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Return the largest sum of bytes alive at one step: no packing can be smaller."""
    changes: dict[int, int] = {}
    for life in lifetimes:
        changes[life.first] = changes.get(life.first, 0) + round_up(life.size_bytes)
        changes[life.last + 1] = changes.get(life.last + 1, 0) - round_up(life.size_bytes)
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
    none is best for all: earliest, biggest and longest first are tried, of very many values the
    earliest only. Without aliasing every value gets bytes of its own.
    """
    earliest = sorted(lifetimes, key=lambda life: (life.first, -life.size_bytes, life.name))
    if not aliasing:
        lengths = [_length(life) for life in earliest]
        ends = list(itertools.accumulate(lengths, initial=0))
        names = (life.name for life in earliest)
        return dict(zip(names, ends, strict=False)), ends[-1]
    best, bound = _sweep(earliest), lower_bound(lifetimes)
    orders: tuple[Callable[[Lifetime], tuple[int, int, str]], ...] = (
        lambda life: (-life.size_bytes, life.first, life.name),
        lambda life: (life.first - life.last, -life.size_bytes, life.name),
    )
    for order in orders:
        if best[1] <= bound or len(lifetimes) > MOST_REORDERED:
            break
        best = min(_place(sorted(lifetimes, key=order)), best, key=lambda found: found[1])
    return best


def _length(life: Lifetime) -> int:
    return max(round_up(life.size_bytes), ALIGNMENT_BYTES)


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
        length = _length(life)
        number = next(i for i, (start, stop) in enumerate(gaps) if stop - start >= length)
        offset, end = gaps[number]
        gaps[number : number + 1] = [(offset + length, end)] if end - offset > length else []
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


def _place(lifetimes: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    """Place values in any order, each at the lowest gap between those that it meets."""
    offsets: dict[str, int] = {}
    size = 0
    placed: list[tuple[int, int, Lifetime]] = []  # (start, stop, value) by start
    for life in lifetimes:
        length, offset = _length(life), 0
        for start, stop, other in placed:
            if start - offset >= length:
                break
            if stop > offset and life.meets(other):
                offset = stop
        bisect.insort(placed, (offset, offset + length, life), key=lambda box: box[:2])
        offsets[life.name] = offset
        size = max(size, offset + length)
    return offsets, size


def check_offsets(lifetimes: Sequence[Lifetime], offsets: Mapping[str, int], size: int) -> None:
    """Raise PlanError unless every value lies in the arena, aligned, and apart from its peers.

    `assign_offsets` is a seam that labs swap: what it returns is checked before a device trusts it.
    """
    for life in lifetimes:
        offset = offsets.get(life.name)
        if not isinstance(offset, int) or offset < 0 or offset % ALIGNMENT_BYTES:
            raise PlanError(f"{life.name} is placed at {offset!r}; offsets are multiples of "
                            f"{ALIGNMENT_BYTES} from 0 on")  # fmt: skip
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
