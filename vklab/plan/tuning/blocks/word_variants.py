"""Choose how conv_words and depthwise_words sum int8 on one device.

Each choice is an equivalent dispatch. DISABLE_INTEGER_DOT switches dot products off, and with them
matrix units. Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.base import catalogue, stages
from vklab.plan.tuning import problems, tiles
from vklab.plan.tuning.blocks import word_tiles
from vklab.plan.tuning.tiles import Choice, Chosen, ProductTask
from vklab.types import DeviceInfo, Dispatch

# Pixels up to which invocations share a pixel, and each computes one word of channels.
FEW_PIXELS, FEW_COLUMNS = 8, 4
# Invocations of a workgroup times columns of each.
PIXELS = 64
# Columns of one invocation, by kernel: on a CPU, and on a GPU.
CPU_COLUMNS = {"conv_words": 4, "depthwise_words": 2}
GPU_COLUMNS = {"conv_words": 2, "depthwise_words": 1}
GPU_BLOCKS = (4, 2, 1)


def choose(
    dispatch: Dispatch, info: DeviceInfo, resident: Collection[str] = (),
    tuned: Mapping[str, Choice] | None = None,
) -> tuple[Dispatch, ...]:  # fmt: skip
    """Return the fastest equivalent of a dispatch of conv_words or depthwise_words on a device.

    Args:
        dispatch: one dispatch of a plan.
        info: the device.
        resident: not read: no layout of these weights is another one on the device.
        tuned: the choices that were measured on this device, by `problems.Problem`.
    """
    if info.is_cpu or dispatch.kernel == "depthwise_words":
        return (_untiled(dispatch, info),)
    sizes = word_tiles.sizes_of(dispatch)
    problem = problems.of(dispatch, sizes) if tuned else None
    wanted = tuned.get(problem) if tuned and problem else None
    rules = {rule.name: rule for rule in catalogue.enabled(stages.WORDS, info.is_cpu)}
    rule = rules.get(wanted[0]) if wanted else None
    product = ProductTask(dispatch, sizes, info, tiles.whole)
    found = rule(product._replace(pick=tiles.only(*wanted[1:]))) if rule and wanted else None
    chosen, _ = found or next(filter(None, (each(product) for each in rules.values())))
    is_measured = found or (wanted and not wanted[0])
    return (replace(chosen, measured=str(problem)) if is_measured else chosen,)


def untiled(given: ProductTask) -> Chosen:
    """Keep the kernel without tiles."""
    return _untiled(given.dispatch, given.info), 1


def _untiled(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Return conv_words or depthwise_words with the sizes that suit a device."""
    push = dispatch.push_values
    pixels = push["out_h"] * push["out_w"]
    columns = (CPU_COLUMNS if info.is_cpu else GPU_COLUMNS)[dispatch.kernel]
    if dispatch.kernel == "depthwise_words":
        return _sized(dispatch, pixels, columns, ())
    if pixels <= FEW_PIXELS:
        return _few_pixels(dispatch, pixels, info)
    dotted = _dotted(dispatch, info)
    lanes = _sharing_lanes(push, info) if info.is_cpu and dotted is dispatch else 0
    if lanes:
        blocks = 2 if _fits(push, 2 * lanes) else 1
        return _sized(_with(dispatch, SUBGROUP="1"), pixels, columns, (lanes, blocks))
    blocks = next(count for count in GPU_BLOCKS if count == 1 or _fits(push, 4 * count))
    return _sized(dotted, pixels, columns, (4, blocks))


def _fits(push: dict[str, Any], rows: int) -> bool:
    """Tell whether a block of filters is full, and reads the same channels."""
    grouped = push["group_filters"] != push["filters"]
    return rows <= push["filters"] and not (grouped and push["group_filters"] % rows)


def _sharing_lanes(push: dict[str, Any], info: DeviceInfo) -> int:
    """Return the lanes of a subgroup that share weights, which saves a CPU most of its loads."""
    smallest = info.limit("minSubgroupSize") or info.subgroup_size
    if "shuffle" not in info.subgroup_operations:
        return 0
    return next((n for n in (8, 4) if n <= smallest and _fits(push, n)), 0)


def _dotted(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Use dot products of four bytes, except on llvmpipe, which computes them byte by byte."""
    lacks = "shaderIntegerDotProduct" not in info.features
    if lacks or "llvmpipe" in info.driver or settings.get("DISABLE_INTEGER_DOT"):
        return dispatch
    return _with(dispatch, DOT="1", LONG="0")


def _few_pixels(dispatch: Dispatch, pixels: int, info: DeviceInfo) -> Dispatch:
    """Give each word of channels an invocation, where pixels alone would leave lanes idle."""
    size = info.subgroup_size if info.is_cpu else PIXELS
    words, images = dispatch.workgroups[1:]
    columns = min(pixels, FEW_COLUMNS)  # weights, once read, serve all
    constants = (("LANES", 4), ("BLOCKS", 1), ("WORKGROUP", size), ("COLUMNS", columns))
    return replace(
        _with(_dotted(dispatch, info), ALONG="1"),
        constants=constants,
        workgroups=(-(-words // size), -(-pixels // columns), images),
    )


def _sized(dispatch: Dispatch, pixels: int, columns: int, rows: tuple[int, ...]) -> Dispatch:
    """Return a dispatch with its workgroups; `rows` are the lanes and blocks of filters."""
    words, images = dispatch.workgroups[1:]
    each = rows[0] * rows[1] // 4 if rows else 1
    constants = (
        *zip(("LANES", "BLOCKS"), rows, strict=False),
        ("WORKGROUP", PIXELS // columns),
        ("COLUMNS", columns),
    )
    return replace(
        dispatch, constants=constants, workgroups=(-(-pixels // PIXELS), -(-words // each), images)
    )


def _with(dispatch: Dispatch, **values: str) -> Dispatch:
    defines = tuple((name, values.get(name, value)) for name, value in dispatch.defines)
    return replace(dispatch, defines=defines)
