"""Experiments with synchronization: a staging ring on a lazy device, faults for the layer to find.

Run them by `run_limited`: a wrong wait may never end. Visited by lab 06.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from vklab.errors import VulkanError
from vklab.plan.barriers import Barrier
from vklab.runtime import loading, open_devices
from vklab.settings import settings
from vklab.vulkan import api, command, instance
from vklab.vulkan.command import CommandBuffer
from vklab.vulkan.device import Device, DeviceObject
from vklab.vulkan.memory import Buffer
from vklab_course.data import data
from vklab_course.swap import swap

__all__ = ["FAULTS", "LazyDevice", "Timeline", "ask_layer", "stream", "three_branches"]

# Variables that switch synchronization validation on, in newer and in older layers. Newer ones look
# at the accesses of kernels only with the third.
SYNC_VALIDATION = {
    "VK_LAYER_VALIDATE_SYNC": "1",
    "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
    "VK_LAYER_SYNCVAL_SHADER_ACCESSES_HEURISTIC": "1",
}


class Timeline(DeviceObject):
    """A timeline semaphore: a number that only grows, from 0. Vulkan: vkCreateSemaphore"""

    kind = "VkSemaphore"

    def __init__(self, device: Device) -> None:
        kind = api.struct(
            "VkSemaphoreTypeCreateInfo",
            initialValue=0,
            semaphoreType=api.constant("VK_SEMAPHORE_TYPE_TIMELINE"),
        )
        super().__init__(device, api.struct("VkSemaphoreCreateInfo", pNext=kind))

    def raise_to(self, value: int) -> None:
        """Set the number from the host. Vulkan: vkSignalSemaphore"""
        info = api.struct("VkSemaphoreSignalInfo", semaphore=self.handle, value=value)
        self.device.call("vkSignalSemaphore", info)

    def wait(self, value: int, seconds: float = 5) -> None:
        """Wait on the host until the number is `value` or more. Vulkan: vkWaitSemaphores"""
        info = api.struct(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=[self.handle], pValues=[value]
        )
        self.device.call("vkWaitSemaphores", info, int(seconds * 1e9))


class LazyDevice(contextlib.ExitStack):
    """A device that copies from a staging ring, each copy only when the host waits for it.

    Each copy waits for the timeline `go`, which the host raises directly before it waits.

    Attributes:
        ring: the bytes of the staging ring, for the host to write.
        sent: sizes of the pieces whose copies are submitted.
    """

    def __init__(self, ring: int, capacity: int) -> None:
        super().__init__()
        keep, opened = self.enter_context, open_devices.open_device()
        self._go, self._done = keep(Timeline(opened.device)), keep(Timeline(opened.device))
        self._pool, self._allowed, self._last = keep(opened.command_pool()), 0, 0
        self._staging = keep(Buffer(opened.allocator, ring, "staging"))
        self._target = keep(Buffer(opened.allocator, capacity, "readback"))
        self.ring, self.sent = self._staging.mapped, list[int]()

    def wait(self, value: int) -> None:
        """Let the copies run up to this value, and wait until their timeline has reached it."""
        if value > self._last:
            raise TimeoutError(
                f"the host waits for {value} before it submits a copy that sets "
                "this value: it would wait for ever"
            )
        if value > self._allowed:
            self._go.raise_to(value)
            self._allowed = value
        self._done.wait(value)

    def submit_copy(self, offset: int, size: int, value: int) -> None:
        """Submit the copy of a piece; it waits for `go`, and then sets its timeline to `value`.

        Args:
            offset: first byte of the piece in the ring.
            size: bytes of the piece.
            value: the number for both timelines.
        """
        commands = self.enter_context(CommandBuffer(self._pool))
        commands.begin()
        commands.copy_buffer(
            self._staging.handle, self._target.handle, size, offset, sum(self.sent)
        )
        commands.barrier(("transfer",), ("host",))
        commands.end()
        values = api.struct(
            "VkTimelineSemaphoreSubmitInfo",
            waitSemaphoreValueCount=1,
            pWaitSemaphoreValues=[value],
            signalSemaphoreValueCount=1,
            pSignalSemaphoreValues=[value],
        )
        info = api.struct(
            "VkSubmitInfo",
            pNext=values,
            waitSemaphoreCount=1,
            pWaitDstStageMask=[api.constant("VK_PIPELINE_STAGE_TRANSFER_BIT")],
            pWaitSemaphores=[self._go.handle],
            commandBufferCount=1,
            pCommandBuffers=[commands.handle],
            signalSemaphoreCount=1,
            pSignalSemaphores=[self._done.handle],
        )
        submit = commands.device.command("vkQueueSubmit")
        api.check("vkQueueSubmit", submit(self._pool.queue.handle, 1, info, api.ffi.NULL))
        self.sent.append(size)
        self._last = value

    def __exit__(self, *details: Any) -> bool | None:
        self.wait(self._last)
        return super().__exit__(*details)

    def arrived(self) -> list[list[int]]:
        """Return the different bytes that have arrived, for each piece."""
        ends = np.cumsum([0, *self.sent]).tolist()
        return [sorted(set(self._target.mapped[a:b])) for a, b in pairwise(ends)]


def stream(
    sizes: Sequence[int], ring: int, plan: Sequence[tuple[int, int]], step: int = 1
) -> list[list[int]]:
    """Send pieces through a staging ring; return the numbers of the pieces that arrive.

    Each byte of piece k is the number k. Copy k sets the timeline to step * (k + 1).

    Args:
        sizes: bytes of each piece.
        ring: bytes of the ring.
        plan: (offset, value) of each piece; the host waits for the value before it writes.
        step: what each copy adds to the timeline.
    """
    with LazyDevice(ring, sum(sizes)) as device:
        for k, (size, (offset, value)) in enumerate(zip(sizes, plan, strict=True)):
            if offset < 0 or offset + size > ring:
                raise ValueError(f"piece {k} has bytes outside of the ring")
            device.wait(value)
            device.ring[offset : offset + size] = bytes([k]) * size
            device.submit_copy(offset, size, step * (k + 1))
        device.wait(step * len(sizes))
        return device.arrived()


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
