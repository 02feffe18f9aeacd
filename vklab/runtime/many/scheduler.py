"""Scheduling of jobs by dependency counting: a job starts when its last predecessor has ended.

Knows neither devices nor models. Each job is started, and finished on a work queue; the calling
thread finishes jobs too, so a chain of jobs stays on it. A run's lock guards all shared state, so
nothing relies on the GIL. Visited by labs 12 and 13.
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

_here = threading.local()


class Job(Protocol):
    """Interface of one piece of work, such as a chunk on a device.

    A job that is started right behind a running one must end after it.
    """

    name: str

    def start(self) -> None:
        """Begin the work without waiting."""

    def finish(self) -> None:
        """Wait for the end of the work, at most a limited time, and pass its results on."""


class WorkQueue(Protocol):
    """Interface of a queue that finishes jobs: a DeviceWorker, or a pool of threads."""

    def put(self, call: Callable[[], None]) -> bool:
        """Queue a call; return False if the queue is closed."""


class DeviceWorker:
    """A queue of calls with one thread for a device, or more; calls are taken in order.

    Args:
        name: the name of the threads.
        may_end: tells a stopped thread whether it may end.
    """

    def __init__(self, name: str, may_end: Callable[[], bool] = lambda: True) -> None:
        self.name = name
        self.threads: list[threading.Thread] = []
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._may_end = may_end
        self._lock = threading.Lock()
        self._is_closed = False

    def put(self, call: Callable[[], None], count: int = 1) -> bool:
        """Queue a call, which must not raise; return False if no thread can run it.

        Args:
            call: the call.
            count: the number of threads to have.
        """
        with self._lock:  # no call may be queued behind the items that end the threads
            if self._is_closed:
                return False
            try:
                while len(self.threads) < count:
                    name = f"{self.name} {len(self.threads) or ''}".strip()
                    thread = threading.Thread(target=self._work, name=name, daemon=True)
                    thread.start()
                    self.threads.append(thread)
            except RuntimeError:  # no more threads can be started
                if not self.threads:
                    return False
            self._calls.put(call)
        return True

    def _work(self) -> None:
        _here.worker = self
        while True:
            if call := self._calls.get():
                call()
            elif self._may_end():
                break
            del call  # a waiting thread must not keep the last call's memory alive

    def drain(self) -> None:
        """Run the queued calls on the calling thread."""
        while not self._calls.empty():
            with contextlib.suppress(queue.Empty):
                if call := self._calls.get_nowait():
                    call()

    def stop(self) -> None:
        """Let the threads end after the queued calls; take no lock, and do not wait."""
        for _ in self.threads:
            self._calls.put(None)

    def close(self, seconds: float = 10.0) -> None:
        """Finish the queued calls, and end the threads; wait for them at most `seconds`."""
        with self._lock:
            self._is_closed = True
        self.stop()
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def on_lane() -> bool:
    """Tell whether this is a thread of a DeviceWorker, which must not wait for its own queue."""
    return hasattr(_here, "worker")


class Order:
    """Dependencies of jobs, checked and inverted once, and used by every run.

    Source: A. B. Kahn, "Topological sorting of large networks", 1962.

    Args:
        predecessors: for each job, the numbers of the jobs that it waits for.
        behind: for each job, those predecessors that need only have started, because their queue
            runs them in order; default none.

    Attributes:
        dependents: for each job, the jobs that wait for its end.
        followers: for each job, the jobs that wait for its start.
        counts: for each job, the number of its predecessors.
        roots: the jobs without predecessors.

    Raises PlanError for a cycle, an unknown job, or a `behind` job that is no predecessor.
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
                raise PlanError(
                    f"job {number} starts behind {sorted(early - before)}, which are "
                    "not its predecessors"
                )
            for other in before:
                if not 0 <= other < len(each):
                    raise PlanError(f"job {number} waits for job {other}; there are {len(each)}")
                (followers if other in early else dependents)[other].append(number)
        self.dependents = tuple(map(tuple, dependents))
        self.followers = tuple(map(tuple, followers))
        self.counts = tuple(map(len, each))
        self.roots = tuple(number for number, count in enumerate(self.counts) if not count)
        counts, ready = list(self.counts), list(self.roots)
        for number in ready:  # the loop appends to the list
            for other in self.dependents[number] + self.followers[number]:
                counts[other] -= 1
                if not counts[other]:
                    ready.append(other)
        if len(ready) < len(each):
            stuck = [number for number, count in enumerate(counts) if count]
            raise PlanError(f"jobs {stuck} wait for each other in a circle")


class Run:
    """One run of jobs, with a lock of its own that guards a few counters.

    Source: A. B. Kahn, "Topological sorting of large networks", 1962: each completed job counts
    its dependents down, and a job whose count is zero is ready.

    Args:
        order: the dependencies.
        jobs: the jobs, by number.
        queues: for each job, the work queue that finishes it.
    """

    def __init__(self, order: Order, jobs: Sequence[Job], queues: Sequence[WorkQueue]) -> None:
        self.order = order
        self.jobs = jobs
        self.queues = queues
        self.error: BaseException | None = None
        self._waiting = list(order.counts)
        self._in_flight: set[int] = set()
        self._done_count = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def go(self, limit_seconds: float) -> None:
        """Run all jobs; return when none is in flight any more.

        Raises the first error of a job, naming the job; CancelledError after `cancel`;
        TimeoutError if no job was completed for `limit_seconds`.
        """
        mine: deque[int] = deque()
        try:
            self._launch(self._first(), mine)
            while mine:
                self._launch(self._finish(mine.popleft()), mine)
            self._wait(limit_seconds)
        except BaseException as error:  # an interrupt, too: jobs in flight must still be finished
            if error is not self.error:
                self.cancel(error)
                for number in mine:
                    self._finish(number)
                self.is_over(limit_seconds)
            raise
        if self.error is not None:
            raise self.error

    def is_over(self, seconds: float = 0.0) -> bool:
        """Tell whether no job is in flight any more, after waiting up to `seconds`."""
        return self._ended.wait(seconds)

    def cancel(self, error: BaseException | None = None) -> None:
        """Start no more jobs; `go` waits for the jobs in flight and raises."""
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
        """Start jobs, and put each on its queue; `mine` takes the last and those it is behind."""
        begun = self._begin(ready)
        if mine is not None and not mine and begun:
            mine.append(begun.pop())
            while begun and mine[0] in self.order.followers[begun[-1]]:
                mine.appendleft(begun.pop())
        for number in begun:  # grows if a queue is closed and this thread finishes the job
            if not self._hand_over(number):
                begun += self._begin(self._finish(number))

    def _begin(self, ready: Sequence[int]) -> list[int]:
        """Start jobs unless the run has failed; return the started ones, still to be finished."""
        begun = []
        ready = list(ready)
        for number in ready:  # grows by followers, which wait for a start only
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
        context = contextvars.copy_context()  # the caller's settings apply on every thread
        try:
            return self.queues[number].put(functools.partial(context.run, self._work, number))
        except RuntimeError:  # no thread can be started
            return False

    def _work(self, number: int) -> None:
        self._launch(self._finish(number))

    def _finish(self, number: int) -> Sequence[int]:
        """Finish a job; return the jobs that are ready now."""
        failure = None
        try:
            self.jobs[number].finish()
        except BaseException as error:
            failure = error
        return self._complete(number, failure)

    def _complete(self, number: int, failure: BaseException | None) -> Sequence[int]:
        """Count a job as done; return the jobs that are ready now, none after an error."""
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
        """Count jobs down, with the lock taken; return those whose count reached zero."""
        ready = []
        for other in waiting if self.error is None else ():
            self._waiting[other] -= 1
            if not self._waiting[other]:
                ready.append(other)
        self._in_flight.update(ready)
        return ready


def _named(error: BaseException, name: str) -> BaseException:
    """Return an error with the name of the job that raised it."""
    if isinstance(error, VulkanError):
        detail = f"{error.detail}; in {name}" if error.detail else f"in {name}"
        named = type(error)(error.command, error.result, detail)
        named.__cause__ = error
        return named
    error.add_note(f"in {name}")
    return error
