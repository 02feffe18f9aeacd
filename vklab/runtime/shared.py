"""Memory that the stages of a spread part have in common: what one leaves, another reads there.

On one device it is one buffer; between devices one host allocation imported into both. What can
be neither is copied through the host. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab import settings
from vklab.errors import VulkanError
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.plan.stages import Stage, Transfer
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.places import Given
from vklab.runtime.reserve import Reserve
from vklab.vulkan.host_memory import EXTENSION, HostMemory, ImportedBuffer

__all__ = ["Shared"]


class Shared:
    """The memory of a part's stages but for their weights.

    Args:
        opened: devices by the numbers of the plan.
    """

    def __init__(self, plan: SpreadPlan, opened: Sequence[OpenDevice]) -> None:
        self.plan = plan
        self._opened = opened
        self._reserves: dict[int, Reserve] = {}
        self._memory: dict[tuple[int, str], HostMemory] = {}
        self._imports: dict[tuple[int, str, int], ImportedBuffer] = {}

    def reserve(self, stage: Stage) -> Reserve:
        """Return a stage's memory, in which outputs for other devices lie where those see them."""
        made = self._reserves[stage.number] = Reserve(self._opened[stage.device])
        plan = self.plan.plans[stage.number]
        for move in self.plan.transfers:
            if move.source == stage.number and self._crosses(move):
                arena = plan.output_slots[move.value].arena
                if arena not in made.buffers:
                    self._import(stage, arena, plan, made)
        return made

    def _crosses(self, move: Transfer) -> bool:
        ends = [self._opened[self.plan.stages[n].device] for n in (move.source or 0, move.target)]
        return (
            ends[0] is not ends[1] and not settings.get("DISABLE_SHARED_MEMORY")
            and all(EXTENSION in opened.device.extensions for opened in ends)
        )  # fmt: skip

    def _import(self, stage: Stage, arena: str, plan: Plan, made: Reserve) -> None:
        size = plan.memory.arenas[arena]
        memory = HostMemory(size)
        try:
            made.buffers[arena] = ImportedBuffer(self._opened[stage.device].device, memory, size)
        except (VulkanError, LookupError):
            return  # the driver does not take it: an ordinary buffer is made, and copied from
        self._memory[stage.number, arena] = memory

    def given(self, stage: Stage) -> dict[str, Given]:
        """Return the inputs of a stage that lie where an earlier one leaves them."""
        found: dict[str, Given] = {}
        for move in self.plan.transfers:
            if move.target == stage.number and move.source is not None:
                given = self._given(move, self.plan.stages[move.source], stage)
                if given:
                    found[move.value] = given
        return found

    def _given(self, move: Transfer, source: Stage, target: Stage) -> Given | None:
        plan, reader = self.plan.plans[source.number], self.plan.plans[target.number]
        slot = plan.output_slots[move.value]
        alignment = self.plan.devices[target.device].limit("minStorageBufferOffsetAlignment")
        if plan.stored[move.value] != reader.stored[move.value] or not slot.size_bytes:
            return None
        if slot.offset_bytes % (alignment or 1):
            return None
        if source.device == target.device:
            self.plan.paths[move] = "same memory"
            return self._reserves[source.number].buffers[slot.arena], slot.offset_bytes
        memory = self._memory.get((source.number, slot.arena))
        if memory is None:
            return None
        key = source.number, slot.arena, target.device
        if key not in self._imports:
            device = self._opened[target.device].device
            try:
                self._imports[key] = ImportedBuffer(device, memory, plan.memory.arenas[slot.arena])
            except (VulkanError, LookupError):
                return None
        self.plan.paths[move] = "shared host memory"
        return self._imports[key], slot.offset_bytes

    def close(self) -> None:
        """Free it, after the programs that use it; what a device still works on is kept."""
        stuck = [opened for opened in self._opened if opened.is_stuck]
        if stuck:
            stuck[0].forget(self)
            return
        while self._imports:
            self._imports.popitem()[1].close()
        while self._reserves:
            self._reserves.popitem()[1].close()
