"""VkFence: tells the host that a submission is complete; every wait has a time limit.

Barriers, in `command`, order the commands on a device. Visited by lab 06.
"""

from __future__ import annotations

from vklab import settings
from vklab.vulkan import api
from vklab.vulkan.device import Device, DeviceObject


def timeout_ns(seconds: float | None = None) -> int:
    """Return a wait limit in nanoseconds; the default is the TIMEOUT switch."""
    limit = float(settings.get("TIMEOUT")) if seconds is None else seconds
    return max(0, min(int(limit * 1e9), 2**63 - 1))


class Fence(DeviceObject):
    """A flag that the device sets when a submission is complete. Vulkan: vkCreateFence"""

    kind = "VkFence"

    def __init__(self, device: Device) -> None:
        super().__init__(device, api.struct("VkFenceCreateInfo"))
        self.array = api.ffi.new("VkFence[1]", [self.handle])
        self._wait = device.command("vkWaitForFences")

    def is_signaled(self) -> bool:
        """Return whether the submission is complete, without waiting. Vulkan: vkGetFenceStatus"""
        result = self.device.command("vkGetFenceStatus")(self.device.handle, self.handle)
        if api.result_name(result) == "VK_NOT_READY":
            return False
        api.check("vkGetFenceStatus", result, self.device.info.name)
        return True

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the submission; TimeoutError after `seconds`. Vulkan: vkWaitForFences"""
        limit_ns = timeout_ns(seconds)
        result = self._wait(self.device.handle, 1, self.array, 1, limit_ns)
        if result != 0:
            self.fail(result, limit_ns)

    def fail(self, result: int, limit_ns: int) -> None:
        """Raise the error of a wait whose VkResult is not VK_SUCCESS."""
        detail = f"{self.device.info.name} did not finish within {limit_ns / 1e9:g} s"
        api.check("vkWaitForFences", result, detail)
