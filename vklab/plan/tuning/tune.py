"""Swap in the fastest kernels and weight layouts that a device allows, dispatch by dispatch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from vklab.plan.lowering import Lowered
from vklab.plan.tuning import prepack, split_ranges, variants
from vklab.types import DeviceInfo

__all__ = ["adapt", "tune"]


def adapt(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return the dispatches cut to the binding range of a device, with its fastest kernels."""
    return tune(split_ranges.apply(lowered, info), info)


def tune(lowered: Lowered, info: DeviceInfo, resident: Collection[str] = ()) -> Lowered:
    """Return the dispatches with the kernels that are fastest on a device.

    Values that these write in between are roots of their own, and so are weights in a new layout.

    Args:
        lowered: dispatches with the kernels that are right everywhere.
        info: the device.
        resident: names of weights, layouts included, that the device holds already.
    """
    each = [variants.choose(dispatch, info, resident) for dispatch in lowered.dispatches]
    given = {read.name for chosen in each for dispatch in chosen for _, read in dispatch.reads}
    roots, constants = dict(lowered.roots), dict(lowered.constants)
    for number, dispatch in enumerate(lowered.dispatches):
        own = {read.name for chosen in each[number] for _, read in chosen.reads}
        if any(read.name in given - own for _, read in dispatch.reads):
            # another dispatch reads this weight as it is: no device should hold it twice
            each[number] = variants.choose(prepack.as_given(dispatch), info)
        for chosen in each[number]:
            for _, written in chosen.writes:
                roots.setdefault(written.name, written.name)
            for _, read in chosen.reads:
                made = None if read.name in roots else prepack.fill(read, constants)
                if made is not None:
                    roots[made.name], constants[made.name] = made.name, made
    return replace(
        lowered, dispatches=tuple(dispatch for chosen in each for dispatch in chosen),
        nodes=tuple(n for n, chosen in zip(lowered.nodes, each, strict=True) for _ in chosen),
        roots=roots, constants=constants,
    )  # fmt: skip
