"""Device memory of one device that another one reads: exported as a dma-buf, and imported.

Whether two devices accept it is asked, and what the second reads there is tried once. An opaque
fd is for devices of one UUID: those are one device to vklab. Visited by lab 13.
"""

from __future__ import annotations

import os
from typing import Any

from vklab.errors import VulkanError
from vklab.vulkan import api
from vklab.vulkan.device import Device
from vklab.vulkan.host_memory import ExternalBuffer
from vklab.vulkan.memory import DEVICE_LOCAL, USAGE, DeviceMemory, choose_memory_type

__all__ = ["EXTENSIONS", "ExportedBuffer", "OpenedBuffer", "features"]

EXTENSIONS = ("VK_EXT_external_memory_dma_buf", "VK_KHR_external_memory_fd")
HANDLE_TYPE = "DMA_BUF_BIT_EXT"


def features(device: Device) -> frozenset[str]:
    """Return what a device does with dma-bufs: exportable, importable, dedicated_only.

    Vulkan: vkGetPhysicalDeviceExternalBufferProperties
    """
    if not device.extensions.issuperset(EXTENSIONS):
        return frozenset()
    info = api.struct(
        "VkPhysicalDeviceExternalBufferInfo",
        usage=sum(api.constant(f"VK_BUFFER_USAGE_{name}_BIT") for name in USAGE),
        handleType=api.constant(f"VK_EXTERNAL_MEMORY_HANDLE_TYPE_{HANDLE_TYPE}"),
    )
    found = api.struct("VkExternalBufferProperties")
    ask = device.instance.command("vkGetPhysicalDeviceExternalBufferProperties")
    ask(device.physical, info, found)
    bits = found.externalMemoryProperties.externalMemoryFeatures
    return api.flag_names(bits, "VK_EXTERNAL_MEMORY_FEATURE_")


class _DmaBuffer(ExternalBuffer):
    """What both ends have in common: device-local memory, dedicated where the driver wants it."""

    handle_type = HANDLE_TYPE

    def _take(self, needs: Any, type_bits: int, source: Any) -> DeviceMemory:
        if "dedicated_only" in features(self.device):
            source = api.struct(
                "VkMemoryDedicatedAllocateInfo", buffer=self.handle, pNext=source
            )
        flags = [each.bits for each in self.device.info.memory_types]
        index = choose_memory_type(flags, type_bits & needs.memoryTypeBits, 0, DEVICE_LOCAL)
        return DeviceMemory(self.device, index, needs.size, source)


class ExportedBuffer(_DmaBuffer):
    """A buffer in device memory that other devices may import. Vulkan: vkGetMemoryFdKHR"""

    def _allocate(self, needs: Any) -> DeviceMemory:
        wanted = api.struct("VkExportMemoryAllocateInfo", handleTypes=self.handle_bit)
        return self._take(needs, needs.memoryTypeBits, wanted)

    def descriptor(self) -> int:
        """Return a new file descriptor of the memory; who takes it closes it."""
        assert self.memory is not None, "a closed buffer exports nothing"
        info = api.struct(
            "VkMemoryGetFdInfoKHR", memory=self.memory.handle, handleType=self.handle_bit
        )
        out = api.ffi.new("int *")
        self.device.call("vkGetMemoryFdKHR", info, out)
        return int(out[0])


class OpenedBuffer(_DmaBuffer):
    """A buffer on the memory of another device's buffer. Vulkan: vkGetMemoryFdPropertiesKHR"""

    def __init__(self, device: Device, exported: ExportedBuffer) -> None:
        self._exported = exported
        super().__init__(device, exported.size_bytes)

    def _allocate(self, needs: Any) -> DeviceMemory:
        descriptor = self._exported.descriptor()
        try:
            found = api.struct("VkMemoryFdPropertiesKHR")
            self.device.call("vkGetMemoryFdPropertiesKHR", self.handle_bit, descriptor, found)
            size = os.lseek(descriptor, 0, os.SEEK_END)  # a dma-buf tells its size so
            if 0 <= size < needs.size:
                raise VulkanError("vkAllocateMemory", "VK_ERROR_INVALID_EXTERNAL_HANDLE",
                                  f"{needs.size} bytes in a dma-buf of {size}")  # fmt: skip
            source = api.struct(
                "VkImportMemoryFdInfoKHR", handleType=self.handle_bit, fd=descriptor
            )
            return self._take(needs, found.memoryTypeBits, source)
        except BaseException:
            os.close(descriptor)  # else the driver has taken it over
            raise
