"""Choose how many elements of a row an invocation has at once, for norms, Softmax and reductions.

On a GPU norms and Softmax keep their rows in registers, so that each element is read from memory
once, and subgroups sum. Visited by lab 19.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.plan.tuning import tiles
from vklab.types import DeviceInfo, Dispatch

__all__ = ["RULES", "choose", "load_ahead"]

# Elements of an invocation, and subgroups of a workgroup: with few rows, more share one.
FEW = ((4, 1), (4, 2), (4, 4), (4, 6), (4, 8), (4, 12), (4, 16), (4, 32), (8, 32), (16, 32))
MANY = ((4, 1), (8, 1), (8, 2), (8, 4), (8, 6), (8, 8), (8, 16), (8, 32), (16, 32))
MANY_ROWS = 16 * tiles.UNITS
# Elements that an invocation of a reduction loads at once; few have so many.
AHEAD = 8


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return the dispatch with rows in registers, if rows are wide enough and not too long.

    Source: Harris, "Optimizing Parallel Reduction in CUDA", 2007.
    """
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    lanes, most = info.subgroup_size, info.limit("maxComputeWorkGroupInvocations")
    if info.is_cpu or defines.get("WIDE") == "0" or "arithmetic" not in info.subgroup_operations:
        return (dispatch,)
    shapes = MANY if push["rows"] >= MANY_ROWS else FEW
    for each, count in shapes:
        if push["columns"] <= each * count * lanes and count * lanes <= most:
            constants = {"WORKGROUP": count * lanes, "EACH": each, "SUBGROUP": lanes}
            return (replace(dispatch, constants=tuple(constants.items()), iterations=2 * each,
                            defines=(*dispatch.defines, ("KEPT", "1"))),)  # fmt: skip
    return (dispatch,)


def load_ahead(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return a reduction whose invocations load several elements at once."""
    if info.is_cpu:
        return (dispatch,)
    return (replace(dispatch, constants=(*dispatch.constants, ("AHEAD", AHEAD))),)


RULES = {"normalize": choose, "softmax": choose, "reduce": load_ahead}
