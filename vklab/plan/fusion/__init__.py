"""Fusion of dispatches: one file for each kind, in the one order in which they run.

Each is a pure function from a Program of dispatches to another that computes the same; results are
rounded as if every value had been stored. DISABLE_FUSION switches all off. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable

from vklab import settings
from vklab.graph.graph import Graph
from vklab.plan.fusion import chains, epilogues, prologues
from vklab.plan.fusion.flow import Flow
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo

__all__ = ["FUSIONS", "fuse"]

FUSIONS: tuple[Callable[[Flow], None], ...] = (
    chains.fuse_chains,
    epilogues.fuse_epilogues,
    prologues.fuse_prologues,
)


def fuse(graph: Graph, lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return fewer dispatches that compute the same."""
    if settings.get("DISABLE_FUSION"):
        return lowered
    flow = Flow(graph, lowered, info)
    for step in FUSIONS:
        step(flow)
    return flow.lowered()
