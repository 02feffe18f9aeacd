"""Host memory shared by several devices: one allocation, imported into each of them.

A device reads there what another device wrote, without a copy. `runtime.many` decides which values
are placed there. Visited by lab 13.
"""

from __future__ import annotations

import mmap
from typing import Any

from vklab.errors import OutOfMemoryError
from vklab.vulkan import api
from vklab.vulkan.device import Device, DeviceObject
from vklab.vulkan.memory import (
    HOST_COHERENT,
    HOST_VISIBLE,
    DeviceMemory,
    buffer_info,
    choose_memory_type,
)

EXTENSION = "VK_EXT_external_memory_host"
# The largest minImportedHostPointerAlignment that Vulkan allows, so that it suits every device.
ALIGNMENT = 1 << 16


class HostMemory:
    """Memory of the process, aligned for import; freed with its last reference."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = -(-size_bytes // ALIGNMENT) * ALIGNMENT
        pages = mmap.mmap(-1, self.size_bytes + ALIGNMENT)
        self._pin = api.ffi.from_buffer(pages)
        start = -int(api.ffi.cast("uintptr_t", self._pin)) % ALIGNMENT
        self.address = self._pin + start
        self.view = memoryview(pages)[start : start + self.size_bytes]


class PageMemory(HostMemory):
    """Whole pages around bytes that the process has allocated, and keeps, elsewhere.

    Args:
        address: the first byte.
        size_bytes: the number of bytes.
        alignment: a divisor of the page size that the device requires, `pointer_alignment`.

    Attributes:
        offset_bytes: the position of the first byte in the pages.
    """

    def __init__(self, address: int, size_bytes: int, alignment: int) -> None:
        self.offset_bytes = address % alignment
        self.size_bytes = -(-(self.offset_bytes + size_bytes) // alignment) * alignment
        self.address = api.ffi.cast("char *", address - self.offset_bytes)
        self.view = memoryview(api.ffi.buffer(self.address, self.size_bytes))


def pointer_alignment(device: Device) -> int:
    """Return the alignment in bytes that a device requires of host memory to import.

    Vulkan: vkGetPhysicalDeviceProperties2
    """
    wanted = api.struct("VkPhysicalDeviceExternalMemoryHostPropertiesEXT")
    properties = api.struct("VkPhysicalDeviceProperties2", pNext=wanted)
    api.lib.vkGetPhysicalDeviceProperties2(device.physical, properties)
    return int(wanted.minImportedHostPointerAlignment)


class ExternalBuffer(DeviceObject):
    """A buffer in memory shared with the host or another device. Vulkan: vkCreateBuffer

    Raises LookupError or VulkanError if the device does not accept the memory.
    """

    kind = "VkBuffer"
    handle_type = ""

    def __init__(self, device: Device, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.handle_bit = api.constant(f"VK_EXTERNAL_MEMORY_HANDLE_TYPE_{self.handle_type}")
        external = api.struct("VkExternalMemoryBufferCreateInfo", handleTypes=self.handle_bit)
        super().__init__(device, buffer_info(device, size_bytes, pNext=external))
        self.memory: DeviceMemory | None = None
        try:
            needs = api.struct("VkMemoryRequirements")
            device.call("vkGetBufferMemoryRequirements", self.handle, needs)
            self.memory = self._allocate(needs)
            device.call("vkBindBufferMemory", self.handle, self.memory.handle, 0)
        except BaseException:
            self.close()
            raise

    def _allocate(self, needs: Any) -> DeviceMemory:
        raise NotImplementedError(f"{type(self).__name__} must define _allocate()")

    @property
    def mapped(self) -> memoryview | None:
        """Return the buffer's bytes as mapped on the host, or None for unmapped memory."""
        return None

    def _destroy(self) -> None:
        super()._destroy()
        if self.memory is not None:
            self.memory.close()


class ImportedBuffer(ExternalBuffer):
    """A buffer in memory of the process that other devices may import too.

    Args:
        device: device that imports the memory.
        host: the memory.
        size_bytes: size of the buffer.
    """

    handle_type = "HOST_ALLOCATION_BIT_EXT"

    def __init__(self, device: Device, host: HostMemory, size_bytes: int) -> None:
        self.host = host
        super().__init__(device, size_bytes)

    def _allocate(self, needs: Any) -> DeviceMemory:
        if needs.size > self.host.size_bytes:
            detail = f"{needs.size} bytes do not fit {self.host.size_bytes} bytes of host memory"
            raise OutOfMemoryError("vkBindBufferMemory", "VK_ERROR_OUT_OF_HOST_MEMORY", detail)
        properties = api.struct("VkMemoryHostPointerPropertiesEXT")
        address = api.ffi.cast("void *", self.host.address)
        query = "vkGetMemoryHostPointerPropertiesEXT"
        self.device.call(query, self.handle_bit, address, properties)
        index = choose_memory_type(
            [each.bits for each in self.device.info.memory_types],
            needs.memoryTypeBits & properties.memoryTypeBits,
            HOST_VISIBLE | HOST_COHERENT,
        )
        source = api.struct(
            "VkImportMemoryHostPointerInfoEXT", handleType=self.handle_bit, pHostPointer=address
        )
        return DeviceMemory(self.device, index, self.host.size_bytes, source)

    @property
    def mapped(self) -> memoryview:
        """Return the buffer's bytes on the host."""
        return self.host.view[: self.size_bytes]
