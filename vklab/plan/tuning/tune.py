"""Swap in the fastest kernels and weight layouts that a device allows, dispatch by dispatch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from vklab import settings
from vklab.base import catalogue, stages
from vklab.plan.lowering import Lowered
from vklab.plan.options import Facts
from vklab.plan.tuning import prepack, split_ranges, variants
from vklab.plan.tuning.join_task import JoinTask
from vklab.plan.tuning.products import winograd
from vklab.plan.tuning.tiles import Choice
from vklab.types import DeviceInfo, Dispatch


def adapt(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return the dispatches cut to the binding range of a device, with its fastest kernels."""
    return tune(split_ranges.apply(lowered, info), info)


def tune(
    lowered: Lowered, info: DeviceInfo, facts: Facts | None = None, device: int = 0,
    outputs: Collection[str] | None = None,
) -> Lowered:  # fmt: skip
    """Return the dispatches with the kernels that are fastest on a device.

    Values that these write in between are roots of their own, and so are weights in a new layout.

    Args:
        lowered: dispatches with the kernels that are right everywhere.
        info: the device.
        facts: weights, layouts included, that the device holds already, and measured choices.
        device: the number of the device in the facts.
        outputs: the values that are needed after the last dispatch; None: possibly all.
    """
    facts = facts or Facts()
    resident = facts.resident[device] if facts.resident else frozenset[str]()
    task = JoinTask(lowered, info, outputs or (), resident, facts.kernel_refusal, [])
    if outputs is not None:
        task = _joined(stages.CHAIN, task)
    tuned = facts.tuned[device] if facts.tuned and not settings.get("DISABLE_TUNED") else {}
    chosen = _with_shared_weights(
        task.lowered, lambda dispatch: _choose(dispatch, info, resident, tuned, facts)
    )
    task = _joined(stages.NORM, task._replace(chosen=chosen))
    made = _filled(task.lowered, task.chosen)
    return (
        made
        if outputs is None
        else _joined(stages.GATE, task._replace(lowered=made, chosen=[])).lowered
    )


def _joined(stage: str, task: JoinTask) -> JoinTask:
    """Return a task after the rules of a stage for whose kernels there are dispatches."""
    pieces = task.chosen or [task.lowered.dispatches]
    kernels = {dispatch.kernel for each in pieces for dispatch in each}
    for rule in catalogue.enabled(stage, task.info.is_cpu, kernels):
        task = task._replace(lowered=rule(task))
    return task


def _with_shared_weights(
    lowered: Lowered, choose: Callable[[Dispatch], tuple[Dispatch, ...]]
) -> list[tuple[Dispatch, ...]]:
    """Return for each dispatch those that are chosen for it; none brings a weight in twice."""
    each = [choose(dispatch) for dispatch in lowered.dispatches]
    given = {read.name for chosen in each for dispatch in chosen for _, read in dispatch.reads}
    for number, dispatch in enumerate(lowered.dispatches):
        own = {read.name for chosen in each[number] for _, read in chosen.reads}
        if any(read.name in given - own for _, read in dispatch.reads):
            # another dispatch reads this weight as it is: no device should hold it twice
            each[number] = choose(prepack.as_given(dispatch))
    return each


def _filled(lowered: Lowered, chosen: Sequence[tuple[Dispatch, ...]]) -> Lowered:
    """Return the chosen dispatches, with roots and contents of what they read and write anew."""
    roots, constants = dict(lowered.roots), dict(lowered.constants)
    for each in (dispatch for pieces in chosen for dispatch in pieces):
        for _, written in each.writes:
            roots.setdefault(written.name, written.name)
        for _, read in each.reads:
            filled = None if read.name in roots else prepack.fill(read, constants)
            if filled is not None:
                roots[filled.name], constants[filled.name] = filled.name, filled
    named = _once(
        (
            (node, each)
            for node, pieces in zip(lowered.nodes, chosen, strict=True)
            for each in pieces
        ),
        lowered.roots,
    )
    return replace(
        lowered,
        dispatches=tuple(dispatch for _, dispatch in named),
        nodes=tuple(node for node, _ in named),
        roots=roots,
        constants=constants,
    )


def _once(
    named: Iterable[tuple[str, Dispatch]], known: Collection[str]
) -> list[tuple[str, Dispatch]]:
    """Return dispatches without those that write again a value that tuning has added.

    Args:
        named: dispatches with the names of their nodes.
        known: the values that there were before.
    """
    made, written = [], set[str]()
    for node, dispatch in named:
        names = {info.name for _, info in dispatch.writes}
        if not names <= written:
            made.append((node, dispatch))
        written |= names - set(known)
    return made


def _choose(
    dispatch: Dispatch, info: DeviceInfo, resident: frozenset[str], tuned: Mapping[str, Choice],
    facts: Facts,
) -> tuple[Dispatch, ...]:  # fmt: skip
    """Return a dispatch as measured, or as expected if this machine lacks a measured kernel."""
    pieces = winograd.parts(dispatch, info)
    if len(pieces) > 1:
        return tuple(
            each for piece in pieces for each in _choose(piece, info, resident, tuned, facts)
        )
    made = variants.choose(dispatch, info, resident, tuned)
    if any(each.measured and facts.kernel_refusal(each) for each in made):
        made = variants.choose(dispatch, info, resident)
    return made
