"""Choose the matrices of a device that a product can use, and the tiles for them.

Products of float16 and bfloat16 use matrices of their dtype; those of float32 three products of
bfloat16, if the caller asks for `bf16x3`. Visited by lab 08b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab import settings
from vklab.ops import fusable
from vklab.plan.tuning import precision, tiles
from vklab.plan.tuning.tiles import Tile
from vklab.types import CooperativeMatrix, DeviceInfo, Dispatch, Pointwise

__all__ = ["Units", "halves", "of", "suits", "wide"]

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

    def is_full(self, tile: Tile, info: DeviceInfo) -> bool:
        """Tell whether the sums of a tile leave no registers for writing them in fours."""
        is_plain = self.halves == 1 and self.sum_bytes == 4
        return is_plain and tile.rows * tile.columns >= MOST_SUMS * info.subgroup_size


def of(dispatch: Dispatch, info: DeviceInfo) -> Units | None:
    """Return the matrices for a product in the chosen precision; None if the device has none."""
    defines, wanted = dict(dispatch.defines), precision.chosen()
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
    lanes, one = info.subgroup_size, units.one
    # Results pass through the tiles' memory.
    stored = units.sum_bytes * one.m * tile.columns * tile.blocks
    pairs = units.halves
    return (
        not (tile.rows % one.m or tile.columns % one.n or tile.k % one.k)
        and tile.rows * tile.columns * units.sum_bytes <= 4 * MOST_SUMS * lanes
        and tile.k * min(tile.m, tile.n) // 8 >= tile.blocks * lanes
        and stored <= 2 * tile.k * (tile.m + tile.n) * pairs
        and 2 * ((tile.k + 8) * (tile.m + tile.n) + 8 * tile.k) * pairs
        <= info.limit("maxComputeSharedMemorySize")
        and tile.blocks * lanes <= info.limit("maxComputeWorkGroupInvocations")
    )


def wide(dispatch: Dispatch, n: int, is_full: bool = False) -> tuple[str, str]:
    """Return the define by which a kernel writes four columns at once, where that is possible.

    Args:
        dispatch: the product.
        n: its columns.
        is_full: whether sums take all registers, so that writing fours would cost more.
    """
    narrow = is_full or n % 4 or (dispatch.epilogue and _in_ones(dispatch.epilogue))
    return "WIDE_Y", str(int(not narrow))


def _in_ones(formula: Pointwise) -> bool:
    """Tell whether a fused formula is applied to one element after the other."""
    is_off = "fours" in settings.names("DISABLE_PASSES")
    return is_off or not fusable.in_fours(formula)
