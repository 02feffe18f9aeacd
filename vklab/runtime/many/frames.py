"""Frames in flight: each has a slot with memory of its own; the weights are shared.

A frame goes to the device with most free slots. One thread for each device waits for its frames
and gives each freed slot to the next queued frame, so a fast device gets more of them. Visited by
lab 13.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from vklab import settings
from vklab.base import forking
from vklab.errors import VklabError
from vklab.runtime.executor import Executor
from vklab.runtime.many.scheduler import DeviceWorker, on_lane
from vklab.runtime.open_devices import Closable
from vklab.runtime.plan_cache import Entry, PlanCache

Outputs = dict[str, np.ndarray]
Values = dict[str, Any]
After = Callable[[int, Outputs], None]
Profiler = Callable[[PlanCache, Values], Any]
MOST_CALLBACKS = 64  # running at once; each may wait for frames or for other callbacks


class FrameSlot:
    """Buffers and programs for one frame at a time.

    Args:
        root: the root plan cache of the device.
        replica: as the attribute.
        profile: times one run, for DEBUG=2.

    Attributes:
        replica: the number of the slot's device among the devices that have the whole model.
        executor: a clone that runs the frame in buffers of its own.
        plans: a clone of the root plan cache, with programs for these buffers.
        failure: the error of `start`, which `finish` raises.
    """

    def __init__(self, root: PlanCache, replica: int, profile: Profiler) -> None:
        self.replica = replica
        self.executor: Executor = root.executor.clone()
        self.plans = root.clone(self.executor)
        self.failure: Exception | None = None
        self._started: Entry | None = None
        self._profile = profile

    def start(self, values: Values) -> bool:
        """Submit the frame if it is one program; return False if `finish` must run it."""
        if int(settings.get("DEBUG")) < 2:
            key = self.plans.key(values)
            entry = self.plans.entries.get(key)
            if entry and entry.whole is not None:
                self.plans.entries.move_to_end(key)
                entry.whole.start(values)
                self._started = entry
        return self._started is not None

    def finish(self, values: Values) -> Outputs:
        """Wait for a started frame, or run one that was not started; return the outputs."""
        failure, self.failure = self.failure, None
        entry, self._started = self._started, None
        if failure:
            raise failure
        if entry:
            outputs: Outputs = entry.whole.finish()
            return outputs
        if int(settings.get("DEBUG")) >= 2:
            print(self._profile(self.plans, dict(values)), file=sys.stderr)
        return dict(self.executor.run(self.plans, values))

    def close(self) -> None:
        """Free the slot's programs and buffers."""
        with self.executor.lock:  # other threads may plan, which counts weights
            self.plans.close()
            self.executor.close()


class _Future(Future[Outputs]):
    """A future whose callbacks may wait for other frames: no device's thread runs them."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = forking.owner()

    def result(self, timeout: float | None = None) -> Outputs:
        """Wait for the outputs; VklabError in a child that was forked before they were there."""
        if not self.done():
            forking.require_own(self._owner, "this frame")
        return super().result(timeout)

    def add_done_callback(self, fn: Callable[[Future[Outputs]], object]) -> None:
        """Call `fn` when the frame is done, on a callback thread; at once if it is done already."""
        super().add_done_callback(functools.partial(_call, fn))


def _call(fn: Callable[[Future[Outputs]], object], future: Future[Outputs]) -> None:
    if on_lane():
        try:
            _callers().submit(_logged, fn, future)
            return
        except RuntimeError:  # no thread can be started: the process ends
            pass
    fn(future)


def _logged(fn: Callable[[Future[Outputs]], object], future: Future[Outputs]) -> None:
    try:
        fn(future)
    except Exception:  # logged, as `concurrent.futures` does
        log = logging.getLogger("concurrent.futures")
        log.exception("exception calling callback for %r", future)


@functools.cache
def _callers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_CALLBACKS, "vklab callback")


forking.in_child(_callers.cache_clear)


class _Frame:
    """One queued or started run: its inputs, its future, and a function to call afterwards."""

    __slots__ = ("after", "context", "future", "is_owner", "values")

    def __init__(self, values: Values, after: After | None) -> None:
        self.future = _Future()
        self.context = contextvars.copy_context()
        self.values = values
        self.after = after
        self.is_owner = False

    def own(self) -> None:
        """Copy the inputs, because the caller may change them before they are read."""
        if not self.is_owner:
            self.is_owner = True
            self.values = {
                name: value.copy() if isinstance(value, np.ndarray) else value
                for name, value in self.values.items()
            }

    def finish(self, slot: FrameSlot) -> Outputs:
        """Wait for the frame in its slot, and return its outputs."""
        outputs = slot.finish(self.values)
        if self.after:
            self.after(slot.replica, outputs)
        return outputs


class Frames:
    """Frames in flight on each device of `roots`, in slots that are clones of its plans.

    A frame of one submission is submitted by the calling thread, or by the thread that frees its
    slot; its device's worker waits for it. Any other frame runs on a pool of threads. No thread
    refers to the session, so a session without other references can be collected.

    Args:
        roots: the root plan cache of each device that has the whole model.
        used: the session's objects that frames use; closed after the slots.
        profile: times one run, for DEBUG=2.
    """

    def __init__(
        self, roots: Sequence[PlanCache], used: Sequence[Closable] = (),
        profile: Profiler = lambda plans, values: "",
    ) -> None:  # fmt: skip
        self.roots = roots
        self._profile = profile
        self.slots: list[FrameSlot] = []
        self._free: list[list[FrameSlot]] = [[] for _ in roots]
        self._queued: deque[_Frame] = deque()
        names = [f"vklab device {root.executor.devices[0].opened.info.index}" for root in roots]
        self._workers = [DeviceWorker(name, self._may_end) for name in names]
        self._pool = DeviceWorker("vklab frame", self._may_end)
        self._used = used
        self._lock = threading.Lock()
        self._freeing = threading.Lock()
        self._is_closed = self._ends = self._is_left = False
        self._home = threading.Event()

    def grow(self, count: int) -> None:
        """Create slots until there are `count`, in turn on each device."""
        if len(self.slots) < count:
            with self._lock:
                while len(self.slots) < count and not self._is_closed:
                    replica = len(self.slots) % len(self.roots)
                    self.slots.append(FrameSlot(self.roots[replica], replica, self._profile))
                    self._free[replica].append(self.slots[-1])

    def submit(self, values: Values, after: After | None = None) -> Future[Outputs]:
        """Start a frame, or queue it; its inputs are copied before this returns.

        Args:
            values: checked inputs by name.
            after: called with the replica's number and the outputs before the future is set.
        """
        frame = _Frame(values, after)
        slot = self._take(None)
        if slot is None:
            frame.own()
            slot = self._take(frame)
        if slot:
            frame.future.set_running_or_notify_cancel()
            self._begin(frame, slot)
        return frame.future

    def _take(self, frame: _Frame | None) -> FrameSlot | None:
        """Return a free slot of the device that has most; if none is free, queue the frame."""
        with self._lock:  # no frame may be queued after `end`
            if self._is_closed:
                raise VklabError("this session is closed; load the model again")
            free = max(self._free, key=len)
            if free:
                return free.pop()
            if frame:
                self._queued.append(frame)
        return None

    def _begin(self, frame: _Frame, slot: FrameSlot) -> None:
        """Start a frame if it is one submission, and queue the wait for it on a worker."""
        worker, count = self._pool, len(self.slots)
        try:
            if slot.start(frame.values):
                worker, count = self._workers[slot.replica], 1
        except Exception as error:
            slot.failure = error
        finally:  # an interrupt, too, must not lose the slot
            if worker is self._pool:
                frame.own()
            finish = functools.partial(self._finish, frame, slot)
            if not worker.put(finish, count):
                finish()
            elif self._is_closed:  # the threads may have ended
                worker.drain()

    def _finish(self, frame: _Frame, slot: FrameSlot) -> None:
        try:
            outputs = frame.context.run(frame.finish, slot)
        except BaseException as error:
            self._release(slot)
            frame.future.set_exception(error)
        else:
            self._release(slot)
            frame.future.set_result(outputs)
        if self._is_left:
            self._free_all()

    def _release(self, slot: FrameSlot) -> None:
        """Give the slot to the next queued frame, or mark it as free."""
        while True:
            with self._lock:
                if not self._queued:
                    self._free[slot.replica].append(slot)
                    if self._ends and self._is_idle():
                        self._home.set()
                        self.stop()
                    return
                frame = self._queued.popleft()
            if frame.future.set_running_or_notify_cancel():
                frame.context.copy().run(self._begin, frame, slot)
                return

    def _is_idle(self) -> bool:
        return not self._queued and sum(map(len, self._free)) == len(self.slots)

    def _may_end(self) -> bool:
        with self._lock:
            self._ends = True
            return self._is_idle()

    def end(self) -> None:
        """Fail the frames that have not begun, and wait for the frames in flight.

        The wait has a limit: a device times out, but a host chunk may run longer.
        """
        with self._lock:
            self._is_closed = True
            queued, self._queued = self._queued, deque()
        for frame in queued:
            if frame.future.set_running_or_notify_cancel():
                error = VklabError("the session was closed before this frame began")
                frame.future.set_exception(error)
        for worker in (*self._workers, self._pool):
            worker.drain()  # its threads may wait for this thread, in a future's callback
        deadline = time.monotonic() + 2 * float(settings.get("TIMEOUT")) + 1
        if not self._may_end() and not self._home.wait(deadline - time.monotonic()):
            return
        for worker in (*self._workers, self._pool):
            worker.close(deadline - time.monotonic())

    def close(self) -> bool:
        """Free all slots if no frame is in flight; else return False: the last frame frees them."""
        self._is_left = True
        return self._free_all()

    def _free_all(self) -> bool:
        with self._freeing:  # a second caller returns only after everything is freed
            with self._lock:
                if not self._is_idle():
                    return False
                slots, self.slots = self.slots, []
                self._free = [[] for _ in self.roots]
                used, self._used = self._used, ()
            for part in (*slots, *used):
                part.close()
        return True

    def stop(self) -> None:
        """Let the threads end after their queued calls, without waiting for them."""
        for worker in (*self._workers, self._pool):
            worker.stop()
