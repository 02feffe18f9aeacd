"""Executor: make a runner for each chunk of a plan, and run the chunks in order.

A device chunk becomes a Program: copy in, submit, wait, copy out. Host chunks run in ONNX Runtime.
Concurrent device chunks are run by `many`. Visited by lab 12.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vklab import settings
from vklab.base import catalogue
from vklab.errors import ModelError, SetupError
from vklab.plan.chunk import HOST, Chunk
from vklab.plan.options import Facts
from vklab.plan.plan import Plan
from vklab.runtime import kernels
from vklab.runtime.buffers import BufferPool
from vklab.runtime.device_state import DeviceState
from vklab.runtime.plan_cache import Entry, PlanCache, Runner
from vklab.runtime.polled import commands as polled
from vklab.runtime.program import Program
from vklab.shader import compiler

# Plans that a cache keeps. A program in a shared pool costs only its plan and a command buffer.
# Chosen, not measured.
KEPT_PROGRAMS = 8
KEPT_IN_POOL = 64


class Executor:
    """Execution of the plans of a session, or of one of its frames in flight.

    Attributes:
        devices: the devices, in the order of the plan's device numbers.
        has_bounds: True if the model has upper bounds: all shapes share one pool on each device.
        shaders: kernels of a compiled model, used instead of compiling.
        tuned: for each device the choices that `vklab tune` measured; empty for none.
        polls: True if a wait for a device polls before it blocks.
        lock: taken to plan and to free; a planned run does not take it.

    Args:
        devices: as the attribute.
        has_bounds: as the attribute.
        progress: called as (done, of, kernel) while kernels compile.
        splitter: runs plans of several devices: a `many.split.Split`; None for one device.
        lock: as the attribute; a new lock if None.
        on_host: called after a run that has planned host nodes for the first time.
        tuned: as the attribute.
    """

    def __init__(
        self,
        devices: Sequence[DeviceState],
        has_bounds: bool = False,
        progress: kernels.Progress | None = None,
        splitter: Any = None,
        lock: threading.RLock | None = None,
        on_host: Callable[[PlanCache], None] = lambda cache: None,
        tuned: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.devices = devices
        self.has_bounds = has_bounds
        self.progress = progress
        self.splitter = splitter
        self.shaders: Mapping[compiler.Variant, compiler.Shader] = {}
        self.tuned = tuned
        self.polls = True
        self.lock = lock or threading.RLock()
        self.on_host = on_host
        self._has_new_host = False

    def clone(self) -> Executor:
        """Return an executor for concurrent runs: the same weights, buffers of its own.

        A clone does not poll: polling threads would slow the threads that submit frames.
        """
        other = copy.copy(self)
        other.devices = [state.clone() for state in self.devices]
        other.splitter = self.splitter.clone(other.devices) if self.splitter else None
        other.polls = False
        return other

    def close(self) -> None:
        """Free the buffer pools of a clone."""
        for state in self.devices:
            state.pool.close()

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes reserved for all shapes, without weights; 0 without upper bounds."""
        if self.splitter:
            return self.splitter.reserved_bytes
        return self.devices[0].pool.size_bytes if self.has_bounds else 0

    @property
    def kept_count(self) -> int:
        """Return the number of plans that a cache keeps."""
        in_pool = self.has_bounds and not self.splitter
        return int(settings.get("KEPT_PLANS")) or (KEPT_IN_POOL if in_pool else KEPT_PROGRAMS)

    # --------------------------------------------------------------------------------- preparing

    def facts(self) -> Facts:
        """Return what planning must know: resident weights, and functions about kernels and values.

        For several devices also free memory, device speeds and an earlier placement.
        """
        resident = tuple(state.weights.names for state in self.devices)
        facts = Facts(resident, self.tuned, evaluate=evaluate, kernel_refusal=kernels.unavailable)
        return self.splitter.facts(facts) if self.splitter else facts

    def compiling(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which the kernels of a compiled model are used before compiling."""
        return compiler.given(self.shaders)

    def entry(self, plan: Plan, first: int, like: Entry | None = None) -> Entry:
        """Return a cache entry that runs the last chunks of a plan.

        Args:
            plan: the plan; it is incomplete if later chunks depend on values not computed yet.
            first: the number of the first chunk that no earlier entry runs.
            like: an entry for the same plan of another executor, whose body caches are cloned.
        """
        entry = Entry(plan, first, self._runner(plan, first, like))
        if plan.rest is not None and like is None:
            entry.rest = PlanCache(plan, self)
        if first == 0 and isinstance(entry.runner, Program) and _makes_all(plan):
            entry.whole = entry.runner
        return entry

    def _runner(self, plan: Plan, first: int, like: Entry | None) -> Runner | None:
        chunk = plan.chunks[first]
        if not chunk.graph.nodes:
            return None
        if chunk.place == HOST:
            self._has_new_host = True
            reason = next(iter(chunk.reasons.values()), "")
            runner: Runner = _host(reason)(chunk.graph)
            return runner
        if not chunk.is_on_device:
            return self._control(plan, chunk, like)
        _report(plan)
        if self.splitter:
            return self.splitter.runner(self, plan, first)
        outputs = tuple(dict.fromkeys(plan.graph.outputs)) if _makes_all(plan) else None
        return self.program(
            self.devices[0],
            chunk,
            self.devices[0].pool if self.has_bounds else None,
            copied_out=outputs,
        )

    def program(
        self, state: DeviceState, chunk: Chunk, pool: BufferPool | None, **more: Any
    ) -> Program:
        """Create the program of a chunk on a device.

        Args:
            state: the device.
            chunk: the lowered chunk.
            pool: the buffer pool to share; None for a pool of its own.
            **more: further arguments of `Program`.
        """
        if self.polls and (kind := polled.class_for(state.opened)):
            more.setdefault("commands", kind)
        program = Program(state, chunk, pool, self.progress, **more)
        program.polls &= self.polls
        return program

    def _control(self, plan: Plan, chunk: Chunk, like: Entry | None) -> Runner:
        known = like.runner.bodies if like and like.runner else {}
        bodies = {
            name: known[name].clone(self)
            if name in known
            else PlanCache(Plan(body, plan.devices, plan.options, rest=body), self)
            for name, body in chunk.graph.nodes[0].bodies.items()
        }
        run = functools.partial(self.run, is_body=True)
        runner: Runner = catalogue.step("control nodes")(chunk.graph, bodies, run)
        return runner

    def tell_host(self, cache: PlanCache) -> None:
        """Call `on_host` if host nodes were planned since the last call."""
        if self._has_new_host:
            self._has_new_host = False
            self.on_host(cache)

    # ----------------------------------------------------------------------------------- running

    def run(
        self, cache: PlanCache, values: dict[str, Any], is_body: bool = False
    ) -> Mapping[str, Any]:
        """Run a model to its end, and return its outputs by name in the graph's order.

        Args:
            cache: the plans of the model.
            values: the inputs by name; the outputs of all chunks are added.
            is_body: True for a body of a control node, which never overlaps chunks: its thread
                may belong to the pool that would run them.

        Raises ModelError for an output that no chunk computes.
        """
        entry = cache.find(values)
        if entry.whole is not None:
            outputs: dict[str, Any] = entry.whole.run(values)
            return outputs
        if entry.overlap is None or not entry.overlap.run(values):
            self.run_in_turn(cache, entry, values, is_body)
        return results(cache, values)

    def run_in_turn(
        self, cache: PlanCache, first: Entry, values: dict[str, Any], is_body: bool = False
    ) -> None:
        """Run a model one entry after the other, without overlap.

        Args:
            cache: the plans of the model.
            first: the cache's entry for these values.
            values: the inputs by name; the outputs of all chunks are added.
            is_body: True for a body of a control node, for which no overlap is prepared.
        """
        taken = [(cache, first)]
        for _, entry in taken:  # the loop appends to the list
            for chunk in entry.chunks:
                values.update(chunk.known)
            if entry.runner:
                values.update(entry.runner.run(values))
            if entry.rest:
                taken.append((entry.rest, entry.rest.find(values)))
        if not is_body:
            self.tell_host(cache)
        # An overlap schedules the entries of the next run ahead. Entries that depend on values
        # may differ in the next run, so they are not scheduled.
        is_free = first.overlap is None and not is_body and len(taken) > 1
        if is_free and not any(rest.needs for rest, _ in taken[1:]):
            infos = [state.opened.info for state in self.devices]
            first.overlap = catalogue.step("overlap chunks")(infos, taken, values)


def results(cache: PlanCache, values: Mapping[str, Any]) -> dict[str, Any]:
    """Select the outputs of a model from all computed values, by name.

    Raises ModelError for an output that no chunk computed.
    """
    graph = cache.plan.graph
    constants = graph.initializers
    missing = [n for n in graph.outputs if n not in values and n not in constants]
    if missing:
        raise ModelError(f"no node computed the output {missing[0]!r}")
    return {n: values[n] if n in values else constants[n].constant for n in graph.outputs}


def _makes_all(plan: Plan) -> bool:
    """Tell whether the first chunk of a plan computes all outputs of the model."""
    chunk = plan.chunks[0]
    is_whole = plan.rest is None and len(plan.chunks) == 1 and not chunk.known
    return is_whole and set(plan.graph.outputs) == set(chunk.graph.outputs)


def _report(plan: Plan) -> None:
    """Print a plan if DEBUG is 1 or more, and write it into DUMP's folder beside the SPIR-V."""
    if int(settings.get("DEBUG")) >= 1:
        print(plan, file=sys.stderr)
    if settings.get("DUMP"):
        plan.write(str(settings.get("DUMP")))


def _host(reason: str) -> Any:
    """Return the class of runners of host chunks.

    Args:
        reason: why a node runs on the host, for the error; "" if it depends on sizes.

    Raises SetupError if onnx is not installed.
    """
    try:
        return catalogue.step("host chunks").load()
    except SetupError as error:
        raise SetupError(
            f"nodes of this model run on the host, in ONNX Runtime ({error}); "
            f"reason: {reason or 'they depend on sizes'}",
            "pip install onnx onnxruntime",
        ) from error


def evaluate(*given: Any) -> Any:
    """Compute one node with known inputs on the host, for constant folding: `host.evaluate`."""
    return catalogue.step("evaluate a node")(*given)
