"""Choose how workgroups share a product of a few rows with weights in blocks.

A rule chooses by both sides of the weights what was fastest on an H200; `vklab tune` measures on
the device that is there. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from vklab.plan import block_units
from vklab.plan.block_units import Sizes
from vklab.plan.tuning import problems
from vklab.plan.tuning.blocks import block_rows, split_blocks
from vklab.plan.tuning.tiles import Choice
from vklab.types import DeviceInfo, Dispatch

# The rule of measured choices: sizes of a workgroup.
RULE = "rows_of_blocks"
# Invocations of a workgroup, rows at once, their repetitions and steps fetched ahead.
WORKGROUPS, ROWS, TILES, DEPTHS = (1024, 512, 256, 128), (1, 2), (1, 2, 4, 8), (1, 2)
# Elements of A that an invocation rounds at once; workgroups of a product, if it is large enough.
EIGHT, GROUPS = 8, 256
# Up to so many rows of weights, of so many steps, all of a row is fetched ahead.
FEW_ROWS, FEW_STEPS = 2048, 3
# With weights as floats: invocations, and rows of weights from which on two are taken at once.
FLOAT_WORKGROUP, MANY = 128, 4096


def choose(
    dispatch: Dispatch, info: DeviceInfo, resident: Collection[str] = (),
    tuned: Mapping[str, Choice] | None = None,
) -> Dispatch:  # fmt: skip
    """Return a product with blocks by the kernel and the sizes that are fastest on a device.

    Args:
        dispatch: the product.
        info: the device.
        resident: names of weights on the device.
        tuned: the choices that were measured on this device, by `problems.Problem`.
    """
    units = block_units.of(dispatch, info)
    if units is None:
        return block_rows.choose(dispatch, info)
    return _resized(split_blocks.apply(units, info, resident), info, tuned)


def _resized(dispatch: Dispatch, info: DeviceInfo, tuned: Mapping[str, Choice] | None) -> Dispatch:
    """Return a dispatch of `block_units.KERNELS` with the sizes that are fastest on a device.

    Args:
        dispatch: the dispatch, which reads weights as they are stored.
        info: the device.
        tuned: the choices that were measured on this device.
    """
    dispatch = block_units.shared(dispatch, info)
    push, constants = dispatch.push_values, dispatch.constant_values
    problem = problems.of(dispatch, (push["m"], push["n"], constants["K"], 1)) if tuned else None
    wanted = tuned.get(problem) if tuned and problem else None
    if wanted and wanted[0] == RULE and wanted[1] in offered(dispatch, info):
        return replace(block_units.sized(dispatch, Sizes(*wanted[1])), measured=str(problem))
    made = block_units.sized(dispatch, _expected(dispatch, info))
    return replace(made, measured=str(problem)) if wanted and not wanted[0] else made


def offered(dispatch: Dispatch, info: DeviceInfo) -> list[Sizes]:
    """Return the sizes that are worth measuring, those nearest to the expected ones first."""
    expected = _expected(dispatch, info)
    found = [sizes for sizes in _all(dispatch, info) if sizes != expected]
    return sorted(found, key=lambda sizes: _distance(sizes, expected))


def _all(dispatch: Dispatch, info: DeviceInfo) -> Iterator[Sizes]:
    """Yield the sizes that a device can run and that leave no lane without work."""
    n, constants = dispatch.push_values["n"], dispatch.constant_values
    is_float = dispatch.kernel == "matvec_floats"
    steps = block_units.steps(dispatch)
    for workgroup in WORKGROUPS:
        for at_once in ROWS if constants["ROWS"] == 1 else (1,):
            for tiles in TILES if constants.get("SHARED", not is_float) else (1,):
                for depth in (1, 2, 4) if is_float else DEPTHS:
                    each = workgroup // constants["SUBGROUP"] * at_once * tiles
                    fits = workgroup <= info.limit("maxComputeWorkGroupInvocations")
                    if fits and each <= n and depth <= steps * (1 if is_float else tiles):
                        yield Sizes(workgroup, at_once, tiles, depth)


def _distance(sizes: Sizes, other: Sizes) -> int:
    """Return how far two sizes are apart, in doublings."""
    pairs = zip(sizes, other, strict=True)
    return sum(abs(one.bit_length() - two.bit_length()) for one, two in pairs)


def _expected(dispatch: Dispatch, info: DeviceInfo) -> Sizes:
    """Return the sizes that were fastest on an H200, or within 5 % of them, for most shapes."""
    n, constants = dispatch.push_values["n"], dispatch.constant_values
    is_gated, is_one = "g_buffer" in dict(dispatch.reads), constants["ROWS"] == 1
    if dispatch.kernel == "matvec_floats" and not constants.get("SHARED"):
        return Sizes(
            FLOAT_WORKGROUP,
            2 if is_one and n >= 4 * MANY else 1,
            1,
            4 if is_one and n < 2 * MANY and not is_gated else 1,
        )
    most = min(
        WORKGROUPS if is_one else WORKGROUPS[1:],
        key=lambda size: abs(math.log2(size) - math.floor(math.log2(constants["K"] / EIGHT))),
    )
    while most > info.limit("maxComputeWorkGroupInvocations"):
        most //= 2
    share = n / (GROUPS * most // constants["SUBGROUP"])
    tiles = min(TILES, key=lambda count: abs(math.log2(count) - math.log2(share)))
    if "FURTHER" in dispatch.define_values:  # no more than each of the products would have
        tiles = max(count for count in TILES if count <= max(share, 1))
    if dispatch.kernel == "matvec_floats":
        depth = min(block_units.steps(dispatch), 2 if is_gated else 4)
        return Sizes(most, 1, tiles, 1 << depth.bit_length() - 1)
    few = n <= FEW_ROWS and 1 < block_units.steps(dispatch) <= FEW_STEPS
    is_wide = dispatch.define_values["FORMAT"] == "Q6_K"
    return Sizes(most, 1, tiles, 2 if few and is_one and not is_gated and not is_wide else 1)
