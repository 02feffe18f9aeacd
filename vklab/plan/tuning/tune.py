"""Swap in the fastest kernels and weight layouts that a device allows, dispatch by dispatch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from vklab import settings
from vklab.base import optional
from vklab.plan.lowering import Lowered
from vklab.plan.options import Facts
from vklab.plan.tuning import prepack, split_ranges, variants, winograd
from vklab.plan.tuning.tiles import Choice
from vklab.types import DeviceInfo, Dispatch

__all__ = ["adapt", "tune"]

# Joins of dispatches, and the kernels without which a plan has nothing to join.
_join_chains = optional.function(f"{__package__}.row_chains", "join")  # for GPUs
_join_norms = optional.function(f"{__package__}.inner_norms", "join")
_join_gates = optional.function(f"{__package__}.gated", "join")
NORMS, GATED = {"normalize_registers"}, {"conv_last_tiled", "matmul_registers"}


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
    if outputs is not None and not info.is_cpu:
        lowered = _join_chains(lowered, info, outputs, resident, facts)
    tuned = facts.tuned[device] if facts.tuned and not settings.get("DISABLE_TUNED") else {}

    def choose(dispatch: Dispatch) -> tuple[Dispatch, ...]:
        return _choose(dispatch, info, resident, tuned, facts)

    each = [choose(dispatch) for dispatch in lowered.dispatches]
    given = {read.name for chosen in each for dispatch in chosen for _, read in dispatch.reads}
    for number, dispatch in enumerate(lowered.dispatches):
        own = {read.name for chosen in each[number] for _, read in chosen.reads}
        if any(read.name in given - own for _, read in dispatch.reads):
            # another dispatch reads this weight as it is: no device should hold it twice
            each[number] = choose(prepack.as_given(dispatch))
    kernels = {dispatch.kernel for pieces in each for dispatch in pieces}
    if kernels & NORMS:
        lowered = _join_norms(each, lowered, info)
    roots, constants = dict(lowered.roots), dict(lowered.constants)
    for chosen in (dispatch for pieces in each for dispatch in pieces):
        for _, written in chosen.writes:
            roots.setdefault(written.name, written.name)
        for _, read in chosen.reads:
            filled = None if read.name in roots else prepack.fill(read, constants)
            if filled is not None:
                roots[filled.name], constants[filled.name] = filled.name, filled
    named = _once(((node, dispatch) for node, chosen in zip(lowered.nodes, each, strict=True)
                   for dispatch in chosen), lowered.roots)  # fmt: skip
    made = replace(
        lowered, dispatches=tuple(dispatch for _, dispatch in named),
        nodes=tuple(node for node, _ in named), roots=roots, constants=constants,
    )  # fmt: skip
    if outputs is not None and kernels & GATED:
        made = _join_gates(made, outputs, facts.kernel_refusal)
    return made


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
        return tuple(each for piece in pieces
                     for each in _choose(piece, info, resident, tuned, facts))  # fmt: skip
    made = variants.choose(dispatch, info, resident, tuned)
    if any(each.measured and facts.kernel_refusal(each) for each in made):
        made = variants.choose(dispatch, info, resident)
    return made
