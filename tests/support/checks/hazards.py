"""Find every pair of steps that barriers leave unordered, by looking at every pair.

Written apart from `vklab.plan.barriers`: intervals of bytes, and chains of barriers after the
execution dependency chains of the Vulkan specification (section 7.1).
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from vklab.plan.barriers import Access, Barrier, Copy
from vklab.plan.chunk import Chunk
from vklab.plan.memory import Slot
from vklab.types import Dispatch, TensorInfo

# A space of bytes, where in it something starts, and stops.
Span = tuple[Hashable, int, int]


def shares_bytes(one: Sequence[Slot], other: Sequence[Slot]) -> bool:
    """Tell whether two lists of slots have a byte in common."""
    return any(
        a.arena == b.arena
        and max(a.offset_bytes, b.offset_bytes)
        < min(a.offset_bytes + a.size_bytes, b.offset_bytes + b.size_bytes)
        for a in one
        for b in other
    )


def conflict(first: Access, second: Access) -> str:
    """Name the hazard between two steps, or return the empty string."""
    if shares_bytes(first.writes, second.reads):
        return "read after write"
    if shares_bytes(first.reads, second.writes):
        return "write after read"
    return "write after write" if shares_bytes(first.writes, second.writes) else ""


def ordered(first: int, second: int, work: Sequence[Access], barriers: Sequence[Barrier]) -> bool:
    """Tell whether a chain of barriers leads from one step to a later one."""
    reached: set[str] = set()
    for barrier in sorted(barriers, key=lambda item: item.before):
        between = first < barrier.before <= second
        if between and ({work[first].stage} | reached) & set(barrier.source):
            reached |= set(barrier.target)
    return (work[second].stage if second < len(work) else "host") in reached


def hazards(
    work: Sequence[Access], barriers: Sequence[Barrier], host_reads: Sequence[Slot] = ()
) -> list[str]:
    """Return a line for every pair that touches the same bytes and is not ordered.

    `host_reads` are what the host reads when all is done.
    """
    found = [
        f"step {i} and step {j}: {conflict(work[i], work[j])}"
        for j in range(len(work))
        for i in range(j)
        if conflict(work[i], work[j]) and not ordered(i, j, work, barriers)
    ]
    return found + [
        f"step {i} and the host: read after write"
        for i, item in enumerate(work)
        if shares_bytes(item.writes, host_reads) and not ordered(i, len(work), work, barriers)
    ]


def superfluous(
    work: Sequence[Access], barriers: Sequence[Barrier], host_reads: Sequence[Slot] = ()
) -> list[Barrier]:
    """Return the barriers that could go one at a time without a hazard."""
    return [
        barrier
        for barrier in barriers
        if not hazards(work, [b for b in barriers if b is not barrier], host_reads)
    ]


def written(dispatch: Dispatch, info: TensorInfo, whole: Slot, number: int | None = None) -> Slot:
    """Return the bytes from the first that a dispatch writes of a tensor to the last.

    Args:
        number: which of its writes is asked for; else several that it has are taken for whole.
    """
    works = dispatch.siblings or [dispatch.pointwise or dispatch.epilogue]
    if number is not None and len(works) == len(dispatch.writes):
        works = [works[number]]
    elif len(dispatch.writes) > 1:
        return whole
    if any(work is None or work.target is None or not work.count for work in works):
        return whole
    ends: set[int] = set()
    for work in works:
        assert work is not None and work.target is not None
        places = {work.target.start}  # of the corners of the box that is walked
        for size, stride in zip(work.shape, work.target.strides, strict=True):
            places |= {place + (size - 1) * stride for place in places}
        ends |= places
    width = np.dtype(info.dtype).itemsize
    start, stop = min(ends) * width, (max(ends) + 1) * width
    assert 0 <= start < stop <= info.size_bytes, f"{dispatch} writes outside of {info}"
    return Slot(whole.arena, whole.offset_bytes + start, stop - start)


def work_of(chunk: Chunk) -> tuple[list[Access], list[Barrier], list[Slot]]:
    """Return what a chunk's steps touch, its barriers, and what the host reads in the end."""
    work = []
    for step in chunk.steps:
        if isinstance(step, Copy):
            work.append(Access("transfer", (step.source,), (step.target,)))
        else:
            reads = tuple(chunk.memory.slots[info.name] for _, info in step.reads)
            writes = tuple(
                written(step, info, chunk.memory.slots[info.name]) for _, info in step.writes
            )
            work.append(Access("compute_shader", reads, writes))
    return work, list(chunk.barriers), list(chunk.output_slots.values())


class Shadow:
    """Numbers that lie on bytes; bytes that are always touched together have theirs in common."""

    def __init__(self, spans: Iterable[Span], columns: int = 1) -> None:
        cuts: dict[Hashable, set[int]] = {}
        for space, start, stop in spans:
            cuts.setdefault(space, set()).update((start, stop))
        self._cuts = {space: sorted(places) for space, places in cuts.items()}
        self._numbers = {
            space: np.full((len(places), columns), -1) for space, places in cuts.items()
        }

    def part(self, span: Span) -> np.ndarray:
        """Return the numbers on a span, to be read or changed."""
        space, start, stop = span
        cuts = self._cuts[space]
        first, last = bisect.bisect_left(cuts, start), bisect.bisect_left(cuts, stop)
        return self._numbers[space][first:last]

    def runs(self, span: Span) -> tuple[tuple[int, int], ...]:
        """Return where on a span, from its start, another number begins, and that number."""
        space, start, _ = span
        first = bisect.bisect_left(self._cuts[space], start)
        found: list[tuple[int, int]] = []
        for place, number in enumerate(self.part(span)[:, 0].tolist(), first):
            if not found or found[-1][1] != number:
                found.append((self._cuts[space][place] - start, number))
        return tuple(found)
