"""Plan caches of a compiled model: its plans are restored instead of planned again."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import ModelError, PlanError, UnsupportedOperatorError
from vklab.ops.dtypes import MOVABLE
from vklab.plan import limits
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.plan import Plan
from vklab.runtime import plan_cache
from vklab.runtime.compiled import saved as saves
from vklab.runtime.compiled.saved import Saved, SavedPart
from vklab.runtime.executor import Executor
from vklab.runtime.plan_cache import Entry, PlanCache
from vklab.shader import compiler
from vklab.types import DeviceInfo, TensorInfo

log = logging.getLogger(__name__)
_WRONG = "the plan in the compiled model contradicts itself"


class Library:
    """A compiled model on one device, for one session.

    Attributes:
        reason: why a plan had to be made here; empty as long as all plans were restored.
    """

    def __init__(self, saved: Saved, plan: Plan) -> None:
        self.saved = saved
        self.info = plan.devices[0]
        mismatch = saved.mismatch(plan.options.dtype, plan.options.upper_bounds)
        if len(plan.devices) > 1:
            mismatch = mismatch or (
                "the model was compiled for one device, and is split over several"
            )
        self.has_plans = not mismatch
        self.difference = saves.difference(saved.device, self.info)
        self.reason = ""
        self.note(mismatch or self.difference)

    def note(self, reason: str) -> None:
        """Store the first reason, and print it if DEBUG is 1 or more."""
        if reason and not self.reason:
            self.reason = reason
            log.info("a compiled model is planned here: %s", reason)
            if int(settings.get("DEBUG")) >= 1:
                print(f"planned here: {reason}", file=sys.stderr)

    @functools.cached_property
    def current(self) -> Mapping[compiler.Variant, compiler.Shader]:
        """Return the file's kernels whose shader text is unchanged here, for plans made here."""
        return self.saved.current_shaders()


class SavedPlans(PlanCache):
    """A plan cache that restores entries of a compiled model, and plans only missing ones.

    Args:
        library: the compiled model.
        number: the number of this cache in the file; -1 if the file has none for it.
        plan: the prefix.
        executor: makes and runs the entries.
    """

    def __init__(self, library: Library, number: int, plan: Plan, executor: Executor) -> None:
        super().__init__(plan, executor)
        self.library = library
        self.saved: dict[tuple[Any, ...], SavedPart] = {}
        if library.has_plans and number >= 0:
            cache = library.saved.stages[number]
            self.needs = list(cache.needs)
            self.saved = {entry.key: entry for entry in cache.parts}

    @property
    def _executor(self) -> Executor:
        assert isinstance(self.executor, Executor), "a session runs what was compiled"
        return self.executor

    @property
    def reason(self) -> str:
        """Return why a plan had to be made here; empty as long as all plans were restored."""
        return self.library.reason

    def prepare(self) -> None:
        """Prepare as any cache; else prepare the compiled shapes, if there is only one set."""
        super().prepare()
        if self.entries or len(self.saved) != 1 or self.needs:
            return
        (key,) = self.saved
        pairs = zip(self.names, key, strict=True)
        infos = {name: TensorInfo(name, dtype, shape) for name, (shape, dtype) in pairs}
        if all(info.dtype in MOVABLE for info in infos.values()):
            entry = self.decide(infos, None)  # None if this device's plan depends on values
            if entry:
                self.keep(plan_cache.planned_key(infos.values()), entry)

    def decide(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None
    ) -> Entry | None:
        """Restore the entry compiled for these shapes, else plan; see `PlanCache.decide`."""
        library = self.library
        if self.needs and values is None:
            return None
        saved = self.saved.get(self._saved_key(infos, values))
        chunk = self._chunk(saved) if saved else None
        if saved is not None and chunk is not None:
            shaders = library.current if library.difference else library.saved.shaders
            with compiler.given(shaders):
                return self._restore(saved, chunk)
        if self.saved:
            library.note(
                "no plan was compiled for " + ", ".join(str(infos[name]) for name in self.names)
            )
        self._executor.shaders = library.current
        return super().decide(infos, values)

    def _saved_key(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None
    ) -> tuple[Any, ...]:
        needed = (np.asarray((values or {}).get(name)).tobytes() for name in self.needs)
        return (*((infos[name].shape, infos[name].dtype) for name in self.names), *needed)

    def _chunk(self, saved: SavedPart) -> Chunk | None:
        """Return the chunk of a saved entry for this device; None if it must be planned again."""
        if not saved.chunk.is_on_device or not saved.chunk.graph.nodes:
            return saved.chunk
        info = self.library.info
        try:
            if not self.library.difference:
                require_sound(saved.chunk, info)
                return saved.chunk
            # After a chunk with a rest, this device may support more nodes: plan again.
            return plans.lower_rewritten(saved.chunk, info) if saved.rest < 0 else None
        except (PlanError, UnsupportedOperatorError) as error:
            self.library.note(str(error))
            return None

    def _restore(self, saved: SavedPart, chunk: Chunk) -> Entry:
        library, behind = self.library, None
        if saved.rest >= 0:
            behind = library.saved.stages[saved.rest].graph or self.plan.graph
        try:
            plan = replace(self.plan, chunks=(*self.plan.chunks, chunk), rest=behind, needs=())
            entry = self._executor.entry(plan, len(self.plan.chunks))
            if behind is not None:
                entry.rest = SavedPlans(library, saved.rest, plan, self._executor)
            if saved.bodies:
                entry.runner.bodies = {
                    name: SavedPlans(library, saved.bodies.get(name, -1), body.plan, self._executor)
                    for name, body in entry.runner.bodies.items()
                }
        except (LookupError, TypeError, AttributeError, AssertionError) as error:
            raise ModelError(f"{_WRONG}: {error!r}") from error
        return entry


def require_sound(chunk: Chunk, info: DeviceInfo) -> None:
    """Raise ModelError or PlanError for a chunk that no planner makes: drivers do not check it."""
    limits.check(chunk.dispatches, info)
    slots, arenas = chunk.memory.slots, chunk.memory.arenas
    placed = [
        *slots.values(),
        *chunk.input_slots.values(),
        *chunk.output_slots.values(),
        *(slot for copy in chunk.copies for slot in (copy.source, copy.target)),
    ]
    for slot in placed:
        end = slot.offset_bytes + slot.size_bytes
        if not 0 <= slot.offset_bytes <= end <= arenas.get(slot.arena, -1):
            raise ModelError(f"{_WRONG}: {slot} is not inside its arena")
    for dispatch in chunk.dispatches:
        for _, tensor in dispatch.reads + dispatch.writes:
            if tensor.name not in slots or tensor.size_bytes > slots[tensor.name].size_bytes:
                raise ModelError(f"{_WRONG}: {dispatch} has no slot large enough for {tensor}")


def root(saved: Saved, start: Plan, executor: Executor) -> SavedPlans:
    """Return the root cache of a compiled model.

    Args:
        saved: the compiled model.
        start: the empty plan of the session.
        executor: makes and runs the entries.
    """
    return SavedPlans(Library(saved, start), 0 if saved.stages else -1, start, executor)
