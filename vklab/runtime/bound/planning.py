"""Plans of a binding: whether a plan's values can stay on the device, and its chunk for that.

Visited by lab 12.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.plan import plan as plans
from vklab.plan.barriers import Barrier
from vklab.plan.chunk import Chunk
from vklab.runtime import kernels
from vklab.runtime.plan_cache import Entry, PlanCache, describe
from vklab.runtime.program import EVERYWHERE


def refusal(root: PlanCache, entry: Entry, states: Mapping[str, str]) -> str:
    """Return why a plan's values cannot stay on the device; empty if they can.

    Args:
        root: the plans of the model.
        entry: the first part of the plan.
        states: the output that each state is after a run, by the state's input name.
    """
    if root.executor.splitter:
        return "the model is split over several devices"
    if root.needs:
        return f"the plan depends on the values of {', '.join(root.needs)}"
    chunks = entry.plan.chunks
    if (
        entry.plan.rest
        or len(chunks) != 1
        or chunks[0].kind != "vulkan"
        or chunks[0].known
        or ({*entry.plan.graph.outputs} - {*chunks[0].graph.outputs})
    ):
        kinds = {chunk.kind for chunk in entry.chunks}
        left = entry.plan.rest.nodes if entry.plan.rest else ()
        if "control" in kinds or any(node.bodies for node in left):
            return "control flow runs on the host"
        return "nodes run on the host" if left or "host" in kinds else "an output needs no run"
    if entry.chunks[0].trims:
        return f"the size of {next(iter(entry.chunks[0].trims))} is known after each run only"
    slots = entry.chunks[0].output_slots
    for one, other in itertools.combinations(states.values(), 2):
        if slots[one].overlaps(slots[other]):  # but the first values of the states may differ
            return f"the outputs {one} and {other} are one value"
    return ""


def planned(root: PlanCache, values: Mapping[str, Any]) -> Entry:
    """Return the entry of a plan for some values; a new one has no program, so no memory either.

    Args:
        root: the plans of the model.
        values: arrays by name.
    """
    key = root.key(values)
    known = root.entries.get(key) or root.plans.get(key)
    if known or not hasattr(root, "extended"):  # a compiled model has its plans
        return known or root.find(values)
    infos = {name: describe(name, values[name]) for name in root.names}
    switches = root.plan.options.switches
    with root.executor.lock, settings.settings(**switches), root.executor.compiling():
        plan = root.extended(infos, values)
        if plan is None:
            return root.find(values)
        rest = PlanCache(plan, root.executor) if plan.rest else None
        entry = root.plans[root.key(values)] = Entry(plan, 0, None, rest)
    return entry


def lowered(root: PlanCache, entry: Entry, unseen: Collection[str]) -> Chunk:
    """Return the chunk of a plan with some inputs and outputs in device memory, without copies.

    Its kernels are those that the session has compiled already.

    Args:
        root: the plans of the model.
        entry: the entry of the plan.
        unseen: inputs and outputs that the host neither writes nor reads.
    """
    chunk, executor, options = entry.chunks[0], root.executor, entry.plan.options
    if not unseen:
        return chunk
    [state] = executor.devices
    known = {name[:-1] for name in state.kernels}

    def missing(dispatch: Any) -> str:
        return "" if kernels.key(dispatch) in known else kernels.unavailable(dispatch)

    with settings.settings(**options.switches), executor.compiling():
        facts = replace(executor.facts(), kernel_refusal=missing)
        return plans.lower_rewritten(chunk, state.opened.info, facts, unseen)


def in_turn(chunk: Chunk, follows: bool) -> Chunk:
    """Return a chunk that waits for the run before it, which writes the same memory.

    Args:
        chunk: the chunk.
        follows: whether runs are submitted ahead, and their recordings wait in no other way.
    """
    first = (Barrier(0, EVERYWHERE, EVERYWHERE),) if follows else ()
    return replace(chunk, barriers=(*first, *chunk.barriers))
