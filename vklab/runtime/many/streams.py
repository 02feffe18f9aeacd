"""Many frames of one session: submit them, await them, map over them. Visited by lab 13."""

from __future__ import annotations

import asyncio
import copy
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from vklab import settings
from vklab.runtime.many.frames import Outputs

__all__ = ["IN_FLIGHT", "ahead", "in_order", "map_items", "room", "run_async", "submit"]

# One runs while the next is copied in.
IN_FLIGHT = 2
# Frames taken ahead for each in flight: while the first waits for a slow device, others go on.
AHEAD = 4


def submit(session: Any, *inputs: Any) -> Future[Outputs]:
    """Queue a run, and return at once; inputs as in `run`, copied now.

    Several are in flight, each in memory of its own. Raises ModelError for inputs that do not fit;
    the future raises all later errors. A queued frame can be cancelled.
    """
    values = session.arrays(inputs)
    frames = session.frames()
    frames.grow(room(session, 0))
    if not settings.get("CHECK"):
        future: Future[Outputs] = frames.submit(values)
        return future
    kept = copy.deepcopy(values)
    checked: Future[Outputs] = frames.submit(
        kept, functools.partial(session.require_equal, dict(kept))
    )
    return checked


async def run_async(session: Any, *inputs: Any) -> Outputs:
    """Run once without blocking the event loop; as `submit` otherwise."""
    return await asyncio.wrap_future(submit(session, *inputs))


def map_items(session: Any, items: Iterable[Any], in_flight: int = 0) -> Iterator[Outputs]:
    """Yield the outputs of each item in order, with `in_flight` of them under way.

    Args:
        session: the session.
        items: for each run one dict of inputs, one array, or a tuple of arrays; taken as they are
            needed.
        in_flight: default two for each device. With replicas, four times as many are taken ahead,
            so that the first in order, on a slow device, holds up no other.

    An error, that of an item or that of the iterable, is raised in its turn; the items queued
    behind it are cancelled.
    """
    count = room(session, in_flight)
    session.frames().grow(count)
    each = (item if isinstance(item, tuple) else (item,) for item in items)
    return in_order(lambda item: submit(session, *item), each, ahead(session.roots, count))


def room(session: Any, in_flight: int) -> int:
    """Return how many frames are in flight where a caller asked for so many, or for none."""
    if in_flight < 0:
        raise ValueError(f"in_flight={in_flight}: at least one run is under way")
    return in_flight or IN_FLIGHT * len(session.states)


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
