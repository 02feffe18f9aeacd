"""Fusion of dispatches: one file for each kind, in the one order in which they run.

Each changes a Flow into a shorter one that computes the same: values in between are rounded as if
they had been stored. DISABLE_FUSION switches all off, DISABLE_PASSES one by its name. `fuse` itself
leaves what it is given as it is. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable

from vklab import settings
from vklab.errors import PlanError
from vklab.graph import passes
from vklab.graph.graph import Graph
from vklab.plan.fusion import chains, codegen, epilogues, parts, prologues, siblings
from vklab.plan.fusion.flow import Flow
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo

__all__ = ["FUSIONS", "fuse", "write"]

FUSIONS: tuple[Callable[[Flow], None], ...] = (
    chains.fuse_chains,
    epilogues.fuse_epilogues,
    prologues.fuse_prologues,
    parts.place_parts,  # what is left of them
    siblings.join_siblings,
)


def fuse(graph: Graph, lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return fewer dispatches that compute the same.

    Raises PlanError for a name in DISABLE_PASSES that is no pass and no fusion.
    """
    without = passes.disabled()
    known = {step.__name__ for step in (*passes.PASSES, *FUSIONS)}
    unknown = sorted(without - known - {"", "all"})
    if unknown:
        raise PlanError(f"VKLAB_DISABLE_PASSES names {unknown[0]!r}; there are all, "
                        f"{', '.join(sorted(known))}")  # fmt: skip
    if settings.get("DISABLE_FUSION"):
        return lowered
    flow = Flow(graph, lowered, info)
    for step in FUSIONS:
        if step.__name__ not in without:
            step(flow)
    return flow.lowered()


def write(lowered: Lowered) -> Lowered:
    """Return the dispatches with the Slang text that fusion has made of each."""
    return codegen.write(lowered)
