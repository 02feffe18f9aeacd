"""Two submissions in the order that a timeline semaphore gives them, on two queues or on one.

The first copies new bytes into a buffer, on the queue for transfers; the second reads the buffer,
on the queue for kernels. Many devices have one queue for both. Run `ordered_copies` by
`run_limited`: a wrong wait never ends. Visited by lab 12b.
"""

from __future__ import annotations

import contextlib
from typing import Any

from vklab.errors import TimeoutError
from vklab.runtime import open_devices
from vklab.vulkan import api
from vklab.vulkan.command import CommandBuffer, CommandPool
from vklab.vulkan.device import Queue
from vklab.vulkan.memory import Buffer
from vklab_labs.shared.synchronization import Timeline

__all__ = ["TwoQueues", "ordered_copies"]

SIZE = 64
OLD, NEW = 1, 2


class TwoQueues(contextlib.ExitStack):
    """A writer and a reader of one buffer, with a timeline semaphore between them.

    Attributes:
        queue_count: 2, or 1 if both submissions go to the same queue.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opened = opened = open_devices.open_device()
        keep, device = self.enter_context, opened.device
        self.writing, self.reading = device.transfer_queue, device.compute_queue
        self.queue_count = 1 if self.writing is self.reading else 2
        self._written, self._read = keep(Timeline(device)), keep(Timeline(device))
        self._new = keep(Buffer(opened.allocator, SIZE, "staging"))
        self._shared = keep(Buffer(opened.allocator, SIZE, "staging"))
        self._out = keep(Buffer(opened.allocator, SIZE, "readback"))
        self._new.mapped[:] = bytes([NEW]) * SIZE
        self._shared.mapped[:] = bytes([OLD]) * SIZE

    def write(self) -> None:
        """Submit the copy of the new bytes; it sets the timeline `written` to 1."""
        self._copy(self.writing, self._new, self._shared, self._written, 0, self._written)

    def read(self, value: int) -> None:
        """Submit the copy out of the buffer; it waits until `written` is at least `value`."""
        self._copy(self.reading, self._shared, self._out, self._written, value, self._read)

    def _copy(self, queue: Queue, source: Buffer, target: Buffer, waits_for: Timeline, value: int,
              sets: Timeline) -> None:  # fmt: skip
        """Submit a copy that waits for a value of one timeline, and sets another one to 1."""
        pool = self.enter_context(CommandPool(self.opened.device, queue))
        commands = self.enter_context(CommandBuffer(pool))
        commands.begin()
        commands.copy_buffer(source.handle, target.handle, SIZE)
        commands.barrier(("transfer",), ("transfer", "host"))
        commands.end()
        values = api.struct(
            "VkTimelineSemaphoreSubmitInfo",
            waitSemaphoreValueCount=1,
            pWaitSemaphoreValues=[value],
            signalSemaphoreValueCount=1,
            pSignalSemaphoreValues=[1],
        )
        info = api.struct(
            "VkSubmitInfo",
            pNext=values,
            waitSemaphoreCount=1,
            pWaitDstStageMask=[api.constant("VK_PIPELINE_STAGE_TRANSFER_BIT")],
            pWaitSemaphores=[waits_for.handle],
            commandBufferCount=1,
            pCommandBuffers=[commands.handle],
            signalSemaphoreCount=1,
            pSignalSemaphores=[sets.handle],
        )
        submit: Any = self.opened.device.command("vkQueueSubmit")
        with queue.lock:
            result = submit(queue.handle, 1, info, api.ffi.NULL)
        api.check("vkQueueSubmit", result)

    def seen(self, seconds: float) -> str:
        """Wait for both copies; return "new bytes" or "old bytes" as the reader saw them."""
        self._read.wait(1, seconds)
        self._written.wait(1, seconds)
        byte = self._out.mapped[0]
        return {OLD: "old bytes", NEW: "new bytes"}.get(byte, f"byte {byte}")


def ordered_copies(submitted: str, value: int, seconds: float = 1.0) -> str:
    """Submit a writer and a reader; return what the reader saw, or that it waits for ever.

    Args:
        submitted: "writer first" or "reader first".
        value: what the reader waits for on the timeline: 0 is no wait, the writer sets 1.
        seconds: how long the host waits.
    """
    first, second = ("write", "read") if submitted == "writer first" else ("read", "write")
    queues = TwoQueues()
    with contextlib.ExitStack() as stack:
        for name in (first, second):
            queues.read(value) if name == "read" else queues.write()
        try:
            said = queues.seen(seconds)
            stack.push(queues)
        except TimeoutError:  # the submissions are in use for ever: free nothing
            queues.opened.is_stuck = True
            said = "never ends"
    return f"{said} ({queues.queue_count} {'queue' if queues.queue_count == 1 else 'queues'})"
