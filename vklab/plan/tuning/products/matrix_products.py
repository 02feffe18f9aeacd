"""Choose the matrices of a device that a product can use, and the tiles for them.

Products of float16 and bfloat16 use matrices of their dtype; those of float32 three products of
bfloat16, if the caller asks for `bf16x3`. Visited by lab 08b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.base import catalogue
from vklab.ops import dtypes
from vklab.plan.tuning import precision, tiles
from vklab.plan.tuning.tiles import Tile
from vklab.types import CooperativeMatrix, DeviceInfo, Dispatch, Pointwise, StridedView

# Sums of 32 bits that an invocation keeps in registers.
MOST_SUMS = 128


@dataclass(frozen=True)
class Units:
    """Matrices of a device for the operands of one product.

    Attributes:
        one: the shape of one instruction.
        table: the tiles to choose from.
        width: elements that an invocation reads at once.
        defines: what the kernel needs to know beside.
        halves: matrices that each operand is split into.
        sum_bytes: bytes of one sum.
    """

    one: CooperativeMatrix
    table: Sequence[Tile]
    width: int = 8
    defines: tuple[tuple[str, str], ...] = ()
    halves: int = 1
    sum_bytes: int = 4


def of(dispatch: Dispatch, info: DeviceInfo) -> Units | None:
    """Return the matrices for a product in the chosen precision; None if the device has none."""
    defines, wanted = dispatch.define_values, precision.chosen()
    stored, loaded = defines.get("T", ""), defines.get("T_LOAD", "")
    if stored == "half":
        one = precision.matrix(info, precision.HALF_SUMS) if wanted == "half-sums" else None
        if one is not None:
            return Units(one, tiles.HALF_SUMS, defines=(("SUM", "half"),), sum_bytes=2)
        one = precision.matrix(info, precision.HALF)
        return Units(one, tiles.COOPERATIVE) if one else None
    one = precision.matrix(info, precision.SPLIT)
    if one and loaded == "load_bfloat16":
        return Units(one, tiles.COOPERATIVE, defines=(("UNIT", "BFloat16"),))
    if one and stored == "float" and wanted == "bf16x3":
        split = (("UNIT", "BFloat16"), ("SPLIT", "1"))
        return Units(one, tiles.SPLIT, 4, split, halves=2)
    return None


def halves(info: DeviceInfo, choices: Sequence[Tile]) -> Units | None:
    """Return the matrices of halves with sums in float32, for tiles; None if there are none."""
    one = precision.matrix(info, precision.HALF)
    return Units(one, choices) if one else None


def suits(tile: Tile, units: Units, info: DeviceInfo) -> bool:
    """Tell whether a tile is made of the device's matrices and fits into its memory.

    Args:
        tile: the tile.
        units: the matrices.
        info: the device.
    """
    lanes, one, pairs = info.subgroup_size, units.one, units.halves
    # Results pass through the tiles' memory, in lines that are 32 bytes longer than needed.
    down = tile.m // tile.rows * one.m
    stored = max(
        down * (tile.n * units.sum_bytes + 32),
        tile.blocks * one.m * (tile.columns * units.sum_bytes + 32),
    )
    operands = 2 * ((tile.k + 8) * (tile.m + tile.n) + 8 * tile.k) * pairs
    return (
        not (tile.rows % one.m or tile.columns % one.n or tile.k % one.k)
        and tile.rows * tile.columns * units.sum_bytes <= 4 * MOST_SUMS * lanes
        and tile.k * min(tile.m, tile.n) // 8 >= tile.blocks * lanes
        and max(stored, operands) <= info.limit("maxComputeSharedMemorySize")
        and tile.blocks * lanes <= info.limit("maxComputeWorkGroupInvocations")
    )


def wide(dispatch: Dispatch, n: int, fused: bool = False) -> tuple[str, str]:
    """Return the define by which a kernel writes four columns at once, where that is possible.

    Args:
        dispatch: the product.
        n: its columns.
        fused: whether the kernel can hand four results at once to its epilogue.
    """
    work = dispatch.epilogue
    fused = fused and not catalogue.is_off("fours")
    takes = work is None or fused and _in_fours(work)
    return "WIDE_Y", str(int(takes and not n % 4))


def _in_fours(work: Pointwise) -> bool:
    """Tell whether four neighbours of a row are neighbours in all operands, or one element."""
    if not work.shape or work.shape[-1] % 4 or (work.target and not _is_row(work.target)):
        return False
    return all(
        operand.dtype == operand.info.dtype
        and operand.dtype in dtypes.FLOATS
        and (_is_row(operand.view) or not operand.view.strides[-1])
        for operand in work.operands[1:]
    )


def _is_row(view: StridedView) -> bool:
    """Tell whether a view has rows that begin at multiples of four."""
    *others, last = view.strides
    return last == 1 and not any(start % 4 for start in (view.start, *others))
