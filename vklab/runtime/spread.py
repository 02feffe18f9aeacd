"""Parts that are spread over several devices: a program for each stage, values in between.

A stage that is done moves what others need into their places, on the thread that waited for it.
Visited by lab 13.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import SetupError, TimeoutError
from vklab.graph.graph import Graph
from vklab.plan import placement
from vklab.plan import spread as spread_plans
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.plan.stages import Stage
from vklab.runtime import dump, open_devices, scheduler, timed
from vklab.runtime.engine import Engine
from vklab.runtime.kernels import Kernel
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.record import Program
from vklab.runtime.reserve import Reserve
from vklab.runtime.shared import Shared
from vklab.runtime.weights import Weights
from vklab.types import DeviceInfo, Dispatch
from vklab.vulkan.command import Submission

__all__ = ["Chunk", "Member", "Spread", "SpreadEngine", "Wish", "engines"]

Values = Mapping[str, Any]
Noted = Callable[..., contextlib.AbstractContextManager[Any]]
_QUIET = contextlib.nullcontext()


class Member:
    """One of the devices of a session, and what all its programs there share."""

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self.weights = Weights(opened)
        self.reserve = Reserve(opened)
        self.kernels: dict[tuple[object, ...], Kernel] = {}

    def close(self) -> None:
        """Free it, unless the device still works there."""
        if not self.opened.is_stuck:
            self.reserve.close()
            self.weights.close()


@dataclass
class SpreadEngine(Engine):
    """What parts share that are spread over several devices, the first of them `opened`.

    Attributes:
        pins: device numbers by patterns of node names.
        caps: the most bytes that may be used of a device, by its number.
    """

    members: tuple[Member, ...] = ()
    pins: Mapping[str, int] = field(default_factory=dict)
    caps: Mapping[int, int] = field(default_factory=dict)

    @property
    def infos(self) -> tuple[DeviceInfo, ...]:
        """Return all devices that are planned for."""
        return tuple(member.opened.info for member in self.members)

    def plan(self, graph: Graph, unavailable: Callable[[Dispatch], str]) -> SpreadPlan:
        """Place a Vulkan part, cut it, and plan its stages."""
        placed = placement.place(graph, self.infos, caps=self.caps, pins=self.pins,
                                 unavailable=unavailable, is_part=True)  # fmt: skip
        return spread_plans.make(graph, placed, self.infos, self.dtype, unavailable)

    def runner(self, plan: Plan | SpreadPlan) -> Spread:
        """Make what runs a plan."""
        assert isinstance(plan, SpreadPlan), "several devices run plans for several devices"
        return Spread(plan, self._program, [member.opened for member in self.members])

    def _program(self, stage: Stage, plan: Plan, memory: Shared) -> Program:
        dump.report(plan)
        member = self.members[stage.device]
        # Stages run at the same time: none runs in another's memory, bounds or not.
        return Program(
            member.opened, plan, member.weights, self.progress, memory.reserve(stage),
            member.kernels, memory.given(stage),
        )  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """What a caller wants of several devices; see `session.load`."""

    place: Mapping[str, int | str] = field(default_factory=dict)
    memory_caps: Mapping[int | str, int] = field(default_factory=dict)
    replicate: bool = False


def engines(
    members: Sequence[Member], wish: Wish | None, graph: Graph, **common: Any
) -> list[Engine]:
    """Return the engine of a session, or one for every device that has the whole model.

    Args:
        common: fields of Engine that all have.
    """
    wish = wish or Wish()
    first, infos = members[0], [member.opened.info for member in members]
    if not wish.replicate and (len(members) > 1 or wish.place or wish.memory_caps):
        pins = {p: _number(d, infos, "place") for p, d in wish.place.items()}
        placement.check_pins(graph, infos, pins)
        caps = {_number(d, infos, "memory_caps"): size for d, size in wish.memory_caps.items()}
        return [SpreadEngine(first.opened, first.weights, **common, members=tuple(members),
                             pins=pins, caps=caps)]  # fmt: skip
    if wish.place or wish.memory_caps:
        raise SetupError("place and memory_caps split a model; with replicate=True each device "
                         "has all of it")  # fmt: skip
    lock = threading.RLock()
    bounded = bool(common["upper_bounds"])
    return [
        Engine(member.opened, member.weights, **common, kernels=member.kernels, lock=lock,
               reserve=member.reserve if bounded else None)
        for member in members
    ]  # fmt: skip


def _number(wanted: int | str, infos: Sequence[DeviceInfo], argument: str) -> int:
    """Return the place of a device among those of a session."""
    indices = [info.index for info in infos]
    info = open_devices.select(wanted)
    if info.index not in indices:
        names = ", ".join(f"{other.index}: {other.name}" for other in infos)
        raise SetupError(f"{argument} names device {info.index} ({info.name}), which is not among "
                         f"this session's: {names}")  # fmt: skip
    return indices.index(info.index)


def _quiet(what: str, reader: Chunk | None = None) -> contextlib.AbstractContextManager[Any]:
    return _QUIET


class Chunk:
    """One stage as a job: inputs in, submit; wait, outputs out and on to those that read them.

    Attributes:
        values: what comes from outside, set before a run.
        made: what of its outputs leaves the part, set by it.
    """

    def __init__(self, stage: Stage, program: Program, given: Sequence[str], kept: Sequence[str],
                 info: DeviceInfo) -> None:  # fmt: skip
        self.program = program
        self.readers: list[tuple[str, Chunk]] = []
        self.values: Values = {}
        self.made: dict[str, np.ndarray] = {}
        self.watch(None, None)
        self._given = given
        self._kept = kept
        nodes = stage.graph.nodes
        self.name = (f"stage {stage.number} (nodes {nodes[0].name!r} to {nodes[-1].name!r}) on "
                     f"{info.index}: {info.name}")  # fmt: skip

    def watch(self, recording: Submission | None, noted: Noted | None) -> None:
        """Submit another recording, and do each thing in a context; None for neither."""
        self._recording, self._noted = recording, noted or _quiet

    def start(self) -> None:
        """Copy in what comes from outside, and submit."""
        with self._noted("copy in"):
            for name in self._given:
                self.program.places.put(name, self.values[name])
        with self._noted("submit"):
            self.program.submit(self._recording)

    def finish(self) -> None:
        """Wait, move values to the stages that read them, and copy out what leaves the part."""
        with self._noted("wait"):
            self.program.wait()
        for name, reader in self.readers:
            with self._noted(name, reader):
                self.program.places.pass_on(name, reader.program.places)
        with self._noted("copy out"):
            self.made = {name: self.program.places.take(name) for name in self._kept}

    def time_steps(
        self, values: Values, repeats: int, whole: bool = False
    ) -> list[timed.Sample]:
        """Run it alone on what the last run of all has left; see `Device.time_steps`."""
        arrays = [place for _, place in self.program.places.inputs]
        with self.program.timed(whole) as work:
            return [work.run(arrays) for _ in range(repeats + 1)][1:]


class Spread:
    """Run a Vulkan part on several devices.

    Args:
        program: makes the program of a stage from its plan.
        opened: devices by the numbers of the plan.
    """

    def __init__(
        self,
        plan: SpreadPlan,
        program: Callable[[Stage, Plan, Shared], Program],
        opened: Sequence[OpenDevice],
    ) -> None:
        self.plan = plan
        self.chunks: list[Chunk] = []
        self._order = scheduler.Order([stage.predecessors for stage in plan.stages])
        self._lanes = [opened[stage.device].lane for stage in plan.stages]
        self._memory = Shared(plan, opened)
        self._last: scheduler.Run | None = None
        outputs = frozenset(plan.graph.outputs)
        moved = {move.value for move in plan.transfers}
        try:
            for stage, stage_plan in zip(plan.stages, plan.plans, strict=True):
                given = [i.name for i in stage_plan.graph.inputs if i.name not in moved]
                kept = [name for name in stage_plan.graph.outputs if name in outputs]
                made = program(stage, stage_plan, self._memory)
                self.chunks.append(Chunk(stage, made, given, kept, plan.devices[stage.device]))
        except BaseException:
            self.close()
            raise
        for transfer in plan.transfers:
            if transfer.source is not None:
                reader = self.chunks[transfer.target]
                self.chunks[transfer.source].readers.append((transfer.value, reader))

    def run(self, values: Values) -> Values:
        """Run once.

        Raises the error of the first stage that failed; nothing is in flight any more then,
        except after a TimeoutError.
        """
        if self._last and not self._last.is_over():
            raise TimeoutError("run", "VK_TIMEOUT", "an earlier run has not ended; close this "
                               "session, or run again later")  # fmt: skip
        for chunk in self.chunks:
            chunk.program.prepare()
            chunk.values = values
        self._last = scheduler.Run(self._order, self.chunks, self._lanes)
        try:
            self._last.go(_limit_seconds())
        finally:
            for chunk in self.chunks:
                chunk.values = {}
        return {name: chunk.made.pop(name) for chunk in self.chunks for name in list(chunk.made)}

    @property
    def clocked(self) -> Sequence[Chunk]:
        """Return what has timestamps of its own."""
        return self.chunks

    def close(self) -> None:
        """Free everything but the weights; what a device never ended is left to its driver."""
        is_over = self._last is None or self._last.is_over(_limit_seconds())
        while self.chunks:
            chunk = self.chunks.pop()
            if is_over:
                chunk.program.close()
            else:
                chunk.program.opened.is_stuck = True
        self._memory.close()


def _limit_seconds() -> float:
    # A job waits no longer than TIMEOUT for its device, and perhaps as long for the one before.
    return 2 * float(settings.get("TIMEOUT")) + 1
