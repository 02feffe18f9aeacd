"""VkFence and timeline VkSemaphore: how the host learns that a device is done.

Every wait is finite. Visited by lab 06.
"""

from __future__ import annotations

from vklab import settings
from vklab.errors import TimeoutError
from vklab.vulkan import api
from vklab.vulkan.device import Device, DeviceObject

__all__ = ["Fence", "TimelineSemaphore", "timeout_ns"]


def timeout_ns(seconds: float | None = None) -> int:
    """Return a wait limit in nanoseconds; the default is the TIMEOUT switch."""
    limit = float(settings.get("TIMEOUT")) if seconds is None else seconds
    return max(0, min(int(limit * 1e9), 2**63 - 1))


class Fence(DeviceObject):
    """Tell the host, once, that a submission is complete. Vulkan: vkCreateFence"""

    kind = "VkFence"

    def __init__(self, device: Device) -> None:
        super().__init__(device, api.struct("VkFenceCreateInfo"))
        self.array = api.ffi.new("VkFence[1]", [self.handle])
        self._wait = device.command("vkWaitForFences")

    def is_signaled(self) -> bool:
        """Tell whether the work is complete, without waiting. Vulkan: vkGetFenceStatus"""
        result = self.device.command("vkGetFenceStatus")(self.device.handle, self.handle)
        if api.result_name(result) == "VK_NOT_READY":
            return False
        api.check("vkGetFenceStatus", result, self.device.info.name)
        return True

    def wait(self, seconds: float | None = None) -> None:
        """Wait, at most `seconds`, else raise TimeoutError. Vulkan: vkWaitForFences"""
        limit = timeout_ns(seconds)
        result = self._wait(self.device.handle, 1, self.array, 1, limit)
        if result != 0:
            detail = f"{self.device.info.name} did not finish within {limit / 1e9:g} s"
            api.check("vkWaitForFences", result, detail)

    def reset(self) -> None:
        """Make the fence ready for the next submission. Vulkan: vkResetFences"""
        self.device.call("vkResetFences", 1, self.array)


class TimelineSemaphore(DeviceObject):
    """Count upwards; host and device may wait for a value and set one.

    Vulkan: vkCreateSemaphore
    """

    kind = "VkSemaphore"

    def __init__(self, device: Device, value: int = 0) -> None:
        kind = api.struct(
            "VkSemaphoreTypeCreateInfo",
            semaphoreType=api.constant("VK_SEMAPHORE_TYPE_TIMELINE"),
            initialValue=value,
        )
        info = api.struct("VkSemaphoreCreateInfo", pNext=kind)
        super().__init__(device, info)

    @property
    def value(self) -> int:
        """Return the value of this moment. Vulkan: vkGetSemaphoreCounterValue"""
        out = api.ffi.new("uint64_t *")
        self.device.call("vkGetSemaphoreCounterValue", self.handle, out)
        return int(out[0])

    def signal(self, value: int) -> None:
        """Set a larger value from the host. Vulkan: vkSignalSemaphore"""
        if value <= self.value:
            raise ValueError(f"a timeline only moves forward: {value} is not above {self.value}")
        info = api.struct("VkSemaphoreSignalInfo", semaphore=self.handle, value=value)
        self.device.call("vkSignalSemaphore", info)

    def wait(self, value: int, seconds: float | None = None) -> None:
        """Wait until the value is reached, else raise TimeoutError. Vulkan: vkWaitSemaphores"""
        limit = timeout_ns(seconds)
        info = api.struct(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=[self.handle], pValues=[value]
        )
        result = self.device.command("vkWaitSemaphores")(self.device.handle, info, limit)
        if api.result_name(result) == "VK_TIMEOUT":
            raise TimeoutError(
                "vkWaitSemaphores", "VK_TIMEOUT",
                f"value {value} was not reached within {limit / 1e9:g} s, it is {self.value}",
            )  # fmt: skip
        api.check("vkWaitSemaphores", result, self.device.info.name)
