"""Many frames in flight: each has memory of its own, the weights are shared.

Every thread runs one frame at a time and takes the next from one queue, so a fast device takes
more of them. Visited by lab 13.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import VklabError
from vklab.graph.graph import Graph
from vklab.runtime import feeds
from vklab.runtime.parts import Stage

__all__ = ["Frames", "Outputs", "Slots", "Streaming"]

# One runs while the next is copied in: more pay on machines of many cores.
IN_FLIGHT = 2
Outputs = dict[str, np.ndarray]
Run = Callable[[list[Any]], Outputs]
_Task = tuple["Future[Outputs]", contextvars.Context, list[Any]]


class Slots:
    """Where frames run: on each device of `roots` first, then in twins beside them.

    Args:
        lock: of the first root, which `Session.run` uses too.
    """

    def __init__(self, roots: Sequence[Stage], lock: threading.Lock) -> None:
        self.roots = roots
        self._lock = lock
        self._made: list[Stage] = list(roots[1:])

    def place(self, number: int) -> Run:
        """Return what runs the frames of a thread."""
        stage = self.roots[number % len(self.roots)]
        if number == 0:
            return functools.partial(_run, stage, self._lock)
        if number >= len(self.roots):
            stage = stage.twin(stage.engine.twin())
            self._made.append(stage)
        return functools.partial(_run, stage, contextlib.nullcontext())

    def close(self) -> None:
        """Free all but the first root."""
        while self._made:
            stage = self._made.pop()
            stage.close()
            if stage.engine.reserve:
                stage.engine.reserve.close()


def _run(stage: Stage, lock: contextlib.AbstractContextManager[Any], arrays: list[Any]) -> Outputs:
    names = (info.name for info in stage.graph.inputs)
    # A thread that polls takes the interpreter from those that have frames to submit.
    with lock, settings.settings(DISABLE_POLLING=True):
        outputs = stage.run(dict(zip(names, arrays, strict=True)))
    return dict(zip(stage.graph.outputs, outputs, strict=True))


class Frames:
    """Threads that run frames, each in a slot of its own.

    A thread knows nothing of the session, so one that is forgotten can be collected.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def grow(self, count: int) -> None:
        """Have at least so many threads."""
        with self._lock:
            while len(self._threads) < count and not self._is_closed:
                number = len(self._threads)
                thread = threading.Thread(
                    target=self._work, args=(number,), name=f"vklab frame {number}", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def submit(self, arrays: list[Any]) -> Future[Outputs]:
        """Queue a frame; the arrays are the frame's own."""
        future: Future[Outputs] = Future()
        with self._lock:  # nothing is queued behind the end
            if self._is_closed:
                raise VklabError("this session is closed; load the model again")
            self._tasks.put((future, contextvars.copy_context(), arrays))
        return future

    def _work(self, number: int) -> None:
        run: Run | None = None
        while task := self._tasks.get():
            future, context, arrays = task
            if future.set_running_or_notify_cancel():
                try:
                    run = run or self.slots.place(number)
                    outputs = context.run(run, arrays)
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(outputs)
                    del outputs
            del task, future, context, arrays  # a waiting thread holds no memory of the last one

    def close(self) -> None:
        """Fail the frames that have not begun, wait for those in flight, and free the slots."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        for future, _, _ in iter(self._next, None):
            if future.set_running_or_notify_cancel():
                future.set_exception(VklabError("the session was closed before this frame began"))
        if is_first:
            self.stop()
        limit = 2 * float(settings.get("TIMEOUT")) + 1
        for thread in self._threads:
            if thread is not threading.current_thread():  # that of a future's callback
                thread.join(limit)
        self.slots.close()

    def stop(self) -> None:
        """Let the threads end after what is queued; nobody waits for them."""
        for _ in self._threads:
            self._tasks.put(None)

    def _next(self) -> _Task | None:
        try:
            return self._tasks.get_nowait()
        except queue.Empty:
            return None


class Streaming:
    """What a session can do with many frames."""

    graph: Graph
    upper_bounds: Mapping[str, int]
    _frames: Frames
    _members: Sequence[Any]

    def submit(self, *inputs: Any) -> Future[Outputs]:
        """Queue a run, and return at once; inputs as in `run`, copied now.

        Several are in flight, each in memory of its own. Raises ModelError for inputs that do
        not fit; all that happens later is raised by the future. A queued one can be cancelled.
        """
        given = feeds.arrays(self.graph.inputs, inputs, self.upper_bounds)
        arrays = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
        self._frames.grow(IN_FLIGHT * len(self._members))
        return self._frames.submit(arrays)

    async def run_async(self, *inputs: Any) -> Outputs:
        """Run once without blocking the event loop; as `submit` otherwise."""
        return await asyncio.wrap_future(self.submit(*inputs))

    def map(self, items: Iterable[Any], in_flight: int = 0) -> Iterator[Outputs]:
        """Yield the outputs of each item in order, with `in_flight` of them under way.

        Args:
            items: for each run one dict of inputs, one array, or a tuple of arrays; taken as they
                are needed.
            in_flight: default two for each device.

        An error, that of an item or that of the iterable, is raised at its place; what is queued
        behind it is cancelled.
        """
        count = in_flight or IN_FLIGHT * len(self._members)
        if count < 1:
            raise ValueError(f"in_flight={in_flight}: at least one run is under way")
        self._frames.grow(count)
        each = (item if isinstance(item, tuple) else (item,) for item in items)
        return _in_order(lambda item: self.submit(*item), each, count)


def _in_order(
    submit: Callable[[Any], Future[Outputs]], items: Iterator[Any], in_flight: int
) -> Iterator[Outputs]:
    ahead: deque[Future[Outputs]] = deque()
    failure: Exception | None = None
    try:
        while True:
            while failure is None and len(ahead) < in_flight:
                try:
                    ahead.append(submit(next(items)))
                except Exception as error:  # raised when those before it are out
                    failure = error
            if not ahead:
                break
            yield ahead.popleft().result()
        if not isinstance(failure, StopIteration):
            raise failure or AssertionError("items end by an exception")
    finally:
        for future in ahead:
            future.cancel()
