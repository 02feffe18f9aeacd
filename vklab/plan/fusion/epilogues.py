"""fuse_epilogues: what becomes of a kernel's result, element by element, before it is stored.

Bias, activation, residual, cast, mask; and a transpose, by storing each element in its new place.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.ops import fusable
from vklab.plan.fusion import combine
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch

__all__ = ["fuse_epilogues"]


def fuse_epilogues(flow: Flow) -> None:
    """Let kernels do what one element-wise dispatch does with their result."""
    for number, dispatch in flow.alive():
        work = dispatch.pointwise
        if work is None:
            continue
        for operand in work.operands:
            maker = flow.maker(operand.info, number)
            joined = None if maker is None else _joined(flow, dispatch, flow.dispatches[maker])
            if maker is not None and joined is not None:
                flow.join(number, maker, joined)
                break


def _joined(flow: Flow, reader: Dispatch, core: Dispatch | None) -> Dispatch | None:
    work = reader.pointwise
    if core is None or work is None or core.epilogue or not fusable.stores(core):
        return None
    value = core.writes[0][1]
    turned = combine.along(work, value, flow.roots)
    if turned is None or turned.operands[0].dtype != value.dtype or not flow.computes(value.dtype):
        return None
    joined = replace(core, writes=reader.writes, epilogue=turned, defines=fusable.typed(core),
                     flops=core.flops + reader.flops)  # fmt: skip
    return joined if flow.fits(joined) else None
