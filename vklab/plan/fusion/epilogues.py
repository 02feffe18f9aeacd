"""fuse_epilogues: apply element-wise work to a kernel's result before it is stored.

Bias, activation, residual, cast, mask; and a transpose, by storing each element at its new offset.
Visited by lab 10.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from vklab.ops import fusable
from vklab.plan.fusion import combine
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch


def fuse_epilogues(flow: Flow) -> None:
    """Merge an element-wise dispatch into the kernel whose result it reads.

    Source: Chen et al. 2018 (TVM), operator fusion.
    """
    joined = functools.partial(_joined, flow)
    for number, dispatch in flow.alive():
        for operand in dispatch.pointwise.operands if dispatch.pointwise else ():
            if flow.fuse(number, flow.maker(operand.info, number), joined):
                break


def _joined(flow: Flow, reader: Dispatch, core: Dispatch) -> Dispatch | None:
    work = reader.pointwise
    if work is None or core.epilogue or not fusable.stores(core):
        return None
    value = core.writes[0][1]
    turned = combine.along(work, value, flow.roots)
    if turned is None or turned.operands[0].dtype != value.dtype or not flow.computes(value.dtype):
        return None
    # Channels come last there: stored elsewhere, each would be a transaction of its own.
    if core.kernel == "conv_last" and turned.target is not None:
        return None
    return replace(
        core,
        writes=reader.writes,
        epilogue=turned,
        defines=fusable.typed(core),
        flops=core.flops + reader.flops,
    )
