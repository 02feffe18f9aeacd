"""Choose how many elements of a row an invocation has at once, for norms, Softmax and reductions.

On a GPU norms and Softmax keep their rows in registers, so that each element is read from memory
once, and subgroups sum.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.ops import registry
from vklab.plan.tuning import tiles
from vklab.types import DeviceInfo, Dispatch

# Moves of an invocation, and subgroups of a row: with few rows, more share one. A move loads and
# stores an element, four neighbours, or eight halves.
FEW = {
    1: ((4, 1), (4, 2), (4, 4), (4, 6), (4, 8), (4, 12), (4, 16), (4, 32), (8, 32), (16, 32)),
    4: ((1, 1), (1, 2), (1, 4), (1, 6), (1, 8), (1, 16), (1, 32), (2, 32), (4, 32)),
    8: ((1, 1), (2, 1), (3, 1), (2, 2), (2, 4), (2, 8), (2, 16), (2, 32)),
}
MANY_WIDE = ((2, 1), (3, 1), (4, 1), (3, 2), (4, 2), (4, 4), (4, 8), (4, 16), (4, 32))
MANY = {1: ((4, 1), (8, 1), (16, 1), (16, 2), (16, 4), (16, 8), (16, 16), (16, 32)),
        4: MANY_WIDE, 8: MANY_WIDE}  # fmt: skip
# Halves that are moved one by one: as many loads are on their way with more of them.
MANY_HALVES = ((4, 1), (8, 1), (16, 1), (32, 1), (32, 2), (16, 8), (16, 16), (16, 32))
MANY_ROWS = 16 * tiles.UNITS
# Moves of an invocation, and invocations of a row, where several rows share a subgroup.
NARROW = ((1, 4), (2, 4), (3, 4), (2, 8), (3, 8), (2, 16), (3, 16))
# From so many rows on, several share a workgroup of so many invocations. An H200 then sums 256 MiB
# of rows in float16 in 66 us instead of 83; in float32 it makes no difference.
SHARING, LANES = 1 << 14, 256
# Moves that an invocation of a reduction loads at once, by their elements; with narrow rows, whose
# invocations are few, those of so many bytes, if a row has several times as many.
AHEAD, AHEAD_BYTES, MOST_AHEAD = {1: 8, 4: 8, 8: 4}, 64, 32
# Rows from which on an invocation has four neighbouring ones, and workgroups of a multiprocessor.
ACROSS, FILLING = 1 << 17, 1
# Softmax along an axis that is not the last: elements of a line of memory (of halves twice as many,
# if they have room), pieces that an invocation keeps, and invocations of a workgroup.
LINE, KEPT, FEWEST, MOST = 16, 32, 128, 512
IN_WORDS = ("float", "int", "uint")


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return the dispatch with rows in registers, if rows are wide enough and not too long.

    Source: Harris, "Optimizing Parallel Reduction in CUDA", 2007.
    """
    push, defines = dispatch.push_values, dispatch.define_values
    if info.is_cpu or "arithmetic" not in info.subgroup_operations:
        return (dispatch,)
    width = 1 if dispatch.epilogue else _width(dispatch, push)
    shape = _shape(dispatch, push, info, width)
    if shape is None or (defines.get("WIDE") == "0" and shape[1] >= info.subgroup_size):
        return (dispatch,)
    each, lanes = shape
    narrow = lanes < info.subgroup_size
    shares = narrow or push["rows"] >= SHARING
    together = max(1, LANES // lanes) if shares else 1
    constants = {"WORKGROUP": together * lanes, "EACH": each, "ROWS": together}
    if not narrow:
        constants["SUBGROUP"] = info.subgroup_size
    if dispatch.kernel == "normalize":
        constants |= {"EARLY": int(push["rows"] < MANY_ROWS), "EVERY": int(push["run"] == 1)}
    return (
        replace(
            dispatch,
            kernel=f"{dispatch.kernel}_registers",
            iterations=2 * each,
            workgroups=registry.grid(-(-push["rows"] // together)),
            constants=tuple(constants.items()),
            defines=(*dispatch.defines, *_moves(width), ("NARROW", str(int(narrow)))),
        ),
    )


def _shape(
    dispatch: Dispatch, push: dict[str, Any], info: DeviceInfo, width: int
) -> tuple[int, int] | None:
    """Return the moves of an invocation and the invocations of a row; None for too long rows.

    Args:
        dispatch: the norm or Softmax.
        push: its push constants.
        info: the device.
        width: the elements of a move.
    """
    moves, subgroup = -(-push["columns"] // width), info.subgroup_size
    many, narrow = push["rows"] >= MANY_ROWS, list[tuple[int, int]]()
    if many and width > 1 and "shuffle" in info.subgroup_operations:
        narrow = [(each, lanes) for each, lanes in NARROW if lanes < subgroup]
    full = MANY[width] if many else FEW[width]
    if many and width == 1 and _is_half(dispatch):
        full = MANY_HALVES
    most = info.limit("maxComputeWorkGroupInvocations")
    shapes = (*narrow, *((each, count * subgroup) for each, count in full))
    return next((shape for shape in shapes if moves <= math.prod(shape) and shape[1] <= most), None)


def _moves(width: int) -> tuple[tuple[str, str], ...]:
    """Return the defines of a kernel that moves so many elements at once."""
    return (("FOURS", str(int(width > 1))), ("EIGHTS", str(int(width == 8))))


def softmax(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return Softmax with rows in registers, if they are wide enough and not too long."""
    push, defines = dispatch.push_values, dispatch.define_values
    if info.is_cpu or defines["WIDE"] == "1" or push["inner"] < 8:
        return choose(dispatch, info)
    fours = dispatch.epilogue is None and _plain(dispatch) and push["inner"] % 4 == 0
    width = 4 if fours else 1
    down = 1 << (-(-push["columns"] // KEPT) - 1).bit_length()
    half = fours and _is_half(dispatch)
    most = min(MOST, info.limit("maxComputeWorkGroupInvocations"))
    wider = 2 if half and 2 * LINE // width * down <= most else 1
    across = max(wider * LINE // width, FEWEST // down)
    down = min(down, most // across)
    each = min(-(-push["columns"] // down), KEPT)
    kept = each * down >= push["columns"]
    tiles_across = -(-push["inner"] // (width * across))
    constants = (("WORKGROUP", across * down), ("EACH", each), ("ACROSS", across))
    flags = {"FOURS": fours, "HALVES": kept and half, "KEPT": kept}
    return (
        replace(
            dispatch,
            kernel="softmax_columns",
            constants=constants,
            iterations=3 * each,
            workgroups=registry.grid(push["rows"] // push["inner"] * tiles_across),
            defines=(*dispatch.defines, *((name, str(int(flag))) for name, flag in flags.items())),
        ),
    )


def _plain(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch reads x as it is."""
    return dispatch.prologue is None and not dispatch.fragment


def _width(dispatch: Dispatch, push: dict[str, Any]) -> int:
    """Return how many neighbours of a row are read, and written, at once."""
    steps = (push["columns"], push.get("step", 0), push.get("part", 0))
    if not _plain(dispatch) or push.get("inner", 1) != 1 or push.get("run", 1) != 1:
        return 1
    widths = (8, 4, 1) if _is_half(dispatch) else (4, 1)
    return next(width for width in widths if not any(step % width for step in steps))


def _is_half(dispatch: Dispatch) -> bool:
    """Tell whether all elements that a dispatch moves at once are halves."""
    defines = dispatch.define_values
    names = "X" if dispatch.kernel in ("reduce", "arg_reduce") else "XWY"
    return all(defines.get(name, "half") == "half" for name in names)


def load_ahead(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return a reduction whose invocations load several moves at once."""
    push, defines = dispatch.push_values, dispatch.define_values
    if info.is_cpu:
        return (dispatch,)
    wide, in_words, width = defines["WIDE"] == "1", defines["V"] in IN_WORDS, 1
    if in_words and defines.get("GIVEN", "0") == "0":
        width = _width(dispatch, push) if wide else 4 if _across(dispatch, push) else 1
    shape = (_lanes_of_rows if wide else _lanes_of_columns)(dispatch, push, info, width)
    rows = shape["ROWS"] if wide else shape["WORKGROUP"] * width
    shuffles = (
        wide
        and in_words
        and "shuffle" in info.subgroup_operations
        and shape["WORKGROUP"] // rows <= info.subgroup_size
    )
    more = (*_moves(width), ("SHUFFLE", str(int(shuffles))))
    extreme = {"larger": "max", "smaller": "min"}.get(defines.get("COMBINE", ""))
    if extreme and defines["V"] == "float" and defines["MAP"] == "a":
        more = (*more, ("EXTREME", extreme))
    return (
        replace(
            dispatch,
            workgroups=registry.grid(-(-push["rows"] // rows)),
            constants=tuple(shape.items()),
            defines=(*dispatch.defines, *more),
        ),
    )


def _across(dispatch: Dispatch, push: dict[str, Any]) -> bool:
    """Tell whether an invocation reduces four neighbouring rows."""
    return (
        dispatch.kernel == "reduce"
        and _plain(dispatch)
        and push["inner"] % 4 == 0
        and push["rows"] >= ACROSS
    )


def _lanes_of_rows(
    dispatch: Dispatch, push: dict[str, Any], info: DeviceInfo, width: int
) -> dict[str, int]:
    """Return the constants of a reduction whose rows have several invocations.

    Args:
        dispatch: the reduction.
        push: its push constants.
        info: the device.
        width: the elements of a move.
    """
    lanes, ahead = int(dispatch.constant_values["WORKGROUP"]), AHEAD[width]
    moves = -(-push["part"] // width)
    while push["rows"] >= MANY_ROWS and lanes > info.subgroup_size and moves <= ahead * lanes // 2:
        lanes //= 2
    together = max(1, LANES // lanes) if push["rows"] >= SHARING else 1
    return {"WORKGROUP": together * lanes, "AHEAD": ahead, "ROWS": together}


def _lanes_of_columns(
    dispatch: Dispatch, push: dict[str, Any], info: DeviceInfo, width: int
) -> dict[str, int]:
    """Return the constants of a reduction with an invocation for each row, or four rows.

    Args:
        dispatch: the reduction.
        push: its push constants.
        info: the device.
        width: the rows of an invocation.
    """
    lanes = int(dispatch.constant_values["WORKGROUP"])
    while lanes > info.subgroup_size and push["rows"] < FILLING * tiles.UNITS * width * lanes:
        lanes //= 2
    size = np.dtype(dict(dispatch.reads)["x_buffer"].dtype).itemsize * width
    many = min(MOST_AHEAD, AHEAD_BYTES * (2 if width > 1 else 1) // size)
    return {"WORKGROUP": lanes, "AHEAD": many if push["part"] >= 4 * many else AHEAD[1]}
