"""VkEvent: completion that the host polls and that interrupts nobody.

A fence makes the device interrupt a core of the host at each submission, which delays a thread
that happens to poll there. Commands that set an event need a fence only for a wait that blocks.
`runtime.polled` decides which programs use it. Visited by lab 06.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from vklab import settings
from vklab.errors import DeviceLostError, TimeoutError
from vklab.vulkan import api
from vklab.vulkan.command import POLL_SECONDS, CommandBuffer, CommandPool
from vklab.vulkan.device import Device, DeviceObject, Queue
from vklab.vulkan.sync import Fence

__all__ = ["Event", "EventCommands", "EventFence", "EventSubmission"]


class Event(DeviceObject):
    """A flag that a command sets and the host reads. Vulkan: vkCreateEvent

    Source: Vulkan 1.3, section 'Events'.
    """

    kind = "VkEvent"

    def __init__(self, device: Device) -> None:
        super().__init__(device, api.struct("VkEventCreateInfo"))


class EventFence:
    """Completion of submissions that set an event: the event, and a fence behind them.

    Takes the place of a `sync.Fence`. The event tells that the results are there; only the fence
    tells that the command buffer has ended, so that it may be recorded again or freed.

    Args:
        queue: the queue of the submissions.
        event: the event that their commands set.
        fence: an unused fence.
    """

    def __init__(self, queue: Queue, event: Event, fence: Fence) -> None:
        self._queue, self._fence = queue, fence
        self._device = event.device
        self._arguments = event.device.handle, event.handle
        self._status = event.device.command("vkGetEventStatus")
        self._set = api.constant("VK_EVENT_SET")
        self._is_sent = False
        self.is_ended = True  # no submission since the last wait for the fence

    def poll(self, seconds: float) -> bool:
        """Poll the event for a time; tell whether it is set. Vulkan: vkGetEventStatus"""
        status, (device, event), is_set = self._status, self._arguments, self._set
        deadline = time.perf_counter() + seconds
        while (result := status(device, event)) != is_set:
            if result < 0 or time.perf_counter() > deadline:
                return False  # the wait for the fence finds the error, too
        return True

    def is_signaled(self) -> bool:
        """Tell whether the last submission is complete; wait for its end if the event is set."""
        if not self.is_ended and self.poll(0.0):
            self.wait()
        return self.is_ended

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the last submission by a fence behind it; TimeoutError after `seconds`.

        Vulkan: vkQueueSubmit
        """
        if self.is_ended:
            return
        if not self._is_sent:
            with self._queue.lock:
                self._device.call("vkResetFences", 1, self._fence.array)
                result = self._device.command("vkQueueSubmit")(
                    self._queue.handle, 0, api.ffi.NULL, self._fence.handle
                )
            api.check("vkQueueSubmit", result, self._device.info.name)
            self._is_sent = True
        self._fence.wait(seconds)
        self._is_sent, self.is_ended = False, True


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
        if self._completion is not None:
            self._completion.wait()
        flag = api.constant("VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT")
        self._check("vkBeginCommandBuffer", api.struct("VkCommandBufferBeginInfo", flags=flag))

    def end(self) -> None:
        """Set the event after all commands, and finish the recording. Vulkan: vkCmdSetEvent"""
        stage = api.constant("VK_PIPELINE_STAGE_ALL_COMMANDS_BIT")
        self.device.command("vkCmdSetEvent")(self.handle, self.event.handle, stage)
        super().end()

    def submission(self, fence: Fence) -> Any:
        """Return the submission of these commands; the fence is for waits that block."""
        self._completion = EventFence(self.pool.queue, self.event, fence)
        return EventSubmission(self, self._completion)

    def _destroy(self) -> None:
        if self._completion is not None:  # complete, but the commands may have a moment to go
            with contextlib.suppress(DeviceLostError, TimeoutError):
                self._completion.wait()
        self.event.close()
        super()._destroy()


class EventSubmission:
    """Commands that set an event, ready to be submitted any number of times.

    Takes the place of a `command.Submission`.
    """

    def __init__(self, commands: EventCommands, completion: EventFence) -> None:
        self.commands, self.fence = commands, completion
        self.queue = commands.pool.queue
        self._info = api.struct(
            "VkSubmitInfo", commandBufferCount=1, pCommandBuffers=[commands.handle]
        )
        self._submit, self._reset = map(commands.device.command, ("vkQueueSubmit", "vkResetEvent"))
        self._device, self._event = commands.device.handle, commands.event.handle

    def submit(self) -> None:
        """Reset the event and send the commands to the queue. Vulkan: vkQueueSubmit"""
        with self.queue.lock:
            command, result = "vkResetEvent", self._reset(self._device, self._event)
            if result == 0:
                command = "vkQueueSubmit"
                result = self._submit(self.queue.handle, 1, self._info, api.ffi.NULL)
        if result != 0:
            api.check(command, result, self.commands.device.info.name)
        self.fence.is_ended = False

    def wait(self, polls: bool = False) -> None:
        """Wait until the work is done, at most TIMEOUT seconds.

        Args:
            polls: poll the event for at most 1 ms before the thread blocks on a fence.

        Raises TimeoutError, DeviceLostError.
        """
        is_polled = polls and not settings.get("DISABLE_POLLING")
        if not (is_polled and self.fence.poll(POLL_SECONDS)):
            self.fence.wait()
