"""Choose how many elements of a row an invocation has at once, for norms, Softmax and reductions.

On a GPU norms and Softmax keep their rows in registers, so that each element is read from memory
once, and subgroups sum. Visited by lab 19.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vklab.ops import registry
from vklab.plan.tuning import tiles
from vklab.types import DeviceInfo, Dispatch

__all__ = ["choose", "load_ahead", "softmax"]

# Pieces of an invocation, and subgroups of a row: with few rows, more share one. A piece is an
# element, or four neighbours.
FEW = ((4, 1), (4, 2), (4, 4), (4, 6), (4, 8), (4, 12), (4, 16), (4, 32), (8, 32), (16, 32))
MANY = ((4, 1), (8, 1), (8, 2), (8, 4), (8, 6), (8, 8), (8, 16), (8, 32), (16, 32))
FEW_FOURS = ((1, 1), (1, 2), (1, 4), (1, 6), (1, 8), (1, 16), (1, 32), (2, 32), (4, 32))
MANY_FOURS = ((1, 1), (2, 1), (4, 1), (4, 2), (4, 4), (4, 8), (4, 16), (4, 32))
MANY_ROWS = 16 * tiles.UNITS
# From so many rows on, several share a workgroup of so many invocations. An H200 then sums 256 MiB
# of rows in float16 in 66 us instead of 83; in float32 it makes no difference.
SHARING, LANES = 1 << 14, 256
# Pieces that an invocation of a reduction loads at once; with narrow rows, whose invocations are
# few, those of so many bytes, if a row has several times as many.
AHEAD, AHEAD_BYTES, MOST_AHEAD = 8, 64, 32
# Rows from which on an invocation has four neighbouring ones, and workgroups of a multiprocessor.
ACROSS, FILLING = 1 << 17, 1
# Softmax along an axis that is not the last: elements of a line of memory, pieces that an
# invocation keeps (by their width), and invocations of a workgroup.
LINE, KEPT, FEWEST, MOST = 16, {1: 32, 4: 32}, 128, 512


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
            together = _sharing(push["rows"], count * lanes)
            constants = {"WORKGROUP": together * count * lanes, "EACH": each, "SUBGROUP": lanes,
                         "ROWS": together}  # fmt: skip
            defined = (*dispatch.defines, ("FOURS", str(int(fours))))
            return (replace(dispatch, kernel=f"{dispatch.kernel}_registers", iterations=2 * each,
                            workgroups=registry.grid(-(-push["rows"] // together)),
                            constants=tuple(constants.items()), defines=defined),)  # fmt: skip
    return (dispatch,)


def _sharing(rows: int, lanes: int) -> int:
    """Return the number of rows in a workgroup, each of which takes `lanes` invocations."""
    return max(1, LANES // lanes) if rows >= SHARING else 1


def softmax(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return Softmax with rows in registers, if they are wide enough and not too long."""
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    if info.is_cpu or defines["WIDE"] == "1" or push["inner"] < 8:
        return choose(dispatch, info)
    fours = dispatch.epilogue is None and _plain(dispatch) and push["inner"] % 4 == 0
    width = 4 if fours else 1
    down = 1 << (-(-push["columns"] // KEPT[width]) - 1).bit_length()
    across = max(LINE // width, FEWEST // down)
    down = min(down, MOST // across)
    each = min(-(-push["columns"] // down), KEPT[width])
    kept = each * down >= push["columns"]
    tiles_across = -(-push["inner"] // (width * across))
    constants = (("WORKGROUP", across * down), ("EACH", each), ("ACROSS", across))
    return (replace(
        dispatch, kernel="softmax_columns", constants=constants, iterations=3 * each,
        workgroups=registry.grid(push["rows"] // push["inner"] * tiles_across),
        defines=(*dispatch.defines, ("FOURS", str(int(fours))), ("KEPT", str(int(kept)))),
    ),)  # fmt: skip


def _plain(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch reads x as it is."""
    return dispatch.prologue is None and not dispatch.fragment


def _by_fours(dispatch: Dispatch, push: dict[str, Any]) -> bool:
    """Tell whether rows are read, and written, as vectors of four neighbours."""
    steps = (push["columns"], push.get("step", 0), push.get("part", 0))
    return (_plain(dispatch) and push.get("inner", 1) == 1 and push.get("run", 1) == 1
            and not any(step % 4 for step in steps))  # fmt: skip


def load_ahead(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return a reduction whose invocations load several pieces at once."""
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    if info.is_cpu:
        return (dispatch,)
    wide, known = defines["WIDE"] == "1", dispatch.kernel == "reduce"
    fours = known and defines["V"] in ("float", "int", "uint") and (
        _by_fours(dispatch, push) if wide else _across(dispatch, push))
    shape = (_lanes_of_rows if wide else _lanes_of_columns)(dispatch, push, info, fours)
    rows = shape["ROWS"] if wide else shape["WORKGROUP"] * (4 if fours else 1)
    more = (("FOURS", str(int(fours))),) if known else ()
    return (replace(dispatch, workgroups=registry.grid(-(-push["rows"] // rows)),
                    constants=tuple(shape.items()), defines=(*dispatch.defines, *more)),)


def _across(dispatch: Dispatch, push: dict[str, Any]) -> bool:
    """Tell whether an invocation reduces four neighbouring rows."""
    return _plain(dispatch) and push["inner"] % 4 == 0 and push["rows"] >= ACROSS


def _lanes_of_rows(
    dispatch: Dispatch, push: dict[str, Any], info: DeviceInfo, fours: bool
) -> dict[str, int]:
    """Return the constants of a reduction whose rows have several invocations.

    Args:
        dispatch: the reduction.
        push: its push constants.
        info: the device.
        fours: whether a piece is four elements.
    """
    lanes = int(dict(dispatch.constants)["WORKGROUP"])
    pieces = -(-push["part"] // (4 if fours else 1))
    while push["rows"] >= MANY_ROWS and lanes > info.subgroup_size and pieces <= AHEAD * lanes // 2:
        lanes //= 2
    together = _sharing(push["rows"], lanes)
    return {"WORKGROUP": together * lanes, "AHEAD": AHEAD, "ROWS": together}


def _lanes_of_columns(
    dispatch: Dispatch, push: dict[str, Any], info: DeviceInfo, fours: bool
) -> dict[str, int]:
    """Return the constants of a reduction with an invocation for each row, or four rows.

    Args:
        dispatch: the reduction.
        push: its push constants.
        info: the device.
        fours: whether an invocation has four rows.
    """
    lanes, rows = int(dict(dispatch.constants)["WORKGROUP"]), 4 if fours else 1
    while lanes > info.subgroup_size and push["rows"] < FILLING * tiles.UNITS * rows * lanes:
        lanes //= 2
    width = np.dtype(dict(dispatch.reads)["x_buffer"].dtype).itemsize * rows
    many = min(MOST_AHEAD, AHEAD_BYTES * (2 if fours else 1) // width)
    return {"WORKGROUP": lanes, "AHEAD": many if push["part"] >= 4 * many else AHEAD}
