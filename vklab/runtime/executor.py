"""Executor: make what runs the chunks of a plan, and run them in order.

One chunk that is the whole model is one program: copy in, submit, wait, copy out. Host nodes run in
ONNX Runtime. Several device chunks at once are run by `many`. Visited by lab 12.
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
from vklab.errors import ModelError, SetupError
from vklab.plan.chunk import HOST, Chunk
from vklab.plan.options import Facts
from vklab.plan.plan import Plan
from vklab.runtime import control, kernels
from vklab.runtime.buffers import BufferPool
from vklab.runtime.device_state import DeviceState
from vklab.runtime.plan_cache import Entry, PlanCache, Runner
from vklab.runtime.program import Program
from vklab.shader import compiler

__all__ = ["Executor", "evaluate", "load_host", "results"]

KEPT_PROGRAMS = 8
# In shared memory a program costs its plan and a command buffer only.
KEPT_IN_POOL = 64


class Executor:
    """Runs the plans of a session, or of one of its frames in flight.

    Attributes:
        devices: by the numbers that chunks name.
        has_bounds: the model has upper bounds: all shapes share the memory of each device.
        shaders: kernels of a compiled model, used before any is compiled.
        polls: waits for a device poll before they block.
        lock: held while something is planned or freed; what is planned runs without it.

    Args:
        progress: called as (done, of, kernel) while kernels compile.
        splitter: runs plans of several devices: a `many.split.Split`; None for one device.
        load_overlap: loads what runs host chunks beside device chunks; gives None without it.
    """

    def __init__(
        self,
        devices: Sequence[DeviceState],
        has_bounds: bool = False,
        progress: kernels.Progress | None = None,
        splitter: Any = None,
        load_overlap: Callable[[], Any] = lambda: None,
        lock: threading.RLock | None = None,
    ) -> None:
        self.devices = devices
        self.has_bounds = has_bounds
        self.progress = progress
        self.splitter = splitter
        self.shaders: Mapping[compiler.Variant, compiler.Shader] = {}
        self.polls = True
        self.lock = lock or threading.RLock()
        self._load_overlap = load_overlap

    def clone(self) -> Executor:
        """Return what runs the same plans at the same time: memory of its own, the same weights.

        A thread that polls takes the interpreter from those that have frames to submit.
        """
        other = copy.copy(self)
        other.devices = [state.clone() for state in self.devices]
        other.splitter = self.splitter.clone(other.devices) if self.splitter else None
        other.polls = False
        return other

    def close(self) -> None:
        """Free the memory that a clone has of its own."""
        for state in self.devices:
            state.pool.close()

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes that all shapes share, weights apart; 0 without upper bounds."""
        if self.splitter:
            return self.splitter.reserved_bytes
        return self.devices[0].pool.size_bytes if self.has_bounds else 0

    @property
    def kept_count(self) -> int:
        """Return how many plans a cache keeps."""
        in_pool = self.has_bounds and not self.splitter
        return int(settings.get("KEPT_PLANS")) or (KEPT_IN_POOL if in_pool else KEPT_PROGRAMS)

    # --------------------------------------------------------------------------------- preparing

    def facts(self) -> Facts:
        """Return what the machine says at this moment."""
        resident = tuple(state.weights.names for state in self.devices)
        facts = Facts(resident, evaluate=evaluate, kernel_refusal=kernels.unavailable)
        return self.splitter.facts(facts) if self.splitter else facts

    def compiling(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which kernels of a compiled model are found."""
        return compiler.given(self.shaders)

    def entry(self, plan: Plan, first: int, like: Entry | None = None) -> Entry:
        """Return what runs the chunks of a plan from one on.

        Args:
            plan: complete, or as long as can be told.
            first: the number of the first chunk that is not run by an entry before.
            like: an entry of the same plan in another executor, which has the cache behind it.
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
            reason = next(iter(chunk.reasons.values()), "")
            runner: Runner = load_host(reason).HostChunk(chunk.graph)
            return runner
        if not chunk.is_on_device:
            return self._control(plan, chunk, like)
        _report(plan)
        if self.splitter:
            return self.splitter.runner(self, plan, first)
        outputs = tuple(dict.fromkeys(plan.graph.outputs)) if _makes_all(plan) else None
        return self.program(self.devices[0], chunk, self.devices[0].pool if self.has_bounds else
                            None, copied_out=outputs)  # fmt: skip

    def program(
        self, state: DeviceState, chunk: Chunk, pool: BufferPool | None, **more: Any
    ) -> Program:
        """Make the program of a chunk on one of the devices; `more` as in `Program`."""
        program = Program(state, chunk, pool, self.progress, **more)
        program.polls &= self.polls
        return program

    def _control(self, plan: Plan, chunk: Chunk, like: Entry | None) -> control.Control:
        known = like.runner.bodies if like else {}
        bodies = {
            name: known[name].clone(self) if name in known else PlanCache(
                Plan(body, plan.devices, plan.options, rest=body), self)
            for name, body in chunk.graph.nodes[0].bodies.items()
        }  # fmt: skip
        return control.Control(chunk.graph, bodies, functools.partial(self.run, is_body=True))

    # ----------------------------------------------------------------------------------- running

    def run(
        self, cache: PlanCache, values: dict[str, Any], is_body: bool = False
    ) -> Mapping[str, Any]:
        """Run a model to its end and return its outputs by name, in the graph's order.

        Args:
            cache: the plans of the model.
            values: the inputs by name; receives what chunks make.
            is_body: runs on a thread that must not wait for others of its kind.

        Raises ModelError for an output that nothing makes.
        """
        entry = cache.find(values)
        if entry.whole is not None:
            outputs: dict[str, Any] = entry.whole.run(values)
            return outputs
        if entry.overlap is None or not entry.overlap.run(values):
            self.run_in_turn(cache, values, is_body)
        return results(cache, values)

    def run_in_turn(
        self, cache: PlanCache, values: dict[str, Any], is_body: bool = False
    ) -> None:
        """Run a model chunk after chunk; parameters as in `run`."""
        first = cache.find(values)
        taken = [(cache, first)]
        for _, entry in taken:  # grows on the way
            for chunk in entry.chunks:
                values.update(chunk.known)
            if entry.runner:
                values.update(entry.runner.run(values))
            if entry.rest:
                taken.append((entry.rest, entry.rest.find(values)))
        # A sequence that values decide is found anew by each run.
        is_free = first.overlap is None and not is_body and len(taken) > 1
        if is_free and not any(behind.needs for behind, _ in taken[1:]):
            overlap = self._load_overlap()
            pays = overlap and overlap.pays([state.opened.info for state in self.devices])
            first.overlap = overlap.Overlap(taken, values) if pays else None


def results(cache: PlanCache, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a model by name, of all values that were made.

    Raises ModelError for an output that nothing made.
    """
    graph = cache.plan.graph
    constants = graph.initializers
    missing = [n for n in graph.outputs if n not in values and n not in constants]
    if missing:
        raise ModelError(f"nothing made the output {missing[0]!r}")
    return {n: values[n] if n in values else constants[n].constant for n in graph.outputs}


def _makes_all(plan: Plan) -> bool:
    """Tell whether the first chunk of a plan is the whole model."""
    chunk = plan.chunks[0]
    is_whole = plan.rest is None and len(plan.chunks) == 1 and not chunk.known
    return is_whole and set(plan.graph.outputs) == set(chunk.graph.outputs)


def _report(plan: Plan) -> None:
    """Print a plan as DEBUG asks, and write it into DUMP's folder beside the SPIR-V."""
    if int(settings.get("DEBUG")) >= 1:
        print(plan, file=sys.stderr)
    if settings.get("DUMP"):
        plan.write(str(settings.get("DUMP")))


def load_host(reason: str = "") -> Any:
    """Load the module that runs nodes on the host: models without such nodes do without it.

    Args:
        reason: why a node is on the host, for the error.
    """
    try:
        from vklab.runtime import host
    except ImportError as error:
        raise SetupError(f"nodes of this model run on the host, in ONNX Runtime ({error}); "
                         f"why they do: {reason or 'they depend on sizes'}",
                         "pip install onnx onnxruntime") from error  # fmt: skip
    return host


def evaluate(*given: Any) -> Any:
    """Compute one node on the host, to fold known values; see `host.evaluate`."""
    return load_host().evaluate(*given)
