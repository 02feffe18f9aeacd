"""Choose the kernel for maxima over small windows of images whose channels come last.

Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.ops import registry
from vklab.ops.dtypes import ELEMENTS, FLOATS
from vklab.types import DeviceInfo, Dispatch

# Loads that are on their way at once, and invocations of a workgroup.
MOST_TAPS, WORKGROUP = 25, 128
# Channels of a load.
FOUR = 4


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return a maximum of images [N,1,H,W,C] by four channels at once, where that is possible."""
    push = dispatch.push_values
    read = dict(dispatch.reads).get("x_buffer")
    (taps_h, taps_w, along), channels = push["kernel"], push["in_size"][2]
    still = (along, push["stride"][2], *push["dilation"], channels - push["out_size"][2] + 1)
    if (
        read is None
        or read.dtype not in FLOATS
        or set(still) != {1}
        or dispatch.define_values["MODE"] != "MAXIMUM"
        or ELEMENTS[read.dtype].value != "float"
        or channels % FOUR
        or taps_h * taps_w > MOST_TAPS
        or dispatch.prologue
        or not all(_see_pixels(push, axis) for axis in (0, 1))
    ):
        return (dispatch,)
    count = push["count"] // FOUR
    made = {"count": count, "fours": channels // FOUR}
    for names, sizes in (
        ("in_h in_w", "in_size"),
        ("out_h out_w", "out_size"),
        ("stride_h stride_w", "stride"),
        ("pad_top pad_left", "pad"),
    ):
        made |= zip(names.split(), push[sizes], strict=False)
    defines = tuple(pair for pair in dispatch.defines if pair[0] not in ("MODE", "R"))
    return (
        replace(
            dispatch,
            kernel="pool_last",
            workgroups=registry.grid(-(-count // WORKGROUP)),
            push=tuple(made.items()),
            defines=defines,
            iterations=0,
            loads=False,
            constants=(("WORKGROUP", WORKGROUP), ("KERNEL_H", taps_h), ("KERNEL_W", taps_w)),
        ),
    )


def _see_pixels(push: dict[str, Any], axis: int) -> bool:
    """Tell whether the first and the last window along an axis see a pixel each."""
    start = (push["out_size"][axis] - 1) * push["stride"][axis] - push["pad"][axis]
    return bool(push["pad"][axis] < push["kernel"][axis] and start < push["in_size"][axis])
