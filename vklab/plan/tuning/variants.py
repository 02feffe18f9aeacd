"""Choose the fastest kernel for a product or convolution on one device.

Each rule is a pure function from a Dispatch to an equivalent one; DISABLE_VARIANTS switches off all
rules but those that a driver's limits require. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.ops import linear, registry
from vklab.plan import block_units
from vklab.plan.tuning import (
    block_rows,
    matrix_attention,
    prepack,
    problems,
    single_rules,
    split_blocks,
    split_sums,
    tiles,
    wide_blocks,
    word_variants,
)
from vklab.plan.tuning.tiles import Choice, Pick, ProductSizes, Tile
from vklab.types import CooperativeMatrix, DeviceInfo, Dispatch

__all__ = ["choose", "rules_for"]

# A kernel's dispatch and the number of parts into which its sums should be cut.
Chosen = tuple[Dispatch, int]
Tuned = Mapping[str, Choice] | None
KernelRule = Callable[[Dispatch, ProductSizes, DeviceInfo, Pick], Chosen | None]

BLOCKS = frozenset({*block_rows.KERNELS, *block_units.KERNELS, "matmul_nbits"})
# Columns of one invocation on a CPU: eight are faster still, but take llvmpipe twice as long to
# compile. It compiles an epilogue once for each column: with more formulas, one column.
CPU_COLUMNS, MOST_FORMULAS = 4, 2
MOST_SUMS = 128  # in float32, which an invocation keeps in registers


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
        if rule := single_rules.RULES.get(dispatch.kernel):
            return rule(dispatch, info)
        if dispatch.kernel in BLOCKS:
            return _blocks(dispatch, info, resident, tuned)
        if dispatch.kernel in word_variants.KERNELS:
            return (word_variants.choose(dispatch, info, tuned),)
    if dispatch.kernel not in ("matmul", "conv"):
        return (dispatch,)
    sizes = _product_sizes(dispatch)
    chosen, measured = _plain(dispatch, sizes, info), ""
    # The rules are for sums in float32 only.
    in_float32 = dict(dispatch.defines).get("ACC", "float") == "float"
    if in_float32 and not settings.get("DISABLE_VARIANTS"):
        laid_out = prepack.along_k(dispatch, sizes[:3], info, resident)
        problem = problems.of(laid_out, sizes) if tuned else None
        wanted = tuned.get(problem) if tuned and problem else None
        found = _as_measured(wanted, laid_out, sizes, info) if wanted else None
        measured = str(problem) if found or (wanted and not wanted[0]) else ""
        pick: Pick = tiles.first if info.is_cpu else tiles.soonest
        expected = (rule(laid_out, sizes, info, pick) for rule in rules_for(info).values())
        chosen = found or next(filter(None, expected))
    made = split_sums.split(*chosen, dispatch, sizes, info)
    return tuple(replace(each, measured=measured) for each in made) if measured else made


def _blocks(
    dispatch: Dispatch, info: DeviceInfo, resident: Collection[str], tuned: Tuned
) -> tuple[Dispatch, ...]:
    """Return a product with weights in blocks by the fastest kernels of a device."""
    *halves, product = wide_blocks.choose(dispatch, info) or (dispatch,)
    if product.kernel == "matmul":
        split = (split_blocks.apply(each, info, resident) for each in halves)
        return (*split, *choose(product, info, resident, tuned))
    units = block_units.of(dispatch, info) or block_rows.choose(dispatch, info)
    return (split_blocks.apply(units, info, resident),)


def _as_measured(
    wanted: Choice, dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo
) -> Chosen | None:
    """Return a product computed as a choice says; None if that is not possible."""
    name, shape, count = wanted
    rule = rules_for(info).get(name)
    made = rule(dispatch, sizes, info, tiles.only(shape, count)) if rule else None
    return (made[0], count) if made else None


def rules_for(info: DeviceInfo, kernel: str = "matmul") -> dict[str, KernelRule]:
    """Return the rules for a device by name, the preferred ones first; the last always applies."""
    if kernel in word_variants.KERNELS:
        return dict(word_variants.RULES)
    if info.is_cpu:
        return {"shared_rows": _shared_rows, "plain": _plain}
    return {"one_row": _one_row, "matrix_product": _matrix_product, "matrix_conv": _matrix_conv,
            "tiled": _tiled, "few_rows": _few_rows, "plain": _plain}  # fmt: skip


def _plain(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick | None = None
) -> Chosen:
    """Keep the kernel that runs on every device."""
    del info, pick
    return dispatch, tiles.parts(math.prod(dispatch.workgroups), sizes[2])


def _product_sizes(dispatch: Dispatch) -> ProductSizes:
    push: dict[str, Any] = dict(dispatch.push)
    if dispatch.kernel == "matmul":
        return push["m"], push["n"], push["k"], push["batches"]
    k = push["in_channels"] * push["kernel_h"] * push["kernel_w"]
    return push["out_channels"], push["out_h"] * push["out_w"], k, push["batches"]


def _shared_rows(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Share the loads of the row operand among the lanes of a subgroup, by shuffles.

    On a CPU device every load of a lane is a separate instruction, which this saves.
    """
    m, n, _, batch = sizes
    smallest = info.limit("minSubgroupSize") or info.subgroup_size
    formulas = dispatch.epilogue.formulas if dispatch.epilogue else ()
    most = CPU_COLUMNS if len(formulas) <= MOST_FORMULAS else 1
    # A generator: sizes are compared up to the first tile that fits (`plan/templates` traces them).
    picked = pick((Tile(rows * blocks, linear.COLUMN_WORKGROUP, 1, rows, columns, 0, 0)
                   for columns in (4, 2, 1) if columns <= most
                   for rows in (8, 4) if rows <= smallest and rows <= m
                   for blocks in (2, 1, 4) if rows * blocks <= m), sizes)  # fmt: skip
    if not picked or "shuffle" not in info.subgroup_operations:
        return None
    rows, columns = picked[0].rows, picked[0].columns
    workgroups, constants = linear.row_blocks(m, n, batch, rows, picked[0].m // rows, columns)
    defines = tuple((name, "1" if name == "SUBGROUP" else v) for name, v in dispatch.defines)
    return replace(dispatch, workgroups=workgroups, constants=constants, defines=defines), 1


def _few_rows(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Compute one row per invocation where larger blocks would leave a GPU idle."""
    del info, pick
    m, n, k, batch = sizes
    if m * n * batch > tiles.UNITS * 1024:
        return None
    workgroups, constants = linear.row_blocks(m, n, batch, 1, 1)
    changed = replace(dispatch, workgroups=workgroups, constants=constants)
    return changed, tiles.parts(math.prod(workgroups), k)


def _one_row(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Use matvec where the left operand is one row: reading B then takes all the time."""
    del info, pick
    m, n, k, batch = sizes
    push = dict(dispatch.push)
    if dispatch.kernel != "matmul" or m != 1 or batch != 1:
        return None
    # Dense along k: one column per workgroup, whose lanes read neighbouring elements.
    columns = 1 if push["b_row"] == 1 and k != 1 else 32
    fours = columns > 1 and prepack.by_fours(dispatch, n)
    names = ("n", "k", "part", "a_column", "b_row", "b_column", "c_column", "alpha", "beta")
    workgroups = registry.grid(-(-n // (4 * columns if fours else columns)))
    changed = replace(
        dispatch,
        kernel="matvec",
        workgroups=workgroups,
        push=tuple((name, push[name]) for name in names),
        constants=(("COLUMNS", columns), ("WORKGROUP", 256 if columns > 1 else 64)),
        defines=(*_without(dispatch.defines, "SUBGROUP", "BATCH_AXES"), ("FOURS", str(int(fours)))),
    )
    return changed, tiles.parts(math.prod(workgroups), k)


def _matrix_product(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Multiply matrices of halves by cooperative matrices."""
    is_taken = dispatch.kernel == "matmul" and _is_half(dispatch)
    loads = _operands(dispatch, 8) if is_taken else None
    made = loads and _on_matrix_units(dispatch, tiles.COOPERATIVE, sizes, info, pick)
    if not loads or not made:
        return None
    changed, tile, parts = made
    return replace(changed, constants=(*changed.constants, *loads[0], _aligned(tile, sizes)),
                   defines=(*changed.defines, ("EIGHTS", str(int(loads[1]))))), parts


def _matrix_conv(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Convolve halves by cooperative matrices."""
    is_taken = dispatch.kernel == "conv" and _is_half(dispatch)
    source = prepack.in_chunks(dispatch, 8) if is_taken else None
    made = source and _on_matrix_units(source, tiles.COOPERATIVE_CONV, sizes, info, pick)
    return (_fixed_window(made[0], dispatch), made[2]) if made else None


def _on_matrix_units(
    dispatch: Dispatch, choices: Sequence[Tile], sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> tuple[Dispatch, Tile, int] | None:
    """Return a product of halves in a tile of cooperative matrices, the tile, and the parts.

    Returns None where the device has no matrix of a usable shape, or the product is too small.
    Source: Vulkan specification, VK_KHR_cooperative_matrix.
    """
    one, lanes = matrix_attention.matrix_shape(info), info.subgroup_size
    if one is None or min(sizes[:2]) < 16 or sizes[2] < 32:
        return None
    fitting = [tile for tile in choices if _suits(tile, one, info)]
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


def _suits(tile: Tile, one: CooperativeMatrix, info: DeviceInfo) -> bool:
    """Tell whether a tile is made of the device's matrices and fits into its memory."""
    lanes = info.subgroup_size
    stored = 4 * one.m * tile.columns * tile.blocks  # results pass through the tiles' memory
    return (
        not (tile.rows % one.m or tile.columns % one.n or tile.k % one.k)
        and tile.rows * tile.columns <= MOST_SUMS * lanes
        and tile.k * min(tile.m, tile.n) // 8 >= tile.blocks * lanes
        and stored <= 2 * tile.k * (tile.m + tile.n)
        and 2 * ((tile.k + 8) * (tile.m + tile.n) + 8 * tile.k)
        <= info.limit("maxComputeSharedMemorySize")
    )


def _tiled(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> Chosen | None:
    """Use shared-memory tiles where a product is large enough to fill some.

    Source: CUDA C++ Programming Guide, section 'Shared Memory'.
    """
    if min(sizes[:2]) < 16 or sizes[2] < 64:
        return None
    packed, loads = None, None
    if dispatch.kernel == "conv":
        packed = prepack.in_chunks(dispatch)
        kernel, choices = ("conv_packed", tiles.PACKED) if packed else ("conv_tiled", tiles.CONV)
    else:
        kernel, choices, loads = "matmul_tiled", tiles.PRODUCT, _operands(dispatch, 4)
        if loads is None:
            return None
    fitting = [each for each in choices
               if 4 * each.k * (each.m + each.n + 8)
               <= info.limit("maxComputeSharedMemorySize")]  # fmt: skip
    picked = pick(fitting, sizes)
    if picked is None:
        return None
    tile, parts = picked
    constants = (("ROWS", tile.rows), ("COLUMNS", tile.columns), ("WORKGROUP", tile.blocks))
    changed = _in_tiles(packed or dispatch, kernel, tile, sizes, constants)
    if changed is None:
        return None
    step = ("TILE_K", str(tile.k))
    if loads is not None:
        changed = replace(changed, constants=(*changed.constants, *loads[0], _aligned(tile, sizes)),
                          defines=(*changed.defines, ("FOURS", str(int(loads[1]))), step))
        return changed, parts
    return _fixed_window(replace(changed, defines=(*changed.defines, step)), dispatch), parts


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


def _operands(
    dispatch: Dispatch, width: int
) -> tuple[tuple[tuple[str, int], ...], bool] | None:
    """Tell along which sides a product's operands are dense, and whether it loads `width` at once.

    Returns None for an operand that is dense along no side.
    """
    push: dict[str, Any] = dict(dispatch.push)
    if 1 not in (push["a_row"], push["a_column"]) or 1 not in (push["b_row"], push["b_column"]):
        return None
    along_k, along_n = push["a_column"] == 1, push["b_column"] == 1
    # Elements are read at once if each group of `width` begins at a multiple of its size.
    steps = (push["a_row"] if along_k else push["a_column"], push["k" if along_k else "m"],
             push["b_row"] if along_n else push["b_column"], push["n" if along_n else "k"],
             *push["a_batch"], *push["b_batch"])  # fmt: skip
    constants = (("A_ALONG_K", int(along_k)), ("B_ALONG_N", int(along_n)))
    return constants, not any(step % width for step in steps)


def _aligned(tile: Tile, sizes: ProductSizes) -> tuple[str, int]:
    sides = zip(sizes[:3], (tile.m, tile.n, tile.k), strict=True)
    return "ALIGNED", int(not any(side % step for side, step in sides))


def _without(pairs: tuple[Any, ...], *names: str) -> tuple[Any, ...]:
    """Return the pairs whose names are not listed."""
    return tuple(pair for pair in pairs if pair[0] not in names)
