"""Compilation of a model ahead of time: plans for a device, which may be absent, and kernels."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vklab.errors import ModelError, PlanError
from vklab.graph import bounds, shapes
from vklab.graph.graph import Graph
from vklab.plan.chunk import Chunk
from vklab.plan.options import Facts, Options
from vklab.plan.plan import Plan
from vklab.runtime import executor as executors
from vklab.runtime import kernels, plan_cache
from vklab.runtime.compiled.saved import Saved, SavedKernel, SavedPart, SavedStage
from vklab.runtime.device_state import DeviceState
from vklab.runtime.executor import Executor
from vklab.runtime.kernels import Progress
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.plan_cache import Entry, PlanCache
from vklab.shader import compiler
from vklab.types import ANY_SHAPE, DeviceInfo, Dispatch


class _Planner:
    """An executor for planning only, which creates nothing on a device."""

    kept_count = 1 << 30

    def __init__(self, tuned: Mapping[str, Any] | None = None) -> None:
        self.lock = threading.RLock()
        self.asked: dict[compiler.Variant, None] = {}
        self.tuned = (tuned or {},)

    def facts(self) -> Facts:
        return Facts((), self.tuned, evaluate=executors.evaluate, kernel_refusal=self._refusal)

    def _refusal(self, dispatch: Dispatch) -> str:
        reason = kernels.unavailable(dispatch)
        if not reason:
            self.asked[dispatch.variant] = None
        return reason

    def compiling(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def entry(self, plan: Plan, first: int, like: Entry | None = None) -> Entry:
        return Entry(plan, first, None, PlanCache(plan, self) if plan.rest else None)


def plan_whole(
    graph: Graph,
    info: DeviceInfo,
    sizes: Mapping[str, int],
    values: Mapping[str, Any],
    dtype: str = "",
    tuned: Mapping[str, Any] | None = None,
) -> Plan | None:
    """Plan a model for a device as a session would; return None if some nodes need the host.

    Args:
        graph: the imported model.
        info: the device.
        sizes: the size of every open dimension, by name.
        values: arrays by name, for inputs whose values determine the plan.
        dtype: "float16" to compute in half precision.
        tuned: the choices that were measured on the device, by class of products.
    """
    shapes.require_operators(graph)
    root = PlanCache(Plan(graph, (info,), Options(dtype), rest=graph), _Planner(tuned))
    inputs = {value.name: value for value in shapes.bind(graph, sizes).inputs}
    plan = root.extended(inputs, values)
    whole = plan is not None and plan.rest is None
    return (
        plan
        if plan and whole and plan.chunks[0].is_on_device and not plan.chunks[0].known
        else None
    )


def compile_graph(
    graph: Graph,
    info: DeviceInfo,
    each: Sequence[Mapping[str, int]],
    dtype: str = "",
    upper_bounds: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    tuned: Mapping[str, Any] | None = None,
) -> tuple[Saved, bool]:
    """Plan a model for a device, and compile its kernels; tell whether the plans are complete.

    Chunks after a host chunk can only be planned in a run: see `compile_by_run`.

    Args:
        graph: the imported model.
        info: the device.
        each: for each plan to make, the size of every open dimension, by name.
        dtype: "float16" to compute in half precision.
        upper_bounds: the largest size of each open dimension, by name.
        progress: called as (done, of, kernel) while kernels compile.
        tuned: the choices that were measured on the device, by class of products.
    """
    shapes.require_operators(graph)
    limits = bounds.resolve(graph.inputs, upper_bounds or {})
    root = PlanCache(Plan(graph, (info,), Options(dtype, limits), rest=graph), _Planner(tuned))
    complete = True
    for sizes in each:
        inputs = shapes.bind(graph, sizes).inputs
        entry = root.decide({value.name: value for value in inputs}, None)
        if entry is None:
            complete = False
            continue
        root.entries[plan_cache.planned_key(inputs)] = entry
        complete &= entry.rest is None and entry.chunks[0].kind != "control"
    return save(root, progress, _variants_below(root.plan, limits)), complete


def _variants_below(start: Plan, limits: Mapping[str, int]) -> Iterator[compiler.Variant]:
    """Yield the kernels of sizes below the upper bounds: `load` plans these without a compiler.

    Sizes choose kernels by thresholds and multiples, near powers of two. The kernels of single
    nodes belong to them: a device takes a node only if the node's own kernel is available.
    """
    graph, planner = start.graph, _Planner()
    root = PlanCache(start, planner)
    powers = [1 << n for n in range(max(limits.values(), default=0).bit_length())]
    near = {size for power in powers for size in (power - 1, power, power + 1)} | {*range(1, 10)}
    for size in sorted(near - {0}) if limits else ():
        if size > max(limits.values()):
            break
        sizes = {name: min(size, most) for name, most in limits.items()}
        try:
            inputs = {value.name: value for value in shapes.bind(graph, sizes).inputs}
            plan = root.extended(inputs, None)
        except (ModelError, PlanError):  # sizes that do not fit together, or other open dimensions
            continue
        yield from (d.variant for d in plan.dispatches) if plan else ()
    yield from planner.asked


def compile_by_run(
    graph: Graph,
    opened: OpenDevice,
    values: Mapping[str, Any],
    dtype: str = "",
    upper_bounds: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Saved:
    """Run a model once, and return it compiled with all chunks of the run, on host and device.

    Args:
        graph: the imported model.
        opened: the device.
        values: arrays by input name.
        dtype: "float16" to compute in half precision.
        upper_bounds: the largest size of each open dimension, by name.
        progress: called as (done, of, kernel) while kernels compile.
    """
    limits, state = bounds.resolve(graph.inputs, upper_bounds or {}), DeviceState(opened)
    executor = Executor((state,), bool(limits), progress)
    root = PlanCache(Plan(graph, (opened.info,), Options(dtype, limits), rest=graph), executor)
    try:
        root.prepare()
        executor.run(root, dict(values))
        return save(root, progress)
    finally:
        root.close()
        state.close()


def save(
    root: PlanCache, progress: Progress | None = None, more: Iterable[compiler.Variant] = ()
) -> Saved:
    """Return a compiled model with all plans of a root cache, in the order of their use.

    Args:
        root: the root plan cache.
        progress: called as (done, of, kernel) while kernels compile.
        more: kernels to store besides those of the plans.
    """
    caches = [root]
    numbers = {id(root): 0}
    for cache in caches:  # the loop appends to the list
        for entry in cache.entries.values():
            for behind in _behind(entry).values():
                numbers[id(behind)] = len(caches)
                caches.append(behind)
    records = tuple(
        SavedStage(
            None if cache is root else cache.plan.rest,
            tuple(cache.needs),
            tuple(_part(cache, key, entry, numbers) for key, entry in cache.entries.items()),
        )
        for cache in caches
    )
    variants = dict.fromkeys(
        dispatch.variant
        for record in records
        for part in record.parts
        for dispatch in part.chunk.dispatches
    )
    variants |= dict.fromkeys(more)
    with root.executor.compiling():
        compiled = compiler.compile_all(variants, progress)
    plan = root.plan
    return Saved(
        graph=plan.graph,
        dtype=plan.options.dtype,
        upper_bounds=dict(plan.options.upper_bounds),
        device=plan.devices[0],
        switches=dict(plan.options.switches),
        stages=records,
        kernels=tuple(
            SavedKernel(variant, compiler.text_key(*variant), shader)
            for variant, shader in compiled.items()
        ),
    )


def _behind(entry: Entry) -> dict[str, PlanCache]:
    """Return the caches of an entry: the rest of the graph under '', and each body by its name."""
    caches: dict[str, PlanCache] = {"": entry.rest} if entry.rest else {}
    return caches | dict(getattr(entry.runner, "bodies", {}))


def _part(
    cache: PlanCache, key: tuple[Any, ...], entry: Entry, numbers: Mapping[int, int]
) -> SavedPart:
    behind = {name: numbers[id(other)] for name, other in _behind(entry).items()}
    rest = behind.pop("", -1)
    (chunk,) = entry.chunks  # models are compiled for one device
    chunk = replace(chunk, graph=_pruned(chunk), source=None)
    return SavedPart(tuple(_saved_key(cache, key)), chunk, rest, behind)


def _pruned(chunk: Chunk) -> Graph:
    """Return a chunk's graph without infos of values that no node uses."""
    graph = chunk.graph
    names = {n for node in graph.nodes for n in (*node.reads, *node.outputs)}
    names |= {*graph.outputs, *(info.name for info in graph.inputs)}
    return replace(graph, infos={n: info for n, info in graph.infos.items() if n in names})


def _saved_key(cache: PlanCache, key: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the items of a `PlanCache` key in a form that is the same in every process."""
    for number, item in enumerate(key):
        if number >= len(cache.names):
            yield item  # the bytes of a value in `needs`
        elif isinstance(item, tuple):
            yield item[0], "string" if item[1].kind in "OSU" else str(item[1])
        else:
            yield ANY_SHAPE, "optional" if item is type(None) else "sequence"
