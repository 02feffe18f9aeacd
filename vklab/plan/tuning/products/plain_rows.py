"""Choose how many rows and columns an invocation computes in the kernels without tiles.

On a CPU device every load of a lane is an instruction of its own. Visited by lab 08.
"""

from __future__ import annotations

import math
from dataclasses import replace

from vklab.ops import linear, registry
from vklab.plan.tuning import tiles
from vklab.plan.tuning.tiles import Chosen, ProductTask, Tile
from vklab.types import Dispatch

# Columns of one invocation on a CPU: eight are faster still, but take llvmpipe twice as long to
# compile. It compiles an epilogue once for each column: with more formulas, one column.
CPU_COLUMNS, MOST_FORMULAS = 4, 2
# Rows and columns of pixels that an invocation of conv_depthwise computes, and its largest window.
BLOCK, MOST_TAPS = (2, 4), 49


def shared_rows(given: ProductTask) -> Chosen | None:
    """Share the loads of the row operand among the lanes of a subgroup, by shuffles.

    On a CPU device every load of a lane is a separate instruction, which this saves.
    """
    dispatch, sizes, info, pick = given
    m, n, _, batch = sizes
    smallest = info.limit("minSubgroupSize") or info.subgroup_size
    most = most_columns(dispatch)
    # A generator: sizes are compared up to the first tile that fits (`plan/templates` traces them).
    picked = pick(
        (
            Tile(rows * blocks, linear.COLUMN_WORKGROUP, 1, rows, columns, 0, 0)
            for columns in (4, 2, 1)
            if columns <= most
            for rows in (8, 4)
            if rows <= smallest and rows <= m
            for blocks in (2, 1, 4)
            if rows * blocks <= m
        ),
        sizes,
    )
    if not picked or "shuffle" not in info.subgroup_operations:
        return None
    rows, columns = picked[0].rows, picked[0].columns
    workgroups, constants = linear.row_blocks(m, n, batch, rows, picked[0].m // rows, columns)
    defines = tuple((name, "1" if name == "SUBGROUP" else v) for name, v in dispatch.defines)
    return replace(dispatch, workgroups=workgroups, constants=constants, defines=defines), 1


def few_rows(given: ProductTask) -> Chosen | None:
    """Compute one row per invocation where larger blocks would leave a GPU idle."""
    dispatch, sizes, _, _ = given
    m, n, k, batch = sizes
    if m * n * batch > tiles.UNITS * 1024:
        return None
    workgroups, constants = linear.row_blocks(m, n, batch, 1, 1)
    changed = replace(dispatch, workgroups=workgroups, constants=constants)
    return changed, tiles.parts(math.prod(workgroups), k)


def most_columns(dispatch: Dispatch) -> int:
    """Return the most columns of an invocation that llvmpipe compiles in an acceptable time."""
    formulas = dispatch.epilogue.formulas if dispatch.epilogue else ()
    computed = sum(bool(each.arguments) for each in formulas)  # the others are numbers
    return CPU_COLUMNS if computed <= MOST_FORMULAS else 1


def depthwise(given: ProductTask) -> Chosen | None:
    """Compute blocks of pixels of a depthwise convolution on a CPU, for fewer loads."""
    dispatch = given.dispatch
    push = dispatch.push_values
    if (
        dispatch.kernel != "conv"
        or push["in_channels"] != 1
        or push["groups"] == 1
        or (push["dilation_h"], push["dilation_w"]) != (1, 1)
        or push["kernel_h"] * push["kernel_w"] > MOST_TAPS
    ):
        return None
    down, across = min(BLOCK[0], push["out_h"]), min(BLOCK[1], push["out_w"])
    blocks = -(-push["out_h"] // down) * -(-push["out_w"] // across)
    count = push["batches"] * push["out_channels"] * blocks
    names = ("groups", "out_channels", "in_h", "in_w", "out_h", "out_w", "pad_top", "pad_left")
    return replace(
        dispatch,
        kernel="conv_depthwise",
        workgroups=registry.grid(-(-count // linear.COLUMN_WORKGROUP)),
        push=(("count", count), *((name, push[name]) for name in names)),
        constants=(
            ("WORKGROUP", linear.COLUMN_WORKGROUP),
            ("DOWN", down),
            ("ACROSS", across),
            *(
                (name.upper(), push[name])
                for name in ("kernel_h", "kernel_w", "stride_h", "stride_w")
            ),
        ),
        defines=tuple(pair for pair in dispatch.defines if pair[0] != "SUBGROUP"),
    ), 1
