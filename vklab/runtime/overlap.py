"""Parts that need not wait for each other: what the host does, beside what devices do.

Parts run in turn the first time; as long as shapes stay, later runs start each part when what it
reads is there: host parts in a pool of threads, all others one after the other. Visited by lab 13.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from vklab import settings
from vklab.plan.partition import Part
from vklab.runtime.many import scheduler
from vklab.types import DeviceInfo

if TYPE_CHECKING:
    from vklab.runtime.parts import Found, Stage

__all__ = ["Path", "pays", "signature"]

# A device's wait has its own limit; the host's runtime cannot be interrupted, and always ends.
DAY_SECONDS = 86_400.0


def signature(value: Any) -> Any:
    """Return what of a value decides how it is run: shape and dtype."""
    return (value.shape, value.dtype) if isinstance(value, np.ndarray) else type(value)


def pays(devices: Sequence[DeviceInfo]) -> bool:
    """Tell whether the host can work beside devices: those that are CPUs take its cores."""
    return not all(info.is_cpu for info in devices)


class Path:
    """Parts that have run in turn, and which of them waits for which.

    Args:
        taken: stages with the parts that they led to.
        values: all that was read and made then.

    Attributes:
        before: for each part that has work those that it waits for.
    """

    def __init__(
        self, taken: Sequence[tuple[Stage, Found]], values: Mapping[str, Any]
    ) -> None:
        self._steps = [(stage, stage.key(values), found) for stage, found in taken]
        self._working = [found for _, found in taken if found.runner]
        self._seen = [
            {info.name: signature(values[info.name]) for info in found.part.graph.inputs}
            for found in self._working
        ]
        self.before = before = _before([found.part for found in self._working])
        self._order = scheduler.Order(before)
        # A part waits for the one before it directly or not at all: there is none between them.
        self._overlaps = any(number - 1 not in waits for number, waits in enumerate(before[1:], 1))

    @property
    def overlaps(self) -> bool:
        """Tell whether parts run as soon as they can, not in turn."""
        return self._overlaps and not settings.get("DISABLE_OVERLAP")

    def run(self, values: dict[str, Any]) -> bool:
        """Run all parts; return False if they must run in turn, as before.

        Raises the first error, with the part in which it happened, when nothing runs any more.
        """
        if not self.overlaps:
            return False
        if not all(stage.keeps(key, found) for stage, key, found in self._steps):
            return False
        for _, _, found in self._steps:
            values.update(found.part.known)
        jobs = [_Job(found, seen, values)
                for found, seen in zip(self._working, self._seen, strict=True)]  # fmt: skip
        try:
            scheduler.Run(self._order, jobs, [_Pool()] * len(jobs)).go(DAY_SECONDS)
        except _ChangedError:  # a size that depends on data: nobody can tell the path beforehand
            self._overlaps = False
            return False
        return True


class _ChangedError(Exception):
    """A value has another shape than when the path was found."""


class _Job:
    """A part as a job; all its work is done where it is finished."""

    def __init__(self, found: Found, seen: Mapping[str, Any], values: dict[str, Any]) -> None:
        nodes = found.part.graph.nodes
        self.name = f"{found.part} from {nodes[0].name!r} to {nodes[-1].name!r}"
        self._found = found
        self._seen = seen
        self._values = values

    def start(self) -> None:
        """Do nothing: it begins when a thread takes it."""

    def finish(self) -> None:
        """Run the part, if what it reads is as it was."""
        given = {name: self._values[name] for name in self._seen}
        if any(signature(value) != self._seen[name] for name, value in given.items()):
            raise _ChangedError
        runner = self._found.runner  # of this moment: a trace puts its own in the place
        assert runner is not None, "parts without work are no jobs"
        self._values.update(runner.run(given))


class _Pool:
    """The threads of this process that run parts beside the caller's."""

    def put(self, call: Callable[[], None]) -> bool:
        """Have a call made; RuntimeError at the end of the process."""
        _threads().submit(call)
        return True


@functools.cache
def _threads() -> ThreadPoolExecutor:
    # Two at least: one waits for a device while the host works.
    return ThreadPoolExecutor(max(2, os.cpu_count() or 1), "vklab part")


def _before(parts: Sequence[Part]) -> list[set[int]]:
    """Return what each part waits for; those that use devices share memory: in their order."""
    makers = {name: n for n, part in enumerate(parts) for name in part.graph.outputs}
    found: list[set[int]] = []
    last: int | None = None
    for number, part in enumerate(parts):
        reads = (info.name for info in part.graph.inputs)
        before = {makers[name] for name in reads if name in makers}
        if part.kind != "host":
            before |= set() if last is None else {last}
            last = number
        found.append(before - {number})
    return found
