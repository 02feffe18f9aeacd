"""Choose attention of one step over a cache that keeps queries and sums in registers, for GPUs.

Source: Dao et al., "Flash-Decoding", 2023
"""

from __future__ import annotations

from dataclasses import replace

from vklab import settings
from vklab.plan import block_units
from vklab.types import DeviceInfo, Dispatch

PIECE = 8  # elements of a row that an invocation has
MOST_QUERIES = 4  # of a workgroup
# Invocations of a workgroup, and keys that each of its streams reads at once; the fewest keys of a
# part, if a workgroup does not read more at once; and workgroups in all. On an H200 (32 layers of
# 8B with short products, us a token after 8, 200, 1,000 and 4,096): 1,149, 1,210, 1,240, 1,390;
# with at least 256 keys a part 1,145, 1,247, 1,342, 1,389; with 8 keys at once 1,183, 1,240, 1,321,
# 1,406; with 512 invocations 1,213 to 1,556.
WORKGROUP, OWN, LEAST, GROUPS = 256, 4, 64, 132
SHARE = 0.7  # of shared memory that sums may take


def is_able(info: DeviceInfo) -> bool:
    """Tell whether a device has subgroups that shuffle, of one size; not if switched off."""
    has_one_size = info.limit("minSubgroupSize") == info.subgroup_size
    shuffles = has_one_size and info.subgroup_operations >= block_units.OPERATIONS
    return shuffles and not info.is_cpu and not settings.get("DISABLE_STEP_ATTENTION")


def choose(dispatch: Dispatch, info: DeviceInfo) -> Dispatch | None:
    """Return an attention of one step with its queries and sums in registers.

    Args:
        dispatch: the dispatch of cache_attention.
        info: the device.

    Returns None for several steps, a cache of float32, and heads that do not divide a subgroup.
    """
    push, defines = dispatch.push_values, dispatch.define_values
    pieces, rest = divmod(push["size"], PIECE)
    least = min(MOST_QUERIES, 1 << (push["group"] - 1).bit_length())
    is_whole = rest == 0 and pieces & pieces - 1 == 0 and least <= pieces <= info.subgroup_size
    is_known = push["steps"] == 1 and defines["FORMAT"] in ("8", "16") and defines["PARTS"] != "1"
    if not is_known or not is_whole or not is_able(info):
        return None
    tiles = -(-push["group"] // MOST_QUERIES)
    rows = 1 << (-(-push["group"] // tiles) - 1).bit_length()
    tiles = -(-push["group"] // rows)
    _, _, heads = dispatch.workgroups
    parts = max(1, min(push["parts"], GROUPS // (tiles * heads)))
    lanes = min(WORKGROUP, info.limit("maxComputeWorkGroupInvocations"))
    each = 4 * rows * push["size"]  # bytes of shared memory for the sums of a subgroup
    while lanes // info.subgroup_size * each > info.limit("maxComputeSharedMemorySize") * SHARE:
        lanes //= 2
    waves = max(lanes // info.subgroup_size, 1)
    lanes = waves * info.subgroup_size
    constants = {
        "WORKGROUP": lanes,
        "ROWS": rows,
        "PIECES": pieces,
        "SUBGROUP": info.subgroup_size,
        "OWN": OWN,
        "FOLD": max(waves * rows * push["size"], 4 * lanes),
    }
    push |= {"parts": parts, "least": _least(lanes, pieces), "tiles": tiles}
    return replace(
        dispatch,
        kernel="cache_attention_registers",
        push=tuple(push.items()),
        constants=tuple(constants.items()),
        workgroups=(parts, tiles, heads),
    )


def _least(lanes: int, pieces: int) -> int:
    """Return the fewest keys of a part: no fewer than a workgroup reads at once.

    Args:
        lanes: the invocations of a workgroup.
        pieces: those that share a key.
    """
    return max(LEAST, OWN * lanes // pieces)
