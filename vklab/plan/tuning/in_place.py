"""Which results are written over an operand that nobody reads again, and take its memory over.

Dispatches say where that is harmless (`Dispatch.in_place`); lifetimes say when. Visited by lab 11.
"""

from __future__ import annotations

from collections.abc import Collection

from vklab import settings
from vklab.plan.lowering import Lowered
from vklab.types import Dispatch

__all__ = ["owners", "replaceable"]


def owners(
    lowered: Lowered, placed: Collection[str], lasting: Collection[str]
) -> dict[str, str]:
    """Return, for every root, the root whose memory it lies in: mostly its own.

    Args:
        placed: roots that have a place already.
        lasting: roots that are read when all is done.
    """
    roots = lowered.roots
    found = {root: root for root in roots.values()}
    first: dict[str, int] = {}
    last: dict[str, list[int]] = {}  # the dispatches of the last time
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
                found[written] = found[name]
                break
    return found


def replaceable(dispatch: Dispatch, lowered: Lowered) -> list[str]:
    """Return the roots that a dispatch may write over: of the same bytes, and read there only."""
    if not dispatch.in_place or len(dispatch.writes) != 1:
        return []
    if settings.get("DISABLE_IN_PLACE") or settings.get("DISABLE_ALIASING"):
        return []
    result = dispatch.writes[0][1]
    roots = [(binding, lowered.roots[info.name], info) for binding, info in dispatch.reads]
    whole = [
        root for binding, root, info in roots
        if binding in dispatch.in_place and info.size_bytes == result.size_bytes
        and info.name not in lowered.slices and result.name not in lowered.slices
    ]  # fmt: skip
    elsewhere = {root for binding, root, _ in roots if binding not in dispatch.in_place}
    return [root for root in whole if root not in elsewhere]
