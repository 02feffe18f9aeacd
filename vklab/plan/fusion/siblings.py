"""join_siblings: launch neighbouring, independent element-wise dispatches as one.

The parts of a Concat, the results of a Split, tables of sines and cosines: none reads another's
result. Visited by lab 10.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from vklab.plan.fusion.flow import Flow
from vklab.plan.fusion.text import codegen
from vklab.types import Dispatch, Operands, Pointwise

# A CPU device executes the code of every sibling for each element.
MOST_ON_CPU = 1 << 12


def join_siblings(flow: Flow) -> None:
    """Merge each dispatch with the one before it, where both are element-wise and independent.

    Source: Li et al. 2020, automatic horizontal fusion.
    """
    before: int | None = None
    for number, _ in flow.alive():
        flow.fuse(number, before, functools.partial(_joined, flow))
        before = number


def _works(dispatch: Dispatch) -> tuple[Pointwise, ...]:
    return dispatch.siblings or ((dispatch.pointwise,) if dispatch.pointwise else ())


def _joined(flow: Flow, dispatch: Dispatch, before: Dispatch) -> Dispatch | None:
    """Return both as one dispatch; None if they differ in kind, or one reads the other's result."""
    works = (*_works(before), *_works(dispatch))
    if not (_works(before) and _works(dispatch)) or len(set(map(codegen.is_move, works))) > 1:
        return None
    if flow.is_cpu and sum(work.count for work in works) > MOST_ON_CPU:
        return None
    writes = (*before.writes, *dispatch.writes)
    written = {flow.roots[info.name] for info in before.tensors_written}
    if written & {flow.roots[info.name] for info in dispatch.tensors_read} or (
        len({info.dtype for _, info in writes}) > 1 or not _are_apart(flow, works, writes)
    ):
        return None
    read = (operand.info for work in works for operand in work.operands)
    return replace(
        before,
        kernel="pointwise",
        pointwise=None,
        siblings=works,
        constants=(),
        writes=writes,
        reads=tuple((f"x{n}_buffer", info) for n, info in enumerate(read)),
        in_place=(),
        flops=before.flops + dispatch.flops,
    )


def _are_apart(flow: Flow, works: Sequence[Pointwise], writes: Operands) -> bool:
    """Tell whether no element is written twice: the parts of a value add up to its size at most."""
    counts: Counter[str] = Counter()
    for work, (_, info) in zip(works, writes, strict=True):
        counts[flow.roots[info.name]] += work.count
    return all(counts[flow.roots[info.name]] <= info.count for _, info in writes)
