"""IOBinding: the inputs and outputs of a chunk as NumPy arrays on mapped memory.

A value that the device stores in another dtype than the model's is converted while it is copied.
The memory is host-coherent, so nothing has to be flushed or invalidated. Visited by lab 03.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab.errors import ModelError
from vklab.plan import storage
from vklab.plan.chunk import Chunk
from vklab.plan.memory import INPUTS, OUTPUTS, Slot
from vklab.runtime.buffers import PoolBuffer
from vklab.types import TensorInfo

# Buffer and byte offset of an input that is another program's output, read in place.
Given = tuple[PoolBuffer, int]
Finish = Callable[[np.ndarray], np.ndarray]
MAPPED = (INPUTS, OUTPUTS)


class IOBinding:
    """Mapped inputs and outputs of a chunk, as arrays by name.

    Values that move between devices without the host are left out.

    Args:
        chunk: the lowered chunk.
        buffers: the device buffer of each arena, by arena name.
        given: buffer and offset of each input that another program wrote and that is read in place.
        copied_in: names of the inputs that the host copies in.
        copied_out: names of the outputs that the host copies out, in this order.
    """

    def __init__(
        self, chunk: Chunk, buffers: Mapping[str, PoolBuffer], given: Mapping[str, Given],
        copied_in: Sequence[str], copied_out: Sequence[str],
    ) -> None:  # fmt: skip
        self.chunk = chunk
        self._buffers = buffers
        self.given = given
        graph, stored = chunk.graph, chunk.stored
        self.inputs = self._map(graph.inputs, chunk.input_slots, given)
        self.outputs = self._map([graph.infos[n] for n in graph.outputs], chunk.output_slots, {})
        self._encodes = any(stored[info.name] != info.dtype for info in graph.inputs)
        self._finishers = {name: self._steps(name) for name in graph.outputs}
        self._in, self._out = copied_in, copied_out

    def copy_in(self, values: Mapping[str, Any]) -> None:
        """Copy the inputs into mapped memory, converted to the stored dtypes."""
        for name in self._in:
            target, array = self.inputs[name], values[name]
            target[...] = storage.encode(array, str(target.dtype)) if self._encodes else array

    def copy_out(self, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Return copies of the outputs, or of some, by name, in the model's dtypes."""
        outputs = {}
        for name in names or self._out:
            array = self.outputs[name].copy()
            for step in self._finishers[name]:
                array = step(array)
            outputs[name] = array
        return outputs

    def _map(
        self, infos: Iterable[TensorInfo], slots: Mapping[str, Slot], given: Mapping[str, Given]
    ) -> dict[str, np.ndarray]:
        stored = self.chunk.stored
        return {
            i.name: self._view(slots[i.name], stored[i.name], i.dims, given.get(i.name))
            for i in infos
            if slots[i.name].arena.startswith(MAPPED)
        }

    def _view(
        self, slot: Slot, dtype: str, shape: tuple[int, ...], given: Given | None = None
    ) -> np.ndarray:
        if slot.size_bytes == 0:
            try:
                return np.zeros(shape, dtype)
            except ValueError as error:  # no elements, but a dimension beyond NumPy's numbers
                raise ModelError(f"an input or output of shape {shape}: {error}") from error
        buffer, start = given or (self._buffers[slot.arena], slot.offset_bytes)
        mapped = buffer.mapped
        assert mapped is not None, "inputs and outputs are in host-visible memory"
        return np.frombuffer(mapped, dtype, math.prod(shape), start).reshape(shape)

    def _steps(self, name: str) -> list[Finish]:
        """Return the conversions from an output's stored form to the model's."""
        steps: list[Finish] = []
        dtype = self.chunk.graph.infos[name].dtype
        if self.chunk.stored[name] != dtype:
            steps.append(functools.partial(storage.decode, dtype=dtype))
        if name in self.chunk.trims:
            counts = [
                (axis, self._view(self.chunk.output_slots[count], "int32", (1,)))
                for axis, count in self.chunk.trims[name]
            ]
            steps.append(functools.partial(_trim, counts=counts))
        return steps


def _trim(array: np.ndarray, counts: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Cut an output to the sizes that the device has written; a count is an int32 array."""
    for axis, count in counts:
        array = array.take(range(int(count[0])), axis)
    return np.ascontiguousarray(array)
