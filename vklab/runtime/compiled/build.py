"""From a model to a compiled one: plans, for a device that need not be here, and kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from vklab.graph import bounds, passes, shapes
from vklab.graph.graph import Graph
from vklab.plan.partition import Part
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.runtime import control, parts
from vklab.runtime.compiled import saved as saves
from vklab.runtime.compiled.saved import Saved, SavedKernel, SavedPart, SavedStage
from vklab.runtime.engine import DeviceState, Engine, Runner
from vklab.runtime.kernels import Progress
from vklab.runtime.open_devices import OpenDevice
from vklab.shader import compiler
from vklab.types import ANY_SHAPE, DeviceInfo

__all__ = ["compile_by_run", "compile_graph", "plan_whole", "save"]


class _Drawing(Engine):
    """An engine that plans for a device and makes nothing there."""

    def __init__(self, info: DeviceInfo, dtype: str, upper_bounds: Mapping[str, int]) -> None:
        super().__init__((), dtype=dtype, upper_bounds=upper_bounds)
        self._infos = (info,)

    @property
    def infos(self) -> tuple[DeviceInfo, ...]:
        return self._infos

    @property
    def resident(self) -> frozenset[str]:
        return frozenset()

    def runner(self, plan: Plan | SpreadPlan) -> Runner:
        return cast(Any, None)


def plan_whole(
    graph: Graph,
    info: DeviceInfo,
    sizes: Mapping[str, int],
    values: Mapping[str, Any],
    dtype: str = "",
) -> tuple[Part, Plan] | None:
    """Plan a model for a device as a session would; None if the host has a part in it.

    Args:
        sizes: a number for every open dimension.
        values: inputs, for those whose values decide.
    """
    passes.require_dtype(dtype)
    shapes.require_operators(graph)
    root = parts.Stage(graph, _Drawing(info, dtype, {}))
    inputs = {value.name: value for value in shapes.bind(graph, sizes).inputs}
    found = root.decide(inputs, values)
    whole = found.rest is None and not found.part.known
    return (found.part, found.plan) if whole and isinstance(found.plan, Plan) else None


def compile_graph(
    graph: Graph,
    info: DeviceInfo,
    each: Sequence[Mapping[str, int]],
    dtype: str = "",
    upper_bounds: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> tuple[Saved, bool]:
    """Plan a model for a device, and compile its kernels; tell whether all of it is planned.

    What is behind a part for the host is known when that has run: see `save`.

    Args:
        each: numbers for every open dimension, for each plan that is wanted.
    """
    passes.require_dtype(dtype)
    shapes.require_operators(graph)
    limits = bounds.resolve(graph.inputs, upper_bounds or {})
    engine = _Drawing(info, dtype, limits)
    root = parts.Stage(graph, engine)
    complete = True
    for sizes in each:
        inputs = shapes.bind(graph, sizes).inputs
        try:
            found = root.decide({value.name: value for value in inputs})
        except parts.Unknown:
            complete = False
            continue
        root.found[tuple((value.dims, np.dtype(value.dtype)) for value in inputs)] = found
        complete = complete and found.rest is None and found.part.kind != "control"
    return save(root, progress), complete


def compile_by_run(
    graph: Graph,
    opened: OpenDevice,
    values: Mapping[str, Any],
    dtype: str = "",
    upper_bounds: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Saved:
    """Run a model once, and return it compiled with all parts on the way, on host and device."""
    limits, member = bounds.resolve(graph.inputs, upper_bounds or {}), DeviceState(opened)
    engine = Engine((member,), progress, dtype=dtype, upper_bounds=limits)
    root = parts.Stage(graph, engine)
    try:
        root.prepare()
        root.run(dict(values))
        return save(root, progress)
    finally:
        root.close()
        member.close()


def save(root: parts.Stage, progress: Progress | None = None) -> Saved:
    """Return a compiled model of all that was decided from a stage on, in the order of its use."""
    engine = root.engine
    stages = [root]
    numbers = {id(root): 0}
    for stage in stages:  # grows on the way
        for found in stage.found.values():
            for behind in _behind(found).values():
                numbers[id(behind)] = len(stages)
                stages.append(behind)
    records = tuple(
        SavedStage(
            None if stage is root else stage.graph, stage.after_host, tuple(stage.asked),
            tuple(_part(stage, key, found, numbers) for key, found in stage.found.items()),
        )
        for stage in stages
    )  # fmt: skip
    variants = dict.fromkeys(
        dispatch.variant
        for record in records for part in record.parts if part.plan
        for dispatch in part.plan.dispatches
    )  # fmt: skip
    with compiler.given(engine.shaders):
        compiled = compiler.compile_all(variants, progress)
    return Saved(
        graph=replace(root.graph, answers={}),
        dtype=engine.dtype,
        upper_bounds=dict(engine.upper_bounds),
        device=engine.info,
        switches=saves.plan_settings(),
        stages=records,
        kernels=tuple(
            SavedKernel(variant, compiler.text_key(*variant), shader)
            for variant, shader in compiled.items()
        ),
    )


def _behind(found: parts.Found) -> dict[str, parts.Stage]:
    """Return the stages that a part leads to: what comes after it (''), and its bodies."""
    stages: dict[str, parts.Stage] = {"": found.rest} if found.rest else {}
    if isinstance(found.runner, control.Control):
        stages |= found.runner.bodies
    return stages


def _part(
    stage: parts.Stage, key: tuple[Any, ...], found: parts.Found, numbers: Mapping[int, int]
) -> SavedPart:
    behind = {name: numbers[id(stage)] for name, stage in _behind(found).items()}
    rest = behind.pop("", -1)
    part, plan = found.part, found.plan
    assert not isinstance(plan, SpreadPlan), "models are compiled for one device"
    if plan:  # what the part was before its passes is not looked at again
        graph = _pruned(plan.graph)
        part, plan = replace(part, graph=graph), replace(plan, graph=graph)
    return SavedPart(tuple(_saved_key(stage, key)), part, plan, rest, behind)


def _pruned(graph: Graph) -> Graph:
    """Return a graph without infos of values that are gone."""
    names = {n for node in graph.nodes for n in (*node.reads, *node.outputs)}
    names |= {*graph.outputs, *(info.name for info in graph.inputs)}
    return replace(graph, infos={n: info for n, info in graph.infos.items() if n in names})


def _saved_key(stage: parts.Stage, key: tuple[Any, ...]) -> Iterator[Any]:
    """Yield a key of `Stage` in words that are the same in every process."""
    for number, item in enumerate(key):
        if number >= len(stage.names):
            yield item  # the bytes of a value that decides
        elif isinstance(item, tuple):
            yield item[0], "string" if item[1].kind in "OSU" else str(item[1])
        else:
            yield ANY_SHAPE, "optional" if item is type(None) else "sequence"
