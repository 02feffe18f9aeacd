"""Describe a convolution of channels-last images as the matrix product that its tiles compute.

Rows are pixels, columns filters; a product is a window of one pixel. Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.plan import last_depthwise
from vklab.plan.tuning import precision, tiles
from vklab.plan.tuning.tiles import Chosen, ProductSizes, ProductTask, Tile
from vklab.types import DeviceInfo, Dispatch

# Terms of a step of one slice, and lanes that compute a tile of 32 x 32 sums in float32.
FLOAT_STEP, FLOAT_LANES = 16, 64
# Tiles from which on others keep a GPU busy, and the side of the smallest.
MOST_GROUPS, SIDE = 1024, 32
SHARED = ("in_h", "in_w", "out_h", "out_w", "stride_h", "dilation_h", "dilation_w", "pad_top",
          "pad_left")  # fmt: skip


def sizes(dispatch: Dispatch) -> ProductSizes:
    """Return m, n, k and the batch count of the product."""
    push, constants = dispatch.push_values, dispatch.constant_values
    strips = -(-push["out_w"] // constants["PIXELS"])
    pixels = push["count"] // (push["n"] * strips) * push["out_w"]
    height, width = _window(dispatch)
    return pixels, push["n"], height * width * constants["DEPTH"], 1


def _window(dispatch: Dispatch) -> tuple[int, int]:
    defines = dispatch.define_values
    return int(defines["KERNEL_H"]), int(defines["KERNEL_W"])


def as_product(dispatch: Dispatch, width: int, across: int = 0) -> Dispatch | None:
    """Return a convolution with the push constants of its kernels with tiles.

    Returns None for groups, and where channels or filters at once cross a pixel.

    Args:
        dispatch: a convolution.
        width: the channels that a kernel takes at once.
        across: the filters that it takes at once, if these are not as many.
    """
    push, constants = dispatch.push_values, dispatch.constant_values
    if push["filters"] != push["n"] or constants["DEPTH"] % width or push["n"] % (across or width):
        return None
    m, n, k, _ = sizes(dispatch)
    made = {
        "m": m,
        "n": n,
        "k": k,
        "part": k,
        **{name: push[name] for name in SHARED},
        "stride_w": constants["STRIDE_W"],
    }
    left = tuple(d for d in dispatch.defines if d[0] not in ("KERNEL_H", "KERNEL_W"))
    return replace(dispatch, push=tuple(made.items()), defines=left)


def fixed(made: Dispatch, dispatch: Dispatch) -> Dispatch:
    """Return a kernel with the sizes by which it divides at every step as constants."""
    constants = dispatch.constant_values
    sizes = ("KERNEL_W", _window(dispatch)[1]), ("CHANNELS", constants["DEPTH"])
    return replace(made, constants=(*made.constants, *sizes))


def sliced(given: ProductTask) -> Chosen | None:
    """Share the terms of a sum among parts of a workgroup, where few workgroups have much to do."""
    dispatch, sizes, info, pick = given
    is_half = dispatch.define_values.get("T") == "half"
    product = _as_window(dispatch, 8 if is_half else 4)
    smallest = -(-sizes[0] // SIDE) * -(-sizes[1] // SIDE)
    if product is None or sizes[3] != 1 or min(sizes[:2]) < 16 or smallest > MOST_GROUPS:
        return None
    table = _fitting_halves(info) if is_half else _fitting(info)
    picked = pick(table, sizes) if table else None
    if not picked or (pick is tiles.soonest and not _is_sooner(*picked, is_half, sizes)):
        return None
    tile, parts = picked
    step, lanes = (tile.n, info.subgroup_size) if is_half else (FLOAT_STEP, FLOAT_LANES)
    slices, made = tile.k // step, [("TILE_K", str(step))]
    constants = {
        "TILE_M": tile.m,
        "TILE_N": tile.n,
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "WORKGROUP": slices * lanes,
    }
    if is_half and (one := precision.matrix(info, precision.HALF)):
        constants |= {"ROWS": tile.m // one.m, "COLUMNS": tile.n // one.n, "SUBGROUP": lanes}
        made += [(f"MATRIX_{side.upper()}", str(getattr(one, side))) for side in "mnk"]
    else:
        constants["SLICES"] = slices
    groups = (-(-sizes[1] // tile.n), -(-sizes[0] // tile.m), 1)
    return replace(
        product,
        kernel="conv_last_sliced" if is_half else "conv_last_tiled",
        workgroups=groups,
        constants=(*constants.items(), *product.constants),
        defines=(*product.defines, *made),
    ), parts


def paired(given: ProductTask) -> Chosen | None:
    """Convolve each channel by a filter of its own, several channels at once."""
    made = last_depthwise.paired(given.dispatch)
    return (made, 1) if made else None


def _as_window(dispatch: Dispatch, width: int) -> Dispatch | None:
    """Return a convolution or a product for the kernels with tiles; None if they cannot take it."""
    if dispatch.kernel == "conv_last":
        made = as_product(dispatch, width)
        return made and fixed(replace(made, constants=()), dispatch)
    push = dispatch.push_values
    defines = dispatch.define_values
    if dispatch.kernel != "matmul" or defines["ACC"] != "float" or precision.chosen():
        return None
    if defines["T_LOAD"] == "load_bfloat16":  # for matrix units
        return None
    m, n, k = push["m"], push["n"], push["k"]
    is_dense = (push["a_row"], push["a_column"], push["b_row"], push["b_column"]) == (k, 1, n, 1)
    is_plain = push["alpha"] == 1 and push["start"] == 0 and push["batches"] == 1
    biased = defines["BIAS"] == "1"
    if (
        not is_dense
        or not is_plain
        or n % width
        or k % width
        or (biased and (push["c_row"], push["c_column"], push["beta"]) != (0, 1, 1))
    ):
        return None
    given = {
        "m": m,
        "n": n,
        "k": k,
        "part": k,
        **dict.fromkeys(SHARED, 0),
        "in_h": 1,
        "in_w": m,
        "out_h": 1,
        "out_w": m,
        "stride_h": 1,
        "stride_w": 1,
    }
    names = ("x_buffer", "w_buffer", "bias_buffer")
    reads = zip(names, (info for _, info in dispatch.reads), strict=False)
    left = tuple(d for d in dispatch.defines if d[0] not in ("ACC", "SUBGROUP", "BATCH_AXES"))
    return replace(
        dispatch,
        reads=tuple(reads),
        push=tuple(given.items()),
        defines=left,
        constants=(("KERNEL_W", 1), ("CHANNELS", k)),
    )


def _fitting(info: DeviceInfo) -> list[Tile]:
    most, threads = (
        info.limit(name)
        for name in ("maxComputeSharedMemorySize", "maxComputeWorkGroupInvocations")
    )
    return [
        each
        for each in tiles.SLICED
        if each.k // FLOAT_STEP * FLOAT_LANES <= threads
        and 4 * each.k * (each.m + each.n + 8) <= most
    ]


def _fitting_halves(info: DeviceInfo) -> list[Tile]:
    one, lanes = precision.matrix(info, precision.HALF), info.subgroup_size
    most, threads = (
        info.limit(name)
        for name in ("maxComputeSharedMemorySize", "maxComputeWorkGroupInvocations")
    )
    if one is None:
        return []
    return [
        each
        for each in tiles.SLICED_HALF
        if not (each.m % one.m or each.n % one.n or each.n % one.k)
        and not (each.m * each.n // 8 % lanes or each.n * each.n // 8 % lanes)
        and each.k // each.n * lanes <= threads
        and 2 * each.k // each.n * ((each.n + 8) * (each.m + each.n)) <= most
    ]


def _is_sooner(tile: Tile, parts: int, is_half: bool, sizes: ProductSizes) -> bool:
    """Tell whether a tile takes less time than whole workgroups with one tile each."""
    others = tiles.LAST if is_half else tiles.LAST_FLOAT
    other = tiles.expected_ns(*tiles.soonest(others, sizes), sizes)
    return tiles.expected_ns(tile, parts, sizes) < other
