"""BoundPrograms: a whole model as one chunk, recorded for buffers that stay between runs.

A state is swapped, not copied: one recording reads buffer A and writes B, another reads B and
writes A. Visited by lab 12.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import ModelError, VklabError
from vklab.plan import memory, storage
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.memory import Slot
from vklab.runtime import kernels, upload
from vklab.runtime.bound.memory import BoundMemory, import_array
from vklab.runtime.bound.tensors import DeviceTensor
from vklab.runtime.io_binding import Given
from vklab.runtime.many import device_copies
from vklab.runtime.plan_cache import Entry, PlanCache
from vklab.runtime.program import Program

__all__ = ["BoundPrograms", "refusal"]

Key = tuple[str, bool]


def refusal(root: PlanCache, entry: Entry, states: Mapping[str, str]) -> str:
    """Return why a plan's values cannot stay on the device; empty if they can.

    Args:
        root: the plans of the model.
        entry: the first part of the plan.
        states: the output that each state is after a run, by the state's input name.
    """
    if root.executor.splitter:
        return "the model is split over several devices"
    if root.needs:
        return f"the plan depends on the values of {', '.join(root.needs)}"
    if entry.whole is None:
        kinds = {chunk.kind for chunk in entry.chunks}
        left = entry.plan.rest.nodes if entry.plan.rest else ()
        if "control" in kinds or any(node.bodies for node in left):
            return "control flow runs on the host"
        return "nodes run on the host" if left or "host" in kinds else "an output needs no run"
    if entry.chunks[0].trims:
        return f"the size of {next(iter(entry.chunks[0].trims))} is known after each run only"
    slots = entry.chunks[0].output_slots
    for one, other in itertools.combinations(states.values(), 2):
        if slots[one].overlaps(slots[other]):  # but the first values of the states may differ
            return f"the outputs {one} and {other} are one value"
    return ""


def _lowered(root: PlanCache, entry: Entry, unseen: Collection[str]) -> Chunk:
    """Return the chunk of a plan with some inputs and outputs in device memory, without copies.

    Its kernels are those that the session has compiled already.
    """
    chunk, executor, options = entry.chunks[0], root.executor, entry.plan.options
    if not unseen:
        return chunk
    [state] = executor.devices
    known = {name[:-1] for name in state.kernels}

    def missing(dispatch: Any) -> str:
        return "" if kernels.key(dispatch) in known else kernels.unavailable(dispatch)

    with settings.settings(**options.switches), executor.compiling():
        facts = replace(executor.facts(), kernel_refusal=missing)
        return plans.lower_rewritten(chunk, state.opened.info, facts, unseen)


class BoundPrograms:
    """Recordings of a binding, and the memory of its inputs and outputs.

    Args:
        root: the plans of the model, for one device.
        entry: the plan of the binding's shapes.
        given: tensors of other bindings, by input name; read where they are.
        states: the output that each state is after a run, by the state's input name.
        resident: outputs that stay in device memory even where the host cannot map it.

    Attributes:
        opened: the device.
        reason: empty: no value passes through the host.
        has_run: True after the first run.
    """

    reason = ""

    def __init__(
        self, root: PlanCache, entry: Entry, given: Mapping[str, DeviceTensor],
        states: Mapping[str, str], resident: Collection[str],
    ) -> None:  # fmt: skip
        self.has_run = self._is_closed = False
        self._root, self._given, self._states = root, given, states
        [self._state] = root.executor.devices
        self.opened = self._state.opened
        bound = {name for name, tensor in given.items() if tensor.home.is_resident(tensor.key)}
        self._unseen = {*states, *states.values(), *resident, *bound}
        self._chunk = _lowered(root, entry, self._unseen)
        self._imported: dict[str, tuple[Given, np.ndarray]] = {}
        self._programs: dict[tuple[Any, ...], Program] = {}
        self._turn = 0
        self._require_states()
        doubled = {self._chunk.output_slots[name].arena for name in states.values()}
        self._chunk = self._slim({*given, *states})
        self._memory = BoundMemory(self.opened, self._chunk.memory.arenas, doubled)

    def _require_states(self) -> None:
        graph = self._chunk.graph
        infos = {**graph.infos, **{info.name: info for info in graph.inputs}}
        for past, present in self._states.items():
            before, after = infos[past], infos[present]
            if (before.dtype, before.shape) != (after.dtype, after.shape):
                raise ModelError(f"state: output {after} cannot be the next run's {before}; "
                                 "dtype and shape must be equal")  # fmt: skip

    def _slim(self, elsewhere: Collection[str]) -> Chunk:
        """Return the chunk without memory for inputs that all are in other buffers."""
        slots = self._chunk.input_slots
        needed = {slot.arena for name, slot in slots.items() if name not in elsewhere}
        spare = {slot.arena for slot in slots.values()} - needed
        arenas = {name: memory.ALIGNMENT_BYTES if name in spare else size
                  for name, size in self._chunk.memory.arenas.items()}  # fmt: skip
        return replace(self._chunk, memory=replace(self._chunk.memory, arenas=arenas))

    def import_input(self, name: str, array: np.ndarray) -> str:
        """Read an input where a caller's array is from now on; return why not, or ""."""
        if self._chunk.stored[name] != str(array.dtype):
            return f"{self.opened.info.label} stores {array.dtype} as {self._chunk.stored[name]}"
        place, reason = import_array(self.opened, array)
        if place:
            self._imported[name] = place, array
        return reason

    # ------------------------------------------------------------------------------- the values

    def _slot(self, key: Key) -> Slot:
        name, is_output = key
        if is_output or name not in self._states:
            return (self._chunk.output_slots if is_output else self._chunk.input_slots)[name]
        return self._chunk.output_slots[self._states[name]]  # what the last run wrote

    def info(self, key: Key) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of an input or output."""
        name, is_output = key
        inputs = {info.name: info for info in self._chunk.graph.inputs}
        info = self._chunk.graph.infos[name] if is_output else inputs[name]
        return info.dtype, info.dims

    def is_resident(self, key: Key) -> bool:
        """Tell whether the value is in device memory, which the host may be unable to map."""
        return key[0] in self._unseen

    def place(self, key: Key) -> Given:
        """Return buffer and offset of the present value; raise VklabError if it is closed."""
        self.require_open()
        name, is_output = key
        if not is_output and name in self._given:
            tensor = self._given[name]
            return tensor.home.place(tensor.key)
        if not is_output and name in self._imported:
            return self._imported[name][0]
        slot = self._slot(key)
        # The turn that comes next reads what the other turn has written.
        return self._memory.pools[1 - self._turn].buffers[slot.arena], slot.offset_bytes

    def view(self, key: Key) -> np.ndarray | None:
        """Return the memory of a value as an array; None where that is not possible."""
        name, is_output = key
        self._require_value(key)
        if not is_output and name in self._given:
            return self._given[name].home.view(self._given[name].key)
        if not is_output and name in self._imported:
            return self._imported[name][1]
        dtype, shape = self.info(key)
        slot = self._slot(key)
        if self._chunk.stored[name] != dtype or not slot.size_bytes:
            return None
        flat = self._memory.array(self.place(key), slot.size_bytes)
        return None if flat is None else flat.view(dtype).reshape(shape)

    def read(self, key: Key) -> np.ndarray:
        """Return a copy of the present value."""
        dtype, shape = self.info(key)
        self._require_value(key)
        if not self._slot(key).size_bytes:
            return np.zeros(shape, dtype)
        buffer: Any
        buffer, offset = self.place(key)
        data = device_copies.download(self.opened, buffer, offset, self._slot(key).size_bytes)
        array = np.frombuffer(bytearray(data), self._chunk.stored[key[0]]).reshape(shape)
        return storage.decode(array, dtype)

    def write(self, key: Key, array: np.ndarray) -> None:
        """Replace a whole value."""
        buffer: Any
        buffer, offset = self.place(key)
        encoded = storage.encode(array, self._chunk.stored[key[0]])
        upload.upload(self.opened, buffer, [(offset, encoded)])

    def _require_value(self, key: Key) -> None:
        self.require_open()
        if key[1] and not self.has_run:
            raise VklabError(f"output {key[0]} has no value before the first run of the binding")

    # ------------------------------------------------------------------------------------ runs

    def require_open(self) -> None:
        """Raise VklabError if the binding was closed, or its session."""
        if self._is_closed:
            raise VklabError("this binding is closed, or its session: bind again")

    def run(self) -> None:
        """Run once, and swap the states; after an error the states are those before the run."""
        program = self.recording()
        program.prepare()
        for pool in self._memory.pools:  # both turns write the same activations
            pool.last = program
        program.submit()
        program.wait()
        self.has_run = True
        if self._states:
            self._turn = 1 - self._turn

    def recording(self) -> Program:
        """Return the recording for where the inputs are now, made at its first use."""
        self.require_open()
        given = {name: self.place((name, False)) for name in (*self._given, *self._imported)}
        where = (self._turn, *((buffer, offset) for buffer, offset in given.values()))
        if where not in self._programs:
            given |= {name: self.place((name, False)) for name in self._states}
            self._programs[where] = self._root.executor.program(
                self._state, self._chunk, self._memory.pools[self._turn], copied_in=(),
                copied_out=(), given=given,
            )  # fmt: skip
        return self._programs[where]

    def close(self) -> None:
        """Free the recordings, and the memory once no array is left on it."""
        if self._is_closed:
            return
        self._is_closed = True
        while self._programs:
            self._programs.popitem()[1].close()
        if not self.opened.is_stuck:
            while self._imported:
                self._imported.popitem()[1][0][0].close()
        self._memory.release()
        del self._memory
