"""Rules of kernels that compute products in tiles: in shared memory, or by cooperative matrices.

Each returns an equivalent dispatch with the parts of its sums, or None. Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vklab.ops import linear
from vklab.plan.tuning import forced, prepack, tiles
from vklab.plan.tuning.products import last_convs, matrix_products, product_loads
from vklab.plan.tuning.tiles import Chosen, Pick, ProductSizes, ProductTask, Tile
from vklab.types import DeviceInfo, Dispatch

# Products at once from which on `tiles.MANY` are their tiles.
FEWEST_MANY = 16
# Every device can bind this much: Vulkan's least maxStorageBufferRange.
LEAST_RANGE_BYTES = 1 << 27
# Padding channels that a convolution may read for whole chunks, as a share of its channels.
MOST_PADDING = 0.25


def matrix_product(given: ProductTask) -> Chosen | None:
    """Multiply matrices of halves by cooperative matrices."""
    dispatch, sizes, info, pick = given
    units = matrix_products.of(dispatch, info) if dispatch.kernel == "matmul" else None
    loads = product_loads.operands(dispatch, units.width) if units else None
    made = loads and _on_matrix_units(dispatch, (), sizes, info, pick, units)
    if not loads or not made or not units:
        return None
    changed, tile, parts = made
    defines = (
        ("EIGHTS", str(int(loads[1] and loads[2]))),
        *units.defines,
        matrix_products.wide(dispatch, sizes[1], fused=True),
    )
    constants = (*changed.constants, *loads[0], product_loads.aligned(tile, sizes))
    return replace(changed, constants=constants, defines=(*changed.defines, *defines)), parts


def in_chunks(dispatch: Dispatch, width: int = 4) -> Dispatch | None:
    """Prepack a convolution's weights: steps of CHUNK channels at one tap of the window.

    `width` is the multiple to which filters are padded. Returns None if the weights are computed
    by the model, or would be padded too much.
    """
    push = dispatch.push_values
    weight = dict(dispatch.reads)["w_buffer"]
    filters, depth = push["out_channels"], push["in_channels"]
    taps = weight.count // (push["groups"] * filters * depth)
    if -depth % prepack.CHUNK > MOST_PADDING * depth:
        return None
    laid_out = prepack.turned(weight, (push["groups"], filters, depth, taps), prepack.CHUNK, width)
    # With its padding the weight may be too large for one binding.
    if laid_out is None or laid_out.size_bytes > max(weight.size_bytes, LEAST_RANGE_BYTES):
        return None
    return prepack.with_weight(dispatch, "w_buffer", laid_out)


def matrix_conv(given: ProductTask) -> Chosen | None:
    """Convolve halves by cooperative matrices."""
    dispatch, sizes, info, pick = given
    is_taken = dispatch.kernel == "conv" and _is_half(dispatch)
    source = in_chunks(dispatch, 8) if is_taken else None
    made = source and _on_matrix_units(source, tiles.COOPERATIVE_CONV, sizes, info, pick)
    return (_fixed_window(made[0], dispatch), made[2]) if made else None


def matrix_last(given: ProductTask) -> Chosen | None:
    """Convolve channels-last halves by cooperative matrices."""
    dispatch, sizes, info, pick = given
    ready = last_convs.as_product(dispatch, 8) if _is_half(dispatch) else None
    made = ready and _on_matrix_units(ready, tiles.LAST, sizes, info, pick)
    return (last_convs.fixed(made[0], dispatch), made[2]) if made else None


def tiled_last(given: ProductTask) -> Chosen | None:
    """Convolve channels-last images through shared memory."""
    dispatch, sizes, info, pick = given
    ready = last_convs.as_product(dispatch, 4) if min(sizes[:2]) >= 16 <= sizes[2] else None
    picked = ready and pick(_fitting(tiles.LAST_FLOAT, info), sizes)
    if not ready or not picked:
        return None
    tile, parts = picked
    if (changed := _in_tiles(ready, "conv_last_tiled", tile, sizes, _blocks_of(tile))) is None:
        return None
    changed = replace(changed, defines=(*changed.defines, ("TILE_K", str(tile.k))))
    return last_convs.fixed(changed, dispatch), parts


def _on_matrix_units(
    dispatch: Dispatch,
    choices: Sequence[Tile],
    sizes: ProductSizes,
    info: DeviceInfo,
    pick: Pick,
    units: matrix_products.Units | None = None,
) -> tuple[Dispatch, Tile, int] | None:
    """Return a product in a tile of cooperative matrices, the tile, and the parts.

    Without `units` the matrices are those of halves, and the tiles are `choices`.

    Returns None where the device has no matrix of a usable shape, or the product is too small.
    Source: Vulkan specification, VK_KHR_cooperative_matrix.
    """
    units = units or matrix_products.halves(info, choices)
    if units is None or _is_small(sizes, 16, 32):
        return None
    one, lanes = units.one, info.subgroup_size
    fitting = [tile for tile in units.table if matrix_products.suits(tile, units, info)]
    picked = pick(fitting, sizes) if fitting else None
    if picked is None:
        return None
    tile, parts = picked
    constants = (
        ("ROWS", tile.rows // one.m),
        ("COLUMNS", tile.columns // one.n),
        ("WORKGROUP", tile.blocks * lanes),
        ("SUBGROUP", lanes),
    )
    changed = _in_tiles(dispatch, f"{dispatch.kernel}_cooperative", tile, sizes, constants)
    if changed is None:
        return None
    shape = (("MATRIX_M", one.m), ("MATRIX_N", one.n), ("MATRIX_K", one.k), ("TILE_K", tile.k))
    defines = (*changed.defines, *((name, str(value)) for name, value in shape))
    return replace(changed, defines=defines), tile, parts


def _is_half(dispatch: Dispatch) -> bool:
    return dispatch.define_values.get("T") == "half"


def tiled(given: ProductTask) -> Chosen | None:
    """Use shared-memory tiles where a product is large enough to fill some.

    Source: CUDA C++ Programming Guide, section 'Shared Memory'.
    """
    dispatch, sizes, info, pick = given
    if _is_small(sizes, 16, 64):
        return None
    packed, loads = None, None
    if dispatch.kernel == "conv":
        packed = in_chunks(dispatch)
        kernel, choices = ("conv_packed", tiles.PACKED) if packed else ("conv_tiled", tiles.CONV)
    else:
        kernel, loads = "matmul_tiled", product_loads.operands(dispatch, 4)
        if loads is None:
            return None
        many = sizes[3] >= FEWEST_MANY and all(loads[1:]) and "c_buffer" not in dict(dispatch.reads)
        choices = tiles.MANY if many else tiles.PRODUCT
    picked = pick(_fitting(choices, info), sizes)
    if picked is None:
        return None
    tile, parts = picked
    changed = _in_tiles(packed or dispatch, kernel, tile, sizes, _blocks_of(tile))
    if changed is None:
        return None
    step = ("TILE_K", str(tile.k))
    if loads is not None:
        fours = (("A_FOURS", str(int(loads[1]))), ("B_FOURS", str(int(loads[2]))))
        defines = (
            *changed.defines,
            *fours,
            ("BUFFERS", str(tile.buffers)),
            step,
            matrix_products.wide(dispatch, sizes[1], fused=True),
        )
        constants = (*changed.constants, *loads[0], product_loads.aligned(tile, sizes))
        return replace(changed, constants=constants, defines=defines), parts
    return _fixed_window(replace(changed, defines=(*changed.defines, step)), dispatch), parts


def _is_small(sizes: ProductSizes, least: int, fewest: int) -> bool:
    """Tell whether a product is too small for tiles, if none is forced.

    Args:
        sizes: m, n, k and the batch count.
        least: the fewest rows and columns.
        fewest: the fewest terms.
    """
    return not forced.choice() and (min(sizes[:2]) < least or sizes[2] < fewest)


def _fitting(choices: Sequence[Tile], info: DeviceInfo) -> list[Tile]:
    most = info.limit("maxComputeSharedMemorySize")
    return [each for each in choices if 4 * each.k * each.buffers * (each.m + each.n + 8) <= most]


def _blocks_of(tile: Tile) -> tuple[tuple[str, int], ...]:
    return ("ROWS", tile.rows), ("COLUMNS", tile.columns), ("WORKGROUP", tile.blocks)


def _fixed_window(changed: Dispatch, dispatch: Dispatch) -> Dispatch:
    """Make the window's sizes constants of the kernel, which divides by them at every step."""
    fixed = tuple(
        (name.upper(), size)
        for name, size in dispatch.push
        if name in ("kernel_h", "kernel_w") and isinstance(size, int)
    )
    return replace(
        changed,
        push=_without(changed.push, "kernel_h", "kernel_w"),
        constants=(*changed.constants, *fixed),
    )


def _in_tiles(
    dispatch: Dispatch, kernel: str, tile: Tile, sizes: ProductSizes,
    constants: tuple[tuple[str, int], ...],
) -> Dispatch | None:  # fmt: skip
    """Return a product computed by a kernel of tiles; None if the grid would be too large."""
    m, n, _, batch = sizes
    workgroups = (-(-n // tile.n), -(-m // tile.m), batch)
    if max(workgroups) > linear.MOST_GROUPS:
        return None
    return replace(
        dispatch,
        kernel=kernel,
        workgroups=workgroups,
        constants=(("TILE_M", tile.m), ("TILE_N", tile.n), *constants),
        defines=_without(dispatch.defines, "SUBGROUP"),
    )


def _without(pairs: tuple[Any, ...], *names: str) -> tuple[Any, ...]:
    return tuple(pair for pair in pairs if pair[0] not in names)
