"""Experiments with synchronization: a staging ring on a lazy device, faults for the layer to find.

Run them by `run_limited`: a wrong wait may never end. Visited by lab 06.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from vklab.course.data import data
from vklab.course.swap import swap
from vklab.errors import VulkanError
from vklab.plan.barriers import Barrier
from vklab.runtime import loading, open_devices
from vklab.settings import settings
from vklab.vulkan import api, command, instance
from vklab.vulkan.command import CommandBuffer
from vklab.vulkan.device import Device, DeviceObject, Queue
from vklab.vulkan.memory import Buffer
from vklab.vulkan.sync import Fence

__all__ = ["FAULTS", "Timeline", "ask_layer", "send", "stream", "three_branches"]

# Variables that switch synchronization validation on, in newer and in older layers.
SYNC_VALIDATION = {"VK_LAYER_VALIDATE_SYNC": "1", "VK_LAYER_ENABLES":
                   "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"}  # fmt: skip


class Timeline(DeviceObject):
    """A timeline semaphore: a number that only grows, from 0. Vulkan: vkCreateSemaphore"""

    kind = "VkSemaphore"

    def __init__(self, device: Device) -> None:
        kind = api.struct("VkSemaphoreTypeCreateInfo", initialValue=0,
                          semaphoreType=api.constant("VK_SEMAPHORE_TYPE_TIMELINE"))  # fmt: skip
        super().__init__(device, api.struct("VkSemaphoreCreateInfo", pNext=kind))

    def raise_to(self, value: int) -> None:
        """Set the number from the host. Vulkan: vkSignalSemaphore"""
        info = api.struct("VkSemaphoreSignalInfo", semaphore=self.handle, value=value)
        self.device.call("vkSignalSemaphore", info)

    def wait(self, value: int, seconds: float = 5) -> None:
        """Wait on the host until the number is `value` or more. Vulkan: vkWaitSemaphores"""
        info = api.struct("VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=[self.handle],
                          pValues=[value])  # fmt: skip
        self.device.call("vkWaitSemaphores", info, int(seconds * 1e9))


def send(
    queue: Queue, commands: CommandBuffer, go: Timeline, done: Timeline, value: int,
    fence: Fence | None,
) -> None:  # fmt: skip
    """Submit commands that wait until `go` is `value`, and then set `done` to `value`.

    Args:
        queue: where to submit.
        commands: the recorded commands.
        go: the timeline that they wait for, on the device.
        done: the timeline that they set.
        value: the number for both.
        fence: set when the submission has ended; or None.
    """
    values = api.struct("VkTimelineSemaphoreSubmitInfo",
                        waitSemaphoreValueCount=1, pWaitSemaphoreValues=[value],
                        signalSemaphoreValueCount=1, pSignalSemaphoreValues=[value])  # fmt: skip
    info = api.struct("VkSubmitInfo", pNext=values, waitSemaphoreCount=1,
                      pWaitDstStageMask=[api.constant("VK_PIPELINE_STAGE_TRANSFER_BIT")],
                      pWaitSemaphores=[go.handle], commandBufferCount=1,
                      pCommandBuffers=[commands.handle], signalSemaphoreCount=1,
                      pSignalSemaphores=[done.handle])  # fmt: skip
    submit = commands.device.command("vkQueueSubmit")
    handle = fence.handle if fence else api.ffi.NULL
    api.check("vkQueueSubmit", submit(queue.handle, 1, info, handle))


def stream(
    sizes: Sequence[int], ring: int, plan: Sequence[tuple[int, int]], step: int = 1
) -> list[list[int]]:
    """Send pieces of the bytes 1, 2, 3 ... through a staging ring; return what arrives, by piece.

    The device is as lazy as Vulkan allows: a copy runs only when the host waits for it, because
    each copy waits for the timeline `go`, which the host raises directly before it waits.

    Args:
        sizes: bytes of each piece.
        ring: bytes of the ring.
        plan: (offset, value) of each piece; the host waits for the value before it writes.
        step: copy k, from 0, sets the timeline to step * (k + 1).
    """
    with contextlib.ExitStack() as stack:
        keep, opened = stack.enter_context, open_devices.open_device()
        go, done = keep(Timeline(opened.device)), keep(Timeline(opened.device))
        fence, pool = keep(Fence(opened.device)), keep(opened.command_pool())
        staging = keep(Buffer(opened.allocator, ring, "staging"))
        target = keep(Buffer(opened.allocator, sum(sizes), "readback"))
        allowed, ends = 0, np.cumsum([0, *sizes]).tolist()
        for number, (size, (offset, value)) in enumerate(zip(sizes, plan, strict=True), 1):
            if value > allowed:
                go.raise_to(value)
                allowed = value
            done.wait(value)
            staging.mapped[offset : offset + size] = bytes([number]) * size
            commands = keep(CommandBuffer(pool))
            commands.begin()
            commands.copy_buffer(staging.handle, target.handle, size, offset, ends[number - 1])
            commands.barrier(("transfer",), ("host",))
            commands.end()
            last = fence if number == len(sizes) else None
            send(pool.queue, commands, go, done, number * step, last)
        go.raise_to(len(sizes) * step)
        fence.wait(5)
        return [sorted(set(target.mapped[a:b])) for a, b in zip(ends, ends[1:], strict=False)]


# ----------------------------------------------------------------------- faults for the layer


@contextlib.contextmanager
def _no_barriers() -> Iterator[None]:
    def none(work: Any, to_host: bool = True) -> tuple[Barrier, ...]:
        return ()

    with swap("vklab.plan.barriers.find_barriers", none):
        yield


@contextlib.contextmanager
def _wrong_masks() -> Iterator[None]:
    """Barriers with the right stages, and with reads in place of the writes."""
    real = command._masks

    def masks(source: Any, target: Any) -> tuple[int, int, int, int]:
        before, _, after, accessed = real(source, target)
        return before, api.constant("VK_ACCESS_SHADER_READ_BIT"), after, accessed

    with swap("vklab.vulkan.command._masks", masks):
        yield


FAULTS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "the runtime as it is": contextlib.nullcontext, "no barrier": _no_barriers,
    "wrong access masks": _wrong_masks,
}  # fmt: skip


def ask_layer(fault: str) -> str:
    """Run the digits with a fault; return the hazards that the validation layer reports.

    Args:
        fault: a key of FAULTS.
    """
    os.environ.update(SYNC_VALIDATION)
    if instance.VALIDATION_LAYER not in instance.layers():
        return "the layer is not installed on this machine"
    images = np.zeros((10, 1, 28, 28), np.float32)
    with settings(VALIDATE=1), FAULTS[fault](), loading.load(data("digits_cnn.onnx")) as session:
        try:
            session.run({"image": images})
        except VulkanError as error:
            names = Counter(re.findall(r"^\w+ SYNC-HAZARD-([A-Z-]+):", error.detail, re.M))
            listed = ", ".join(f"{count} {name}" for name, count in sorted(names.items()))
            return listed or error.detail[:200]
    return "no hazard"


def three_branches(size: int = 16) -> ModelProto:
    """Return a model with three chains of three products, and the sum of their ends.

    Args:
        size: length of the vectors.
    """
    def vector(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])

    weights, nodes = [], []
    for branch in "abc":
        for n in range(3):
            weight = np.full((size, size), n + ord(branch), np.float32)
            name, source = f"{branch}{n}", f"{branch}{n - 1}" if n else "x"
            weights.append(numpy_helper.from_array(weight, f"w{name}"))
            nodes.append(helper.make_node("MatMul", [source, f"w{name}"], [name], name=name))
    nodes.append(helper.make_node("Sum", ["a2", "b2", "c2"], ["y"], name="sum"))
    graph = helper.make_graph(nodes, "branches", [vector("x")], [vector("y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
