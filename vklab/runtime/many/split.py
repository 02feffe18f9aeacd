"""Device chunks of one plan on several devices: one program for each chunk, and transfers.

The thread that waited for a chunk copies its outputs into the inputs of chunks on other devices.
Chunks of one device share values in place: they are submitted to its queue in order, with a
barrier between them. Visited by lab 13.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import TimeoutError
from vklab.graph.graph import Graph
from vklab.plan import storage
from vklab.plan.chunk import Transfer
from vklab.plan.options import Facts, PlacementOptions
from vklab.plan.place import placement, transfer_paths
from vklab.plan.plan import Plan
from vklab.runtime.device_state import DeviceState
from vklab.runtime.executor import Executor
from vklab.runtime.io_binding import IOBinding
from vklab.runtime.many import scheduler, speeds
from vklab.runtime.many.device_copies import Move
from vklab.runtime.many.transfer_memory import TransferMemory
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.program import Program
from vklab.vulkan.command import CommandBuffer

Values = Mapping[str, Any]
_QUIET = contextlib.nullcontext()


def worker(opened: OpenDevice) -> scheduler.DeviceWorker:
    """Return the worker whose thread waits for a device; all sessions share it."""
    name = f"vklab waits for device {opened.info.index}"
    made: scheduler.DeviceWorker = opened.owned("worker", lambda: scheduler.DeviceWorker(name))
    return made


class Split:
    """Facts, runners and memory for plans of several devices, as a part of an executor.

    Args:
        devices: the session's devices.
        has_bounds: True if the model has upper bounds.

    Attributes:
        largest: the plan at the upper bounds; plans of other shapes share its memory if they fit.
    """

    def __init__(self, devices: Sequence[DeviceState], has_bounds: bool) -> None:
        self._devices = devices
        self._has_bounds = has_bounds
        self._infos = [state.opened.info for state in devices]
        self.largest: Plan | None = None
        self._lender: TransferMemory | None = None

    def check(self, graph: Graph, wanted: PlacementOptions) -> None:
        """Raise PlanError for an unknown policy, or a pin that matches no node or device."""
        placement.check_policy(wanted.policy or placement.POLICIES[0])
        placement.check_pins(graph, self._infos, wanted.pins)

    def clone(self, devices: Sequence[DeviceState]) -> Split:
        """Return a splitter for frames in flight, with transfer memory of its own."""
        other = copy.copy(self)
        other._devices, other._lender = devices, None
        return other

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes reserved for all shapes, without weights."""
        return self._lender.size_bytes if self._lender else 0

    def facts(self, facts: Facts) -> Facts:
        """Return facts with the free bytes and speeds of all devices, and the first placement."""
        # This session's resident weights count as free: they need no new memory.
        free = tuple(
            state.opened.allocator.room_bytes() + state.weights.size_bytes
            for state in self._devices
        )
        placed = self.largest.placement if self.largest else None
        return replace(facts, free_bytes=free, costs=speeds.all_kept(self._infos), placement=placed)

    def runner(self, executor: Executor, plan: Plan, first: int) -> ChunkGroup:
        """Return a runner for the last device chunks of a plan.

        Args:
            executor: the executor that makes the programs.
            plan: the plan.
            first: the number of the first chunk to run.
        """
        chunks = plan.chunks[first:]
        group = replace(
            plan,
            chunks=tuple(
                replace(
                    chunk,
                    number=chunk.number - first,
                    predecessors=tuple(n - first for n in chunk.predecessors if n >= first),
                )
                for chunk in chunks
            ),
            transfers=tuple(
                replace(t, source=(t.source or 0) - first, target=t.target - first)
                for t in plan.transfers
                if t.target >= first
            ),
        )
        if self._has_bounds and self.largest is None:
            self.largest = group
        opened = [state.opened for state in self._devices]
        return ChunkGroup(group, executor, self._memory(group, opened), first)

    def _memory(self, plan: Plan, opened: Sequence[OpenDevice]) -> TransferMemory:
        """Return memory for a plan: the memory of the upper bounds if the plan fits, else new."""
        if self.largest is None or not TransferMemory(self.largest, opened).holds(plan):
            return TransferMemory(plan, opened)
        if self._lender is None or not self._lender.lent:
            self._lender = TransferMemory(self.largest, opened).fill()
        return TransferMemory(plan, opened, self._lender)


def pass_on(source: IOBinding, name: str, target: IOBinding) -> None:
    """Copy an output to another chunk's input of the same name, unless both share the bytes.

    The value is converted if the two devices store it in different dtypes.

    Args:
        source: inputs and outputs of the chunk that has written the value.
        name: the value.
        target: inputs and outputs of the chunk that reads it.
    """
    if name in target.given:
        return
    array, there = source.outputs[name], target.inputs[name]
    stored, wanted = source.chunk.stored[name], target.chunk.stored[name]
    if stored != wanted:
        dtype = source.chunk.graph.infos[name].dtype
        array = storage.encode(storage.decode(array, dtype), wanted)
    there[...] = array


class ChunkTask:
    """One chunk as a job: `start` submits it, `finish` waits and moves its outputs on.

    Args:
        program: as the attribute.
        name: the name of the chunk in errors.

    Attributes:
        program: the program of the chunk; a trace replaces it by a recorder.
        readers: name and reading task of each output that must be moved after the chunk.
        behind: earlier tasks on the same queue that need only be submitted before this one.
        moves: functions that copy a value between devices without the host, by value and reader.
        values: arrays from outside the group, set before a run.
        made: outputs that leave the group, set by the run.
        noted: returns a context for each move; a trace sets it.
    """

    def __init__(self, program: Program, name: str) -> None:
        self.program: Any = program
        self.name = name
        self.readers: list[tuple[str, ChunkTask]] = []
        self.behind: tuple[ChunkTask, ...] = ()
        self.moves: dict[tuple[str, ChunkTask], Move] = {}
        self.values: Values = {}
        self.made: dict[str, np.ndarray] = {}
        self.noted: Callable[[str, ChunkTask], Any] = lambda value, reader: _QUIET

    def start(self) -> None:
        """Copy in the values from outside the group, and submit the chunk."""
        self.program.begin(self.values)

    def finish(self) -> None:
        """Wait, move values to the chunks that read them, and copy out the group's outputs."""
        self.program.wait()
        for name, reader in self.readers:
            with self.noted(name, reader):
                move = self.moves.get((name, reader))
                if move:
                    move()
                else:
                    pass_on(self.program.binding, name, reader.program.binding)
        self.made = self.program.copy_out()


class ChunkGroup:
    """Runner of consecutive device chunks of a plan, on several devices.

    Args:
        plan: these chunks alone, numbered from 0.
        executor: makes their programs.
        memory: the memory of all chunks; it is closed with the group.
        first: the number of the first chunk in the whole plan.
    """

    def __init__(
        self, plan: Plan, executor: Executor, memory: TransferMemory, first: int = 0
    ) -> None:
        self.plan = plan
        self.first = first
        self.tasks: list[ChunkTask] = []
        self._memory = memory
        opened = [state.opened for state in executor.devices]
        self._workers = [worker(opened[chunk.device]) for chunk in plan.chunks]
        outputs = _leaving(plan)
        moved = {move.value for move in plan.transfers}
        # Threads that poll for several chunks would slow each other through the GIL.
        more = {"commands": CommandBuffer} if len(plan.chunks) > 1 else {}
        try:
            for chunk in plan.chunks:
                program = executor.program(
                    executor.devices[chunk.device],
                    chunk,
                    memory.pool(chunk),
                    copied_in=[i.name for i in chunk.graph.inputs if i.name not in moved],
                    copied_out=[name for name in chunk.graph.outputs if name in outputs],
                    given=memory.given(chunk),
                    **more,
                )
                program.polls &= not more
                nodes, label = chunk.graph.nodes, plan.devices[chunk.device].label
                self.tasks.append(
                    ChunkTask(
                        program,
                        f"chunk {first + chunk.number} (nodes "
                        f"{nodes[0].name!r} to {nodes[-1].name!r}) on "
                        f"{label}",
                    )
                )
            moves = memory.moves()
            behind = _behind(plan, memory.paths)
            self._order = scheduler.Order([chunk.predecessors for chunk in plan.chunks], behind)
        except BaseException:
            self.close()
            raise
        for task, numbers in zip(self.tasks, behind, strict=True):
            task.behind = tuple(self.tasks[number] for number in sorted(numbers))
        for transfer in plan.transfers:
            task, reader = self.tasks[transfer.source or 0], self.tasks[transfer.target]
            if task not in reader.behind:
                task.readers.append((transfer.value, reader))
            if transfer in moves:
                task.moves[transfer.value, reader] = moves[transfer]

    @property
    def paths(self) -> dict[Transfer, transfer_paths.TransferPath]:
        """Return the path of each transfer, with chunks numbered as in the whole plan."""
        return {
            replace(t, source=(t.source or 0) + self.first, target=t.target + self.first): path
            for t, path in self._memory.paths.items()
        }

    def run(self, values: Values) -> Values:
        """Run all chunks once, and return the outputs that leave the group, by name.

        Raises the error of the first chunk that failed. No chunk is in flight then, except after a
        TimeoutError.
        """
        runs = self._memory.runs
        if runs and not runs[-1].is_over():
            raise TimeoutError(
                "run",
                "VK_TIMEOUT",
                "an earlier run has not ended; close this session, or run again later",
            )
        for task in self.tasks:
            task.program.prepare()
            task.values = values
        self._memory.require_idle()
        runs[:] = [scheduler.Run(self._order, self.tasks, self._workers)]
        try:
            runs[-1].go(_limit_seconds())
        finally:
            for task in self.tasks:
                task.values = {}
        return {name: task.made.pop(name) for task in self.tasks for name in list(task.made)}

    def close(self) -> None:
        """Free all resources but shared weights; a stuck device keeps the resources in use."""
        is_over = all(run.is_over(_limit_seconds()) for run in self._memory.runs)
        while self.tasks:
            task = self.tasks.pop()
            if is_over:
                task.program.close()
            else:
                task.program.opened.is_stuck = True
        self._memory.close()


def _leaving(plan: Plan) -> frozenset[str]:
    """Return the names of values that later chunks read, or that are outputs of the model."""
    left = {info.name for info in plan.rest.inputs} if plan.rest else set()
    return frozenset(
        left | set(plan.graph.outputs) | (set(plan.rest.captures) if plan.rest else set())
    )


def _behind(plan: Plan, paths: Mapping[Transfer, transfer_paths.TransferPath]) -> list[set[int]]:
    """Return, for each chunk, the predecessors on its device whose outputs it reads in place.

    On one queue a pipeline barrier orders submissions, at a lower cost than a timeline semaphore.
    Source: Vulkan 1.3, section 'Pipeline Barriers'.
    """
    behind = [
        {n for n in chunk.predecessors if plan.chunks[n].device == chunk.device}
        for chunk in plan.chunks
    ]
    if settings.get("DISABLE_DEVICE_ORDER"):
        return [set() for _ in behind]
    for move in plan.transfers:
        if paths[move].name != transfer_paths.SAME_MEMORY and move.source is not None:
            behind[move.target].discard(move.source)
    return behind


def _limit_seconds() -> float:
    # A job waits up to TIMEOUT for its device, after up to as long for the job before it.
    return 2 * float(settings.get("TIMEOUT")) + 1
