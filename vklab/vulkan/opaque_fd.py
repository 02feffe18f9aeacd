"""Memory and semaphores shared with another API on the same device, as opaque file descriptors.

Opaque fds join only what has the same deviceUUID and driverUUID; `runtime.cuda` checks that before
it imports them. Linux only. Visited by lab 03.
"""

from __future__ import annotations

import time
from typing import Any

from vklab import settings
from vklab.vulkan import api, dma_buf, sync
from vklab.vulkan.command import POLL_SECONDS, CommandBuffer
from vklab.vulkan.device import Device, DeviceObject

MEMORY_EXTENSION, SEMAPHORE_EXTENSION = "VK_KHR_external_memory_fd", "VK_KHR_external_semaphore_fd"
OPAQUE_FD = "OPAQUE_FD_BIT"


class OpaqueBuffer(dma_buf.ExportedBuffer):
    """A buffer in device memory that another API on the same device may import.

    Attributes:
        is_dedicated: whether the driver requires an allocation for this buffer alone.
        memory_bytes: the size of the allocation, which is at least that of the buffer.
    """

    handle_type = OPAQUE_FD

    def _take(self, needs: Any, type_bits: int, chain: Any) -> Any:
        self.is_dedicated = "dedicated_only" in dma_buf.features(self.device, OPAQUE_FD)
        self.memory_bytes = int(needs.size)
        return super()._take(needs, type_bits, chain)


def is_exportable(device: Device) -> bool:
    """Tell whether a device exports timeline semaphores as opaque fds.

    Vulkan: vkGetPhysicalDeviceExternalSemaphoreProperties
    """
    if SEMAPHORE_EXTENSION not in device.extensions:
        return False
    timeline = api.struct(
        "VkSemaphoreTypeCreateInfo", semaphoreType=api.constant("VK_SEMAPHORE_TYPE_TIMELINE")
    )
    info = api.struct("VkPhysicalDeviceExternalSemaphoreInfo", pNext=timeline, handleType=_handle())
    properties = api.struct("VkExternalSemaphoreProperties")
    query = device.instance.command("vkGetPhysicalDeviceExternalSemaphoreProperties")
    query(device.physical, info, properties)
    bits = properties.externalSemaphoreFeatures
    return bool(bits & api.constant("VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT"))


def _handle() -> int:
    return api.constant(f"VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_{OPAQUE_FD}")


class TimelineSemaphore(DeviceObject):
    """A counter that queues of several APIs wait for and raise. Vulkan: vkCreateSemaphore

    Attributes:
        last: the value that the last submission raises it to.

    Source: Vulkan 1.3, section 'Semaphores'.
    """

    kind = "VkSemaphore"

    def __init__(self, device: Device, exported: bool = True) -> None:
        self.last = 0
        export = (
            api.struct("VkExportSemaphoreCreateInfo", handleTypes=_handle()) if exported else None
        )
        timeline = api.struct(
            "VkSemaphoreTypeCreateInfo",
            pNext=export,
            semaphoreType=api.constant("VK_SEMAPHORE_TYPE_TIMELINE"),
        )
        super().__init__(device, api.struct("VkSemaphoreCreateInfo", pNext=timeline))
        self._out = api.ffi.new("uint64_t *")
        self._value = device.command("vkGetSemaphoreCounterValue")

    def descriptor(self) -> int:
        """Return a new file descriptor, to be closed by the caller. Vulkan: vkGetSemaphoreFdKHR"""
        info = api.struct("VkSemaphoreGetFdInfoKHR", semaphore=self.handle, handleType=_handle())
        out = api.ffi.new("int *")
        self.device.call("vkGetSemaphoreFdKHR", info, out)
        return int(out[0])

    def value(self) -> int:
        """Return the present value. Vulkan: vkGetSemaphoreCounterValue"""
        result = self._value(self.device.handle, self.handle, self._out)
        api.check("vkGetSemaphoreCounterValue", result, self.device.info.name)
        return int(self._out[0])

    def is_signaled(self) -> bool:
        """Tell whether the last submission is complete, without waiting."""
        return self.value() >= self.last

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the last submission, at most `seconds`. Vulkan: vkWaitSemaphores

        Raises TimeoutError, DeviceLostError.
        """
        limit_ns = sync.timeout_ns(seconds)
        info = api.struct(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=[self.handle], pValues=[self.last]
        )
        detail = f"{self.device.info.name} did not finish within {limit_ns / 1e9:g} s"
        self.device.call("vkWaitSemaphores", info, limit_ns, detail=detail)


class RepeatedCommands(CommandBuffer):
    """A command buffer that may be submitted again while an earlier submission still runs."""

    def begin(self) -> None:
        """Start a recording for any number of submissions. Vulkan: vkBeginCommandBuffer"""
        flag = api.constant("VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT")
        self._check("vkBeginCommandBuffer", api.struct("VkCommandBufferBeginInfo", flags=flag))


class OrderedSubmission:
    """Commands that wait for a value of a timeline semaphore, and raise it by one at their end.

    Takes the place of a `command.Submission`, with the semaphore in place of the fence.

    Args:
        commands: the recorded commands.
        semaphore: the semaphore.
    """

    def __init__(self, commands: RepeatedCommands, semaphore: TimelineSemaphore) -> None:
        self.commands = commands
        self.fence = semaphore
        self._queue = commands.pool.queue
        self._values = api.ffi.new("uint64_t[2]")
        timeline = api.struct(
            "VkTimelineSemaphoreSubmitInfo",
            waitSemaphoreValueCount=1,
            pWaitSemaphoreValues=self._values,
            signalSemaphoreValueCount=1,
            pSignalSemaphoreValues=self._values + 1,
        )
        self._info = api.struct(
            "VkSubmitInfo",
            pNext=timeline,
            waitSemaphoreCount=1,
            pWaitSemaphores=[semaphore.handle],
            pWaitDstStageMask=[api.constant("VK_PIPELINE_STAGE_ALL_COMMANDS_BIT")],
            commandBufferCount=1,
            pCommandBuffers=[commands.handle],
            signalSemaphoreCount=1,
            pSignalSemaphores=[semaphore.handle],
        )
        self._submit = commands.device.command("vkQueueSubmit")

    def submit(self) -> None:
        """Submit after the value `fence.last`, which becomes one more. Vulkan: vkQueueSubmit"""
        first = self.fence.last
        self._values[0], self._values[1] = first, first + 1
        with self._queue.lock:
            result = self._submit(self._queue.handle, 1, self._info, api.ffi.NULL)
        if result != 0:
            api.check("vkQueueSubmit", result, self.commands.device.info.name)
        self.fence.last = first + 1

    def wait(self, polls: bool = False) -> None:
        """Wait for the last submission, at most TIMEOUT seconds.

        Args:
            polls: poll the semaphore for at most 1 ms before the thread blocks.
        """
        deadline = time.perf_counter() + POLL_SECONDS
        while polls and not settings.get("DISABLE_POLLING") and time.perf_counter() < deadline:
            if self.fence.is_signaled():
                return
        self.fence.wait()
