"""Choose how many elements of a row an invocation has at once, for norms, Softmax and reductions.

On a GPU norms and Softmax keep their rows in registers, so that each element is read from memory
once, and subgroups sum. Visited by lab 19.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vklab.plan.tuning import tiles
from vklab.types import DeviceInfo, Dispatch

__all__ = ["RULES", "choose", "load_ahead"]

# Pieces of an invocation, and subgroups of a workgroup: with few rows, more share one. A piece is
# an element, or four neighbours.
FEW = ((4, 1), (4, 2), (4, 4), (4, 6), (4, 8), (4, 12), (4, 16), (4, 32), (8, 32), (16, 32))
MANY = ((4, 1), (8, 1), (8, 2), (8, 4), (8, 6), (8, 8), (8, 16), (8, 32), (16, 32))
FEW_FOURS = ((1, 1), (1, 2), (1, 4), (1, 6), (1, 8), (1, 16), (1, 32), (2, 32), (4, 32))
MANY_FOURS = ((1, 1), (2, 1), (4, 1), (4, 2), (4, 4), (4, 8), (4, 16), (4, 32))
MANY_ROWS = 16 * tiles.UNITS
# Pieces that an invocation of a reduction loads at once; with narrow rows, whose invocations are
# few, those of so many bytes, if a row has several times as many.
AHEAD, AHEAD_FOURS, AHEAD_BYTES, MOST_AHEAD = 8, 4, 64, 32


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return the dispatch with rows in registers, if rows are wide enough and not too long.

    Source: Harris, "Optimizing Parallel Reduction in CUDA", 2007.
    """
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    lanes, most = info.subgroup_size, info.limit("maxComputeWorkGroupInvocations")
    if info.is_cpu or defines.get("WIDE") == "0" or "arithmetic" not in info.subgroup_operations:
        return (dispatch,)
    fours = dispatch.epilogue is None and _by_fours(dispatch, push)
    many = push["rows"] >= MANY_ROWS
    shapes = (MANY_FOURS if many else FEW_FOURS) if fours else MANY if many else FEW
    for each, count in shapes:
        if push["columns"] <= each * count * lanes * (4 if fours else 1) and count * lanes <= most:
            constants = {"WORKGROUP": count * lanes, "EACH": each, "SUBGROUP": lanes}
            defined = (*dispatch.defines, ("FOURS", str(int(fours))))
            return (replace(dispatch, kernel=f"{dispatch.kernel}_registers", iterations=2 * each,
                            constants=tuple(constants.items()), defines=defined),)  # fmt: skip
    return (dispatch,)


def _by_fours(dispatch: Dispatch, push: dict[str, Any]) -> bool:
    """Tell whether rows are read, and written, as vectors of four neighbours."""
    steps = (push["columns"], push.get("step", 0), push.get("part", 0))
    plain = dispatch.prologue is None and not dispatch.fragment
    return (plain and push.get("inner", 1) == 1 and push.get("run", 1) == 1
            and not any(step % 4 for step in steps))  # fmt: skip


def load_ahead(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return a reduction whose invocations load several elements at once."""
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    if info.is_cpu:
        return (dispatch,)
    if defines["WIDE"] == "1" and defines["V"] in ("float", "int", "uint") and (
        _by_fours(dispatch, push)
    ):
        lanes = int(dict(dispatch.constants)["WORKGROUP"])
        lanes = min(lanes, 2 * info.subgroup_size) if push["rows"] >= MANY_ROWS else lanes
        constants: tuple[tuple[str, int], ...] = (("WORKGROUP", lanes), ("AHEAD", AHEAD_FOURS))
        return (replace(dispatch, constants=constants,
                        defines=(*dispatch.defines, ("FOURS", "1"))),)  # fmt: skip
    ahead = AHEAD
    if defines["WIDE"] == "0":
        width = np.dtype(dict(dispatch.reads)["x_buffer"].dtype).itemsize
        many = min(MOST_AHEAD, AHEAD_BYTES // width)
        ahead = many if push["part"] >= 4 * many else AHEAD
    return (replace(dispatch, constants=(*dispatch.constants, ("AHEAD", ahead))),)


RULES = {"normalize": choose, "softmax": choose, "reduce": load_ahead}
