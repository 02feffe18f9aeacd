"""Chunks and steps that the last run of a session used, and why nodes of it were on the host.

Loaded when a caller asks. Visited by lab 12.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vklab.plan.chunk import Chunk
from vklab.runtime.plan_cache import PlanCache


def chunks(root: PlanCache) -> Iterator[Chunk]:
    """Yield the chunks used last; in the place of a control node those of its bodies."""
    for entry in root.path():
        bodies = getattr(entry.runner, "bodies", None)
        if bodies is None:
            yield from entry.chunks
        else:
            for body in bodies.values():
                yield from chunks(body)


def host_reasons(session: Any) -> dict[str, str]:
    """Return why each host node of the last run is on the host, nodes of bodies included."""
    session.require_open()
    reasons: dict[str, str] = {}
    for chunk in chunks(session.roots[0]):
        if chunk.kind == "host":
            reasons |= dict.fromkeys((node.name for node in chunk.graph.nodes), "")
        reasons |= chunk.reasons
    return reasons


def step_count(session: Any) -> int:
    """Return the number of dispatches and copies of the last run; 0 if all was constant."""
    session.require_open()
    return sum(len(chunk.steps) for chunk in chunks(session.roots[0]))
