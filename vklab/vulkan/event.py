"""VkEvent: completion that the host polls and that interrupts nobody.

A fence makes the device interrupt a core of the host at each submission, which delays a thread
that happens to poll there. Commands that set an event need a fence only for a wait that blocks.
`runtime.polled` decides which programs use it. Visited by lab 06.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Sequence
from typing import Any

from vklab import settings
from vklab.errors import DeviceLostError, TimeoutError
from vklab.vulkan import api
from vklab.vulkan.command import POLL_SECONDS, CommandBuffer, CommandPool, Submission
from vklab.vulkan.device import Device, DeviceObject, Queue
from vklab.vulkan.sync import Fence

# A run is short if its end is seen within this share of the time of polling, from its submission
# on: a wait alone may be short because it began late. Chosen, not measured.
SHORT = 0.75


class Event(DeviceObject):
    """A flag that a command sets and the host reads. Vulkan: vkCreateEvent

    Source: Vulkan 1.3, section 'Events'.
    """

    kind = "VkEvent"

    def __init__(self, device: Device) -> None:
        super().__init__(device, api.struct("VkEventCreateInfo"))


class _Count:
    """Submissions of a queue that set an event: how many were sent, and how many have ended."""

    sent = ended = 0


_counts: weakref.WeakKeyDictionary[Queue, _Count] = weakref.WeakKeyDictionary()


class _LastFence:
    """A fence at or behind the end of a submission; it tells the end of all before it, too.

    Source: Vulkan 1.3, section 'Fences'.

    Attributes:
        covered: the number of the last submission that the fence ends; 0 if it is not in the queue.
    """

    def __init__(self, queue: Queue, fence: Fence) -> None:
        self._queue, self._fence, self._device = queue, fence, fence.device
        with queue.lock:
            self._count = _counts.setdefault(queue, _Count())
        self._number = self._count.sent  # of the last submission
        self.covered = 0

    @property
    def is_ended(self) -> bool:
        """Tell whether a fence has told the end of the last submission."""
        return self._number <= self._count.ended

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the commands have ended; TimeoutError after `seconds`."""
        if self.covered or not self.is_ended:  # a fence in the queue must not be freed
            self._send()
            self._fence.wait(seconds)
            self._end()

    def _send(self) -> None:
        """Submit the fence behind everything, unless it is in the queue. Vulkan: vkQueueSubmit"""
        if self.covered:
            return
        with self._queue.lock:
            self._device.call("vkResetFences", 1, self._fence.array)
            result = self._device.command("vkQueueSubmit")(
                self._queue.handle, 0, api.ffi.NULL, self._fence.handle
            )
            api.check("vkQueueSubmit", result, self._device.info.name)
            self.covered = self._count.sent

    def _end(self) -> None:
        """Note that the fence is signaled."""
        self._count.ended = max(self._count.ended, self.covered)
        self.covered = 0


def settle(device: Device) -> None:
    """Wait until all commands of a device that have set their event have ended, too.

    For memory that commands of others may have read. Raises TimeoutError, DeviceLostError.
    """
    count = _counts.get(device.compute_queue)
    if count and count.ended < count.sent:
        fence = Fence(device)
        try:
            _LastFence(device.compute_queue, fence).wait()
        except TimeoutError:
            raise  # the fence is in use
        except BaseException:
            fence.close()
            raise
        fence.close()


class EventFence(_LastFence):
    """Completion of submissions that set an event: the event, and a fence at or behind their end.

    Takes the place of a `sync.Fence`. The event tells that the results are there; only the fence
    tells that the command buffer has ended, so that what it uses may be changed or freed.
    If a run outlasts the polling, the next ones signal the fence themselves: a fence that is sent
    later stands behind whatever else was submitted meanwhile.

    Args:
        queue: the queue of the submissions.
        event: the event that their commands set.
        fence: an unused fence.

    Attributes:
        is_long: whether the next submission signals the fence; at first nothing is known.
    """

    def __init__(self, queue: Queue, event: Event, fence: Fence) -> None:
        super().__init__(queue, fence)
        self._number = 0
        self._arguments = self._device.handle, event.handle
        self._status = self._device.command("vkGetEventStatus")
        self._set = api.constant("VK_EVENT_SET")
        self.is_long = True
        self._begun = 0.0  # the time of the last submission that signals the fence

    def next(self) -> Any:
        """Return the fence that the next submission signals; NULL if it sets its event alone."""
        if self.covered:  # the last submission's, whose event is set: this takes no time
            self._fence.wait()
            self._end()
        if not self.is_long:
            return api.ffi.NULL
        self._device.call("vkResetFences", 1, self._fence.array)
        self._begun = time.perf_counter()
        return self._fence.handle

    def count(self, fence: Any) -> None:
        """Count a submission with that fence, or NULL; the caller holds the queue's lock."""
        self._count.sent = self._number = self._count.sent + 1
        self.covered = self._number if fence else 0

    def poll(self, seconds: float) -> bool:
        """Poll the event for a time; tell whether it is set. Vulkan: vkGetEventStatus"""
        status, (device, event), is_set = self._status, self._arguments, self._set
        deadline = time.perf_counter() + seconds
        while (result := status(device, event)) != is_set:
            if result < 0 or time.perf_counter() > deadline:
                return False  # the wait for the fence finds the error, too
        return True

    def see_end(self) -> None:
        """Note that the event of a long run was seen in time: it is short if it began just now."""
        self.is_long = time.perf_counter() - self._begun > SHORT * POLL_SECONDS

    def is_signaled(self) -> bool:
        """Tell whether the last submission is complete; if it is, its commands have ended, too.

        Raises DeviceLostError, which the fence tells: the event of a lost device stays unset.
        """
        if not self.is_ended:
            self._send()
            if self.poll(0.0):
                self.wait()
            elif self._fence.is_signaled():
                self._end()
        return self.is_ended


class EventCommands(CommandBuffer):
    """A command buffer that sets an event at its end, and may be submitted again right then."""

    def __init__(self, pool: CommandPool) -> None:
        super().__init__(pool)
        self._completion: EventFence | None = None
        try:
            self.event = Event(pool.device)
        except BaseException:
            super()._destroy()
            raise

    def begin(self) -> None:
        """Start a new recording once the last submission has ended. Vulkan: vkBeginCommandBuffer"""
        self.settle()
        flag = api.constant("VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT")
        self._check("vkBeginCommandBuffer", api.struct("VkCommandBufferBeginInfo", flags=flag))

    def barrier(self, source: Sequence[str], target: Sequence[str]) -> None:
        """Record a barrier, unless it is for the host alone: `end` records a wider one."""
        if tuple(target) != ("host",):
            super().barrier(source, target)

    def end(self) -> None:
        """Make all writes visible to the host, then set the event. Vulkan: vkCmdSetEvent

        An event "does not define an access scope" (vkCmdSetEvent), and a fence "does not guarantee
        that the results of memory accesses will be visible to the host" (vkWaitForFences), so the
        host needs a barrier before either. The event follows the barrier only if stages of the
        queue are in the barrier's second scope, and HOST is none: the event's first scope
        excludes it (VUID-vkCmdSetEvent-stageMask-01149). So there are both. The barrier makes all
        writes available, as a fence does: later submissions may write the same bytes. It makes
        them visible to the host alone; to commands it would take 2 us more (NVIDIA H200), and
        recordings that read what others wrote begin with a barrier of their own.
        Source: Vulkan 1.3, sections 'Execution and Memory Dependencies', 'Events'.
        """
        everything = api.constant("VK_PIPELINE_STAGE_ALL_COMMANDS_BIT")
        write, read = map(api.constant, ("VK_ACCESS_MEMORY_WRITE_BIT", "VK_ACCESS_HOST_READ_BIT"))
        last = api.struct("VkMemoryBarrier", srcAccessMask=write, dstAccessMask=read)
        targets = everything | api.constant("VK_PIPELINE_STAGE_HOST_BIT")
        null = api.ffi.NULL
        self._wait(self.handle, everything, targets, 0, 1, last, 0, null, 0, null)
        self.device.command("vkCmdSetEvent")(self.handle, self.event.handle, everything)
        super().end()

    def submission(self, fence: Fence) -> Any:
        """Return the submission of these commands; the fence is for waits that block."""
        self._completion = EventFence(self.pool.queue, self.event, fence)
        return EventSubmission(self, self._completion)

    def settle(self) -> None:
        """Wait until the commands have ended; their event may have been seen before that."""
        if self._completion is not None:
            self._completion.wait()

    def _destroy(self) -> None:
        with contextlib.suppress(DeviceLostError, TimeoutError):
            self.settle()
        self.event.close()
        super()._destroy()


class EventSubmission(Submission):
    """Commands that set an event, ready to be submitted any number of times."""

    def __init__(self, commands: EventCommands, completion: EventFence) -> None:
        super().__init__(commands, completion)
        self._reset = commands.device.command("vkResetEvent")
        self._event, self._none = commands.event.handle, api.ffi.NULL

    def submit(self) -> None:
        """Reset the event and send the commands to the queue. Vulkan: vkQueueSubmit"""
        completion, fence = self.fence, self._none
        if completion.is_long or completion.covered:
            fence = completion.next()
        with self.queue.lock:
            command, result = "vkResetEvent", self._reset(self._device, self._event)
            if result == 0:
                command = "vkQueueSubmit"
                result = self._submit(self.queue.handle, 1, self._info, fence)
                if result == 0:
                    completion.count(fence)
        if result != 0:
            api.check(command, result, self.commands.device.info.name)

    def wait(self, polls: bool = False) -> None:
        """Wait until the work is done, at most TIMEOUT seconds.

        Args:
            polls: poll the event for at most 1 ms before the thread blocks on a fence.

        Raises TimeoutError, DeviceLostError.
        """
        completion = self.fence
        if polls and not settings.get("DISABLE_POLLING") and completion.poll(POLL_SECONDS):
            if completion.is_long:
                completion.see_end()
        else:
            completion.is_long = True
            completion.wait()
