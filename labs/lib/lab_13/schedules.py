"""Schedules of nodes on three devices: what is wrong with one, when its nodes run, what may follow.

A list of work is {name: (ms on each device, MiB of weights, ms to move its result, names of the
nodes whose results it reads)}. None instead of ms: this device cannot run the node. A schedule is a
list of (name, device); each device runs its nodes in this order. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["CAPS", "DEVICES", "WORK", "Schedule", "Work", "next_steps", "problem", "schedule"]

Work = Mapping[str, tuple[tuple[int | None, ...], int, int, tuple[str, ...]]]
Schedule = Sequence[tuple[str, int]]
DEVICES = ("GPU 0", "GPU 1", "CPU")
CAPS = (14, 12, 64)
WORK: Work = {
    "a": ((2, 3, 6), 2, 1, ()), "b": ((4, 4, 9), 5, 2, ("a",)), "c": ((3, 6, 9), 4, 2, ("a",)),
    "d": ((5, 3, 8), 3, 1, ("a",)), "e": ((6, 6, 7), 6, 2, ("b",)),
    "f": ((None, 5, 8), 4, 3, ("c",)), "g": ((4, 7, 9), 4, 1, ("d",)),
    "h": ((2, 2, 3), 1, 2, ("e", "f")), "i": ((3, 3, 5), 2, 1, ("g", "h")),
}  # fmt: skip


def problem(work: Work, caps: Sequence[int], plan: Schedule) -> str:
    """Return what is wrong with a schedule, as a sentence; "" if nothing is.

    Args:
        work: the nodes.
        caps: the MiB of each device.
        plan: the schedule.
    """
    seen: set[str] = set()
    used = [0] * len(caps)
    for name, device in plan:
        if name not in work:
            return f"there is no node {name!r}"
        times, size, _, reads = work[name]
        late = [read for read in reads if read not in seen]
        if name in seen:
            return f"{name} is listed twice"
        if late:
            return f"{name} reads {late[0]}, which is not listed before it"
        if device not in range(len(caps)) or times[device] is None:
            return f"device {device} cannot run {name}"
        seen.add(name)
        used[device] += size
        if used[device] > caps[device]:
            return (
                f"{DEVICES[device]} holds {used[device]} MiB with {name}, and has room for "
                f"{caps[device]}"
            )
    left = [name for name in work if name not in seen]
    return f"{left[0]} is missing" if left else ""


def schedule(work: Work, plan: Schedule) -> dict[str, tuple[int, int, int]]:
    """Return (device, start, end) of each node of a valid schedule.

    A node starts when its device is free and its inputs have arrived. A result arrives at once on
    its own device, and after its time to move on another; moves keep no device busy.

    Args:
        work: the nodes.
        plan: the schedule.
    """
    free: dict[int, int] = {}
    made: dict[str, tuple[int, int, int]] = {}
    for name, device in plan:
        times, _, _, reads = work[name]
        arrived = (made[r][2] + (made[r][0] != device) * work[r][2] for r in reads)
        start = max(free.get(device, 0), *arrived, 0)
        free[device] = start + (times[device] or 0)
        made[name] = device, start, free[device]
    return made


def next_steps(work: Work, caps: Sequence[int], plan: Schedule) -> list[tuple[str, int, int, int]]:
    """Return (node, device, start, end) of each node that can come next, on devices with room.

    Args:
        work: the nodes.
        caps: the MiB of each device.
        plan: a valid beginning of a schedule.
    """
    made = schedule(work, plan)
    free, room = [0] * len(caps), list(caps)
    for name, (device, _, end) in made.items():
        free[device] = end
        room[device] -= work[name][1]
    steps = []
    for name, (times, size, _, reads) in work.items():
        if name in made or any(read not in made for read in reads):
            continue
        for device, ms in enumerate(times):
            if ms is not None and size <= room[device]:
                came = [made[r][2] + (made[r][0] != device) * work[r][2] for r in reads]
                start = max(free[device], *came, 0)
                steps.append((name, device, start, start + ms))
    return steps
