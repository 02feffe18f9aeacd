"""fuse_chains: compute an element-wise result inside the one dispatch that reads it.

Chains and trees, casts, broadcasts, transposes and slices become one dispatch. Visited by lab 10.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from vklab.plan.fusion import combine
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch

# Longer texts take compilers more than a second. A literal number counts as a formula.
MOST_FORMULAS = 2048


def fuse_chains(flow: Flow) -> None:
    """Merge every element-wise dispatch with the makers of operands that it alone reads.

    Source: Kennedy and McKinley 1993, loop fusion.
    """
    for number, _ in flow.alive():
        refused: set[int] = set()
        while _absorbs(flow, number, refused):
            pass


def _absorbs(flow: Flow, number: int, refused: set[int]) -> bool:
    """Merge the maker of one operand into a dispatch; tell whether that succeeded."""
    work = flow.at(number).pointwise
    for index, operand in enumerate(work.operands if work else ()):
        maker = flow.maker(operand.info, number)
        if maker in refused:
            continue
        if flow.fuse(number, maker, functools.partial(_joined, flow, index)):
            return True
        if maker is not None:
            refused.add(maker)
    return False


def _joined(flow: Flow, index: int, reader: Dispatch, maker: Dispatch) -> Dispatch | None:
    work = reader.pointwise
    if maker.pointwise is None or work is None:
        return None
    if len(work.formulas) + len(maker.pointwise.formulas) > MOST_FORMULAS:
        return None
    combined = combine.inline(work, index, maker.pointwise, flow.roots)
    if combined is None:
        return None
    combined = combine.prepared(combined)
    root = flow.roots[work.operands[index].info.name]
    if any(flow.roots[operand.info.name] == root for operand in combined.operands):
        return None  # the value is also read through another view
    return replace(
        reader,
        kernel="pointwise",
        pointwise=combined,
        flops=reader.flops + maker.flops,
        constants=(),
        reads=tuple((f"x{n}_buffer", operand.info) for n, operand in enumerate(combined.operands)),
    )
