"""Frames of one session: submit one, await one, or map over many. Visited by lab 13."""

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

# Frames in flight for each device: one runs while the next is copied in.
IN_FLIGHT = 2
MOST_IN_FLIGHT = 1024
# Frames taken ahead for each frame in flight: faster replicas go on while a slow one works.
AHEAD = 4


def submit(session: Any, *inputs: Any) -> Future[Outputs]:
    """Queue a run, and return its future at once; inputs as in `run`, copied now.

    Several frames are in flight, each in memory of its own. Raises ModelError for inputs that do
    not fit; the future raises all later errors. A queued frame can be cancelled.
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
    """Await one run without blocking the event loop; otherwise as `submit`."""
    return await asyncio.wrap_future(submit(session, *inputs))


def map_items(session: Any, items: Iterable[Any], in_flight: int = 0) -> Iterator[Outputs]:
    """Yield the outputs of each item in order, with `in_flight` frames in flight.

    Args:
        session: the session.
        items: for each run one dict of inputs, one array, or a tuple of arrays; read lazily.
        in_flight: the number of frames; default two for each device. With replicas, four times as
            many are taken ahead, so that a slow device does not block the others.

    An error of an item or of the iterable is raised at its position in the order; frames queued
    after it are cancelled.
    """
    count = room(session, in_flight)
    frames = session.frames()

    def start(numbered: tuple[int, Any]) -> Future[Outputs]:
        number, item = numbered
        frames.grow(min(number, count))  # no more slots than items
        return submit(session, *(item if isinstance(item, tuple) else (item,)))

    return in_order(start, enumerate(items, 1), ahead(session.roots, count))


def room(session: Any, in_flight: int) -> int:
    """Return the number of frames in flight: `in_flight`, or the default for 0."""
    if in_flight < 0:
        raise ValueError(f"in_flight={in_flight}: at least one run must be in flight")
    if in_flight > MOST_IN_FLIGHT:
        raise ValueError(
            f"in_flight={in_flight}: at most {MOST_IN_FLIGHT} frames are in flight, "
            "each in memory of its own"
        )
    return in_flight or IN_FLIGHT * len(session.states)


def ahead(roots: Sequence[Any], in_flight: int) -> int:
    """Return the number of frames that are submitted before the first result is needed."""
    return in_flight * (AHEAD if len(roots) > 1 else 1)


def in_order(
    submit: Callable[[Any], Future[Outputs]], items: Iterator[Any], count: int
) -> Iterator[Outputs]:
    """Yield the outputs of each item in order, and keep `count` items submitted.

    Args:
        submit: starts a frame for an item.
        items: the items.
        count: the number of submitted items whose outputs were not yielded yet.
    """
    waiting: deque[Future[Outputs]] = deque()
    failure: Exception | None = None
    try:
        while True:
            while failure is None and len(waiting) < count:
                try:
                    waiting.append(submit(next(items)))
                except Exception as error:  # raised after the outputs of earlier items
                    failure = error
            if not waiting:
                break
            yield waiting.popleft().result()
        if not isinstance(failure, StopIteration):
            raise failure or AssertionError("items end by an exception")
    finally:
        for future in waiting:
            future.cancel()
