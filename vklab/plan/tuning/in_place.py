"""Choose the results that overwrite an operand after its last read, and share its memory.

`Dispatch.in_place` names the operands that may be overwritten. Visited by lab 11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from vklab import settings
from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan.lowering import Lowered
from vklab.types import Dispatch


def require_taken(graph: Graph, lowered: Lowered) -> None:
    """Raise PlanError if a node could read a value after a result has taken over its memory.

    An operator takes over an operand if its result is a view of the operand and is written, such as
    a cache to which rows are added. The operand must then be an input of the graph, a value that
    one kernel alone writes, or such a result itself, that no other node reads and the graph does
    not return: nobody is left who could read the old rows.
    """
    written = {info.name for dispatch in lowered.dispatches for _, info in dispatch.writes}
    roots, readers = lowered.roots, Counter(name for node in graph.nodes for name in node.inputs)
    made = {
        info.name
        for dispatch in lowered.dispatches
        if not dispatch.pointwise
        for _, info in dispatch.writes
        if roots.get(info.name, info.name) == info.name
    }
    free = ({info.name for info in graph.inputs} | made) - set(graph.outputs)
    for node in graph.nodes:
        for result in written & {name for name in node.outputs if roots.get(name, name) != name}:
            [*taken] = (name for name in node.inputs if roots.get(name) == roots[result])
            if len(taken) != 1 or readers[taken[0]] > 1 or taken[0] not in free:
                raise PlanError(
                    f"node {node.name!r} writes {result} in place of "
                    f"{', '.join(taken)}, which must be an input of the graph that no "
                    "other node reads"
                )
            free |= {result} - set(graph.outputs)


def owners(lowered: Lowered, placed: Collection[str], lasting: Collection[str]) -> dict[str, str]:
    """Return for every root the root whose memory it uses: its own, or an operand's.

    Args:
        lowered: the dispatches and the root of each value.
        placed: roots that have a slot already.
        lasting: roots that are read after the last dispatch.

    Source: Chen, Xu, Zhang and Guestrin, Training Deep Nets with Sublinear Memory Cost, 2016
    """
    roots = lowered.roots
    owner = {root: root for root in roots.values()}
    first: dict[str, int] = {}
    last: dict[str, list[int]] = {}  # the dispatches of the last layer that access it
    times = lowered.times
    for step, dispatch in enumerate(lowered.dispatches):
        for root in {roots[info.name] for _, info in dispatch.reads + dispatch.writes}:
            first.setdefault(root, step)
            steps = last.setdefault(root, [])
            if steps and times[steps[-1]] != times[step]:
                steps.clear()
            steps.append(step)
    for step, dispatch in enumerate(lowered.dispatches):
        for name in replaceable(dispatch, lowered):
            written = roots[dispatch.writes[0][1].name]
            free = written != name and first[written] == step and last[name] == [step]
            if free and name not in lasting and name not in placed and written not in placed:
                owner[written] = owner[name]
                break
    return owner


def replaceable(dispatch: Dispatch, lowered: Lowered) -> list[str]:
    """Return the roots that a dispatch may overwrite: as large as its result, and read once."""
    if not dispatch.in_place or len(dispatch.writes) != 1:
        return []
    if settings.get("DISABLE_IN_PLACE") or settings.get("DISABLE_ALIASING"):
        return []
    result = dispatch.writes[0][1]
    roots = [(binding, lowered.roots[info.name], info) for binding, info in dispatch.reads]
    whole = [
        root
        for binding, root, info in roots
        if binding in dispatch.in_place
        and info.size_bytes == result.size_bytes
        and info.name not in lowered.slices
        and result.name not in lowered.slices
    ]
    elsewhere = {root for binding, root, _ in roots if binding not in dispatch.in_place}
    return [root for root in whole if root not in elsewhere]
