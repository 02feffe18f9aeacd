"""Choose matrix units for attention of many steps over a cache of float16 or int8.

Queries are rounded to halves there, as the keys in the cache are. DISABLE_PASSES=matrix_cache and
PRECISION=exact keep the kernel for any device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vklab import settings
from vklab.base import catalogue
from vklab.types import CooperativeMatrix, DeviceInfo, Dispatch

# The most elements of a head, subgroups of a workgroup, keys of a step, and blocks of rows of a
# subgroup; best first.
SHAPES = ((64, 4, 64, 1), (128, 8, 64, 1), (128, 4, 32, 1))
# Workgroups from which on whole rows keep a GPU busy; elements of a head are multiples of PART.
FEWEST_GROUPS, PART = 32, 32


def choose(
    dispatch: Dispatch, info: DeviceInfo, one: CooperativeMatrix | None,
    layout: Sequence[tuple[str, int]],
) -> Dispatch | None:  # fmt: skip
    """Return attention over a cache by matrix units; None where another kernel should compute it.

    Args:
        dispatch: attention over a cache.
        info: the device.
        one: its matrices of halves.
        layout: which elements of a matrix share a row, as defines; empty where it is not known.

    Source: Dao et al. 2022, "FlashAttention"
    """
    if (
        dispatch.kernel != "cache_attention"
        or one is None
        or not layout
        or (catalogue.is_off("matrix_cache") or settings.get("PRECISION") == "exact")
    ):
        return None
    push, defines = dispatch.push_values, dispatch.define_values
    kinds = {name: defines[name] for name in ("T", "PARTS", "APPENDS")}
    size, rows = push["size"], push["steps"] * push["group"]
    whole = not size % PART and not push["turned"] % PART
    is_narrow = defines["FORMAT"] in ("8", "16")
    if kinds != {"T": "float", "PARTS": "0", "APPENDS": "0"} or not whole or not is_narrow:
        return None
    for most, count, keys, blocks in SHAPES:
        line, queries = size // 8 + 1, count * blocks * one.m
        room = max(queries * line, 2 * keys * line, count * one.m * PART // 4)
        groups = -(-rows // queries), dispatch.workgroups[2], 1
        fits = 16 * room + 4 * one.m * one.n <= info.limit("maxComputeSharedMemorySize")
        if fits and size <= most and groups[0] * groups[1] >= FEWEST_GROUPS:
            break
    else:
        return None
    lanes = info.subgroup_size
    names = ("steps", "group", "heads", "context", "turned", "interleaved", "cached", "scale")
    kept = tuple((name, defines[name]) for name in ("Y", "Y_STORE", "FORMAT", "ROTARY"))
    shape = (("MATRIX_M", one.m), ("MATRIX_N", one.n), ("MATRIX_K", one.k), *layout)
    return replace(
        dispatch,
        kernel="cache_attention_matrices",
        workgroups=groups,
        push=tuple((name, push[name]) for name in names),
        defines=(*kept, *((name, str(value)) for name, value in shape)),
        constants=(
            ("WORKGROUP", count * lanes),
            ("KEYS", keys),
            ("SIZE", size),
            ("SUBGROUP", lanes),
            ("ROWS", blocks),
            ("TILES", room),
        ),
    )
