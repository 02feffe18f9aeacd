"""Which values cross between devices past the host, and what a way from device to device is called.

Where both devices have memory of their own, large values never lie whole where the host sees them.
The runtime chooses the way and writes it into the plan. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vklab import settings
from vklab.graph.graph import Graph
from vklab.plan import arenas, storage
from vklab.plan.stages import Stage, Transfer
from vklab.types import DeviceInfo

__all__ = ["DMA_BUF", "HOST_COPY", "Path", "RING", "RING_COPIED", "SAME_MEMORY", "SHARED",
           "unseen"]  # fmt: skip

SAME_MEMORY = "same memory"
DMA_BUF = "dma-buf"
RING = "ring in shared host memory"
RING_COPIED = "ring with host copies"
SHARED = "shared host memory"
HOST_COPY = "host copy"


class Path(NamedTuple):
    """The way that a value takes, and why none that is better."""

    name: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


def unseen(
    graph: Graph, stages: Sequence[Stage], moves: Sequence[Transfer], devices: Sequence[DeviceInfo]
) -> frozenset[str]:
    """Return the values that move by dma-buf or in pieces, between all devices that they touch.

    Not what devices store differently, what the host reads in the end, or what a device writes or
    reads best where the host sees it.
    """
    if settings.get("DISABLE_STAGING_RING"):
        return frozenset()
    ends: dict[str, set[int]] = {}
    for move in moves:
        numbers = (stages[move.source or 0].device, stages[move.target].device)
        ends.setdefault(move.value, set()).update(numbers)
    sizes = {move.value: move.size_bytes for move in moves}
    return frozenset(
        name for name, numbers in ends.items()
        if len(numbers) > 1 and sizes[name] and name not in graph.outputs
        and len({storage.stored_dtype(graph.infos[name].dtype, devices[n]) for n in numbers}) == 1
        and not any(arenas.writes_in_place(devices[n], sizes[name]) for n in numbers)
    )  # fmt: skip
