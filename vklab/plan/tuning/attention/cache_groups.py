"""Choose kernels and sizes of a language model's small dispatches, mostly for CPU devices.

There a barrier saves and restores the registers of every invocation.
"""

from __future__ import annotations

from dataclasses import replace

from vklab import settings
from vklab.ops import cache, registry
from vklab.plan.tuning.attention import cache_registers
from vklab.types import DeviceInfo, Dispatch

SLICES = 64  # the most workgroups that make a histogram of one sequence's logits
KERNELS = ("cache_attention", "cache_combine", "sample_draw")
# The fewest invocations of a workgroup, the keys of a tile, and the queries of a workgroup if they
# are many, and at most.
LANES, KEYS, QUERIES, MOST_QUERIES = 8, 8, 2, 3


def can_share(info: DeviceInfo) -> bool:
    """Tell whether a workgroup may read what others of the same dispatch have written.

    Metal has no barrier for that memory. DISABLE_COUNTED_PARTS switches it off.
    """
    return "VK_KHR_portability_subset" not in info.extensions and not settings.get(
        "DISABLE_COUNTED_PARTS"
    )


def choose(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Return the dispatch with workgroups that a CPU runs fast.

    Measured on llvmpipe with 9 heads of 64 elements: 32 queries 46 times, one query 2.5 times the
    speed.
    """
    if dispatch.kernel == "sample_draw" and can_share(info):
        push = dispatch.push_values
        push["slices"] = min(push["runs"], SLICES)
        count = push["sequences"] * push["slices"]
        dispatch = replace(dispatch, push=tuple(push.items()), workgroups=registry.grid(count))
    if dispatch.kernel == "cache_attention" and (made := cache_registers.choose(dispatch, info)):
        return made
    if not info.is_cpu:
        return dispatch
    if dispatch.kernel == "sample_draw":  # whose loops it compiles for seconds
        return replace(dispatch, constants=(*dispatch.constants, ("AHEAD", 1)))
    push, constants = dispatch.push_values, dispatch.constant_values
    queries = push["steps"] * push["group"]
    tile = queries if queries <= MOST_QUERIES else QUERIES
    if dispatch.kernel == "cache_combine":
        return replace(dispatch, push=tuple((push | {"tile": tile}).items()))
    parts, tiles, heads = dispatch.workgroups
    counts_parts = dispatch.define_values["PARTS"] == "2"
    if counts_parts and -(-queries // tile) * heads > cache.ENOUGH_GROUPS:
        tile = int(constants["ROWS"])  # there are no more counters
    tiles = -(-queries // tile)
    bits = int(dispatch.define_values["FORMAT"])
    pieces = int(constants["FOURS"]) * (2 if bits == 8 else 1)
    if counts_parts:  # the last workgroup adds up four elements an invocation
        pieces = max(pieces, int(constants["FOURS"]) * 32 // bits)
    lanes = max(LANES, 1 << (pieces - 1).bit_length())
    fold = max(KEYS * int(constants["LANES"]) * tile, lanes * min(8, 128 // bits))
    constants |= {"WORKGROUP": lanes, "ROWS": tile, "KEYS": KEYS, "FOLD": fold}
    return replace(
        dispatch,
        constants=tuple(constants.items()),
        workgroups=(parts, tiles, heads),
        push=tuple((push | {"tiles": tiles}).items()),
    )
