"""Stages of a session made of a compiled model: what was decided there is not decided again."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import ModelError, PlanError, UnsupportedOperatorError
from vklab.ops.dtypes import MOVABLE
from vklab.plan import limits
from vklab.plan import plan as plans
from vklab.plan.plan import Plan
from vklab.runtime import control, parts
from vklab.runtime.compiled import saved as saves
from vklab.runtime.compiled.saved import Saved, SavedPart
from vklab.runtime.engine import Engine
from vklab.shader import compiler
from vklab.types import DeviceInfo, TensorInfo

__all__ = ["Library", "SavedPath", "require_sound", "root"]

_WRONG = "the plan in the compiled model contradicts itself"


class Library:
    """A compiled model on one device, for one session.

    Attributes:
        reason: why something was planned here after all; empty as long as nothing was.
    """

    def __init__(self, saved: Saved, engine: Engine) -> None:
        self.saved = saved
        self.engine = engine
        wish = saved.other_wish(engine.dtype, engine.upper_bounds)
        if len(engine.infos) > 1:
            wish = wish or "the model was compiled for one device, and is spread over several"
        self.has_plans = not wish
        self.difference = saves.difference(saved.device, engine.info)
        self.reason = ""
        self.note(wish or self.difference)

    def note(self, reason: str) -> None:
        """Keep the first reason, and say it where plans are said."""
        if reason and not self.reason:
            self.reason = reason
            if int(settings.get("DEBUG")) >= 1:
                print(f"planned here: {reason}", file=sys.stderr)

    @functools.cached_property
    def current(self) -> Mapping[compiler.Variant, compiler.Shader]:
        """Return the kernels of the file that a plan made here may use: those of the same text."""
        return self.saved.current_shaders()


class SavedPath(parts.Stage):
    """A stage that looks into a compiled model before it decides."""

    def __init__(
        self, library: Library, number: int, graph: Any, after_host: bool = False
    ) -> None:
        super().__init__(graph, library.engine, after_host)
        self.library = library
        self.saved: dict[tuple[Any, ...], SavedPart] = {}
        if library.has_plans and number >= 0:
            stage = library.saved.stages[number]
            self.asked = list(stage.asked)
            self.saved = {part.key: part for part in stage.parts}

    def prepare(self) -> None:
        """Prepare as any stage does, or for the shapes that were compiled, if they are of one."""
        super().prepare()
        if self.found or len(self.saved) != 1 or self.asked:
            return
        (key,) = self.saved
        pairs = zip(self.names, key, strict=True)
        infos = {name: TensorInfo(name, dtype, shape) for name, (shape, dtype) in pairs}
        if all(info.dtype in MOVABLE for info in infos.values()):
            with contextlib.suppress(parts.Unknown):  # another device may have to see values
                self._keep(self._planned_key(infos.values()), self.decide(infos))

    def decide(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None = None
    ) -> parts.Found:
        """Return what was compiled for these shapes, else decide; see `Stage.decide`."""
        library = self.library
        if self.asked and values is None:
            raise parts.Unknown(tuple(self.asked))
        saved = self.saved.get(self._saved_key(infos, values))
        plan = self._plan(saved) if saved else None
        if saved is not None and (plan or not saved.plan):
            shaders = library.current if library.difference else library.saved.shaders
            with compiler.given(shaders):
                return self._restore(saved, plan)
        if self.saved:
            library.note("no plan was compiled for "
                         + ", ".join(str(infos[name]) for name in self.names))  # fmt: skip
        self.engine.shaders = library.current
        return super().decide(infos, values)

    def _saved_key(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None
    ) -> tuple[Any, ...]:
        asked = (np.asarray((values or {}).get(name)).tobytes() for name in self.asked)
        return (*((infos[name].shape, infos[name].dtype) for name in self.names), *asked)

    def _plan(self, saved: SavedPart) -> Plan | None:
        """Return the plan of a part for this device, if it has one."""
        if saved.plan is None:
            return None
        info = self.engine.info
        try:
            if not self.library.difference:
                require_sound(saved.plan, info)
                return saved.plan
            # Another device may take what this part left to the host: then all is decided anew.
            return plans.make_plan(saved.plan.graph, info) if saved.rest < 0 else None
        except (PlanError, UnsupportedOperatorError) as error:
            self.library.note(str(error))
            return None

    def _restore(self, saved: SavedPart, plan: Plan | None) -> parts.Found:
        library = self.library
        rest: SavedPath | None = None
        if saved.rest >= 0:
            behind = library.saved.stages[saved.rest]
            rest = SavedPath(library, saved.rest, behind.graph, behind.after_host)
        try:
            runner = self.engine.runner(plan) if plan else self._runner(saved.part)[0]
            if isinstance(runner, control.Control):
                bodies = saved.part.graph.nodes[0].bodies
                runner.bodies = {
                    name: SavedPath(library, saved.bodies.get(name, -1), body)
                    for name, body in bodies.items()
                }
        except (LookupError, TypeError, AttributeError, AssertionError) as error:
            raise ModelError(f"{_WRONG}: {error!r}") from error
        return parts.Found(saved.part, runner, rest, plan)


def require_sound(plan: Plan, info: DeviceInfo) -> None:
    """Raise ModelError or PlanError for what no plan says; a driver would not ask."""
    limits.check(plan.dispatches, info)
    slots, arenas = plan.memory.slots, plan.memory.arenas
    placed = [*slots.values(), *plan.input_slots.values(), *plan.output_slots.values(),
              *(slot for copy in plan.copies for slot in (copy.source, copy.target))]  # fmt: skip
    for slot in placed:
        end = slot.offset_bytes + slot.size_bytes
        if not 0 <= slot.offset_bytes <= end <= arenas.get(slot.arena, -1):
            raise ModelError(f"{_WRONG}: {slot} is not in its arena")
    for dispatch in plan.dispatches:
        for _, tensor in dispatch.reads + dispatch.writes:
            if tensor.name not in slots or tensor.size_bytes > slots[tensor.name].size_bytes:
                raise ModelError(f"{_WRONG}: {dispatch} has no place for {tensor}")


def root(saved: Saved, engine: Engine) -> SavedPath:
    """Return the first stage of a compiled model."""
    return SavedPath(Library(saved, engine), 0 if saved.stages else -1, saved.graph)
