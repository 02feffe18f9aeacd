"""Keep the dispatches of the chunk lowered last, for one that differs in its memory only.

A binding lowers the chunk of a plan again, with inputs and outputs that the host does not see.
Visited by lab 11.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import Any

from vklab import settings
from vklab.graph.graph import Graph
from vklab.plan.chunk import Chunk
from vklab.plan.lowering import Lowered
from vklab.plan.options import Facts
from vklab.types import DeviceInfo

# The graph of the last chunk, what else decides, and its dispatches. They refer to the weights of
# the model, so they end with the graph.
_last: list[tuple[weakref.ref[Graph], tuple[Any, ...], Lowered]] = []


def lowered(
    make: Callable[..., Lowered], unseen: Collection[str], chunk: Chunk, info: DeviceInfo,
    facts: Facts,
) -> Lowered:  # fmt: skip
    """Return the dispatches of a chunk: new ones, or those made last if its memory alone differs.

    Args:
        make: makes the dispatches, from the other arguments but `unseen`.
        unseen: inputs and outputs that the host does not see; without any, the call is a first one.
        chunk: the chunk, whose graph is rewritten already.
        info: the device.
        facts: resident weights and measured choices; kernels that were missing stay missing.
    """
    decides = (info, chunk.place, facts.resident, facts.tuned, settings.plan_switches())
    for graph, before, dispatches in [*_last] if unseen else ():
        if graph() is chunk.graph and before == decides:
            return dispatches
    made = make(chunk, info, facts)
    _last[:] = [(weakref.ref(chunk.graph, lambda _: _last.clear()), decides, made)]
    return made
