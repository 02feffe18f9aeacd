"""Command pools and command buffers: commands recorded once and submitted many times.

Each method wraps one command, as `dispatch` wraps vkCmdDispatch; `runtime.program` decides their
order. Visited by labs 04 and 06.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vklab import settings
from vklab.vulkan import api, sync
from vklab.vulkan.descriptors import Binding, Writes
from vklab.vulkan.device import Device, DeviceObject, Queue
from vklab.vulkan.sync import Fence

if TYPE_CHECKING:
    from vklab.vulkan.pipeline import ComputePipeline
    from vklab.vulkan.query import TimestampQueries

POLL_SECONDS = 1e-3
# Programs of one model for different sizes push mostly the same buffers.
_writes = functools.lru_cache(maxsize=4096)(Writes)
_ACCESS = {"compute_shader": "SHADER", "transfer": "TRANSFER", "host": "HOST"}


class CommandPool(DeviceObject):
    """Memory for command buffers of one queue family. Vulkan: vkCreateCommandPool"""

    kind = "VkCommandPool"

    def __init__(self, device: Device, queue: Queue) -> None:
        self.queue = queue
        flag = api.constant("VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT")
        info = api.struct(
            "VkCommandPoolCreateInfo", flags=flag, queueFamilyIndex=queue.family.index
        )
        super().__init__(device, info)


class CommandBuffer(api.VulkanObject):
    """One recorded list of commands. Vulkan: vkAllocateCommandBuffers"""

    kind = "VkCommandBuffer"

    def __init__(self, pool: CommandPool) -> None:
        self.pool = pool
        device = self.device = pool.device
        level = api.constant("VK_COMMAND_BUFFER_LEVEL_PRIMARY")
        info = api.struct(
            "VkCommandBufferAllocateInfo",
            commandPool=pool.handle,
            level=level,
            commandBufferCount=1,
        )
        out = api.ffi.new("VkCommandBuffer *")
        device.call("vkAllocateCommandBuffers", info, out)
        super().__init__(out[0])
        self._array = out
        self._barrier = api.struct("VkMemoryBarrier")
        names = ("Dispatch", "BindPipeline", "PushConstants", "PipelineBarrier")
        commands = (device.command(f"vkCmd{name}") for name in names)
        self._dispatch, self._bind, self._push, self._wait = commands
        self._compute = api.constant("VK_PIPELINE_BIND_POINT_COMPUTE")
        self._stage = api.constant("VK_SHADER_STAGE_COMPUTE_BIT")

    def begin(self) -> None:
        """Start a new recording; the previous one is discarded. Vulkan: vkBeginCommandBuffer"""
        info = api.struct("VkCommandBufferBeginInfo")
        self._check("vkBeginCommandBuffer", info)

    def end(self) -> None:
        """Finish the recording. Vulkan: vkEndCommandBuffer"""
        self._check("vkEndCommandBuffer")

    def settle(self) -> None:
        """Wait until the commands have ended, if a wait for results may return before that."""

    def submission(self, fence: Fence) -> Submission:
        """Return the submission of these commands, which signals a fence."""
        return Submission(self, fence)

    def _check(self, name: str, *arguments: Any) -> None:
        api.check(name, self.device.command(name)(self.handle, *arguments))

    def bind_pipeline(self, pipeline: ComputePipeline) -> None:
        """Set the pipeline of all following dispatches. Vulkan: vkCmdBindPipeline"""
        self._bind(self.handle, self._compute, pipeline.handle)

    def push_constants(self, pipeline: ComputePipeline, data: bytes) -> None:
        """Set the kernel's push constants. Vulkan: vkCmdPushConstants"""
        self._push(self.handle, pipeline.layout, self._stage, 0, len(data), data)

    def push_descriptors(self, pipeline: ComputePipeline, bindings: Sequence[Binding]) -> None:
        """Write the kernel's buffers into the recording. Vulkan: vkCmdPushDescriptorSetKHR"""
        writes = _writes(tuple(bindings))
        self.device.command("vkCmdPushDescriptorSetKHR")(
            self.handle, self._compute, pipeline.layout, 0, writes.count, writes.array
        )

    def bind_descriptor_set(self, pipeline: ComputePipeline, descriptor_set: Any) -> None:
        """Set the kernel's buffers by a descriptor set. Vulkan: vkCmdBindDescriptorSets"""
        self.device.command("vkCmdBindDescriptorSets")(
            self.handle, self._compute, pipeline.layout, 0, 1, [descriptor_set], 0, api.ffi.NULL
        )

    def dispatch(self, x: int, y: int = 1, z: int = 1) -> None:
        """Launch x * y * z workgroups. Vulkan: vkCmdDispatch

        Args:
            x: workgroups along x, at most maxComputeWorkGroupCount[0].
            y: workgroups along y.
            z: workgroups along z.
        """
        self._dispatch(self.handle, x, y, z)

    def copy_buffer(
        self, source: Any, target: Any, size: int, source_offset: int = 0, target_offset: int = 0
    ) -> None:
        """Copy bytes between buffers. Vulkan: vkCmdCopyBuffer

        Args:
            source: VkBuffer to read.
            target: VkBuffer to write.
            size: number of bytes.
            source_offset: first byte to read.
            target_offset: first byte to write.
        """
        region = api.struct(
            "VkBufferCopy", srcOffset=source_offset, dstOffset=target_offset, size=size
        )
        self.device.command("vkCmdCopyBuffer")(self.handle, source, target, 1, region)

    def barrier(self, source: Sequence[str], target: Sequence[str]) -> None:
        """Make `target` stages of later commands wait for `source` stages of earlier commands.

        The writes of the `source` stages become visible to the `target` stages. Stages are
        compute_shader, transfer and host. Vulkan: vkCmdPipelineBarrier
        Source: Vulkan 1.3, section 'Pipeline Barriers'.
        """
        before, written, after, accessed = _masks(tuple(source), tuple(target))
        self._barrier.srcAccessMask, self._barrier.dstAccessMask = written, accessed
        null = api.ffi.NULL
        self._wait(self.handle, before, after, 0, 1, self._barrier, 0, null, 0, null)

    def reset_queries(self, queries: TimestampQueries) -> None:
        """Reset all timestamps of a pool. Vulkan: vkCmdResetQueryPool"""
        self.device.command("vkCmdResetQueryPool")(self.handle, queries.handle, 0, queries.count)

    def write_timestamp(self, queries: TimestampQueries, number: int) -> None:
        """Write timestamp `number` once all earlier work is done. Vulkan: vkCmdWriteTimestamp"""
        stage = api.constant("VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT")
        self.device.command("vkCmdWriteTimestamp")(self.handle, stage, queries.handle, number)

    def _destroy(self) -> None:
        self.device.command("vkFreeCommandBuffers")(
            self.device.handle, self.pool.handle, 1, self._array
        )


@functools.cache
def _masks(source: Sequence[str], target: Sequence[str]) -> tuple[int, int, int, int]:
    """Return the stages of a barrier and what they access: (before, written, after, accessed)."""

    def bits(stages: Sequence[str], text: str) -> int:
        return sum(api.constant(text.format(each.upper(), _ACCESS[each])) for each in stages)

    stage, read, write = (
        f"VK_{text}_BIT" for text in ("PIPELINE_STAGE_{0}", "ACCESS_{1}_READ", "ACCESS_{1}_WRITE")
    )
    return (
        bits(source, stage),
        bits(source, write),
        bits(target, stage),
        bits(target, read) | bits(target, write),
    )


class Submission:
    """A command buffer and its fence, ready to be submitted any number of times.

    The structures are built once, to keep the host's time in each run short.

    Args:
        commands: the command buffer.
        fence: a `sync.Fence`, or an `event.EventFence` in its place.
    """

    def __init__(self, commands: CommandBuffer, fence: Any) -> None:
        self.commands, self.fence = commands, fence
        self.queue = commands.pool.queue
        self._info = api.struct(
            "VkSubmitInfo", commandBufferCount=1, pCommandBuffers=[commands.handle]
        )
        names = ("vkQueueSubmit", "vkResetFences", "vkGetFenceStatus", "vkWaitForFences")
        self._submit, self._reset, self._status, self._wait = map(commands.device.command, names)
        self._device = commands.device.handle

    def wait(self, polls: bool = False) -> None:
        """Wait until the work is done, at most TIMEOUT seconds. Vulkan: vkWaitForFences

        Args:
            polls: poll the fence for at most 1 ms before the thread blocks.

        Raises TimeoutError, DeviceLostError.
        """
        if polls and not settings.get("DISABLE_POLLING"):
            is_ready, device, fence = self._status, self._device, self.fence.handle
            not_ready, deadline = api.bindings.VK_NOT_READY, time.perf_counter() + POLL_SECONDS
            while (result := is_ready(device, fence)) == not_ready and (
                time.perf_counter() < deadline
            ):
                pass
            if result == 0:  # a wait would be one more call of the driver
                return
        limit_ns = sync.timeout_ns(float(settings.get("TIMEOUT")))
        result = self._wait(self._device, 1, self.fence.array, 1, limit_ns)
        if result != 0:
            self.fence.fail(result, limit_ns)

    def submit(self) -> None:
        """Reset the fence and send the commands to the queue. Vulkan: vkQueueSubmit"""
        with self.queue.lock:
            command, result = "vkResetFences", self._reset(self._device, 1, self.fence.array)
            if result == 0:
                command = "vkQueueSubmit"
                result = self._submit(self.queue.handle, 1, self._info, self.fence.handle)
        if result != 0:
            api.check(command, result, self.commands.device.info.name)
