"""The path of a model through its parts: what is left to run, and what was decided for it before.

A model that a device can run whole is one part: one program, one submission. Others alternate
between device and host, and each part is planned when the shapes before it are known.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import ModelError, PlanError, UnsupportedOperatorError
from vklab.graph import bounds
from vklab.graph.graph import Graph
from vklab.ops.dtypes import MOVABLE
from vklab.plan import partition
from vklab.plan.partition import Ask, Part
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.runtime import control, kernels, overlap
from vklab.runtime.engine import Device, Engine, Host, Runner, host
from vklab.shader import compiler
from vklab.types import ANY_SHAPE, TensorInfo

__all__ = ["Found", "Stage", "Unknown", "describe"]

Key = tuple[Any, ...]


@dataclass
class Found:
    """A part that was decided, what runs it, and what comes after it.

    Attributes:
        path: of the first part of all: how the whole path runs when it is taken again.
    """

    part: Part
    runner: Runner | None
    rest: Stage | None
    plan: Plan | SpreadPlan | None = None
    path: overlap.Path | None = None


class Stage:
    """What is left of a graph at one point of its path, and the next part for each key.

    A key is the shapes of the values that are read from here on, and those values that decide.
    """

    def __init__(
        self, graph: Graph, engine: Engine, after_host: bool = False, is_body: bool = False
    ) -> None:
        self.graph = graph
        self.engine = engine
        self.after_host = after_host
        self.is_body = is_body
        self.names = [*(info.name for info in graph.inputs), *graph.captures]
        self.asked: list[str] = []
        self.found: OrderedDict[Key, Found] = OrderedDict()
        self.decided: OrderedDict[Key, Found] = OrderedDict()  # here, or by a twin

    def clone(self, engine: Engine) -> Stage:
        """Return the same stage for frames in flight: what one decides holds for the other too."""
        other = copy.copy(self)
        other.engine, other.found = engine, OrderedDict()
        return other

    def find(self, values: Mapping[str, Any]) -> Found:
        """Return the next part for these values: decided and prepared once, then kept a while."""
        key = self.key(values)
        found = self.found.get(key)
        if found is None:
            with self.engine.lock:
                found = self._find_first(key, values)
        elif len(self.found) > 1:
            self.found.move_to_end(key)
        return found

    def _find_first(self, key: Key, values: Mapping[str, Any]) -> Found:
        known = self.decided.get(key)
        if known:
            found = self._again(known)
        else:
            infos = {name: describe(name, values[name]) for name in self.names}
            found = self.decide(infos, values)
            key = self.key(values)  # what was asked for on the way is part of it
        self._keep(key, found)
        while len(self.found) > self.engine.kept:
            for stage in _closed(self.found.popitem(last=False)[1]):
                stage.close()
        return found

    def _keep(self, key: Key, found: Found) -> None:
        self.found[key] = self.decided[key] = found
        while len(self.decided) > self.engine.kept:
            self.decided.popitem(last=False)

    def _again(self, known: Found) -> Found:
        """Return what runs a part that is decided, beside what runs it already."""
        runner = known.runner
        if known.plan:
            runner = self.engine.runner(known.plan)
        elif isinstance(runner, control.Control):
            runner = runner.clone(self.engine)
        rest = known.rest.clone(self.engine) if known.rest else None
        return Found(known.part, runner, rest, known.plan)

    def prepare(self) -> None:
        """Decide and compile the first part now if dtypes and shapes of all inputs are known.

        Open dimensions are taken at their upper bounds: that reserves the memory of all shapes.
        """
        limits = self.engine.upper_bounds
        infos = {info.name: info for info in bounds.at_bounds(self.graph.inputs, limits)}
        if not all(info.is_static and info.dtype in MOVABLE for info in infos.values()):
            return
        try:
            found = self.decide(infos)
        except Unknown:
            return
        except (ModelError, PlanError) as error:
            if limits:
                error.args = (f"at its upper bounds ({bounds.shown(limits)}) the model cannot "
                              f"run: {error}",)  # fmt: skip
            raise
        self._keep(self._planned_key(infos.values()), found)

    def _planned_key(self, infos: Iterable[TensorInfo]) -> Key:
        return tuple((info.dims, np.dtype(info.dtype)) for info in infos)

    def key(self, values: Mapping[str, Any]) -> Key:
        """Return what of the values that exist decides the next part."""
        key = [overlap.signature(values[name]) for name in self.names]
        return (*key, *(values[name].tobytes() for name in self.asked))

    def decide(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None = None
    ) -> Found:
        """Decide the next part and prepare what runs it.

        Args:
            infos: dtype and shape of every value that is read from here on.
            values: their values, where they are known.

        Raises ValueNeededError if a value decides and is not given.
        """
        try:
            with compiler.given(self.engine.shaders):
                return self._decide(infos, values)
        finally:
            self.graph.answers.clear()  # these shapes are done with

    def _decide(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None
    ) -> Found:
        while True:
            given = dict(infos)
            for name in self.asked:
                array = (values or {}).get(name)
                if isinstance(array, np.ndarray):
                    given[name] = describe(name, array, array.copy())
            answer = partition.next_part(
                self.graph, given, self.engine.infos, _evaluate, kernels.unavailable,
                self.after_host,
            )
            if not isinstance(answer, Ask):
                break
            if values is None:
                raise Unknown(answer.names)
            self.asked += answer.names
        part, rest = answer
        if part.kind != "control" and part.reasons and not settings.get("FALLBACK"):
            reason = next(iter(part.reasons.values()))
            raise UnsupportedOperatorError(f"{reason} (VKLAB_FALLBACK=0 keeps off the host)")
        stage = Stage(rest, self.engine, part.kind != "vulkan") if rest.nodes else None
        runner, plan = self._runner(part)
        return Found(part, runner, stage, plan)

    def _runner(self, part: Part) -> tuple[Runner | None, Plan | SpreadPlan | None]:
        if not part.graph.nodes:
            return None, None
        if part.kind == "host":
            return Host(part), None
        if part.kind == "control":
            node = part.graph.nodes[0]
            bodies = {name: Stage(body, self.engine, is_body=True)
                      for name, body in node.bodies.items()}  # fmt: skip
            constants = {name: info.constant for name, info in part.graph.initializers.items()}
            opset = self.graph.opset_of(node)
            return control.Control(node, bodies, opset, constants), None
        plan = self.engine.plan(part.graph, kernels.unavailable)
        return self.engine.runner(plan), plan

    def run(self, values: dict[str, Any]) -> list[Any]:
        """Run the graph to its end and return its outputs in order.

        `values` holds the inputs, and receives all that the parts make. Raises ModelError for an
        output that nothing made.
        """
        first = self.find(values)
        if first.path is None or not first.path.run(values):
            self._run_in_turn(first, values)
        return self._results(values)

    def _run_in_turn(self, first: Found, values: dict[str, Any]) -> None:
        taken = [(self, first)]
        for _, found in taken:  # grows on the way
            values.update(found.part.known)
            if found.runner:
                values.update(found.runner.run(values))
            if found.rest:
                taken.append((found.rest, found.rest.find(values)))
        # A body runs on a thread of the pool: it must not wait for others there. A path that
        # values decide is found anew by each run.
        is_free = first.path is None and not self.is_body and len(taken) > 1
        is_free = is_free and overlap.pays(self.engine.infos)
        if is_free and not any(stage.asked for stage, _ in taken[1:]):
            first.path = overlap.Path(taken, values)

    def keeps(self, key: Key, found: Found) -> bool:
        """Tell whether a part is still what these values lead to; it is then used last."""
        if self.found.get(key) is not found:
            return False
        self.found.move_to_end(key)
        return True

    def start(self, values: dict[str, Any]) -> Found | None:
        """Begin a run that is one program, recorded before; return None if there is more to do."""
        key = self.key(values)
        found = self.found.get(key)
        if found is None or found.rest or not isinstance(found.runner, Device):
            return None
        if not values.keys().isdisjoint(self.graph.outputs):  # an input that must outlive the run
            return None
        self.found.move_to_end(key)
        found.runner.start(values)
        return found

    def finish(self, found: Found, values: dict[str, Any]) -> list[Any]:
        """Wait for what `start` began; as `run` otherwise."""
        assert isinstance(found.runner, Device), "programs are started"
        values.update(found.part.known)
        values.update(found.runner.finish())
        return self._results(values)

    def _results(self, values: Mapping[str, Any]) -> list[Any]:
        constants = self.graph.initializers
        missing = [n for n in self.graph.outputs if n not in values and n not in constants]
        if missing:
            raise ModelError(f"nothing made the output {missing[0]!r}")
        return [values[n] if n in values else constants[n].constant for n in self.graph.outputs]

    def walk(self) -> Iterator[Found]:
        """Yield the parts decided last, in the order in which they run."""
        stage: Stage | None = self
        while stage is not None and (there := stage.found or stage.decided):
            latest = next(reversed(there.values()))
            yield latest
            stage = latest.rest

    def walk_all(self) -> Iterator[Found]:
        """Yield the same, of parts that are control the parts of their bodies instead."""
        for found in self.walk():
            if isinstance(found.runner, control.Control):
                for body in found.runner.bodies.values():
                    yield from body.walk_all()
            else:
                yield found

    def host_reasons(self) -> dict[str, str]:
        """Return why nodes of the path taken last are on the host, those of bodies included."""
        reasons: dict[str, str] = {}
        for found in self.walk_all():
            if found.part.kind == "host":
                reasons |= dict.fromkeys((node.name for node in found.part.graph.nodes), "")
            reasons |= found.part.reasons
        return reasons

    def close(self) -> None:
        """Free every program from here on."""
        stages = [self]
        while stages:
            stage = stages.pop()
            while stage.found:
                stages += _closed(stage.found.popitem()[1])


class Unknown(Exception):
    """Values must be known before anything can be planned; a session waits for its first run."""


def _evaluate(*given: Any) -> Any:
    return host().evaluate(*given)


def describe(name: str, value: Any, constant: np.ndarray | None = None) -> TensorInfo:
    """Return what is known of a value that exists: an array, a list (sequence), or None."""
    if not isinstance(value, np.ndarray):
        return TensorInfo(name, "optional" if value is None else "sequence", ANY_SHAPE)
    dtype = "string" if value.dtype.kind in "OSU" else str(value.dtype)
    return TensorInfo(name, dtype, value.shape, constant)


def _closed(found: Found) -> list[Stage]:
    """Free what runs a part; return the stages behind it, which are to be closed too."""
    if found.runner:
        found.runner.close()
    return [found.rest] if found.rest else []
