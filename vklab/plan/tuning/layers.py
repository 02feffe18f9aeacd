"""Order dispatches in layers, which run side by side between two barriers.

Independent branches share layers, as long as the values alive at once fit into the memory that the
branches take one after the other. Barriers themselves are placed elsewhere. Visited by labs 11
and 12.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from vklab import settings
from vklab.plan import memory
from vklab.plan.arenas import Arenas
from vklab.plan.lowering import Lowered, written_bytes
from vklab.plan.tuning import ahead, in_place
from vklab.types import Dispatch

room_bytes = ahead.room_bytes
# Ready dispatches without room that end a layer; each is tried again in the next layer.
MOST_LEFT = 16


def grouped(lowered: Lowered, arranged: Arenas, most: int) -> Lowered:
    """Return dispatches in layers, each of which reads results of earlier layers only.

    Of the ready dispatches, those that the longest chain waits for come first.

    Args:
        lowered: the dispatches, in any order that respects their dependences.
        arranged: the memory for that order; a layer never takes more, but for `ahead`.
        most: the number of layers from which on `lowered` itself is returned.

    Source: Hu 1961, highest level first; the limit on memory is added.
    """
    if settings.get("DISABLE_REORDER"):
        return lowered
    waits = _waits(lowered)
    early = ahead.early(lowered, waits)
    others = [before - early for before in waits]
    layers = _layers(others, _Room(lowered, arranged), most, early)
    layers = ahead.placed(lowered, waits, layers, early) if layers else layers
    order = [number for layer in layers for number in layer]
    return (
        lowered
        if not order
        else replace(
            lowered,
            dispatches=tuple(lowered.dispatches[number] for number in order),
            nodes=tuple(lowered.nodes[number] for number in order),
            layers=tuple(depth for depth, layer in enumerate(layers) for _ in layer),
        )
    )


def _layers(
    waits: Sequence[Collection[int]], room: _Room, most: int, early: Collection[int]
) -> list[list[int]]:
    """Return dispatches but `early` in fewer layers than `most`; none where memory is too small."""
    frees: list[list[int]] = [[] for _ in waits]
    heights = [1] * len(waits)  # the longest chain from each to the end
    for number in reversed(range(len(waits))):
        for other in waits[number]:
            frees[other].append(number)
            heights[other] = max(heights[other], 1 + heights[number])
    waiting = [len(before) for before in waits]
    ready = [
        (-heights[number], number)
        for number, count in enumerate(waiting)
        if not count and number not in early
    ]
    heapq.heapify(ready)
    layers: list[list[int]] = []
    while ready:
        layer, left = list[int](), list[tuple[int, int]]()
        while ready and len(left) < MOST_LEFT:
            _, number = first = heapq.heappop(ready)
            if room.take(number):
                layer.append(number)
            else:
                left.append(first)
        layers.append(sorted(layer))
        if not layer or len(layers) + max(heights[number] for number in layer) > most:
            return []
        room.leave(layer)
        for number in (other for done in layer for other in frees[done]):
            waiting[number] -= 1
            if not waiting[number]:
                left.append((-heights[number], number))
        for entry in left:
            heapq.heappush(ready, entry)
    return layers


def _waits(lowered: Lowered) -> list[set[int]]:
    """Return for each dispatch the earlier ones with which it shares bytes that either writes.

    The ends of slices cut a root into parts, each of which has its own readers and writer.
    """
    spans = [_spans(lowered, dispatch) for dispatch in lowered.dispatches]
    cuts: dict[str, list[int]] = {}
    for root, start, stop, is_part, _ in (each for touched in spans for each in touched):
        if is_part:
            cuts.setdefault(root, []).extend((start, stop))
    ordered = {root: sorted(ends) for root, ends in cuts.items()}
    writers: dict[tuple[str, int], int] = {}
    readers: dict[tuple[str, int], list[int]] = {}  # since the last writer
    waits: list[set[int]] = []
    for number, touched in enumerate(spans):
        before: set[int] = set()
        for root, start, stop, _, writes in touched:
            ends = ordered.get(root, [])
            first = bisect.bisect_right(ends, start)
            for part in range(first, bisect.bisect_left(ends, stop) + 1):
                key = root, part
                if key in writers:
                    before.add(writers[key])
                if writes:
                    before.update(readers.pop(key, ()))
                    writers[key] = number
                else:
                    readers.setdefault(key, []).append(number)
        waits.append(before - {number})
    return waits


def _spans(lowered: Lowered, dispatch: Dispatch) -> list[tuple[str, int, int, bool, bool]]:
    """Return (root, start, stop, is_part, writes) of each operand that is no constant, in bytes."""
    spans = []
    for number, (_, info) in enumerate(dispatch.reads + dispatch.writes):
        writes = number >= len(dispatch.reads)
        first, size = written_bytes(dispatch, info) if writes else (0, info.size_bytes)
        start, root = lowered.start_bytes(info) + first, lowered.roots[info.name]
        is_part = info.name in lowered.slices or size < info.size_bytes
        if root not in lowered.constants:
            spans.append((root, start, start + size, is_part, writes))
    return spans


class _Room:
    """Bytes of activations that are alive, counted layer by layer."""

    def __init__(self, lowered: Lowered, arranged: Arenas) -> None:
        plan = arranged.memory
        self._lowered = lowered
        self._sizes = {
            root: memory.round_up(slot.size_bytes, plan.lifetimes[0].alignment_bytes)
            for root in set(lowered.roots.values())
            if (slot := plan.slots.get(root)) and slot.arena.startswith(memory.ACTIVATIONS)
        }
        self._limit = plan.arena_bytes
        self._born = {copy.name for copy in arranged.copies_in}
        self._alive = sum(self._sizes.get(root, 0) for root in self._born)
        self._uses = Counter(copy.name for copy in arranged.copies_out)
        self._uses.update(r for n in range(len(lowered.dispatches)) for r in self._touched(n))

    def _touched(self, number: int) -> set[str]:
        dispatch = self._lowered.dispatches[number]
        return {self._lowered.roots[info.name] for _, info in dispatch.reads + dispatch.writes}

    def take(self, number: int) -> bool:
        """Reserve the bytes that a dispatch writes; return False if there is no room for them."""
        dispatch, roots = self._lowered.dispatches[number], self._lowered.roots
        born = {roots[info.name] for _, info in dispatch.writes} - self._born
        alive = self._alive + sum(self._sizes.get(root, 0) for root in born)
        replaced = next(
            (
                root
                for root in in_place.replaceable(dispatch, self._lowered)
                if root in self._sizes and self._uses[root] == 1
            ),
            "",
        )
        if replaced and not born.isdisjoint(self._sizes):
            alive -= self._sizes[replaced]
        else:
            replaced = ""
        if alive > self._limit:
            return False
        self._alive = alive
        self._born |= born
        if replaced:
            self._sizes[replaced] = 0
        return True

    def leave(self, layer: Iterable[int]) -> None:
        """End a layer: release the values that no later dispatch reads."""
        for root in (root for number in layer for root in self._touched(number)):
            self._uses[root] -= 1
            if not self._uses[root]:
                self._alive -= self._sizes.get(root, 0)
