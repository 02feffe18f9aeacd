"""fuse_chains: element-wise dispatches whose result only one other reads are computed there.

Chains, trees, casts, broadcasts, transposes and slices become one dispatch.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.plan.fusion import combine
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch, Pointwise

__all__ = ["fuse_chains"]

# Longer texts take compilers more than a second. A number that is added counts as one, too.
MOST_FORMULAS = 2048


def fuse_chains(flow: Flow) -> None:
    """Let every element-wise dispatch compute what it alone reads."""
    for number, dispatch in flow.alive():
        if dispatch.pointwise:
            _absorb(flow, number)


def _absorb(flow: Flow, number: int) -> None:
    """Take in the makers of operands, one after the other, as long as that is possible."""
    refused: set[int] = set()
    while True:
        reader = flow.dispatches[number]
        assert reader is not None and reader.pointwise is not None
        found = None
        for index, operand in enumerate(reader.pointwise.operands):
            maker = flow.maker(operand.info, number)
            if maker is None or maker in refused:
                continue
            joined = _joined(flow, reader, index, flow.dispatches[maker])
            if joined is not None:
                found = maker, joined
                break
            refused.add(maker)
        if found is None:
            return
        flow.join(number, *found)


def _joined(flow: Flow, reader: Dispatch, index: int, maker: Dispatch | None) -> Dispatch | None:
    work = reader.pointwise
    if maker is None or maker.pointwise is None or work is None:
        return None
    if len(work.formulas) + len(maker.pointwise.formulas) > MOST_FORMULAS:
        return None
    combined = combine.inline(work, index, maker.pointwise, flow.roots)
    if combined is None:
        return None
    combined = combine.prepared(combined)
    root = flow.roots[work.operands[index].info.name]
    if any(flow.roots[operand.info.name] == root for operand in combined.operands):
        return None  # it is read along another walk as well
    joined = _as_dispatch(reader, combined, maker.flops)
    return joined if flow.fits(joined) else None


def _as_dispatch(reader: Dispatch, work: Pointwise, flops: int) -> Dispatch:
    """Return the dispatch of generated text that does what several did."""
    return replace(
        reader, kernel="pointwise", pointwise=work, flops=reader.flops + flops, constants=(),
        reads=tuple((f"x{n}_buffer", operand.info) for n, operand in enumerate(work.operands)),
    )  # fmt: skip
