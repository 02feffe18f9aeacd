"""Dequantise weights in blocks beside the products before their own, instead of between two.

A product waits for arithmetic and dequantisation for memory, so that one hides the other; and each
dispatch between two barriers costs a start and an end. DISABLE_PASSES=unpack_ahead keeps each
before its own product.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vklab.base import catalogue
from vklab.plan.arenas import Arenas
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch

KERNEL = "unpack_units"
# So many of the largest matrices may be in memory beside what one after the other takes.
MATRICES, MOST_BYTES = 3, 384 << 20
HEAP_PARTS = 32  # it is at most one of so many parts of the device's memory
# Layers that are searched for one with arithmetic: operations for each byte that it moves.
MOST_LAYERS, BUSY = 3, 16


def early(lowered: Lowered, waits: Sequence[Collection[int]]) -> frozenset[int]:
    """Return the numbers of the dispatches that dequantise weights, and wait for no other.

    Args:
        lowered: the dispatches.
        waits: for each the earlier ones that it waits for.
    """
    if _is_off():
        return frozenset()
    return frozenset(
        number
        for number, dispatch in enumerate(lowered.dispatches)
        if dispatch.kernel == KERNEL and not waits[number]
    )


def placed(
    lowered: Lowered, waits: Sequence[Collection[int]], layers: Sequence[Sequence[int]],
    numbers: Collection[int],
) -> list[list[int]]:  # fmt: skip
    """Return layers with further dispatches, each before the first that reads its result.

    Args:
        lowered: the dispatches.
        waits: for each the earlier ones that it waits for.
        layers: the layers of all other dispatches.
        numbers: the dispatches to place, as `early` returns them.
    """
    made = [list[int](), *(list(layer) for layer in layers)]
    busy = [any(_is_busy(lowered.dispatches[number]) for number in layer) for layer in made]
    left = set(numbers)
    for depth, layer in enumerate(layers, 1):
        near = range(depth - 1, max(depth - 1 - MOST_LAYERS, -1), -1)
        target = made[next((at for at in near if busy[at]), depth - 1)]
        needed = left.intersection(before for each in layer for before in waits[each])
        target.extend(needed)
        left -= needed
    return [sorted(layer) for layer in made if layer]


def room_bytes(lowered: Lowered, arranged: Arenas, info: DeviceInfo) -> int:
    """Return the bytes that a plan in layers may take.

    Args:
        lowered: the dispatches.
        arranged: the memory that they take one after the other.
        info: the device.
    """
    sizes = [each.writes[0][1].size_bytes for each in lowered.dispatches if each.kernel == KERNEL]
    more = 0 if _is_off() else MATRICES * max(sizes, default=0)
    largest = max((heap.size_bytes for heap in info.heaps if heap.device_local), default=0)
    return arranged.memory.arena_bytes + min(more, MOST_BYTES, largest // HEAP_PARTS)


def _is_busy(dispatch: Dispatch) -> bool:
    return dispatch.flops > BUSY * dispatch.size_bytes


def _is_off() -> bool:
    return catalogue.is_off("unpack_ahead")
