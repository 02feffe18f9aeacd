"""Choose the fastest kernel for a product or convolution on one device.

Each rule is a pure function from a Dispatch to an equivalent one; DISABLE_VARIANTS switches off all
rules but those that a driver's limits require, DISABLE_PASSES one by its name. Visited by lab 08.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.ops import linear
from vklab.plan import block_units
from vklab.plan.tuning import (
    block_rows,
    block_sizes,
    float_blocks,
    forced,
    last_convs,
    matrix_products,
    pairs,
    plain_rows,
    prepack,
    problems,
    product_loads,
    register_products,
    row_products,
    single_rules,
    split_blocks,
    split_sums,
    tiles,
    wide_blocks,
    word_variants,
)
from vklab.plan.tuning.tiles import Choice, Pick, ProductSizes, Tile
from vklab.types import DeviceInfo, Dispatch

__all__ = ["choose", "rules_for"]

# A kernel's dispatch and the number of parts into which its sums should be cut.
Chosen = tuple[Dispatch, int]
Tuned = Mapping[str, Choice] | None
KernelRule = Callable[[Dispatch, ProductSizes, DeviceInfo, Pick], Chosen | None]

BLOCKS = frozenset({*block_rows.KERNELS, *block_units.KERNELS, "matmul_nbits"})


def choose(
    dispatch: Dispatch,
    info: DeviceInfo,
    resident: Collection[str] = (),
    tuned: Tuned = None,
) -> tuple[Dispatch, ...]:
    """Return the fastest equivalent dispatches for a device; `dispatch` itself if there is no rule.

    Args:
        dispatch: one dispatch of a plan.
        info: the device.
        resident: names of weights already on the device; a prepacked name encodes its layout.
        tuned: the choices that were measured on this device, by `problems.Problem`.
    """
    if not settings.get("DISABLE_VARIANTS"):
        if rule := single_rules.of(dispatch.kernel):
            return rule(dispatch, info)
        if dispatch.kernel in BLOCKS:
            return _blocks(dispatch, info, resident, tuned)
        if dispatch.kernel in word_variants.KERNELS:
            return (word_variants.choose(dispatch, info, tuned),)
    if dispatch.kernel not in ("matmul", "conv", "conv_last"):
        return (dispatch,)
    sizes = _product_sizes(dispatch)
    chosen, measured = _plain(dispatch, sizes, info), ""
    # The rules are for sums in float32 only.
    in_float32 = dict(dispatch.defines).get("ACC", "float") == "float"
    if in_float32 and not settings.get("DISABLE_VARIANTS"):
        laid_out = prepack.along_k(dispatch, sizes[:3], info, resident)
        if laid_out is dispatch:
            laid_out = prepack.in_wide_rows(dispatch, sizes[:3], info, resident)
        problem = problems.of(laid_out, sizes) if tuned else None
        wanted = tuned.get(problem) if tuned and problem else None
        wanted = forced.choice() or wanted
        found = _as_measured(wanted, laid_out, sizes, info) if wanted else None
        measured = str(problem) if problem and (found or wanted and not wanted[0]) else ""
        pick: Pick = tiles.first if info.is_cpu else tiles.soonest
        rules = rules_for(info, dispatch.kernel)
        expected = (rule(laid_out, sizes, info, pick) for rule in rules.values())
        chosen = found or next(filter(None, expected))
    made = split_sums.split(*chosen, dispatch, sizes, info)
    return tuple(replace(each, measured=measured) for each in made) if measured else made


def _blocks(
    dispatch: Dispatch, info: DeviceInfo, resident: Collection[str], tuned: Tuned
) -> tuple[Dispatch, ...]:
    """Return a product with weights in blocks by the fastest kernels of a device."""
    *halves, product = float_blocks.choose(dispatch, info) or (dispatch,)
    if product.kernel == "matmul":
        split = (split_blocks.apply(each, info, resident) for each in halves)
        gated = wide_blocks.gated(product, functools.partial(
            _matrix_product, product, _product_sizes(product), info))  # fmt: skip
        return (*split, *((gated,) if gated else choose(product, info, resident, tuned)))
    return (block_sizes.choose(dispatch, info, resident, tuned),)


def _as_measured(
    wanted: Choice, dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo
) -> Chosen | None:
    """Return a product computed as a choice says; None if that is not possible."""
    name, shape, count = wanted
    rule = rules_for(info, dispatch.kernel, forced.choice() is not None).get(name)
    made = rule(dispatch, sizes, info, tiles.only(shape, count)) if rule else None
    return (made[0], count) if made else None


def rules_for(
    info: DeviceInfo, kernel: str = "matmul", every: bool = False
) -> dict[str, KernelRule]:
    """Return the rules for a device by name, the preferred ones first; the last always applies.

    Args:
        info: the device.
        kernel: the kernel of the operator.
        every: also the rules that are never fastest on such a device.
    """
    if kernel in word_variants.KERNELS:
        return dict(word_variants.RULES)
    shared: dict[str, KernelRule] = {"shared_rows": plain_rows.shared_rows}
    rules: dict[str, KernelRule]
    if kernel == "conv_last":
        rules = {"registers": register_products.windows, "sliced": last_convs.sliced,
                 "matrix_last": _matrix_last, "tiled_last": _tiled_last,
                 "paired_last": last_convs.paired}  # fmt: skip
    elif info.is_cpu and not every:
        rules = {"depthwise": plain_rows.depthwise, "pairs": pairs.pairs, **shared}
    else:
        rules = {"one_row": row_products.one_row, "rows_at_once": row_products.rows_at_once,
                 "registers": register_products.registers, "sliced": last_convs.sliced,
                 "matrix_product": _matrix_product, "matrix_conv": _matrix_conv, "tiled": _tiled,
                 **(shared if every else {}), "few_rows": plain_rows.few_rows}  # fmt: skip
    left_out = settings.names("DISABLE_PASSES")
    return {**{n: rule for n, rule in rules.items() if n not in left_out}, "plain": _plain}


def _plain(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick | None = None
) -> Chosen:
    """Keep the kernel that runs on every device."""
    del info, pick
    whole = dispatch.kernel == "conv_last"
    return dispatch, 1 if whole else tiles.parts(math.prod(dispatch.workgroups), sizes[2])


def _product_sizes(dispatch: Dispatch) -> ProductSizes:
    push: dict[str, Any] = dict(dispatch.push)
    if dispatch.kernel == "conv_last":
        return last_convs.sizes(dispatch)
    if dispatch.kernel == "matmul":
        return push["m"], push["n"], push["k"], push["batches"]
    k = push["in_channels"] * push["kernel_h"] * push["kernel_w"]
    return push["out_channels"], push["out_h"] * push["out_w"], k, push["batches"]


def _matrix_product(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Multiply matrices of halves by cooperative matrices."""
    units = matrix_products.of(dispatch, info) if dispatch.kernel == "matmul" else None
    loads = product_loads.operands(dispatch, units.width) if units else None
    made = loads and _on_matrix_units(dispatch, (), sizes, info, pick, units)
    if not loads or not made or not units:
        return None
    changed, tile, parts = made
    defines = (("EIGHTS", str(int(loads[1] and loads[2]))), *units.defines,
               matrix_products.wide(dispatch, sizes[1], fused=True))  # fmt: skip
    constants = (*changed.constants, *loads[0], product_loads.aligned(tile, sizes))
    return replace(changed, constants=constants, defines=(*changed.defines, *defines)), parts


def _matrix_conv(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Convolve halves by cooperative matrices."""
    is_taken = dispatch.kernel == "conv" and _is_half(dispatch)
    source = prepack.in_chunks(dispatch, 8) if is_taken else None
    made = source and _on_matrix_units(source, tiles.COOPERATIVE_CONV, sizes, info, pick)
    return (_fixed_window(made[0], dispatch), made[2]) if made else None


def _matrix_last(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Convolve channels-last halves by cooperative matrices."""
    ready = last_convs.as_product(dispatch, 8) if _is_half(dispatch) else None
    made = ready and _on_matrix_units(ready, tiles.LAST, sizes, info, pick)
    return (last_convs.fixed(made[0], dispatch), made[2]) if made else None


def _tiled_last(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Convolve channels-last images through shared memory."""
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
    dispatch: Dispatch, choices: Sequence[Tile], sizes: ProductSizes, info: DeviceInfo, pick: Pick,
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
    constants = (("ROWS", tile.rows // one.m), ("COLUMNS", tile.columns // one.n),
                 ("WORKGROUP", tile.blocks * lanes), ("SUBGROUP", lanes))  # fmt: skip
    changed = _in_tiles(dispatch, f"{dispatch.kernel}_cooperative", tile, sizes, constants)
    if changed is None:
        return None
    shape = (("MATRIX_M", one.m), ("MATRIX_N", one.n), ("MATRIX_K", one.k), ("TILE_K", tile.k))
    defines = (*changed.defines, *((name, str(value)) for name, value in shape))
    return replace(changed, defines=defines), tile, parts


def _is_half(dispatch: Dispatch) -> bool:
    return dict(dispatch.defines).get("T") == "half"


def _tiled(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Use shared-memory tiles where a product is large enough to fill some.

    Source: CUDA C++ Programming Guide, section 'Shared Memory'.
    """
    if _is_small(sizes, 16, 64):
        return None
    packed, loads = None, None
    if dispatch.kernel == "conv":
        packed = prepack.in_chunks(dispatch)
        kernel, choices = ("conv_packed", tiles.PACKED) if packed else ("conv_tiled", tiles.CONV)
    else:
        kernel, loads = "matmul_tiled", product_loads.operands(dispatch, 4)
        if loads is None:
            return None
        many = sizes[3] >= tiles.FEWEST_MANY and all(loads[1:]) and "c_buffer" not in dict(
            dispatch.reads)
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
        defines = (*changed.defines, *fours, ("BUFFERS", str(tile.buffers)), step,
                   matrix_products.wide(dispatch, sizes[1], fused=True))  # fmt: skip
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
    fixed = tuple((name.upper(), size) for name, size in dispatch.push
                  if name in ("kernel_h", "kernel_w") and isinstance(size, int))  # fmt: skip
    return replace(changed, push=_without(changed.push, "kernel_h", "kernel_w"),
                   constants=(*changed.constants, *fixed))  # fmt: skip


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
        dispatch, kernel=kernel, workgroups=workgroups,
        constants=(("TILE_M", tile.m), ("TILE_N", tile.n), *constants),
        defines=_without(dispatch.defines, "SUBGROUP"),
    )  # fmt: skip


def _without(pairs: tuple[Any, ...], *names: str) -> tuple[Any, ...]:
    return tuple(pair for pair in pairs if pair[0] not in names)
