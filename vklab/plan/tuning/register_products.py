"""Multiply halves by constant weights with operands in registers, where matrices' order is known.

Short products spend their time waiting: weights packed as invocations hold them arrive without a
detour through shared memory, several steps at once. Visited by lab 08b.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.plan.tuning import matrix_products, precision, prepack, tiles
from vklab.plan.tuning.tiles import Pick, ProductSizes, Tile
from vklab.types import DeviceInfo, Dispatch

__all__ = ["registers"]

NVIDIA, LANES, SIDE = 0x10DE, 32, 16
# Terms of a step: two matrices.
STEP = 32


def registers(
    dispatch: Dispatch, sizes: ProductSizes, info: DeviceInfo, pick: Pick
) -> tuple[Dispatch, int] | None:
    """Multiply by weights that are packed in the order of the registers of matrix units.

    Args:
        dispatch: a product.
        sizes: m, n, k and the batch count.
        info: the device.
        pick: returns one of the tiles that fit, and the number of parts.
    """
    if not _is_known(info) or not _is_suited(dispatch, sizes):
        return None
    push = dict[str, Any](dispatch.push)
    m, n, k, _ = sizes
    weight = dict(dispatch.reads)["b_buffer"]
    packed = prepack.by_lane(weight, (k, n), push["b_column"] == 1)
    picked = pick(_fitting(info), sizes) if packed else None
    if packed is None or picked is None:
        return None
    tile, parts = picked
    if pick is tiles.soonest and not _is_sooner(tile, parts, sizes):
        return None
    reads = ((name, packed if name == "b_buffer" else read) for name, read in dispatch.reads)
    given = ("m", "n", "k", "part", "a_row", "c_row", "c_column", "alpha", "beta")
    kept = tuple(pair for pair in dispatch.defines if pair[0] not in ("SUBGROUP", "BATCH_AXES"))
    return replace(
        dispatch, kernel="matmul_registers", reads=tuple(reads),
        workgroups=(-(-n // tile.n), -(-m // tile.m), 1),
        push=tuple((name, push[name]) for name in given),
        constants=(("TILE_M", tile.m), ("TILE_N", tile.n), ("ROWS", tile.rows // SIDE),
                   ("COLUMNS", tile.columns // SIDE), ("SLICES", tile.slices),
                   ("WORKGROUP", tile.blocks * tile.slices * LANES)),
        defines=(*kept, ("DEPTH", str(tile.depth)), ("WHOLE", str(int(not k % STEP))),
                 ("WIDE_Y", "1")),
    ), parts  # fmt: skip


def _is_known(info: DeviceInfo) -> bool:
    """Tell whether it is known which elements of a matrix an invocation has (H200, driver 580)."""
    one = precision.matrix(info, precision.HALF)
    shape = (one.m, one.n, one.k) if one else ()
    return (info.vendor_id, info.subgroup_size, shape) == (NVIDIA, LANES, (SIDE, SIDE, SIDE))


def _is_suited(dispatch: Dispatch, sizes: ProductSizes) -> bool:
    """Tell whether a product has one large enough weight of halves, and operands in eights."""
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    if dispatch.kernel != "matmul" or defines["T"] != "half" or precision.chosen():
        return False
    if "registers" in settings.names("DISABLE_PASSES"):
        return False
    m, n, k, batches = sizes
    steps = ((n, 1), (-(-n // 8) * 8, 1), (1, k))  # the second: in padded rows
    dense = push["a_column"] == 1 and (push["b_row"], push["b_column"]) in steps
    in_fours = matrix_products.wide(dispatch, n, fused=True) == ("WIDE_Y", "1")
    return (
        dense and in_fours and batches == 1 and push["start"] == 0
        and min(m, n) >= SIDE and k >= STEP and not k % 8 and not push["a_row"] % 8
    )  # fmt: skip


def _fitting(info: DeviceInfo) -> list[Tile]:
    room, lanes = (info.limit(name) for name in
                   ("maxComputeSharedMemorySize", "maxComputeWorkGroupInvocations"))  # fmt: skip
    return [each for each in tiles.REGISTERS
            if each.blocks * each.slices * LANES <= lanes
            and each.slices * (each.m // each.rows * SIDE) * (each.n + 8) * 4 <= room]  # fmt: skip


def _is_sooner(tile: Tile, parts: int, sizes: ProductSizes) -> bool:
    """Tell whether a tile takes less time than one that passes through shared memory."""
    other = tiles.expected_ns(*tiles.soonest(tiles.COOPERATIVE, sizes), sizes)
    return tiles.expected_ns(tile, parts, sizes) < other
