"""What becomes one command buffer, and where in it barriers must stand.

A barrier costs ten dispatches, so one is placed only where two steps touch the same bytes and
one of them writes. Visited by labs 06 and 12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.plan.memory import Slot
from vklab.types import Dispatch

__all__ = ["Barrier", "Chunk", "Copy", "Step", "Work", "find_barriers"]


@dataclass(frozen=True)
class Copy:
    """Bytes moved between two places of one device, around the dispatches."""

    name: str
    source: Slot
    target: Slot

    def __str__(self) -> str:
        return f"copy {self.name}: {self.source} -> {self.target}"


Step = Dispatch | Copy


@dataclass(frozen=True)
class Work:
    """What a step touches, which is all that barriers depend on."""

    stage: str
    reads: tuple[Slot, ...]
    writes: tuple[Slot, ...]


@dataclass(frozen=True)
class Barrier:
    """Before step `before`, make what `source` stages did visible to `target` stages."""

    before: int
    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class Chunk:
    """Steps of one device that become one command buffer, submitted as a whole."""

    steps: tuple[Step, ...]
    barriers: tuple[Barrier, ...]
    nodes: tuple[str, ...]
    predecessors: tuple[int, ...] = ()
    dependents: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"chunk of {len(self.steps)} steps with {len(self.barriers)} barriers"


def find_barriers(work: Sequence[Work], to_host: bool = True) -> tuple[Barrier, ...]:
    """Return the fewest barriers for steps in this order.

    A barrier orders everything before it, so only what was touched since the last one counts.
    With `to_host`, a last barrier (before the step after the end) lets the host read results.
    """
    barriers: list[Barrier] = []
    written = {slot.arena for item in work for slot in item.writes}
    pending: list[tuple[Slot, str, bool]] = []  # (slot, stage, was it written) since the barrier
    for number, item in enumerate(work):
        touched = [(slot, item.stage, False) for slot in item.reads if slot.arena in written]
        touched += [(slot, item.stage, True) for slot in item.writes]
        if any(
            (old_write or new_write) and old.overlaps(new)
            for new, _, new_write in touched
            for old, _, old_write in pending
        ):
            sources = {stage for _, stage, _ in pending}
            barriers.append(Barrier(number, tuple(sorted(sources)), ()))
            pending = []
        pending += touched
    return _with_targets(barriers, work, to_host)


def _with_targets(
    barriers: Sequence[Barrier], work: Sequence[Work], to_host: bool
) -> tuple[Barrier, ...]:
    bounds = [*(barrier.before for barrier in barriers), len(work)]
    complete = [
        Barrier(b.before, b.source, tuple(sorted({item.stage for item in work[b.before : end]})))
        for b, end in zip(barriers, bounds[1:], strict=True)
    ]
    if to_host and work:
        stages = tuple(sorted({item.stage for item in work if item.writes}))
        complete.append(Barrier(len(work), stages, ("host",)))
    return tuple(complete)
