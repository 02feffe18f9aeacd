"""Jobs that wait for each other: each completion starts what it was the last to hold up.

Knows neither devices nor models: a job is started, and finished on a lane, the thread that waits
for one device. The caller's thread finishes jobs too, so a chain never leaves it. What threads
share is changed under a run's lock, so nothing relies on an interpreter's lock. Visited by lab 13.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from typing import Protocol

from vklab.errors import PlanError, TimeoutError, VulkanError

__all__ = ["Job", "DeviceWorker", "WorkQueue", "Order", "Run", "on_lane"]

_here = threading.local()


class Job(Protocol):
    """One piece of work: a chunk on a device, or anything else that ends by itself.

    Of jobs that are started behind each other, each ends only after those before it.
    """

    name: str

    def start(self) -> None:
        """Begin, without waiting."""

    def finish(self) -> None:
        """Wait until it is done, a finite time, and hand on what it made."""


class WorkQueue(Protocol):
    """What finishes jobs: a lane, or a pool of threads."""

    def put(self, call: Callable[[], None]) -> bool:
        """Have a call made; return False if none is made any more."""


class DeviceWorker:
    """Threads that make calls in the order in which they came: one for a device, or more.

    Args:
        may_end: tells a thread that is to end whether it may.
    """

    def __init__(self, name: str, may_end: Callable[[], bool] = lambda: True) -> None:
        self.name = name
        self.threads: list[threading.Thread] = []
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._may_end = may_end
        self._lock = threading.Lock()
        self._is_closed = False

    def put(self, call: Callable[[], None], count: int = 1) -> bool:
        """Have a call made, which must not raise; return False if no thread makes it.

        Args:
            count: how many threads there should be.
        """
        with self._lock:  # no call may follow those that end the threads
            if self._is_closed:
                return False
            try:
                while len(self.threads) < count:
                    name = f"{self.name} {len(self.threads) or ''}".strip()
                    thread = threading.Thread(target=self._work, name=name, daemon=True)
                    thread.start()
                    self.threads.append(thread)
            except RuntimeError:  # no more can be had
                if not self.threads:
                    return False
            self._calls.put(call)
        return True

    def _work(self) -> None:
        _here.lane = self
        while True:
            if call := self._calls.get():
                call()
            elif self._may_end():
                break
            del call  # a waiting thread holds no memory of the last one

    def drain(self) -> None:
        """Make here and now the calls that wait."""
        while not self._calls.empty():
            with contextlib.suppress(queue.Empty):
                if call := self._calls.get_nowait():
                    call()

    def stop(self) -> None:
        """Let the threads end after the calls that wait; takes no lock, and waits for nobody."""
        for _ in self.threads:
            self._calls.put(None)

    def close(self, seconds: float = 10.0) -> None:
        """Make the calls that are left, and end the threads."""
        with self._lock:
            self._is_closed = True
        self.stop()
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def on_lane() -> bool:
    """Tell whether this is a thread of a lane, which must not wait for others of it."""
    return hasattr(_here, "lane")


class Order:
    """What waits for what: checked and turned round once, used by every run.

    Args:
        predecessors: for each job those that it waits for.
        behind: for each job those of them that need only be started before it is: what runs them
            keeps the order. Not given, there are none.

    Attributes:
        dependents: for each job the jobs that wait for its end.
        followers: for each job the jobs that wait for its start.
        counts: how many jobs each job waits for.
        roots: jobs that wait for none.

    Raises PlanError if a job waits for itself, directly or through others.
    """

    def __init__(
        self, predecessors: Sequence[Iterable[int]], behind: Sequence[Iterable[int]] = ()
    ) -> None:
        each = [frozenset(before) for before in predecessors]
        starts = [frozenset(before) for before in behind] or [frozenset()] * len(each)
        dependents: list[list[int]] = [[] for _ in each]
        followers: list[list[int]] = [[] for _ in each]
        for number, (before, early) in enumerate(zip(each, starts, strict=True)):
            if not early <= before:
                raise PlanError(f"job {number} starts behind {sorted(early - before)}, for which "
                                "it does not wait")  # fmt: skip
            for other in before:
                if not 0 <= other < len(each):
                    raise PlanError(f"job {number} waits for job {other}; there are {len(each)}")
                (followers if other in early else dependents)[other].append(number)
        self.dependents = tuple(map(tuple, dependents))
        self.followers = tuple(map(tuple, followers))
        self.counts = tuple(map(len, each))
        self.roots = tuple(number for number, count in enumerate(self.counts) if not count)
        counts, ready = list(self.counts), list(self.roots)
        for number in ready:  # grows on the way
            for other in self.dependents[number] + self.followers[number]:
                counts[other] -= 1
                if not counts[other]:
                    ready.append(other)
        if len(ready) < len(each):
            stuck = [number for number, count in enumerate(counts) if count]
            raise PlanError(f"jobs {stuck} wait for each other in a circle")


class Run:
    """One run of jobs in an order. The lock is this run's own, held for a few counters.

    Args:
        lanes: for each job the lane that finishes it.
    """

    def __init__(self, order: Order, jobs: Sequence[Job], lanes: Sequence[WorkQueue]) -> None:
        self.order = order
        self.jobs = jobs
        self.lanes = lanes
        self.error: BaseException | None = None
        self._waiting = list(order.counts)
        self._in_flight: set[int] = set()
        self._done_count = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def go(self, limit_seconds: float) -> None:
        """Run all jobs; return when none is in flight any more.

        Raises the first job's error, which names the job; CancelledError after `cancel`;
        TimeoutError if for `limit_seconds` nothing was completed.
        """
        mine: deque[int] = deque()
        try:
            self._launch(self._first(), mine)
            while mine:
                self._launch(self._finish(mine.popleft()), mine)
            self._wait(limit_seconds)
        except BaseException as error:  # an interrupt: what is in flight must still come home
            if error is not self.error:
                self.cancel(error)
                for number in mine:
                    self._finish(number)
                self.is_over(limit_seconds)
            raise
        if self.error is not None:
            raise self.error

    def is_over(self, seconds: float = 0.0) -> bool:
        """Tell whether nothing of it is in flight, waiting for that a while."""
        return self._ended.wait(seconds)

    def cancel(self, error: BaseException | None = None) -> None:
        """Start nothing any more; what is in flight is drained, and `go` raises."""
        with self._lock:
            if self.error is None and not self._ended.is_set():
                self.error = error or CancelledError("the run was cancelled")

    def _wait(self, limit_seconds: float) -> None:
        seen = self._done_count
        while not self._ended.wait(limit_seconds):
            with self._lock:
                if seen == self._done_count:
                    names = ", ".join(self.jobs[n].name for n in sorted(self._in_flight))
                    detail = f"{names} did not finish within {limit_seconds:g} s"
                    self.error = self.error or TimeoutError("run", "VK_TIMEOUT", detail)
                    raise self.error
                seen = self._done_count

    def _first(self) -> Sequence[int]:
        with self._lock:
            roots = self.order.roots if self.error is None else ()
            self._in_flight.update(roots)
            if not roots:
                self._ended.set()
        return roots

    def _launch(self, ready: Sequence[int], mine: deque[int] | None = None) -> None:
        """Start jobs, and give each to its lane, but the last and those it is behind to `mine`."""
        begun = self._begin(ready)
        if mine is not None and not mine and begun:
            mine.append(begun.pop())
            while begun and mine[0] in self.order.followers[begun[-1]]:
                mine.appendleft(begun.pop())
        for number in begun:  # grows where a lane takes no more, and this thread waits
            if not self._hand_over(number):
                begun += self._begin(self._finish(number))

    def _begin(self, ready: Sequence[int]) -> list[int]:
        """Start jobs unless the run has failed; return those that must be waited for."""
        begun = []
        ready = list(ready)
        for number in ready:  # grows by those that had to wait for a start only
            failure = None
            try:
                if self.error is None:
                    self.jobs[number].start()
                    begun.append(number)
                    with self._lock:
                        ready += self._freed(self.order.followers[number])
                    continue
            except BaseException as error:
                failure = error
            self._complete(number, failure)
        return begun

    def _hand_over(self, number: int) -> bool:
        context = contextvars.copy_context()  # the caller's settings hold on every thread
        try:
            return self.lanes[number].put(functools.partial(context.run, self._work, number))
        except RuntimeError:  # no thread can be had
            return False

    def _work(self, number: int) -> None:
        self._launch(self._finish(number))

    def _finish(self, number: int) -> Sequence[int]:
        """Wait for a job; return those that can start now."""
        failure = None
        try:
            self.jobs[number].finish()
        except BaseException as error:
            failure = error
        return self._complete(number, failure)

    def _complete(self, number: int, failure: BaseException | None) -> Sequence[int]:
        """Count a job as done; return those that waited for it only, none after an error."""
        with self._lock:
            if failure is not None and self.error is None:
                self.error = _named(failure, self.jobs[number].name)
            ready = self._freed(self.order.dependents[number])
            self._in_flight.remove(number)
            self._done_count += 1
            if not self._in_flight:
                self._ended.set()
        return ready

    def _freed(self, waiting: Sequence[int]) -> Sequence[int]:
        """Count down jobs under the lock; return those that waited for nothing else."""
        ready = []
        for other in waiting if self.error is None else ():
            self._waiting[other] -= 1
            if not self._waiting[other]:
                ready.append(other)
        self._in_flight.update(ready)
        return ready


def _named(error: BaseException, name: str) -> BaseException:
    """Return an error that names the job in which it happened."""
    if isinstance(error, VulkanError):
        detail = f"{error.detail}; in {name}" if error.detail else f"in {name}"
        named = type(error)(error.command, error.result, detail)
        named.__cause__ = error
        return named
    error.add_note(f"in {name}")
    return error
