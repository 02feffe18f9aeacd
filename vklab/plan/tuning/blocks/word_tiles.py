"""Products of int8 in words by tiles: on matrix units, or by dot products of four bytes.

Both are variants of conv_words for GPUs, with the same integer sums. Visited by lab 08.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from vklab import settings
from vklab.base.names import internal
from vklab.ops import linear
from vklab.plan.tuning import prepack, tiles
from vklab.plan.tuning.tiles import Chosen, Pick, ProductSizes, ProductTask, Tile
from vklab.types import CooperativeMatrix, DeviceInfo, Dispatch, TensorInfo

# Smaller products are left to conv_words: filters, and bytes of one sum.
FEWEST_FILTERS, FEWEST_BYTES = 16, 64
# Pixels up to which a workgroup shares the sums of a word of filters, and those of one workgroup.
MOST_COLUMNS, EACH_COLUMNS = 8, 4
# As many share them if filters are too few for tiles, and a sum has so many words.
COLUMNS_OF_FEW_FILTERS, LONG_SUM = 256, 64
# 32-bit sums that one invocation keeps in registers.
MOST_SUMS = 128
# Bytes that an invocation loads at once, and bytes of a step that one subgroup multiplies.
PIECE, SLICE_BYTES = 16, 128
# Defines of conv_words, and its push constants that are constants of the tiled kernel.
UNTILED = frozenset({"ALONG", "DOT", "LONG", "SUBGROUP", "BYTES"})
CONSTANT = frozenset({"x_words", "group_filters", "depth", "kernel_h", "kernel_w"})


def sizes_of(dispatch: Dispatch) -> ProductSizes:
    """Return filters, pixels of all images, bytes of one sum, and 1, for a product of words."""
    push = dispatch.push_values
    pixels = push["out_h"] * push["out_w"] * dispatch.workgroups[2]
    return push["filters"], pixels, 4 * push["taps"] * push["span"], 1


def matrix_shape(info: DeviceInfo) -> CooperativeMatrix | None:
    """Return the largest matrix of int8 with sums in int32 that words_tiled can use."""
    wanted = ("int8", "int8", "int32", "int32")
    usable = [
        each
        for each in info.cooperative_matrices
        if (each.a, each.b, each.c, each.result) == wanted
        and not (each.m % 8 or each.n % 8 or each.k % PIECE)
    ]
    return max(usable, key=lambda each: each.m * each.n * each.k, default=None)


def in_tiles(given: ProductTask, on_units: bool) -> Chosen | None:
    """Multiply tiles from shared memory; None if the device cannot, or the product is too small.

    `on_units`: by matrices of int8 on matrix units, and not by dot products of four bytes.

    Source: Vulkan specification, VK_KHR_cooperative_matrix, VK_KHR_shader_integer_dot_product.
    """
    dispatch, sizes, info, pick = given
    one = matrix_shape(info) if on_units and "shaderInt8" in info.features else None
    if settings.get("DISABLE_INTEGER_DOT") or not (one if on_units else _has_dots(info)):
        return None
    if one:
        fitting = [tile for tile in tiles.WORDS if _suits(tile, one, info)]
        return _in_tiles(dispatch, sizes, fitting, pick, one, info.subgroup_size)
    fitting = [tile for tile in tiles.DOTS if _has_room(tile, tile.blocks, info)]
    return _in_tiles(dispatch, sizes, fitting, pick, None, 1)


on_matrix_units = functools.partial(in_tiles, on_units=True)
by_dots = functools.partial(in_tiles, on_units=False)


def by_few_columns(given: ProductTask) -> Chosen | None:
    """Let a workgroup share the sums of four filters, where few sums would leave a GPU idle."""
    dispatch, sizes, info, _ = given
    push = dispatch.push_values
    words, columns = sizes[2] // 4, min(sizes[1], EACH_COLUMNS)
    is_long = sizes[0] < FEWEST_FILTERS and words >= LONG_SUM
    most = COLUMNS_OF_FEW_FILTERS if is_long else MOST_COLUMNS
    if sizes[1] > most or not _has_dots(info) or push["group_filters"] != push["filters"]:
        return None
    workgroup = next((count for count in (32, 128) if words <= 4 * count), 256)
    gone = {"x_words", "group_filters", "depth"}
    changed = replace(
        dispatch,
        kernel="matvec_words",
        workgroups=(-(-sizes[0] // 4), -(-sizes[1] // columns), 1),
        constants=(("WORKGROUP", workgroup), ("COLUMNS", columns)),
        push=(
            ("images", dispatch.workgroups[2]),
            *(pair for pair in dispatch.push if pair[0] not in gone),
        ),
        defines=tuple(pair for pair in dispatch.defines if pair[0] not in UNTILED),
        iterations=words // workgroup + 1,
    )
    return changed, 1


def _has_dots(info: DeviceInfo) -> bool:
    return "shaderIntegerDotProduct" in info.features and not settings.get("DISABLE_INTEGER_DOT")


def _suits(tile: Tile, one: CooperativeMatrix, info: DeviceInfo) -> bool:
    """Tell whether a tile is made of the device's matrices and fits into its memory."""
    lanes = info.subgroup_size
    stored = 4 * (one.m + 4) * one.n * tile.blocks * _slices(tile)
    return (
        not (tile.rows % one.m or tile.columns % one.n or tile.k % (one.k * _slices(tile)))
        and tile.rows * tile.columns <= MOST_SUMS * lanes
        and stored <= (tile.k + PIECE) * (tile.m + tile.n)
        and _has_room(tile, tile.blocks * _slices(tile) * lanes, info)
    )


def _slices(tile: Tile) -> int:
    """Return the subgroups that share a block of a tile of matrices, each with part of a step."""
    return max(1, tile.k // SLICE_BYTES)


def _has_room(tile: Tile, workgroup: int, info: DeviceInfo) -> bool:
    """Tell whether a workgroup of so many invocations can fetch a tile, and store it."""
    pieces = tile.k // PIECE
    return (
        workgroup <= info.limit("maxComputeWorkGroupInvocations")
        and not (workgroup % tile.n or workgroup % pieces)
        and not (tile.m * pieces % workgroup or tile.n * pieces % workgroup)
        and (tile.k + PIECE) * (tile.m + tile.n) <= info.limit("maxComputeSharedMemorySize")
    )


def by_filter(weight: TensorInfo) -> TensorInfo | None:
    """Return weights in words [rows, taps, span, 4] as [pieces, filters, 4]: four words a filter.

    Pieces go along k; the last is padded with zeros. Returns a tensor without value; None for
    DISABLE_PREPACK, or a weight unknown before the run.
    """
    if weight.constant is None or settings.get("DISABLE_PREPACK"):
        return None
    rows, taps, span, each = weight.dims
    shape = (-(-taps * span // 4), rows * each, 4)
    return TensorInfo(
        internal(weight.name, "by filter"),
        weight.dtype,
        shape,
        layout=prepack.ByFilter(weight.name),
    )


def _in_tiles(
    dispatch: Dispatch, sizes: ProductSizes, fitting: list[Tile], pick: Pick,
    one: CooperativeMatrix | None, lanes: int,
) -> tuple[Dispatch, int] | None:  # fmt: skip
    """Return a product of words in one of the tiles; None if there is none, or it is too small.

    Args:
        dispatch: the product, by conv_words.
        sizes: as from `sizes_of`.
        fitting: the tiles that suit the device.
        pick: chooses one of them.
        one: the matrix of one instruction; None for dot products.
        lanes: the invocations that compute one block of a tile.
    """
    push = dispatch.push_values
    weights = by_filter(dict(dispatch.reads)["w_buffer"])
    if push["group_filters"] != push["filters"] or weights is None:
        return None
    if not fitting or sizes[0] < FEWEST_FILTERS or sizes[2] < FEWEST_BYTES:
        return None
    picked = pick(fitting, sizes)
    if picked is None:
        return None
    tile = picked[0]
    workgroups = (-(-sizes[1] // tile.n), -(-sizes[0] // tile.m), 1)
    if max(workgroups) > linear.MOST_GROUPS:
        return None
    sides = (one.m, one.n, one.k) if one else (0, 1, 1)
    is_conv = dispatch.define_values["LAST"] == "0"
    kept = tuple(pair for pair in dispatch.defines if pair[0] not in UNTILED)
    defines = zip(("MATRIX_M", "MATRIX_N", "MATRIX_K", "TILE_K"), (*sides, tile.k), strict=True)
    workgroup = tile.blocks * lanes * (_slices(tile) if one else 1)
    constants = {
        "TILE_M": tile.m,
        "TILE_N": tile.n,
        "ROWS": tile.rows // max(sides[0], 1),
        "COLUMNS": tile.columns // sides[1],
        "WORKGROUP": workgroup,
        "RUNS": 0 if push["span"] % 4 else 1 + (push["taps"] == 1),
        **({"KERNEL_H": push["kernel_h"], "KERNEL_W": push["kernel_w"]} if is_conv else {}),
        **({"SUBGROUP": lanes} if one else {}),
    }
    changed = replace(
        dispatch,
        kernel="words_tiled",
        workgroups=workgroups,
        constants=tuple(constants.items()),
        reads=tuple(
            (name, weights if name == "w_buffer" else info) for name, info in dispatch.reads
        ),
        push=(
            ("images", dispatch.workgroups[2]),
            *(pair for pair in dispatch.push if pair[0] not in CONSTANT),
        ),
        defines=(*kept, *((name, str(value)) for name, value in defines)),
    )
    return changed, 1
