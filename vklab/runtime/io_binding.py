"""Where the host meets a program: its inputs and outputs as arrays on mapped memory.

Values that a device stores otherwise than the model says are changed on the way. Visited by
lab 03.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from vklab.plan import arenas, storage
from vklab.plan.memory import Slot
from vklab.plan.plan import Plan
from vklab.types import TensorInfo
from vklab.vulkan.host_memory import ExternalBuffer
from vklab.vulkan.memory import Buffer

__all__ = ["Given", "IOBinding"]

# Where an input lies that is another program's output.
Given = tuple[Buffer | ExternalBuffer, int]
Finish = Callable[[np.ndarray], np.ndarray]


class IOBinding:
    """The mapped inputs and outputs of a plan, as arrays by name.

    Those that move from device to device past the host are not among them.
    """

    def __init__(
        self, plan: Plan, buffers: Mapping[str, Buffer | ExternalBuffer],
        given: Mapping[str, Given],
    ) -> None:  # fmt: skip
        self.plan = plan
        self._buffers = buffers
        self._given = given
        graph = plan.graph
        self.inputs = self._map(graph.inputs, plan.input_slots, given)
        self.outputs = self._map([graph.infos[n] for n in graph.outputs], plan.output_slots, {})
        self._encodes = any(plan.stored[info.name] != info.dtype for info in graph.inputs)
        self._finishers = {name: self._steps(name) for name in graph.outputs}

    def put(self, name: str, array: np.ndarray) -> None:
        """Copy one input in."""
        place = self.inputs[name]
        np.copyto(place, storage.encode(array, str(place.dtype)) if self._encodes else array)

    def take(self, name: str) -> np.ndarray:
        """Copy one output out."""
        array = self.outputs[name].copy()
        for step in self._finishers[name]:
            array = step(array)
        return array

    def pass_on(self, name: str, target: IOBinding) -> None:
        """Copy an output to another plan's input of the same name, unless it lies there."""
        if name in target._given:
            return
        if self.plan.stored[name] == target.plan.stored[name]:
            np.copyto(target.inputs[name], self.outputs[name])
        else:  # the devices store its dtype differently
            target.put(name, self.take(name))

    def _map(
        self, infos: Iterable[TensorInfo], slots: Mapping[str, Slot], given: Mapping[str, Given]
    ) -> dict[str, np.ndarray]:
        stored = self.plan.stored
        return {
            i.name: self._view(slots[i.name], stored[i.name], i.dims, given.get(i.name))
            for i in infos if not slots[i.name].arena.startswith((arenas.ARRIVING, arenas.LEAVING))
        }  # fmt: skip

    def _view(
        self, slot: Slot, dtype: str, shape: tuple[int, ...], given: Given | None = None
    ) -> np.ndarray:
        if slot.size_bytes == 0:
            return np.zeros(shape, dtype)
        buffer, start = given or (self._buffers[slot.arena], slot.offset_bytes)
        mapped = buffer.mapped
        assert mapped is not None, "inputs and outputs lie in host-visible memory"
        flat = np.frombuffer(mapped, np.uint8, slot.size_bytes, start).view(dtype)
        return flat.reshape(shape)

    def _steps(self, name: str) -> list[Finish]:
        """Return what must happen to an output that is stored otherwise than the model says."""
        steps: list[Finish] = []
        dtype = self.plan.graph.infos[name].dtype
        if self.plan.stored[name] != dtype:
            steps.append(functools.partial(storage.decode, dtype=dtype))
        if name in self.plan.trims:
            counts = [
                (axis, self._view(self.plan.output_slots[count], "int32", (1,)))
                for axis, count in self.plan.trims[name]
            ]
            steps.append(functools.partial(_trim, counts=counts))
        return steps


def _trim(array: np.ndarray, counts: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Cut an output to the sizes that the device has counted."""
    for axis, count in counts:
        array = array.take(range(int(count[0])), axis)
    return np.ascontiguousarray(array)
