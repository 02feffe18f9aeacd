"""Which faster kernel or tile a device and a shape allow, instead of the one right everywhere.

Each rule is a pure function from a Dispatch to a Dispatch; DISABLE_VARIANTS switches all off.
Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.ops.linear import tile_constants, tiled_workgroups
from vklab.ops.registry import grid
from vklab.types import DeviceInfo, Dispatch

__all__ = ["choose"]


def choose(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Return the dispatch that computes the same thing fastest on a device."""
    if dispatch.kernel == "matmul":
        return one_row(dispatch) or larger_tile(dispatch, info)
    if dispatch.kernel == "conv":
        return larger_tile(dispatch, info)
    return dispatch


def one_row(dispatch: Dispatch) -> Dispatch | None:
    """Use matvec where the left operand is one row: then reading B is all the time it takes."""
    push = dict(dispatch.push)
    if push["m"] != 1 or dispatch.workgroups[2] != 1:
        return None
    n = push["n"]
    assert isinstance(n, int)
    # Dense along k: one column a workgroup, whose lanes read neighbouring elements.
    columns = 1 if push["b_row"] == 1 and push["k"] != 1 else 32
    names = ("n", "k", "a_column", "b_row", "b_column", "c_column", "alpha", "beta")
    return replace(
        dispatch,
        kernel="matvec",
        workgroups=grid(-(-n // columns)),
        push=tuple((name, push[name]) for name in names),
        constants=(("COLUMNS", columns), ("WORKGROUP", 256 if columns > 1 else 64)),
    )


def larger_tile(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Use the largest tile that still makes enough workgroups to fill the device."""
    push = dict(dispatch.push)
    if dispatch.kernel == "matmul":
        m, n = push["m"], push["n"]
    else:
        m, n = push["out_channels"], push["out_h"] * push["out_w"]  # type: ignore[operator]
    assert isinstance(m, int) and isinstance(n, int)
    del info
    return replace(
        dispatch,
        workgroups=tiled_workgroups(m, n, dispatch.workgroups[2], TILES[0]),
        constants=tile_constants(TILES[0]),
    )


# TILE_M, TILE_N, TILE_K, ROWS, COLUMNS
TILES = ((32, 32, 16, 2, 2), (64, 64, 16, 4, 4))
