"""Arrivals at barriers: which invocations do not come to one where others of their workgroup wait.

Where some leave early, a CPU driver may end the whole workgroup, so counts of an ordinary dispatch
cannot tell who left. Here barriers are counted and not executed, and each invocation goes as far as
it would go by itself. A branch on shared values may then go another way: an explanation, no proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vklab_course.children.run_kernel import Run
from vklab_course.counting.counts import Counts
from vklab_course.counting.observe import ARRIVALS, observe_kernel

__all__ = ["absent", "missing"]

MOST_RANGES = 3


def absent(
    text: str, runs: Sequence[Run], *, seconds: float, variables: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Return the first run in which invocations miss a barrier, and a sentence; -1 and "" if none.

    Args:
        text: the kernel.
        runs: its dispatches.
        seconds: time limit of each one.
        variables: as in `observe_kernel`.
    """
    seen = observe_kernel(text, runs, seconds=seconds, dispatches=(ARRIVALS,), variables=variables)
    for number, each in enumerate(seen):
        said = missing(each.dispatches[ARRIVALS].counts) if each.status == "ran" else ""
        if said:
            return number, said
    return -1, ""


def missing(counts: Counts) -> str:
    """Name the invocations of the first workgroup in which not all come to each barrier, or ""."""
    made, path = (counts.by_invocation[name] for name in ("barriers", "barrier_path"))
    groups = counts.group_of(np.arange(made.size))
    for group in range(int(np.prod(counts.grid))):
        here = groups == group
        if (came := made[here]).min() < came.max():
            return _left(group, came)
        if np.unique(path[here]).size > 1:
            return (
                f"invocations of workgroup {group} come to different barriers: does one stand in "
                "each branch of an `if`?"
            )
    return ""


def _left(group: int, came: np.ndarray) -> str:
    """Name those that come to the fewest barriers, by their numbers in the workgroup."""
    least = int(came.min())
    gone = np.flatnonzero(came == least)
    ranges = np.split(gone, np.flatnonzero(np.diff(gone) > 1) + 1)
    names = [f"{r[0]} to {r[-1]}" if r.size > 1 else f"{r[0]}" for r in ranges[:MOST_RANGES]]
    more = ", ..." if len(ranges) > MOST_RANGES else ""
    one, wait = gone.size == 1, int((came > least).sum())
    return (
        f"of workgroup {group}, invocation{'' if one else 's'} {' and '.join(names)}{more} did not "
        f"come to barrier {least + 1}, where {wait} other{'s wait' if wait > 1 else ' waits'}: is "
        "a `return` above it, or does it stand inside an `if`?"
    )
