"""Fusion of dispatches: one file for each kind, in the order of the catalogue.

Each kind turns a Flow into a shorter one with the same results: intermediate values are rounded as
if they had been stored. DISABLE_FUSION switches all of them off, DISABLE_PASSES one by its name.
Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import replace

from vklab import settings
from vklab.base import catalogue, stages
from vklab.graph.graph import Graph
from vklab.plan.fusion.flow import Flow
from vklab.plan.fusion.text import codegen
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch

__all__ = ["fuse", "write"]


def fuse(graph: Graph, lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return fewer dispatches with the same results; `lowered` itself is not changed.

    Args:
        graph: the shaped graph, whose outputs must stay in memory.
        lowered: its dispatches, before kernels are generated for them.
        info: the device, which limits the buffers of a kernel.
    """
    if settings.get("DISABLE_FUSION"):
        return lowered
    flow = Flow(graph, lowered, info)
    for rule in catalogue.enabled(stages.FUSION, info.is_cpu):
        if rule.meets(dispatch.kernel for _, dispatch in flow.alive()):
            rule(flow)
    return flow.lowered()


def write(lowered: Lowered) -> Lowered:
    """Return the dispatches with the Slang text that fusion has made of each."""
    return replace(
        lowered,
        dispatches=tuple(
            catalogue.step("write fours")(each) if _is_wide(each) else codegen.emit(each)
            for each in lowered.dispatches
        ),
    )


def _is_wide(dispatch: Dispatch) -> bool:
    """Tell whether a kernel hands four results at once to its epilogue."""
    return dispatch.epilogue is not None and ("WIDE_Y", "1") in dispatch.defines
