"""fuse_prologues: compute an element-wise operand inside the kernel that reads it.

Each element is computed as it is loaded. Visited by lab 10.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from vklab.ops import fusable
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch

# These read every element more than once: only cheap work is computed again for each read.
REPEATING = frozenset({"attention_weights", "cumulative", "gather", "lrn", "normalize", "pool",
                       "resize", "softmax"})  # fmt: skip
FEW_FORMULAS, FEW_OPERANDS = 3, 2


def fuse_prologues(flow: Flow) -> None:
    """Merge an element-wise dispatch into the only kernel that reads its result.

    Source: Chen et al. 2018 (TVM), operator fusion.
    """
    joined = functools.partial(_joined, flow)
    for number, dispatch in flow.alive():
        if not dispatch.prologue and fusable.loads(dispatch):
            flow.fuse(number, flow.maker(dict(dispatch.reads)["x_buffer"], number), joined)


def _joined(flow: Flow, core: Dispatch, maker: Dispatch) -> Dispatch | None:
    work = maker.pointwise
    if work is None or work.target is not None:
        return None
    read = dict(core.reads)["x_buffer"]
    if work.formulas[-1].dtype != read.dtype or work.count != read.count:
        return None
    if not flow.computes(read.dtype):
        return None
    if flow.count(read, core) > 1:  # the core reads it a second time, as a residual
        return None
    cheap = len(work.formulas) <= FEW_FORMULAS and len(work.operands) <= FEW_OPERANDS
    if core.kernel in REPEATING and not cheap:
        return None
    return replace(core, prologue=work, defines=fusable.typed(core), flops=core.flops + maker.flops)
