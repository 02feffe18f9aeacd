"""Choose the kernel of matrix units for attention, and the matrices that kernels can use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.base import catalogue
from vklab.plan.tuning import precision
from vklab.plan.tuning.attention import cache_groups, cache_matrices
from vklab.plan.tuning.products import matrix_products
from vklab.types import CooperativeMatrix, DeviceInfo, Dispatch

# Columns of values of which an invocation keeps sums in registers.
MOST_VALUES = 128
# Columns of results of all subgroups that attention_direct keeps in shared memory at a time.
PASS = 256
# Which elements of a matrix of 16 x 16 an invocation of NVIDIA's drivers has (H200, driver 580):
# those whose numbers differ in these bits, and lanes that differ in these bits, are of one row.
LAYOUT = (("SAME_ELEMENTS", 3), ("SAME_LANES", 3))
# Kernel attention_cooperative: subgroups of a workgroup, and keys of a step; best first.
ATTENTION: tuple[tuple[int, int], ...] = ((4, 32), (2, 32), (1, 32))
# Kernel attention_registers: the most elements of a row of keys or values, the fewest queries,
# subgroups of a workgroup, keys of a step, and blocks of rows of a subgroup; best first.
ATTENTION_REGISTERS: tuple[tuple[int, int, int, int, int], ...] = (
    (64, 512, 4, 32, 2),
    (64, 0, 4, 32, 1),
    (128, 0, 8, 64, 1),
    (128, 0, 4, 32, 1),
    (128, 0, 1, 32, 1),
)
# Kernel attention_direct: the most elements of a row of keys or values, the most keys, subgroups of
# a workgroup, and blocks of 16 keys of a step; best first.
ATTENTION_DIRECT: tuple[tuple[int, int, int, int], ...] = (
    (64, 128, 4, 2),
    (64, 256, 4, 4),
    (64, 512, 8, 2),
    (64, 1024, 4, 2),
    (128, 256, 4, 2),
)


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return attention by the fastest kernel of a device."""
    return (_choose(dispatch, info),)


def _choose(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Return attention of halves by cooperative matrices, where heads divide into them.

    Attention over a cache has smaller workgroups on a CPU device.
    Source: Dao et al. 2022, "FlashAttention"
    """
    one, lanes = precision.matrix(info, precision.HALF), info.subgroup_size
    if dispatch.kernel in cache_groups.KERNELS:
        layout = _layout(info)
        by_matrices = cache_matrices.choose(dispatch, info, one, layout)
        return by_matrices or cache_groups.choose(dispatch, info)
    if one is None or dispatch.define_values.get("T") != "half" or lanes % one.m:
        return dispatch
    push, fixed = dispatch.push_values, dispatch.constant_values
    size, value_size = int(fixed["SIZE"]), int(fixed["VALUE_SIZE"])
    steps = (
        push["q_row"],
        push["k_row"],
        push["v_row"],
        *push["q_batch"],
        *push["k_batch"],
        *push["v_batch"],
    )
    if size % one.k or value_size % one.n or value_size > MOST_VALUES or any(s % 8 for s in steps):
        return dispatch
    layout = _layout(info)
    if layout and (direct := _direct(dispatch, push, (size, value_size), info)):
        return direct
    made = _in_registers(push, size, value_size, info) if layout else None
    made = made or through_memory(one, size, value_size, info)
    if made is None:
        return dispatch
    (count, keys, rows, *room), (_, *grid) = made, dispatch.workgroups
    constants = {
        "WORKGROUP": count * lanes,
        "KEYS": keys,
        "SIZE": size,
        "VALUE_SIZE": value_size,
        "SUBGROUP": lanes,
    }
    shape = [("MATRIX_M", one.m), ("MATRIX_N", one.n), ("MATRIX_K", one.k)]
    if room:
        constants |= {"ROWS": rows, "TILES": room[0]}
        shape += layout
    return replace(
        dispatch,
        kernel="attention_registers" if room else "attention_cooperative",
        workgroups=(-(-push["queries"] // (count * rows * one.m)), *grid),
        constants=tuple(constants.items()),
        defines=(*dispatch.defines, *((name, str(value)) for name, value in shape)),
    )


def _direct(
    dispatch: Dispatch, push: dict[str, Any], sizes: tuple[int, int], info: DeviceInfo
) -> Dispatch | None:
    """Return attention whose subgroups read keys and values straight from memory.

    Returns None for many keys, which workgroups read once for all of their queries.

    Args:
        dispatch: attention by the kernel that runs everywhere.
        push: its push constants.
        sizes: the elements of a row of keys, and of values.
        info: the device.
    """
    size, value_size = sizes
    room = info.limit("maxComputeSharedMemorySize")
    fitting = (
        each
        for each in ATTENTION_DIRECT
        if max(sizes) <= each[0]
        and push["columns"] <= each[1]
        and not (size % 32 or value_size % 64)
        and direct_bytes(each[2], value_size) <= room
    )
    found = next(fitting, None)
    if found is None or catalogue.is_off("direct"):
        return None
    constants = {
        "WORKGROUP": 32 * found[2],
        "BLOCKS": found[3],
        "SIZE": size,
        "VALUE_SIZE": value_size,
    }
    return replace(
        dispatch,
        kernel="attention_direct",
        constants=tuple(constants.items()),
        workgroups=(-(-push["queries"] // 16), *dispatch.workgroups[1:]),
        defines=(*dispatch.defines, matrix_products.wide(dispatch, value_size, fused=True)),
    )


def direct_bytes(subgroups: int, value_size: int) -> int:
    """Return the shared memory of a workgroup of attention_direct: results, rows, and a check."""
    passes = -(-subgroups * value_size // PASS)
    return 64 * subgroups * value_size // passes + 12 * 16 * subgroups + 6 * 16 * 16


def _layout(info: DeviceInfo) -> list[tuple[str, int]]:
    """Return which elements of a matrix share a row, as defines; [] where that is not known."""
    is_known = precision.has_known_order(info) and "shuffle" in info.subgroup_operations
    return list(LAYOUT) if is_known else []


def _in_registers(
    push: dict[str, Any], size: int, value_size: int, info: DeviceInfo
) -> tuple[int, ...] | None:
    """Return subgroups, keys of a step, blocks of rows, and pieces of 16 bytes of shared memory."""
    for most, fewest, count, keys, rows in ATTENTION_REGISTERS:
        lines = size // 8 + 1, value_size // 8 + 1
        room = max(count * rows * 16 * lines[0], keys * sum(lines), count * 128)
        fits = 16 * room + 1024 <= info.limit("maxComputeSharedMemorySize")
        if fits and max(size, value_size) <= most and push["queries"] >= fewest:
            return count, keys, rows, room
    return None


def through_memory(
    one: CooperativeMatrix, size: int, value_size: int, info: DeviceInfo
) -> tuple[int, int, int] | None:
    """Return the subgroups, the keys of a step, and 1, for scores that pass through memory.

    Args:
        one: the matrices of one instruction.
        size: the elements of a row of keys.
        value_size: the elements of a row of values.
        info: the device.
    """
    lanes = info.subgroup_size
    for count, keys in ATTENTION:
        rows = count * one.m
        halves = keys * (size + value_size + 16) + rows * (size + keys + 16)
        used = 2 * halves + 4 * (rows * (keys + 5) + count * lanes)
        if used <= info.limit("maxComputeSharedMemorySize") and not keys % max(one.n, one.k):
            return count, keys, 1
    return None
