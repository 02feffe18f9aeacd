"""The weights of a session on one device: uploaded once, shared by the programs of all shapes.

Visited by labs 03 and 11.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vklab.plan.memory import Slot
from vklab.plan.plan import Plan
from vklab.runtime import transfer
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.memory import Buffer

__all__ = ["Weights"]


Placed = tuple[Slot, np.ndarray]


class Weights:
    """The weight arenas of a session, uploaded once and shared by its programs."""

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self._uploaded: list[tuple[dict[str, Placed], dict[str, Buffer]]] = []

    def buffers(self, plan: Plan) -> dict[str, Buffer]:
        """Return the weight arenas of a plan; upload them unless an earlier plan had the same."""
        placed = {
            name: (plan.memory.slots[name], info.constant)
            for name, info in plan.constants.items()
            if name in plan.memory.slots
            and plan.memory.slots[name].arena.startswith("weights")
            and info.constant is not None
        }
        for known, buffers in self._uploaded:
            if known.keys() == placed.keys() and all(
                _is_same(known[name], place) for name, place in placed.items()
            ):
                return buffers
        buffers = self._upload(plan, placed)
        self._uploaded.append((placed, buffers))
        return buffers

    def _upload(self, plan: Plan, placed: Mapping[str, Placed]) -> dict[str, Buffer]:
        buffers: dict[str, Buffer] = {}
        try:
            for arena, size in plan.memory.arenas.items():
                if not arena.startswith("weights"):
                    continue
                buffers[arena] = Buffer(self.opened.allocator, size, "device")
                parts = [
                    (slot.offset_bytes, array)
                    for slot, array in placed.values()
                    if slot.arena == arena
                ]
                transfer.upload(self.opened, buffers[arena], parts)
        except BaseException:
            for buffer in buffers.values():
                buffer.close()
            raise
        return buffers

    def close(self) -> None:
        """Free every weight arena."""
        while self._uploaded:
            for buffer in self._uploaded.pop()[1].values():
                buffer.close()


def _is_same(one: Placed, other: Placed) -> bool:
    """Tell whether two weights are the same bytes in the same place.

    Initializers are the same arrays in every plan; folded constants are made again for each.
    """
    (slot, array), (other_slot, other_array) = one, other
    return slot == other_slot and (
        array is other_array
        or transfer.array_bytes(array) == transfer.array_bytes(other_array)
    )
