"""Device memory shared between two devices: exported as a dma-buf and imported (Linux).

`runtime.many` decides when it is used, after reading a test pattern through it. Opaque fds, which
only join APIs on one device, are in `opaque_fd`. Visited by lab 13.
"""

from __future__ import annotations

import os
from typing import Any

from vklab.errors import VulkanError
from vklab.vulkan import api
from vklab.vulkan.device import Device
from vklab.vulkan.host_memory import ExternalBuffer
from vklab.vulkan.memory import DEVICE_LOCAL, USAGE, DeviceMemory, choose_memory_type

EXTENSIONS = ("VK_EXT_external_memory_dma_buf", "VK_KHR_external_memory_fd")
HANDLE_TYPE = "DMA_BUF_BIT_EXT"


def features(device: Device, handle_type: str = HANDLE_TYPE) -> frozenset[str]:
    """Return features of buffers with a type of handle: exportable, importable, dedicated_only.

    Vulkan: vkGetPhysicalDeviceExternalBufferProperties
    """
    needed = EXTENSIONS if handle_type == HANDLE_TYPE else EXTENSIONS[1:]
    if not device.extensions.issuperset(needed):
        return frozenset()
    info = api.struct(
        "VkPhysicalDeviceExternalBufferInfo",
        usage=sum(api.constant(f"VK_BUFFER_USAGE_{name}_BIT") for name in USAGE),
        handleType=api.constant(f"VK_EXTERNAL_MEMORY_HANDLE_TYPE_{handle_type}"),
    )
    properties = api.struct("VkExternalBufferProperties")
    query = device.instance.command("vkGetPhysicalDeviceExternalBufferProperties")
    query(device.physical, info, properties)
    bits = properties.externalMemoryProperties.externalMemoryFeatures
    return api.flag_names(bits, "VK_EXTERNAL_MEMORY_FEATURE_")


class _DmaBuffer(ExternalBuffer):
    """A buffer at either end: device-local memory, dedicated if the driver requires it."""

    handle_type = HANDLE_TYPE

    def _take(self, needs: Any, type_bits: int, chain: Any) -> DeviceMemory:
        if "dedicated_only" in features(self.device, self.handle_type):
            chain = api.struct("VkMemoryDedicatedAllocateInfo", buffer=self.handle, pNext=chain)
        flags = [each.bits for each in self.device.info.memory_types]
        index = choose_memory_type(flags, type_bits & needs.memoryTypeBits, 0, DEVICE_LOCAL)
        return DeviceMemory(self.device, index, needs.size, chain)


class ExportedBuffer(_DmaBuffer):
    """A buffer in device memory that other devices may import. Vulkan: vkGetMemoryFdKHR"""

    def _allocate(self, needs: Any) -> DeviceMemory:
        export = api.struct("VkExportMemoryAllocateInfo", handleTypes=self.handle_bit)
        return self._take(needs, needs.memoryTypeBits, export)

    def descriptor(self) -> int:
        """Return a new file descriptor of the memory, to be closed by the caller."""
        assert self.memory is not None, "the buffer is closed"
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
            properties = api.struct("VkMemoryFdPropertiesKHR")
            self.device.call("vkGetMemoryFdPropertiesKHR", self.handle_bit, descriptor, properties)
            size = os.lseek(descriptor, 0, os.SEEK_END)  # the size of a dma-buf
            if 0 <= size < needs.size:
                raise VulkanError(
                    "vkAllocateMemory",
                    "VK_ERROR_INVALID_EXTERNAL_HANDLE",
                    f"a buffer of {needs.size} bytes does not fit a dma-buf of {size} bytes",
                )
            source = api.struct(
                "VkImportMemoryFdInfoKHR", handleType=self.handle_bit, fd=descriptor
            )
            return self._take(needs, properties.memoryTypeBits, source)
        except BaseException:
            os.close(descriptor)  # after success the driver owns it
            raise
