"""What the parts of a session run on, and what runs one: a program, or the host.

Visited by lab 12.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vklab import settings
from vklab.errors import SetupError
from vklab.graph import passes
from vklab.graph.graph import Graph
from vklab.plan import plan as plans
from vklab.plan.partition import Part
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.runtime.buffers import BufferPool
from vklab.runtime.io_binding import Given
from vklab.runtime.kernels import Kernel, Progress
from vklab.runtime.observe import timestamps
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.program import Program
from vklab.runtime.weights import SessionWeights
from vklab.shader import compiler
from vklab.types import DeviceInfo, Dispatch
from vklab.vulkan.command import Submission

__all__ = ["KEPT_PROGRAMS", "Device", "Engine", "Host", "DeviceState", "Noted", "Runner", "Work",
           "host", "report"]  # fmt: skip

Noted = Callable[..., contextlib.AbstractContextManager[Any]]
_QUIET = contextlib.nullcontext()

KEPT_PROGRAMS = 8
# In shared memory a program costs its plan and a command buffer only.
KEPT_IN_RESERVE = 64


class Runner(Protocol):
    """What runs a part: a mapping of its inputs in, a mapping of its outputs out."""

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once."""

    def close(self) -> None:
        """Free what it holds."""


class DeviceState:
    """One of the devices of a session, and what all its programs there share."""

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self.weights = SessionWeights(opened)
        self.reserve = BufferPool(opened)
        self.kernels: dict[tuple[object, ...], Kernel] = {}

    def clone(self) -> DeviceState:
        """Return the same with memory of its own for all but weights."""
        other = copy.copy(self)
        other.reserve = BufferPool(self.opened)
        return other

    def close(self) -> None:
        """Free its memory, unless the device still works there; weights go with programs."""
        if not self.opened.is_stuck:
            self.reserve.close()


@dataclass
class Engine:
    """What all parts of a session share: the devices, how progress is told.

    Attributes:
        upper_bounds: the most that open dimensions ever are; `reserve` is then all memory.
        shaders: kernels of a compiled model, used before any is compiled.
        polls: waits for the device poll before they block.
        lock: held while something is planned or freed; what is planned runs without it.
    """

    members: Sequence[DeviceState]
    progress: Progress | None = None
    dtype: str = ""
    upper_bounds: Mapping[str, int] = field(default_factory=dict)
    shaders: Mapping[compiler.Variant, compiler.Shader] = field(default_factory=dict)
    polls: bool = True
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def infos(self) -> tuple[DeviceInfo, ...]:
        """Return all devices that are planned for."""
        return tuple(member.opened.info for member in self.members)

    @property
    def info(self) -> DeviceInfo:
        """Return the device that is planned for, the first of several."""
        return self.infos[0]

    @property
    def resident(self) -> frozenset[str]:
        """Return what plans call the weights that lie on the device."""
        return self.members[0].weights.names

    @property
    def reserve(self) -> BufferPool | None:
        """Return the memory of all shapes; None where each program has its own."""
        return self.members[0].reserve if self.upper_bounds else None

    def plan(self, graph: Graph, unavailable: Callable[[Dispatch], str]) -> Plan | SpreadPlan:
        """Plan a Vulkan part; see `plan.make_plan`."""
        return plans.make_plan(passes.run(graph, self.dtype), self.info, unavailable,
                               resident=self.resident)

    def runner(self, plan: Plan | SpreadPlan) -> Runner:
        """Make what runs a plan."""
        assert isinstance(plan, Plan), "one device runs plans for one device"
        return Device(self.program(self.members[0], plan, self.reserve))

    def program(
        self, member: DeviceState, plan: Plan, reserve: BufferPool | None,
        given: Mapping[str, Given] | None = None,
    ) -> Program:  # fmt: skip
        """Make the program of a plan on one of the devices."""
        report(plan)
        program = Program(member.opened, plan, member.weights, self.progress, reserve,
                          member.kernels, given)  # fmt: skip
        program.polls &= self.polls
        return program

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes that all shapes share, weights apart; 0 without upper bounds."""
        return self.reserve.size_bytes if self.reserve else 0

    def clone(self) -> Engine:
        """Return what runs the same at the same time: memory of its own, the same weights.

        A thread that polls takes the interpreter from those that have frames to submit.
        """
        return replace(self, members=[each.clone() for each in self.members], polls=False)

    def close(self) -> None:
        """Free the memory that a twin has of its own."""
        for member in self.members:
            member.reserve.close()

    @property
    def kept(self) -> int:
        """Return how many plans a stage keeps."""
        return int(settings.get("KEPT_PLANS")) or (
            KEPT_IN_RESERVE if self.reserve else KEPT_PROGRAMS
        )


def report(plan: Plan) -> None:
    """Say what was planned, as DEBUG asks; DUMP's file lies beside the SPIR-V."""
    if int(settings.get("DEBUG")) >= 1:
        print(plan, file=sys.stderr)
    folder = str(settings.get("DUMP"))
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        lines = ["\t".join(row) for row in plan.rows()]
        shapes_text = "_".join("x".join(map(str, i.shape)) for i in plan.graph.inputs)
        name = "".join(c if c.isalnum() else "_" for c in plan.graph.name)[:40]
        target = Path(folder) / f"plan-{name}-{shapes_text}.txt"
        target.write_text("\n".join([str(plan), *lines, ""]), encoding="utf-8")


def _quiet(*what: Any) -> contextlib.AbstractContextManager[Any]:
    return _QUIET


class Work:
    """A program and what the host does around it: inputs in, submit; wait, outputs out.

    Attributes:
        given: inputs that the host copies in; `kept`: outputs that it copies out.
    """

    def __init__(self, program: Program, given: Sequence[str], kept: Sequence[str]) -> None:
        self.program = program
        self.given = given
        self.kept = kept
        self.watch(None, None)

    def watch(self, recording: Submission | None, noted: Noted | None) -> None:
        """Submit another recording, and do each thing in a context; None for neither."""
        self._recording, self._noted = recording, noted or _quiet

    def begin(self, values: Mapping[str, Any]) -> None:
        """Copy in and submit what was prepared, without waiting."""
        with self._noted("copy in"):
            for name in self.given:
                self.program.places.put(name, values[name])
        with self._noted("submit"):
            self.program.submit(self._recording)

    def wait(self) -> None:
        """Wait for what was submitted."""
        with self._noted("wait"):
            self.program.wait()

    def outputs(self) -> dict[str, np.ndarray]:
        """Copy out."""
        with self._noted("copy out"):
            return {name: self.program.places.take(name) for name in self.kept}

    def time_steps(
        self, values: Mapping[str, Any], repeats: int, whole: bool = False
    ) -> list[timestamps.Sample]:
        """Run with timestamps as `Program.timed` records them, after one run that is not kept."""
        samples = []
        with self.program.timed(whole) as work:
            self.watch(work.submission, None)
            try:
                for _ in range(repeats + 1):
                    begun_ns = time.perf_counter_ns()
                    self.begin(values)
                    self.wait()
                    self.outputs()
                    samples.append(work.sample(begun_ns, time.perf_counter_ns()))
            finally:
                self.watch(None, None)
        return samples[1:]


class Device(Work):
    """Run a Vulkan part by its program."""

    def __init__(self, program: Program) -> None:
        graph = program.plan.graph
        super().__init__(program, [info.name for info in graph.inputs], graph.outputs)

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once."""
        self.start(values)
        return self.finish()

    def start(self, values: Mapping[str, Any]) -> None:
        """Begin a run, without waiting."""
        self.program.prepare()
        self.begin(values)

    def finish(self) -> Mapping[str, Any]:
        """Wait for a run that was started."""
        self.wait()
        return self.outputs()

    def close(self) -> None:
        """Free everything but the weights."""
        self.program.close()


class Host:
    """Run a host part in ONNX Runtime or onnx.reference."""

    def __init__(self, part: Part) -> None:
        self.part = host(next(iter(part.reasons.values()), "")).HostPart(part.graph)

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once."""
        return self.part.run(values)

    def close(self) -> None:
        """Hold nothing."""


def host(reason: str = "") -> Any:
    """Return the module that runs parts on the host: models without such parts do without it."""
    try:
        from vklab.runtime import host
    except ImportError as error:
        raise SetupError(f"parts of this model run on the host, in ONNX Runtime ({error}); "
                         f"why they do: {reason or 'they depend on sizes'}",
                         "pip install onnx onnxruntime") from error  # fmt: skip
    return host
