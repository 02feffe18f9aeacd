"""Which bytes every value lives in: lifetimes, aliasing, arenas.

Values whose lifetimes do not meet may share memory. Visited by lab 11.
"""

from __future__ import annotations

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
    none is best for all: biggest, longest and earliest first are tried. Without aliasing every
    value gets bytes of its own.
    """
    orders: tuple[Callable[[Lifetime], tuple[int, int, str]], ...] = (
        lambda life: (-life.size_bytes, life.first, life.name),
        lambda life: (life.first - life.last, -life.size_bytes, life.name),
        lambda life: (life.first, -life.size_bytes, life.name),
    )
    best: tuple[dict[str, int], int] | None = None
    for order in orders if aliasing else orders[-1:]:
        found = _place(sorted(lifetimes, key=order), aliasing)
        if best is None or found[1] < best[1]:
            best = found
        if best[1] <= lower_bound(lifetimes):
            break
    assert best is not None
    return best


def _place(lifetimes: Sequence[Lifetime], aliasing: bool) -> tuple[dict[str, int], int]:
    offsets: dict[str, int] = {}
    size = 0
    placed_at: dict[int, list[tuple[int, int]]] = {}  # step -> (offset, end) of values alive
    for life in lifetimes:
        length = max(round_up(life.size_bytes), ALIGNMENT_BYTES)
        steps = range(life.first, life.last + 1)
        if aliasing:
            taken = sorted({box for step in steps for box in placed_at.get(step, ())})
            offset = _first_gap(taken, length)
        else:
            offset = size
        for step in steps:
            placed_at.setdefault(step, []).append((offset, offset + length))
        offsets[life.name] = offset
        size = max(size, offset + length)
    return offsets, size


def _first_gap(taken: Sequence[tuple[int, int]], length: int) -> int:
    end = 0
    for start, stop in taken:
        if start - end >= length:
            break
        end = max(end, stop)
    return end


def check_offsets(lifetimes: Sequence[Lifetime], offsets: Mapping[str, int], size: int) -> None:
    """Raise PlanError unless every value lies in the arena, aligned, and apart from its peers.

    `assign_offsets` is a seam that labs swap: what it returns is checked before a device trusts it.
    """
    starts: dict[int, list[Lifetime]] = {}
    for life in lifetimes:
        offset = offsets.get(life.name)
        if not isinstance(offset, int) or offset < 0 or offset % ALIGNMENT_BYTES:
            raise PlanError(f"{life.name} is placed at {offset!r}; offsets are multiples of "
                            f"{ALIGNMENT_BYTES} from 0 on")  # fmt: skip
        if offset + life.size_bytes > size:
            raise PlanError(f"{life.name} ends at byte {offset + life.size_bytes} of an arena of "
                            f"{size}")  # fmt: skip
        starts.setdefault(life.first, []).append(life)
    alive: list[Lifetime] = []
    for step in sorted(starts):
        alive = [life for life in alive if life.last >= step] + starts[step]
        ordered = sorted(alive, key=lambda life: offsets[life.name])
        for below, above in zip(ordered, ordered[1:], strict=False):
            if offsets[below.name] + below.size_bytes > offsets[above.name]:
                raise PlanError(f"{below.name} and {above.name} are both alive at step {step} and "
                                "share bytes")  # fmt: skip


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
