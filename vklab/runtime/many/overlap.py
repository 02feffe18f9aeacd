"""Host chunks beside device chunks: each entry of a model starts when its inputs are there.

Entries run in turn the first time; as long as shapes stay, later runs start each one when its
predecessors have ended: host chunks in a pool of threads, the others one after the other. Visited
by lab 13.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vklab import settings
from vklab.runtime import plan_cache
from vklab.runtime.many import scheduler
from vklab.runtime.plan_cache import Entry, PlanCache
from vklab.types import DeviceInfo

__all__ = ["Overlap", "pays", "predecessors"]

# A device's wait has its own limit; the host's runtime cannot be interrupted, and always ends.
DAY_SECONDS = 86_400.0


def pays(devices: Sequence[DeviceInfo]) -> bool:
    """Tell whether the host can work beside devices: CPU devices take its cores."""
    return not all(info.is_cpu for info in devices)


class Overlap:
    """Entries that have run in turn, and which of them waits for which.

    Args:
        taken: caches with the entries that were taken, in order.
        values: all arrays that were read and made then.

    Attributes:
        before: for each entry with a runner the indices of those that it waits for.
    """

    def __init__(
        self, taken: Sequence[tuple[PlanCache, Entry]], values: Mapping[str, Any]
    ) -> None:
        self._taken = [(cache, cache.key(values), entry) for cache, entry in taken]
        self._working = [entry for _, entry in taken if entry.runner]
        self._seen = [{name: plan_cache.signature(values[name]) for name in _reads(entry)}
                      for entry in self._working]  # fmt: skip
        self.before = before = predecessors(self._working)
        self._order = scheduler.Order(before)
        # An entry waits for the one before it directly or not at all: there is none between them.
        self._overlaps = any(n - 1 not in waits for n, waits in enumerate(before[1:], 1))

    @property
    def overlaps(self) -> bool:
        """Tell whether entries run as soon as they can, not in turn."""
        return self._overlaps and not settings.get("DISABLE_OVERLAP")

    def run(self, values: dict[str, Any]) -> bool:
        """Run all entries; return False if they must run in turn, as before.

        Raises the first error, naming the chunk, when nothing runs any more.
        """
        if not self.overlaps:
            return False
        if not all(cache.is_latest(key, entry) for cache, key, entry in self._taken):
            return False
        for _, _, entry in self._taken:
            for chunk in entry.chunks:
                values.update(chunk.known)
        jobs = [_Job(entry, seen, values)
                for entry, seen in zip(self._working, self._seen, strict=True)]  # fmt: skip
        try:
            scheduler.Run(self._order, jobs, [_Pool()] * len(jobs)).go(DAY_SECONDS)
        except _ChangedError:  # a size that depends on data: the entries cannot be told beforehand
            self._overlaps = False
            return False
        return True


class _ChangedError(Exception):
    """A value has another shape than when the entries were found."""


class _Job:
    """An entry as a job; all its work is done where it is finished."""

    def __init__(self, entry: Entry, seen: Mapping[str, Any], values: dict[str, Any]) -> None:
        first, last = entry.chunks[0].graph.nodes[0], entry.chunks[-1].graph.nodes[-1]
        kind = entry.chunks[0].kind
        count = sum(len(chunk.graph.nodes) for chunk in entry.chunks)
        self.name = f"{kind} chunk of {count} nodes from {first.name!r} to {last.name!r}"
        self._entry = entry
        self._seen = seen
        self._values = values

    def start(self) -> None:
        """Do nothing: the job begins when a thread takes it."""

    def finish(self) -> None:
        """Run the entry, if the shapes of its inputs are as they were."""
        given = {name: self._values[name] for name in self._seen}
        if any(plan_cache.signature(v) != self._seen[name] for name, v in given.items()):
            raise _ChangedError
        # `runner` of this moment: a trace puts its own in the place
        self._values.update(self._entry.runner.run(given))


class _Pool:
    """The threads of this process that run entries beside the caller's."""

    def put(self, call: Callable[[], None]) -> bool:
        """Have a call made; RuntimeError at the end of the process."""
        _threads().submit(call)
        return True


@functools.cache
def _threads() -> ThreadPoolExecutor:
    # Two at least: one waits for a device while the host works.
    return ThreadPoolExecutor(max(2, os.cpu_count() or 1), "vklab part")


def _reads(entry: Entry) -> list[str]:
    """Return the values that an entry reads and does not make."""
    made = {name for chunk in entry.chunks for name in chunk.graph.outputs}
    read = (info.name for chunk in entry.chunks for info in chunk.graph.inputs)
    return [name for name in dict.fromkeys(read) if name not in made]


def predecessors(entries: Sequence[Entry]) -> list[set[int]]:
    """Return the entries that each entry waits for, as the plan says of their chunks."""
    owner = {chunk.number: n for n, entry in enumerate(entries) for chunk in entry.chunks}
    return [
        {owner[number] for chunk in entry.chunks for number in chunk.predecessors
         if number in owner} - {n}
        for n, entry in enumerate(entries)
    ]  # fmt: skip
