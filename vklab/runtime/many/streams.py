"""What a session can do with many frames: submit them, await them, map over them.

Visited by lab 13.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from vklab import settings
from vklab.runtime.many.frames import Frames, Outputs, Values

__all__ = ["IN_FLIGHT", "Streaming", "ahead", "in_order"]

# One runs while the next is copied in.
IN_FLIGHT = 2
# Frames taken ahead for each in flight: while the first waits for a slow device, others go on.
AHEAD = 4


class Streaming:
    """What a session can do with many frames."""

    _frames: Frames
    _members: Sequence[Any]
    _fed: Callable[[tuple[Any, ...]], Values]
    _require_equal: Callable[[Values, int, Outputs], None]

    def submit(self, *inputs: Any) -> Future[Outputs]:
        """Queue a run, and return at once; inputs as in `run`, copied now.

        Several are in flight, each in memory of its own. Raises ModelError for inputs that do
        not fit; all that happens later is raised by the future. A queued one can be cancelled.
        """
        values = self._fed(inputs)
        self._frames.grow(self._room(0))
        if not settings.get("CHECK"):
            return self._frames.submit(values)
        kept = copy.deepcopy(values)
        return self._frames.submit(kept, functools.partial(self._require_equal, dict(kept)))

    async def run_async(self, *inputs: Any) -> Outputs:
        """Run once without blocking the event loop; as `submit` otherwise."""
        return await asyncio.wrap_future(self.submit(*inputs))

    def map(self, items: Iterable[Any], in_flight: int = 0) -> Iterator[Outputs]:
        """Yield the outputs of each item in order, with `in_flight` of them under way.

        Args:
            items: for each run one dict of inputs, one array, or a tuple of arrays; taken as they
                are needed.
            in_flight: default two for each device. With replicas, four times as many are taken
                ahead, so that the first in order, on a slow device, holds up no other.

        An error, that of an item or that of the iterable, is raised at its place; what is queued
        behind it is cancelled.
        """
        count = self._room(in_flight)
        self._frames.grow(count)
        each = (item if isinstance(item, tuple) else (item,) for item in items)
        taken = ahead(self._frames.roots, count)
        return in_order(lambda item: self.submit(*item), each, taken)

    def _room(self, in_flight: int) -> int:
        """Return how many frames are in flight where a caller asked for so many, or for none."""
        if in_flight < 0:
            raise ValueError(f"in_flight={in_flight}: at least one run is under way")
        return in_flight or IN_FLIGHT * len(self._members)


def ahead(roots: Sequence[Any], in_flight: int) -> int:
    """Return how many frames are taken before the first of them is done."""
    return in_flight * (AHEAD if len(roots) > 1 else 1)


def in_order(
    submit: Callable[[Any], Future[Outputs]], items: Iterator[Any], count: int
) -> Iterator[Outputs]:
    """Yield the outputs of each item in order; `count` are submitted before the first is out."""
    waiting: deque[Future[Outputs]] = deque()
    failure: Exception | None = None
    try:
        while True:
            while failure is None and len(waiting) < count:
                try:
                    waiting.append(submit(next(items)))
                except Exception as error:  # raised when those before it are out
                    failure = error
            if not waiting:
                break
            yield waiting.popleft().result()
        if not isinstance(failure, StopIteration):
            raise failure or AssertionError("items end by an exception")
    finally:
        for future in waiting:
            future.cancel()
