"""List the ways to compute a product that are worth measuring on a device.

The time model prunes them; what is fastest is decided by measuring. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from vklab.plan import block_units
from vklab.plan.tuning import tiles, variants
from vklab.plan.tuning.blocks import block_sizes
from vklab.plan.tuning.problems import Problem
from vklab.plan.tuning.tiles import Choice, ProductSizes, ProductTask, Tile
from vklab.types import DeviceInfo, Dispatch

# The choice of the time model.
EXPECTED: Choice = ("", (), 0)
# A tile that should take longer than this times the best is not measured, nor are more than MOST.
MOST_SLOWER, MOST = 2.5, 12
# The model errs more about tiles than about parts: of each tile only so many numbers of parts.
MOST_OF_A_TILE = 3
# Multiply-adds from which on a GPU does not try kernels without tiles: a dispatch that takes
# seconds makes some drivers reset the device.
MOST_UNTILED = 1 << 34


def choices(problem: Problem, info: DeviceInfo) -> list[Choice]:
    """Return the choices to measure for a class, that of the time model first.

    Choices that give the same dispatches count once.
    """
    kept: dict[Any, Choice] = {}
    ordered = sorted(_offered(problem, info), key=lambda each: each[0])
    timed = [(time, choice) for time, choice in ordered if time]
    shortest = timed[0][0] if timed else 0.0
    near: list[Choice] = []
    for time, choice in timed:
        alike = sum(each[:2] == choice[:2] for each in near)
        if time <= MOST_SLOWER * shortest and alike < MOST_OF_A_TILE:
            near.append(choice)
    # Of choices without a time, those without a tile come first: there are few of them.
    others = sorted(
        (choice for time, choice in ordered if not time),
        key=lambda each: each[0] != block_sizes.RULE and bool(each[1]),
    )
    if near and math.prod(problem.sizes) > MOST_UNTILED:
        others = []
    for choice in (EXPECTED, *near[: MOST - 1], *others):
        made = variants.choose(problem.dispatch, info, (), {problem: choice})
        if made[0].measured:
            kept.setdefault(tuple(map(_identity, made)), choice)
    return list(kept.values())[: MOST + 2]


def title(choice: Choice) -> str:
    """Return a choice as text, such as `tiled 64x64x16 in 4 parts`."""
    name, shape, count = choice
    if name == block_sizes.RULE:
        each = zip(("invocations", "rows", "times", "ahead"), shape, strict=True)
        return "rows of blocks " + " ".join(f"{number} {what}" for what, number in each)
    size = " " + "x".join(map(str, shape[:3])) + f" by {shape[3]}x{shape[4]}" if shape else ""
    parts = f" in {count} parts" if count > 1 else ""
    return (name.replace("_", " ") + size + parts) or "as expected"


def _offered(problem: Problem, info: DeviceInfo) -> Iterator[tuple[float, Choice]]:
    """Yield what the rules of a device offer, each with its expected time; 0 without a model."""
    if problem.dispatch.kernel in block_units.KERNELS:
        for sizes in block_sizes.offered(problem.dispatch, info):
            yield 0.0, (block_sizes.RULE, tuple(sizes), 1)
        return
    offered: list[Tile] = []

    def note(fitting: Iterable[Tile], sizes: ProductSizes) -> tuple[Tile, int] | None:
        offered.extend(fitting)
        return tiles.first(offered, sizes)

    for name, rule in variants.rules_for(info, problem.dispatch.kernel).items():
        offered.clear()
        made = rule(ProductTask(problem.dispatch, problem.sizes, info, note))
        if made is None:
            continue
        whole = info.is_cpu or problem.dispatch.kernel == "conv_words"
        counts = [1] if whole else tiles.counts(problem.sizes[2])
        for tile in offered:
            for count in counts:
                time = tiles.expected_ns(tile, count, problem.sizes)
                yield time, (name, tile.shape, count)
        if not offered:
            for count in sorted({1, made[1] // 2, made[1], 2 * made[1]} & {made[1], *counts}):
                yield 0.0, (name, (), count)


def _identity(dispatch: Dispatch) -> tuple[Any, ...]:
    reads = tuple(info.name for _, info in dispatch.reads)
    return dispatch.variant, dispatch.constants, dispatch.workgroups, dispatch.push, reads
