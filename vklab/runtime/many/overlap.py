"""Concurrent host and device chunks: each entry starts when its predecessors have ended.

Entries run in turn the first time. While the shapes stay the same, later runs schedule them by
their dependencies on a pool of threads. Visited by labs 12 and 13.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vklab import settings
from vklab.base import forking
from vklab.runtime import plan_cache
from vklab.runtime.many import scheduler
from vklab.runtime.plan_cache import Entry, PlanCache
from vklab.types import DeviceInfo

# No limit in practice: device waits time out by themselves, and host chunks always end.
DAY_SECONDS = 86_400.0


def pays(devices: Sequence[DeviceInfo]) -> bool:
    """Tell whether overlap can save time: not if all devices are CPU devices, on the same cores."""
    return not all(info.is_cpu for info in devices)


def of(
    devices: Sequence[DeviceInfo], taken: Sequence[tuple[PlanCache, Entry]],
    values: Mapping[str, Any],
) -> Overlap | None:  # fmt: skip
    """Return the overlap of the entries of a run; None where it cannot save time.

    Args:
        devices: the devices of the session.
        taken: as in `Overlap`.
        values: as in `Overlap`.
    """
    return Overlap(taken, values) if pays(devices) else None


def _is_latest(cache: PlanCache, key: plan_cache.Key, entry: Entry) -> bool:
    """Tell whether a key still has this entry; if so, mark it as the one used last."""
    if cache.entries.get(key) is not entry:
        return False
    cache.entries.move_to_end(key)
    return True


class Overlap:
    """Entries of an earlier run with their dependencies, ready to run concurrently.

    Args:
        taken: each cache with its entry of that run, in order.
        values: all arrays of that run, by name.

    Attributes:
        before: for each entry with a runner, the indices of its predecessors.
    """

    def __init__(self, taken: Sequence[tuple[PlanCache, Entry]], values: Mapping[str, Any]) -> None:
        self._taken = [(cache, cache.key(values), entry) for cache, entry in taken]
        self._working = [entry for _, entry in taken if entry.runner]
        self._seen = [
            {name: plan_cache.signature(values[name]) for name in _reads(entry)}
            for entry in self._working
        ]
        self.before = before = predecessors(self._working)
        self._order = scheduler.Order(before)
        # Entries overlap if at least one does not wait for the entry just before it.
        self._overlaps = any(n - 1 not in waits for n, waits in enumerate(before[1:], 1))

    @property
    def overlaps(self) -> bool:
        """Tell whether entries run as soon as they are ready, not in turn."""
        return self._overlaps and not settings.get("DISABLE_OVERLAP")

    def run(self, values: dict[str, Any]) -> bool:
        """Run all entries; return False if they must run in turn instead.

        Raises the first error, naming the chunk, after all started entries have ended.
        """
        if not self.overlaps:
            return False
        if not all(_is_latest(*taken) for taken in self._taken):
            return False
        for _, _, entry in self._taken:
            for chunk in entry.chunks:
                values.update(chunk.known)
        jobs = [
            _Job(entry, seen, values) for entry, seen in zip(self._working, self._seen, strict=True)
        ]
        try:
            scheduler.Run(self._order, jobs, [_Pool()] * len(jobs)).go(DAY_SECONDS)
        except _ChangedError:  # sizes depend on data: the entries are unknown before the run
            self._overlaps = False
            return False
        return True


class _ChangedError(Exception):
    """A value has another shape than in the run that the entries come from."""


class _Job:
    """An entry as a job of the scheduler; `finish` does all its work."""

    def __init__(self, entry: Entry, seen: Mapping[str, Any], values: dict[str, Any]) -> None:
        first, last = entry.chunks[0].graph.nodes[0], entry.chunks[-1].graph.nodes[-1]
        kind = entry.chunks[0].kind
        count = sum(len(chunk.graph.nodes) for chunk in entry.chunks)
        self.name = f"{kind} chunk of {count} nodes from {first.name!r} to {last.name!r}"
        self._entry = entry
        self._seen = seen
        self._values = values

    def start(self) -> None:
        """Do nothing: a thread runs the whole entry in `finish`."""

    def finish(self) -> None:
        """Run the entry; raise _ChangedError if an input has another shape than before."""
        given = {name: self._values[name] for name in self._seen}
        if any(plan_cache.signature(v) != self._seen[name] for name, v in given.items()):
            raise _ChangedError
        # read `runner` now: a trace may have replaced it
        self._values.update(self._entry.runner.run(given))


class _Pool:
    """Work queue on the threads of this process that run entries."""

    def put(self, call: Callable[[], None]) -> bool:
        """Queue a call; raise RuntimeError at the end of the process."""
        _threads().submit(call)
        return True


@functools.cache
def _threads() -> ThreadPoolExecutor:
    # At least two threads: one waits for a device while the other runs host chunks.
    return ThreadPoolExecutor(max(2, os.cpu_count() or 1), "vklab chunk")


forking.in_child(_threads.cache_clear)


def _reads(entry: Entry) -> list[str]:
    """Return the names of the values that an entry reads and does not compute."""
    made = {name for chunk in entry.chunks for name in chunk.graph.outputs}
    read = (info.name for chunk in entry.chunks for info in chunk.graph.inputs)
    return [name for name in dict.fromkeys(read) if name not in made]


def predecessors(entries: Sequence[Entry]) -> list[set[int]]:
    """Return for each entry the indices of its predecessors, from the plan's chunks."""
    owner = {chunk.number: n for n, entry in enumerate(entries) for chunk in entry.chunks}
    return [
        {
            owner[number]
            for chunk in entry.chunks
            for number in chunk.predecessors
            if number in owner
        }
        - {n}
        for n, entry in enumerate(entries)
    ]
