"""Decide which values move between stages past the host, and name the paths between devices.

Between devices with memory of their own, large values are never whole in host-visible memory. The
runtime chooses the path of each value and writes it into the plan. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vklab import settings
from vklab.graph.graph import Graph
from vklab.plan import arenas, storage
from vklab.plan.chunk import Chunk, Transfer
from vklab.types import DeviceInfo, TensorInfo

SAME_MEMORY = "same memory"
DMA_BUF = "dma-buf"
RING = "ring in shared host memory"
RING_COPIED = "ring with host copies"
SHARED = "shared host memory"
HOST_COPY = "host copy"
# Moving this many bytes takes longer than one more submission and the fusions lost.
EARLY_BYTES = 4 << 20


class TransferPath(NamedTuple):
    """Name of the path that a value takes, and the reason why no better one is possible."""

    name: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


def unseen(
    graph: Graph, stages: Sequence[Chunk], moves: Sequence[Transfer], devices: Sequence[DeviceInfo]
) -> frozenset[str]:
    """Return the values that stages exchange in memory that is not host-visible.

    All values between stages of one device; values that move by dma-buf or in pieces between
    devices with equal storage types. Not the graph's outputs, nor values of devices that write
    host-visible memory directly.

    Args:
        graph: the shaped graph.
        stages: its stages.
        moves: the transfers between them.
        devices: the devices that stages number.
    """
    ends: dict[str, set[int]] = {}
    for move in moves:
        numbers = (stages[move.source or 0].device, stages[move.target].device)
        ends.setdefault(move.value, set()).update(numbers)
    sizes = {move.value: move.size_bytes for move in moves}
    return frozenset(
        name
        for name, numbers in ends.items()
        if sizes[name]
        and name not in graph.outputs
        and (len(numbers) == 1 or _moves_past(graph.infos[name], [devices[n] for n in numbers]))
    )


def early(
    graph: Graph, numbers: Mapping[str, int], devices: Sequence[DeviceInfo]
) -> frozenset[str]:
    """Return the large values that move past the host while their device continues.

    Args:
        graph: the shaped graph.
        numbers: the device number of every node, by name.
        devices: the devices in the order that numbers them.
    """
    if settings.get("DISABLE_EARLY_MOVES") or settings.get("DISABLE_DEVICE_ORDER"):
        return frozenset()
    least = 1 if settings.get("DISABLE_DIRECT_IO") else EARLY_BYTES
    ends: dict[str, set[int]] = {}
    for node in graph.nodes:
        for name in (*node.outputs, *node.reads):
            ends.setdefault(name, set()).add(numbers[node.name])
    made = {name for node in graph.nodes for name in node.outputs if name} - {*graph.outputs}
    return frozenset(
        name
        for name in made
        if len(ends[name]) > 1
        and graph.infos[name].size_bytes >= least
        and _moves_past(graph.infos[name], [devices[number] for number in ends[name]])
    )


def _moves_past(value: TensorInfo, devices: Sequence[DeviceInfo]) -> bool:
    """Tell whether a value moves between devices without host-visible memory."""
    return (
        not settings.get("DISABLE_STAGING_RING")
        and len({storage.stored_dtype(value.dtype, info) for info in devices}) == 1
        and not any(arenas.writes_in_place(info, value.size_bytes) for info in devices)
    )
