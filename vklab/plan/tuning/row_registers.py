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

__all__ = ["RULES", "choose", "load_ahead", "softmax"]

# Pieces of an invocation, and subgroups of a row: with few rows, more share one. A piece is an
# element, or four neighbours.
FEW = ((4, 1), (4, 2), (4, 4), (4, 6), (4, 8), (4, 12), (4, 16), (4, 32), (8, 32), (16, 32))
MANY = ((4, 1), (8, 1), (8, 2), (8, 4), (8, 6), (8, 8), (8, 16), (8, 32), (16, 32))
FEW_FOURS = ((1, 1), (1, 2), (1, 4), (1, 6), (1, 8), (1, 16), (1, 32), (2, 32), (4, 32))
MANY_FOURS = ((1, 1), (2, 1), (4, 1), (4, 2), (4, 4), (4, 8), (4, 16), (4, 32))
FEW_EIGHTS = ((1, 1), (1, 2), (1, 3), (1, 4), (1, 8), (1, 16), (1, 32), (2, 32))
MANY_EIGHTS = ((1, 1), (2, 1), (4, 1), (4, 2), (4, 4), (4, 8), (4, 16), (2, 32))
EARLY = {True: 0, False: 1}
SHAPES = {False: {1: FEW, 4: FEW_FOURS, 8: FEW_EIGHTS}, True: {1: MANY, 4: MANY_FOURS, 8: MANY_EIGHTS}}
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
LINE, KEPT, FEWEST, MOST = {1: 16, 4: 16, 8: 32}, {1: 32, 4: 32, 8: 16}, 128, 512
EIGHTS = SHUFFLES = EXTREMES = True
EIGHT_ACROSS = False
# Moves of an invocation and invocations of a row, of rows that need less than a subgroup.
NARROW = {4: ((1, 2), (1, 4), (1, 8), (1, 16)), 8: ((1, 1), (1, 2), (1, 4), (1, 8), (1, 16))}
WIDE_AHEAD = {1: 8, 4: 8, 8: 4}


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return the dispatch with rows in registers, if rows are wide enough and not too long.

    Source: Harris, "Optimizing Parallel Reduction in CUDA", 2007.
    """
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    lanes, most = info.subgroup_size, info.limit("maxComputeWorkGroupInvocations")
    if info.is_cpu or "arithmetic" not in info.subgroup_operations:
        return (dispatch,)
    width = 1 if dispatch.epilogue else _width(dispatch, push)
    many = push["rows"] >= MANY_ROWS
    moves = -(-push["columns"] // width)
    narrow = [(each, lanes_of_row) for each, lanes_of_row in NARROW.get(width, ())
              if many and moves <= each * lanes_of_row and lanes_of_row < lanes
              and "shuffle" in info.subgroup_operations]
    if defines.get("WIDE") == "0" and not narrow:
        return (dispatch,)
    shapes = (*narrow, *((each, count * lanes) for each, count in SHAPES[many][width]))
    for each, own in shapes:
        if moves <= each * own and own <= most:
            together = _sharing(push["rows"], own) if own >= lanes else LANES // own
            constants = {"WORKGROUP": together * own, "EACH": each, "ROWS": together}
            if own >= lanes:
                constants["SUBGROUP"] = lanes
            if dispatch.kernel == "normalize":
                constants["EARLY"] = EARLY[many]
            return (replace(dispatch, kernel=f"{dispatch.kernel}_registers", iterations=2 * each,
                            workgroups=registry.grid(-(-push["rows"] // together)),
                            constants=tuple(constants.items()),
                            defines=(*dispatch.defines, *_moves(width),
                                     ("NARROW", str(int(own < lanes))))),)  # fmt: skip
    return (dispatch,)


def _moves(width: int) -> tuple[tuple[str, str], ...]:
    """Return the defines of a kernel that moves so many elements at once."""
    return (("FOURS", str(int(width > 1))), ("EIGHTS", str(int(width == 8))))


def _sharing(rows: int, lanes: int) -> int:
    """Return the number of rows in a workgroup, each of which takes `lanes` invocations."""
    return max(1, LANES // lanes) if rows >= SHARING else 1


def softmax(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return Softmax with rows in registers, if they are wide enough and not too long."""
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    if info.is_cpu or defines["WIDE"] == "1" or push["inner"] < 8:
        return choose(dispatch, info)
    width = 1
    if dispatch.epilogue is None and _plain(dispatch):
        width = next(w for w in (8, 4, 1) if push["inner"] % w == 0 and (w < 8 or _is_half(dispatch)))
    down = 1 << (-(-push["columns"] // KEPT[width]) - 1).bit_length()
    across = max(LINE[width] // width, FEWEST // down)
    down = min(down, MOST // across)
    each = min(-(-push["columns"] // down), KEPT[width])
    kept = each * down >= push["columns"]
    tiles_across = -(-push["inner"] // (width * across))
    constants = (("WORKGROUP", across * down), ("EACH", each), ("ACROSS", across))
    return (replace(
        dispatch, kernel="softmax_columns", constants=constants, iterations=3 * each,
        workgroups=registry.grid(push["rows"] // push["inner"] * tiles_across),
        defines=(*dispatch.defines, *_moves(width), ("KEPT", str(int(kept)))),
    ),)  # fmt: skip


def _plain(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch reads x as it is."""
    return dispatch.prologue is None and not dispatch.fragment


def _width(dispatch: Dispatch, push: dict[str, Any]) -> int:
    """Return how many neighbours of a row are read, and written, at once."""
    steps = (push["columns"], push.get("step", 0), push.get("part", 0))
    if not _plain(dispatch) or push.get("inner", 1) != 1 or push.get("run", 1) != 1:
        return 1
    return next(width for width in (8, 4, 1)
                if not any(step % width for step in steps) and (width < 8 or _is_half(dispatch)))


def _is_half(dispatch: Dispatch) -> bool:
    """Tell whether all elements that a dispatch moves at once are halves."""
    defines = dict(dispatch.defines)
    names = "X" if dispatch.kernel in ("reduce", "arg_reduce") else "XWY"
    return EIGHTS and all(defines.get(name, "half") == "half" for name in names)


def load_ahead(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return a reduction whose invocations load several pieces at once."""
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    if info.is_cpu:
        return (dispatch,)
    wide, in_words = defines["WIDE"] == "1", defines["V"] in ("float", "int", "uint")
    width = 1
    if in_words and defines.get("GIVEN", "0") == "0":
        width = _width(dispatch, push) if wide else _across(dispatch, push)
    shape = (_lanes_of_rows if wide else _lanes_of_columns)(dispatch, push, info, width)
    rows = shape["ROWS"] if wide else shape["WORKGROUP"] * width
    lanes = shape["WORKGROUP"] // shape["ROWS"] if wide else info.subgroup_size + 1
    shuffles = SHUFFLES and in_words and lanes <= info.subgroup_size and (
        "shuffle" in info.subgroup_operations)  # fmt: skip
    more = [*_moves(width), ("SHUFFLE", str(int(shuffles)))]
    extreme = {"larger": "max", "smaller": "min"}.get(defines.get("COMBINE", ""))
    if EXTREMES and extreme and defines["V"] == "float" and defines["MAP"] == "a":
        more.append(("EXTREME", extreme))
    return (replace(dispatch, workgroups=registry.grid(-(-push["rows"] // rows)),
                    constants=tuple(shape.items()), defines=(*dispatch.defines, *more)),)


def _across(dispatch: Dispatch, push: dict[str, Any]) -> int:
    """Return how many neighbouring rows an invocation reduces."""
    if (dispatch.kernel != "reduce" or not _plain(dispatch) or push["inner"] % 4
            or push["rows"] < ACROSS):  # fmt: skip
        return 1
    return 8 if push["inner"] % 8 == 0 and _is_half(dispatch) and EIGHT_ACROSS else 4


def _lanes_of_rows(
    dispatch: Dispatch, push: dict[str, Any], info: DeviceInfo, width: int
) -> dict[str, int]:
    """Return the constants of a reduction whose rows have several invocations.

    Args:
        dispatch: the reduction.
        push: its push constants.
        info: the device.
        width: the elements of a piece.
    """
    lanes, ahead = int(dict(dispatch.constants)["WORKGROUP"]), WIDE_AHEAD[width]
    pieces = -(-push["part"] // width)
    while push["rows"] >= MANY_ROWS and lanes > info.subgroup_size and pieces <= ahead * lanes // 2:
        lanes //= 2
    together = _sharing(push["rows"], lanes)
    return {"WORKGROUP": together * lanes, "AHEAD": ahead, "ROWS": together}


def _lanes_of_columns(
    dispatch: Dispatch, push: dict[str, Any], info: DeviceInfo, width: int
) -> dict[str, int]:
    """Return the constants of a reduction with an invocation for each row, or for several rows.

    Args:
        dispatch: the reduction.
        push: its push constants.
        info: the device.
        width: the rows of an invocation.
    """
    lanes = int(dict(dispatch.constants)["WORKGROUP"])
    while lanes > info.subgroup_size and push["rows"] < FILLING * tiles.UNITS * width * lanes:
        lanes //= 2
    size = np.dtype(dict(dispatch.reads)["x_buffer"].dtype).itemsize * width
    many = min(MOST_AHEAD, AHEAD_BYTES * (2 if width > 1 else 1) // size)
    return {"WORKGROUP": lanes, "AHEAD": many if push["part"] >= 4 * many else AHEAD}


RULES = {"normalize": choose, "softmax": softmax, "reduce": load_ahead,
         "arg_reduce": load_ahead}  # fmt: skip
