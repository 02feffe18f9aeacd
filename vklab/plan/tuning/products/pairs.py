"""Choose loads of 64 bits for products on a CPU device, where a load takes as long as its lanes.

Convolutions of one pixel are products, too. Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.ops import linear
from vklab.plan.tuning import prepack
from vklab.plan.tuning.products import plain_rows
from vklab.plan.tuning.tiles import Chosen, ProductTask, Tile
from vklab.types import DeviceInfo, Dispatch

# Invocations of a workgroup: few, so that small products keep all cores busy.
WORKGROUP = 16
# Blocks of rows of an invocation; so many that an epilogue would take llvmpipe long to compile.
BLOCKS = (4, 2, 1)
NAMES = ("m", "n", "k", "batches", "part", "start", "a_row", "b_row", "c_row", "c_column", "alpha",
         "beta", "batch_shape", "a_batch", "b_batch")  # fmt: skip


def fits(info: DeviceInfo) -> bool:
    """Tell whether a device has what the kernel needs: loads of 64 bits, and shuffles."""
    return "shaderInt64" in info.features and "shuffle" in info.subgroup_operations


def pairs(given: ProductTask) -> Chosen | None:
    """Multiply by loads of two floats, where an operand's strides are even."""
    dispatch, sizes, info, pick = given
    product = as_product(dispatch) if dispatch.kernel == "conv" else _along_n(dispatch)
    push: dict[str, Any] = product.push_values if product else {}
    if (
        not push
        or dispatch.define_values["T"] != "float"
        or push["a_column"] != 1
        or push["b_column"] != 1
        or not fits(info)
    ):
        return None
    m, n, _, batch = sizes
    by_a = not any(step % 2 for step in (push["k"], push["a_row"], *push["a_batch"]))
    by_b = not any(step % 2 for step in (n, push["b_row"], *push["b_batch"]))
    smallest = info.limit("minSubgroupSize") or info.subgroup_size
    most = plain_rows.most_columns(dispatch)
    tall = BLOCKS if dispatch.kernel == "matmul" and not dispatch.epilogue else BLOCKS[1:]
    picked = pick(
        (
            Tile(rows * blocks, WORKGROUP, 1, rows, columns, 0, 0)
            for columns in (4, 2, 1)
            if columns <= most
            and columns > by_b
            and (columns == 1 + by_b or columns * smallest <= n)
            for rows in (8, 4, 2, 1)
            if rows <= smallest and rows <= m
            for blocks in tall
            if rows * blocks <= m and (blocks < 4 or -m % (4 * rows) < 2 * rows)
        ),
        sizes,
    )
    if not product or not picked or not (by_a or by_b):
        return None
    tile = picked[0]
    workgroups = (-(-n // (WORKGROUP * tile.columns)), -(-m // tile.m), batch)
    if max(workgroups) > linear.MOST_GROUPS:
        return None
    kept = tuple(pair for pair in product.defines if pair[0] not in ("SUBGROUP", "ACC"))
    return replace(
        product,
        kernel="matmul_pairs",
        workgroups=workgroups,
        push=tuple((name, push[name]) for name in NAMES),
        constants=(
            ("LANES", tile.rows),
            ("BLOCKS", tile.m // tile.rows),
            ("WORKGROUP", WORKGROUP),
            ("COLUMNS", tile.columns),
        ),
        defines=(*kept, ("A_PAIRS", str(int(by_a))), ("B_PAIRS", str(int(by_b)))),
    ), 1


def _along_n(dispatch: Dispatch) -> Dispatch:
    """Store B dense along n for few rows: lanes then have neighbouring columns."""
    push = dispatch.push_values
    m, n, k = push["m"], push["n"], push["k"]
    weight = dict(dispatch.reads)["b_buffer"]
    if (
        m >= prepack.FEWEST_ROWS
        or (push["b_row"], push["b_column"]) != (1, k)
        or any(step % (k * n) for step in push["b_batch"])
    ):
        return dispatch
    laid_out = prepack.turned(weight, (weight.count // max(k * n, 1), n, k, 1))
    if laid_out is None:
        return dispatch
    reads = ((name, laid_out if name == "b_buffer" else info) for name, info in dispatch.reads)
    return replace(
        dispatch, reads=tuple(reads), push=tuple({**push, "b_row": n, "b_column": 1}.items())
    )


def as_product(dispatch: Dispatch) -> Dispatch | None:
    """Return a convolution of one pixel and one group as the dispatch of a product, or None."""
    push = dispatch.push_values
    ones = ("groups", "kernel_h", "kernel_w", "stride_h", "stride_w")
    pads = push["pad_top"], push["pad_left"]
    if (
        any(push[name] != 1 for name in ones)
        or any(pads)
        or (push["out_h"], push["out_w"]) != (push["in_h"], push["in_w"])
    ):
        return None
    pixels, depth = push["out_h"] * push["out_w"], push["in_channels"]
    images, bias = dispatch.reads[0][1], dispatch.reads[2:]
    axes, count = linear.batch_axes((push["batches"],), ((0,), (depth * pixels,)))
    made = {
        "m": push["out_channels"],
        "n": pixels,
        "k": depth,
        "batches": push["batches"],
        "part": depth,
        "start": 0,
        "a_row": depth,
        "a_column": 1,
        "b_row": pixels,
        "b_column": 1,
        "c_row": 1,
        "c_column": 0,
        "alpha": 1.0,
        "beta": 1.0,
        **dict(axes),
    }
    reads = (
        ("a_buffer", dispatch.reads[1][1]),
        ("b_buffer", images),
        *(("c_buffer", info) for _, info in bias),
    )
    return replace(
        dispatch,
        kernel="matmul",
        reads=reads,
        push=tuple(made.items()),
        defines=(*dispatch.defines, count),
    )
