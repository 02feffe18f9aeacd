"""Parts that are spread over several devices: a program for each stage, values in between.

A stage that is done moves what others need into their places, on the thread that waited for it.
What stages of one device have in common stays where it is, and the device keeps their order: they
are submitted one behind the other, with a barrier between. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import TimeoutError
from vklab.plan.place import transfer_paths
from vklab.plan.place.cutting import Stage
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.runtime.engine import Work
from vklab.runtime.many import scheduler
from vklab.runtime.many.device_copies import Move
from vklab.runtime.many.transfer_memory import TransferMemory
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.program import Program
from vklab.types import DeviceInfo

__all__ = ["Chunk", "Spread"]

Values = Mapping[str, Any]


class Chunk(Work):
    """One stage as a job: inputs in, submit; wait, outputs on to those that read them, and out.

    Attributes:
        readers: what must be moved, and to whom, when it is done.
        behind: what the device waits for by itself: submitted before, and done by then or not.
        ways: what moves values past the host, by value and reader.
        values: what comes from outside, set before a run.
        made: what of its outputs leaves the part, set by it.
    """

    def __init__(self, stage: Stage, program: Program, given: Sequence[str], kept: Sequence[str],
                 info: DeviceInfo) -> None:  # fmt: skip
        super().__init__(program, given, kept)
        self.readers: list[tuple[str, Chunk]] = []
        self.behind: tuple[Chunk, ...] = ()
        self.ways: dict[tuple[str, Chunk], Move] = {}
        self.values: Values = {}
        self.made: dict[str, np.ndarray] = {}
        nodes = stage.graph.nodes
        self.name = (f"stage {stage.number} (nodes {nodes[0].name!r} to {nodes[-1].name!r}) on "
                     + info.label)  # fmt: skip

    def start(self) -> None:
        """Copy in what comes from outside, and submit."""
        self.begin(self.values)

    def finish(self) -> None:
        """Wait, move values to the stages that read them, and copy out what leaves the part."""
        self.wait()
        for name, reader in self.readers:
            with self._noted(name, reader):
                way = self.ways.get((name, reader))
                if way:
                    way()
                else:
                    self.program.places.pass_on(name, reader.program.places)
        self.made = self.outputs()


class Spread:
    """Run a Vulkan part on several devices.

    Args:
        program: makes the program of a stage from its plan.
        opened: devices by the numbers of the plan.
        memory: of all stages; it is closed with this.
    """

    def __init__(
        self,
        plan: SpreadPlan,
        program: Callable[[Stage, Plan, TransferMemory], Program],
        opened: Sequence[OpenDevice],
        memory: TransferMemory,
    ) -> None:
        self.plan = plan
        self.chunks: list[Chunk] = []
        self._lanes = [opened[stage.device].lane for stage in plan.stages]
        self._memory = memory
        outputs = frozenset(plan.graph.outputs)
        moved = {move.value for move in plan.transfers}
        try:
            for stage, stage_plan in zip(plan.stages, plan.plans, strict=True):
                given = [i.name for i in stage_plan.graph.inputs if i.name not in moved]
                kept = [name for name in stage_plan.graph.outputs if name in outputs]
                made = program(stage, stage_plan, self._memory)
                self.chunks.append(Chunk(stage, made, given, kept, plan.devices[stage.device]))
            ways = self._memory.moves()
            behind = _behind(plan)
            self._order = scheduler.Order([stage.predecessors for stage in plan.stages], behind)
        except BaseException:
            self.close()
            raise
        for chunk, numbers in zip(self.chunks, behind, strict=True):
            chunk.behind = tuple(self.chunks[number] for number in numbers)
        for transfer in plan.transfers:
            chunk, reader = self.chunks[transfer.source or 0], self.chunks[transfer.target]
            if chunk not in reader.behind:
                chunk.readers.append((transfer.value, reader))
            if transfer in ways:
                chunk.ways[transfer.value, reader] = ways[transfer]

    def run(self, values: Values) -> Values:
        """Run once.

        Raises the error of the first stage that failed; nothing is in flight any more then,
        except after a TimeoutError.
        """
        runs = self._memory.runs
        if runs and not runs[-1].is_over():
            raise TimeoutError("run", "VK_TIMEOUT", "an earlier run has not ended; close this "
                               "session, or run again later")  # fmt: skip
        for chunk in self.chunks:
            chunk.program.prepare()
            chunk.values = values
        self._memory.require_idle()
        runs[:] = [scheduler.Run(self._order, self.chunks, self._lanes)]
        try:
            runs[-1].go(_limit_seconds())
        finally:
            for chunk in self.chunks:
                chunk.values = {}
        return {name: chunk.made.pop(name) for chunk in self.chunks for name in list(chunk.made)}

    def close(self) -> None:
        """Free everything but the weights; what a device never ended is left to its driver."""
        is_over = all(run.is_over(_limit_seconds()) for run in self._memory.runs)
        while self.chunks:
            chunk = self.chunks.pop()
            if is_over:
                chunk.program.close()
            else:
                chunk.program.opened.is_stuck = True
        self._memory.close()


def _behind(plan: SpreadPlan) -> list[set[int]]:
    """Return, for each stage, the predecessors of its device that leave it all in place.

    On one queue a barrier orders submissions as well as a timeline semaphore does, for less.
    """
    found = [
        {number for number in stage.predecessors if plan.stages[number].device == stage.device}
        for stage in plan.stages
    ]
    if settings.get("DISABLE_DEVICE_ORDER"):
        return [set() for _ in found]
    for move in plan.transfers:
        if plan.path(move).name != transfer_paths.SAME_MEMORY and move.source is not None:
            found[move.target].discard(move.source)
    return found


def _limit_seconds() -> float:
    # A job waits no longer than TIMEOUT for its device, and perhaps as long for the one before.
    return 2 * float(settings.get("TIMEOUT")) + 1
