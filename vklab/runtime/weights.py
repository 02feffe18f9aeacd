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


class Weights:
    """The weight arenas of a session, uploaded once and shared by its programs."""

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self._uploaded: list[tuple[object, dict[str, Buffer]]] = []

    def buffers(self, plan: Plan) -> dict[str, Buffer]:
        """Return the weight arenas of a plan; upload them unless an earlier plan had the same."""
        placed = {
            name: plan.memory.slots[name]
            for name in plan.constants
            if name in plan.memory.slots
            and plan.memory.slots[name].arena.startswith("weights")
        }
        arrays = {name: plan.constants[name].constant for name in placed}
        layout = {
            (slot, array.__array_interface__["data"][0])
            for (name, slot), array in zip(placed.items(), arrays.values(), strict=True)
            if array is not None
        }
        for known, buffers in self._uploaded:
            if known == layout:
                return buffers
        buffers = self._upload(plan, placed, arrays)
        self._uploaded.append((layout, buffers))
        return buffers

    def _upload(
        self, plan: Plan, placed: Mapping[str, Slot], arrays: Mapping[str, np.ndarray | None]
    ) -> dict[str, Buffer]:
        buffers: dict[str, Buffer] = {}
        try:
            for arena, size in plan.memory.arenas.items():
                if not arena.startswith("weights"):
                    continue
                buffers[arena] = Buffer(self.opened.allocator, size, "device")
                parts = [
                    (slot.offset_bytes, array)
                    for name, slot in placed.items()
                    if slot.arena == arena and (array := arrays[name]) is not None
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
