"""What is alive on a device: Vulkan objects by kind, and bytes."""

from __future__ import annotations

from vklab.runtime import open_devices
from vklab.vulkan import api

__all__ = ["left"]

OF_A_KERNEL = ("VkPipeline", "VkPipelineLayout", "VkDescriptorSetLayout")


def left(opened: open_devices.OpenDevice) -> tuple[dict[str, int], int]:
    """Return the number of live objects by kind and the bytes in use, but for kept kernels.

    A device keeps its kernels, so the first test that needs one makes it: how many there are
    depends on the tests before. Objects of kernels that no device keeps are counted.
    """
    every = {opened, *open_devices._open.values()}
    kept = sum(len(each.kernels._made) for each in every)
    found = {
        kind: count - kept * (kind in OF_A_KERNEL) for kind, count in api.live_handles().items()
    }
    return {kind: count for kind, count in found.items() if count}, opened.allocator.used_bytes
