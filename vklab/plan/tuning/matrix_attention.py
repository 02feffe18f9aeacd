"""Choose the kernel of matrix units for attention, and the matrices that kernels can use.

Visited by lab 19.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.plan.tuning import cache_groups, tiles
from vklab.types import CooperativeMatrix, DeviceInfo, Dispatch

__all__ = ["KERNELS", "choose", "matrix_shape"]

KERNELS = ("attention", *cache_groups.KERNELS)
# Columns of values of which an invocation keeps sums in registers.
MOST_VALUES = 128


def choose(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Return attention of halves by cooperative matrices, where heads divide into them.

    Attention over a cache has smaller workgroups on a CPU device.
    Source: Dao et al. 2022, "FlashAttention"
    """
    if dispatch.kernel in cache_groups.KERNELS:
        return cache_groups.choose(dispatch, info)
    one, lanes = matrix_shape(info), info.subgroup_size
    if one is None or dict(dispatch.defines).get("T") != "half" or lanes % one.m:
        return dispatch
    push, fixed = dict[str, Any](dispatch.push), dict(dispatch.constants)
    size, value_size = int(fixed["SIZE"]), int(fixed["VALUE_SIZE"])
    steps = (push["q_row"], push["k_row"], push["v_row"],
             *push["q_batch"], *push["k_batch"], *push["v_batch"])  # fmt: skip
    if size % one.k or value_size % one.n or value_size > MOST_VALUES or any(s % 8 for s in steps):
        return dispatch
    for count, keys in tiles.ATTENTION:
        rows = count * one.m
        halves = keys * (size + value_size + 16) + rows * (size + keys + 16)
        used = 2 * halves + 4 * (rows * (keys + 5) + count * lanes)
        if used <= info.limit("maxComputeSharedMemorySize") and not keys % max(one.n, one.k):
            break
    else:
        return dispatch
    _, *grid = dispatch.workgroups
    constants = {"WORKGROUP": count * lanes, "KEYS": keys, "SIZE": size, "VALUE_SIZE": value_size,
                 "SUBGROUP": lanes}  # fmt: skip
    shape = (("MATRIX_M", one.m), ("MATRIX_N", one.n), ("MATRIX_K", one.k))
    return replace(
        dispatch, kernel="attention_cooperative", workgroups=(-(-push["queries"] // rows), *grid),
        constants=tuple(constants.items()),
        defines=(*dispatch.defines, *((name, str(value)) for name, value in shape)),
    )  # fmt: skip


def matrix_shape(info: DeviceInfo) -> CooperativeMatrix | None:
    """Return the largest matrix of halves with sums in float32 that matmul_cooperative can use."""
    wanted = ("float16", "float16", "float32", "float32")
    usable = [each for each in info.cooperative_matrices
              if (each.a, each.b, each.c, each.result) == wanted
              and not any(side % 8 for side in (each.m, each.n, each.k))]  # fmt: skip
    return max(usable, key=lambda each: each.m * each.n * each.k, default=None)
