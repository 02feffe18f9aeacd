"""Many frames in flight: each has memory of its own, the weights are shared.

Whoever submits a frame hands it to a device that has a place free; one thread a device brings
frames home, and gives the places to those that wait, so a fast device takes more of them.
Visited by lab 13.
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
from vklab.errors import VklabError
from vklab.runtime.executor import Executor
from vklab.runtime.many.scheduler import DeviceWorker, on_lane
from vklab.runtime.open_devices import Closable
from vklab.runtime.plan_cache import Entry, PlanCache

__all__ = ["Frames", "Outputs", "FrameSlot", "Values"]

Outputs = dict[str, np.ndarray]
Values = dict[str, Any]
After = Callable[[int, Outputs], None]
Profiler = Callable[[PlanCache, Values], Any]
MOST_CALLBACKS = 64  # at once; each may wait for frames and for others


class FrameSlot:
    """Memory for one frame at a time.

    Attributes:
        lane: the device's number among those that have the whole model.
        executor: runs the frame, in memory of its own.
        plans: the plans of the model, with programs for this memory.
        failure: why the frame could not be started; raised when it is finished.
    """

    def __init__(self, root: PlanCache, lane: int, profile: Profiler) -> None:
        self.lane = lane
        self.executor: Executor = root.executor.clone()
        self.plans = root.clone(self.executor)
        self.failure: Exception | None = None
        self._started: Entry | None = None
        self._profile = profile

    def start(self, values: Values) -> bool:
        """Submit the frame; return False if there is more to do than that."""
        if int(settings.get("DEBUG")) < 2:
            key = self.plans.key(values)
            entry = self.plans.entries.get(key)
            if entry and entry.whole is not None:
                self.plans.entries.move_to_end(key)
                entry.whole.start(values)
                self._started = entry
        return self._started is not None

    def finish(self, values: Values) -> Outputs:
        """Wait for the frame, or do all of it if it was not started."""
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
        """Free the frame's programs and memory."""
        with self.executor.lock:  # others may plan: weights are counted
            self.plans.close()
            self.executor.close()


class _Future(Future[Outputs]):
    """A future whose callbacks may wait for other frames: who brings frames home runs none."""

    def add_done_callback(self, fn: Callable[[Future[Outputs]], object]) -> None:
        """Have a function called when it is done, on a thread of its own, or here if it is."""
        super().add_done_callback(functools.partial(_call, fn))


def _call(fn: Callable[[Future[Outputs]], object], future: Future[Outputs]) -> None:
    if on_lane():
        try:
            _callers().submit(_logged, fn, future)
            return
        except RuntimeError:  # no thread can be had: the process ends
            pass
    fn(future)


def _logged(fn: Callable[[Future[Outputs]], object], future: Future[Outputs]) -> None:
    try:
        fn(future)
    except Exception:  # as other futures do
        log = logging.getLogger("concurrent.futures")
        log.exception("exception calling callback for %r", future)


@functools.cache
def _callers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_CALLBACKS, "vklab callback")


class _Frame:
    """One run: its inputs, where the outputs go, and what else is done with them."""

    __slots__ = ("after", "context", "future", "is_owner", "values")

    def __init__(self, values: Values, after: After | None) -> None:
        self.future = _Future()
        self.context = contextvars.copy_context()
        self.values = values
        self.after = after
        self.is_owner = False

    def own(self) -> None:
        """Copy the inputs: the caller may change them before they are read."""
        if not self.is_owner:
            self.is_owner = True
            self.values = {name: value.copy() if isinstance(value, np.ndarray) else value
                           for name, value in self.values.items()}  # fmt: skip

    def finish(self, slot: FrameSlot) -> Outputs:
        """Bring it home from where it is."""
        outputs = slot.finish(self.values)
        if self.after:
            self.after(slot.lane, outputs)
        return outputs


class Frames:
    """Frames in flight on each device of `roots`, in twins beside them.

    What is one submission is made by whoever submits the frame, or frees a place for it, and
    brought home by the one thread of its device. All else is run by a crew of threads. None of
    them knows the session, so one that is forgotten can be collected.

    Args:
        used: what frames use beside their slots; closed with these.
        profile: times one run of some plans, for DEBUG=2.
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
        self._lanes = [DeviceWorker(name, self._may_end) for name in names]
        self._crew = DeviceWorker("vklab frame", self._may_end)
        self._used = used
        self._lock = threading.Lock()
        self._freeing = threading.Lock()
        self._is_closed = self._ends = self._is_left = False
        self._home = threading.Event()

    def grow(self, count: int) -> None:
        """Have room for at least so many frames."""
        if len(self.slots) < count:
            with self._lock:
                while len(self.slots) < count and not self._is_closed:
                    lane = len(self.slots) % len(self.roots)
                    self.slots.append(FrameSlot(self.roots[lane], lane, self._profile))
                    self._free[lane].append(self.slots[-1])

    def submit(self, values: Values, after: After | None = None) -> Future[Outputs]:
        """Start a frame, or queue it; its inputs are copied before this returns.

        Args:
            after: called with the device's number and the outputs before they are given out.
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
        """Return a free place on the device that has most; if there is none, queue the frame."""
        with self._lock:  # nothing is queued behind the end
            if self._is_closed:
                raise VklabError("this session is closed; load the model again")
            free = max(self._free, key=len)
            if free:
                return free.pop()
            if frame:
                self._queued.append(frame)
        return None

    def _begin(self, frame: _Frame, slot: FrameSlot) -> None:
        """Start a frame, if that is all there is to do, and have it brought home."""
        lane, count = self._crew, len(self.slots)
        try:
            if slot.start(frame.values):
                lane, count = self._lanes[slot.lane], 1
        except Exception as error:
            slot.failure = error
        finally:  # an interrupt, too, must not lose the place
            if lane is self._crew:
                frame.own()
            finish = functools.partial(self._finish, frame, slot)
            if not lane.put(finish, count):
                finish()
            elif self._is_closed:  # the threads may have ended
                lane.drain()

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
        """Give the place to the next frame."""
        while True:
            with self._lock:
                if not self._queued:
                    self._free[slot.lane].append(slot)
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
        """Fail the frames that have not begun, and wait for those in flight.

        Devices give up in time; the host cannot be interrupted, and may still be at work then.
        """
        with self._lock:
            self._is_closed = True
            queued, self._queued = self._queued, deque()
        for frame in queued:
            if frame.future.set_running_or_notify_cancel():
                error = VklabError("the session was closed before this frame began")
                frame.future.set_exception(error)
        for lane in (*self._lanes, self._crew):
            lane.drain()  # its threads may wait for this very one, in a future's callback
        deadline = time.monotonic() + 2 * float(settings.get("TIMEOUT")) + 1
        if not self._may_end() and not self._home.wait(deadline - time.monotonic()):
            return
        for lane in (*self._lanes, self._crew):
            lane.close(deadline - time.monotonic())

    def close(self) -> bool:
        """Free everything if no frame is on its way; else leave it to the last, return False."""
        self._is_left = True
        return self._free_all()

    def _free_all(self) -> bool:
        with self._freeing:  # who comes second returns when all is freed
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
        """Let the threads end after what is queued; nobody waits for them."""
        for lane in (*self._lanes, self._crew):
            lane.stop()
