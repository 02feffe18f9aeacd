"""BoundPrograms: a whole model as one chunk, recorded for buffers that stay between runs.

A state is swapped, not copied: one recording reads buffer A and writes B, another reads B and
writes A. A state whose output takes over its input's memory is neither: it stays where it is.
Visited by lab 12.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.errors import ModelError, VklabError
from vklab.plan import memory, storage
from vklab.plan.chunk import Chunk
from vklab.plan.memory import INPUTS, Slot
from vklab.runtime import upload
from vklab.runtime.bound import planning
from vklab.runtime.bound.memory import BoundMemory, import_array
from vklab.runtime.bound.tensors import DeviceTensor, Key
from vklab.runtime.io_binding import Given
from vklab.runtime.many import device_copies
from vklab.runtime.plan_cache import Entry, PlanCache
from vklab.runtime.program import Program

# The arena of values that the host writes into states, which no plan names; their most bytes.
FIRST, SMALL_BYTES = f"{INPUTS}0", 64 << 10


class BoundPrograms:
    """Recordings of a binding, and the memory of its inputs and outputs.

    Args:
        root: the plans of the model, for one device.
        entry: the plan of the binding's shapes.
        given: tensors of other bindings, by input name; read where they are.
        states: the output that each state is after a run, by the state's input name.
        resident: outputs that stay in device memory even where the host cannot map it.
        ahead: whether a run may be submitted before the results of the last are read.
        sharing: a `cuda.sharing.Sharing` for inputs and outputs in memory of CUDA; None for none.

    Attributes:
        opened: the device.
        reason: empty: no value passes through the host.
        has_run: True after the first run.
        kept: the states that runs change in place.
    """

    reason = ""

    def __init__(
        self, root: PlanCache, entry: Entry, given: Mapping[str, DeviceTensor],
        states: Mapping[str, str], resident: Collection[str], ahead: bool = False,
        sharing: Any = None,
    ) -> None:  # fmt: skip
        self.has_run = self._is_closed = False
        self._root, self._states = root, states
        [self._state] = root.executor.devices
        self.opened = self._state.opened
        bound = {name for name, tensor in given.items() if tensor.home.is_resident(tensor.key)}
        self._unseen = {*states, *states.values(), *resident, *bound}
        if sharing:
            self._unseen |= {*(i.name for i in entry.plan.graph.inputs), *entry.plan.graph.outputs}
        self._sharing, self._order = sharing, None
        self._chunk = planning.lowered(root, entry, self._unseen)
        self._imported: dict[str, tuple[Given, np.ndarray]] = {}
        self._programs: dict[tuple[Any, ...], Program] = {}
        self._infos: dict[Key, tuple[str, tuple[int, ...]]] = {}  # made at their first use
        self._arrays: dict[tuple[Key, Given], np.ndarray] = {}  # views of the memory, likewise
        self._turn, self._seen = 0, 1
        self._in_flight: deque[tuple[Program, int]] = deque()
        self._require_states()
        outputs, inputs = self._chunk.output_slots, self._chunk.input_slots
        self.kept = {past: now for past, now in states.items() if inputs[past] == outputs[now]}
        self._swapped = {past: now for past, now in states.items() if past not in self.kept}
        self._given = {n: t for n, t in given.items() if n not in self._swapped}
        self._sources = {(now, True): (past, False) for past, now in self.kept.items()}
        self._homes = {tensor.home for tensor in self._given.values()}
        self._settled: dict[int, Program] = {}  # by turn, where no given tensor ever moves
        self._require_kept()
        moved = outputs.keys() - self.kept.values() if ahead and not sharing else ()
        doubled = {outputs[name].arena for name in (*self._swapped.values(), *moved)}
        self._has_turns = bool(doubled)
        follows = ahead and not (sharing or states or given)
        self._chunk = planning.in_turn(self._slim({*self._given, *self._swapped}), follows)
        # What the host writes into a small state is read where it is.
        sizes = ((name, inputs[name].size_bytes) for name in self._swapped if not sharing)
        self._first = memory.pack(((n, s) for n, s in sizes if s <= SMALL_BYTES), FIRST, 1 << 62)
        self._fresh: set[str] = set()
        arenas = {**self._chunk.memory.arenas, **self._first[1]}
        self._memory = BoundMemory(self.opened, arenas, doubled, sharing)
        try:
            self._order = sharing and sharing.order(ahead)
        except BaseException:
            self._memory.close()
            raise

    def _require_states(self) -> None:
        graph = self._chunk.graph
        infos = {**graph.infos, **{info.name: info for info in graph.inputs}}
        for past, present in self._states.items():
            before, after = infos[past], infos[present]
            if (before.dtype, before.shape) != (after.dtype, after.shape):
                raise ModelError(
                    f"state: output {after} cannot be the next run's {before}; "
                    "dtype and shape must be equal"
                )

    def _require_kept(self) -> None:
        """Raise ModelError for an input that the run changes, unless it is a state."""
        written = {
            self._chunk.memory.slots[info.name]
            for dispatch in self._chunk.dispatches
            for _, info in dispatch.writes
        }
        for name, slot in self._chunk.input_slots.items():
            if slot.size_bytes and slot in written and name not in self.kept:
                raise ModelError(
                    f"input {name} is changed in place by each run; bind it as a "
                    "state, with the output that takes over its memory"
                )

    def _slim(self, elsewhere: Collection[str]) -> Chunk:
        """Return the chunk without memory for inputs that all are in other buffers."""
        slots = self._chunk.input_slots
        needed = {slot.arena for name, slot in slots.items() if name not in elsewhere}
        spare = {slot.arena for slot in slots.values()} - needed
        arenas = {
            name: memory.ALIGNMENT_BYTES if name in spare else size
            for name, size in self._chunk.memory.arenas.items()
        }
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
        if is_output or name not in self._swapped:
            return (self._chunk.output_slots if is_output else self._chunk.input_slots)[name]
        return self._chunk.output_slots[self._swapped[name]]  # what the last run wrote

    def info(self, key: Key) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of an input or output."""
        if key not in self._infos:
            name, is_output = key
            inputs = {info.name: info for info in self._chunk.graph.inputs}
            info = self._chunk.graph.infos[name] if is_output else inputs[name]
            self._infos[key] = info.dtype, info.dims
        return self._infos[key]

    def is_resident(self, key: Key) -> bool:
        """Tell whether the value is in device memory, which the host may be unable to map."""
        return key[0] in self._unseen

    def _source(self, key: Key) -> Key:
        """Return the input of a state that is kept for its output, other keys as they are."""
        return self._sources.get(key, key) if self.has_run else key

    def is_fixed(self, key: Key) -> bool:
        """Tell whether a value never moves: no run swaps its memory with another's."""
        return not self._has_turns or self._source(key)[0] in self.kept

    def place(self, key: Key) -> Given:
        """Return buffer and offset of the present value; raise VklabError if it is closed."""
        self.require_open()
        name, is_output = self._source(key)
        if not is_output and name in self._given:
            tensor = self._given[name]
            return tensor.home.place(tensor.key)
        if not is_output and name in self._imported:
            return self._imported[name][0]
        if not is_output and name in self._fresh:
            slot = self._first[0][name]
            return self._memory.pools[0].buffers[slot.arena], slot.offset_bytes
        slot = self._slot(key)
        # The turn that comes next reads what the other turn has written.
        turn = self._seen if is_output else 1 - self._turn
        return self._memory.pools[turn].buffers[slot.arena], slot.offset_bytes

    def view(self, key: Key) -> np.ndarray | None:
        """Return the memory of a value as an array; None where that is not possible."""
        name, is_output = key = self._source(key)
        self._require_value(key)
        if not is_output and name in self._given:
            return self._given[name].home.view(self._given[name].key)
        if not is_output and name in self._imported:
            return self._imported[name][1]
        where = key, self.place(key)
        if where in self._arrays:
            return self._arrays[where][...]
        (dtype, shape), slot = self.info(key), self._slot(key)
        is_fresh = not is_output and name in self._fresh
        if is_fresh or self._chunk.stored[name] != dtype or not slot.size_bytes:
            return None
        flat = self._memory.array(where[1], slot.size_bytes)
        if flat is not None:
            self._arrays[where] = flat.view(dtype).reshape(shape)
        return None if flat is None else self._arrays[where][...]

    @property
    def cuda_number(self) -> int | None:
        """Return the number of the device in CUDA, if it shares the values; else None."""
        return self._sharing.cuda.number if self._sharing else None

    def torch(self, key: Key) -> Any:
        """Return a CUDA tensor on the memory of a value; ModelError if it is not shared."""
        name, is_output = key = self._source(key)
        self._require_value(key)
        dtype, shape = self.info(key)
        if not is_output and name in self._given:
            return self._given[name].torch()
        if not self._sharing:
            raise ModelError(f"{name} is in memory of vklab alone: bind with cuda=True")
        if self._chunk.stored[name] != dtype:
            raise ModelError(
                f"{name} cannot be a CUDA tensor: {self.opened.info.label} stores "
                f"{dtype} as {self._chunk.stored[name]}; use numpy()"
            )
        return self._sharing.tensor(*self.place(key), dtype, shape)

    def _settle_shared(self) -> None:
        """Wait for runs and for the stream before the host touches memory that CUDA shares."""
        if self._order:
            self.settle()
            self._order.synchronize()

    def read(self, key: Key) -> np.ndarray:
        """Return a copy of the present value."""
        dtype, shape = self.info(key)
        self._require_value(key)
        self._settle_shared()
        if not self._slot(key).size_bytes:
            return np.zeros(shape, dtype)
        buffer: Any
        buffer, offset = self.place(key)
        data = device_copies.download(self.opened, buffer, offset, self._slot(key).size_bytes)
        array = np.frombuffer(bytearray(data), self._chunk.stored[key[0]]).reshape(shape)
        return storage.decode(array, dtype)

    def write(self, key: Key, array: np.ndarray) -> None:
        """Replace a whole value."""
        self._settle_shared()
        if key[0] in self._first[0] and not key[1]:
            self._fresh.add(key[0])
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
        if self._order:
            self._order.run(program)
        else:
            program.prepare()
            for pool in self._memory.pools:  # both turns write the same activations
                pool.last = program
            program.submit()
            program.wait()
        self.has_run, self._seen = True, self._turn
        self._fresh.clear()
        if self._has_turns:
            self._turn = 1 - self._turn

    def submit(self) -> None:
        """Submit a run that begins when the last one has ended; at most two are in flight."""
        program = self.recording()
        program.require_idle()
        for pool in self._memory.pools:
            pool.last = program
        program.submit()
        self._in_flight.append((program, self._turn))
        self._fresh.clear()
        self._turn = 1 - self._turn

    def collect(self) -> None:
        """Wait for the oldest submitted run; its outputs are the present ones from now on."""
        program, turn = self._in_flight[0]
        program.wait()
        self._in_flight.popleft()
        self.has_run, self._seen = True, turn

    def settle(self) -> None:
        """Wait until no run is in flight, for example after a wait was interrupted."""
        self._in_flight.clear()
        for program in self._programs.values():
            if not program.is_done():
                program.wait()
            program.require_idle()

    @property
    def in_flight(self) -> int:
        """Return the number of runs that were submitted and not collected."""
        return len(self._in_flight)

    def recording(self) -> Program:
        """Return the recording for where the inputs are now, made at its first use."""
        self.require_open()
        for home in self._homes:
            home.require_open()
        if self._turn in self._settled and not self._fresh:
            return self._settled[self._turn]
        given = {name: self.place((name, False)) for name in (*self._given, *self._imported)}
        where = (self._turn, frozenset(self._fresh), *given.values())
        if where not in self._programs:
            # A kept state is here, too: the run before this one may still write it.
            given |= {name: self.place((name, False)) for name in self._states}
            self._programs[where] = self._root.executor.program(
                self._state,
                self._chunk,
                self._memory.pools[self._turn],
                copied_in=(),
                copied_out=(),
                given=given,
            )
        if not (self._imported or self._fresh) and all(
            tensor.home.is_fixed(tensor.key) for tensor in self._given.values()
        ):
            self._settled[self._turn] = self._programs[where]
        return self._programs[where]

    def close(self) -> None:
        """Free the recordings, and the memory once no array is left on it."""
        if self._is_closed:
            return
        self._is_closed = True
        self._settled.clear()
        while self._programs:
            self._programs.popitem()[1].close()
        if self._order:
            self._order.close()
        if not self.opened.is_stuck:
            while self._imported:
                self._imported.popitem()[1][0][0].close()
        self._arrays.clear()
        self._memory.release()
        del self._memory
