"""Host memory that several devices see: one allocation, imported into each of them.

What one device writes there another reads, with no copy between. Visited by lab 13.
"""

from __future__ import annotations

import mmap

from vklab.errors import OutOfMemoryError
from vklab.vulkan import api
from vklab.vulkan.device import Device
from vklab.vulkan.memory import HOST_COHERENT, HOST_VISIBLE, choose_memory_type

__all__ = ["EXTENSION", "HostMemory", "ImportedBuffer"]

EXTENSION = "VK_EXT_external_memory_host"
# The most that a device may ask for (minImportedHostPointerAlignment), so it suits them all.
ALIGNMENT = 1 << 16


class HostMemory:
    """Bytes of the process, aligned as every device wants them; freed with the last reference."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = -(-size_bytes // ALIGNMENT) * ALIGNMENT
        pages = mmap.mmap(-1, self.size_bytes + ALIGNMENT)
        self._pin = api.ffi.from_buffer(pages)
        start = -int(api.ffi.cast("uintptr_t", self._pin)) % ALIGNMENT
        self.address = self._pin + start
        self.view = memoryview(pages)[start : start + self.size_bytes]


class _Imported(api.VulkanObject):
    """Host memory as a device's own. Vulkan: vkAllocateMemory"""

    kind = "VkDeviceMemory"

    def __init__(self, device: Device, memory: HostMemory, type_bits: int) -> None:
        self.device = device
        kind = api.constant("VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT")
        found = api.struct("VkMemoryHostPointerPropertiesEXT")
        address = api.ffi.cast("void *", memory.address)
        device.call("vkGetMemoryHostPointerPropertiesEXT", kind, address, found)
        index = choose_memory_type(
            [each.bits for each in device.info.memory_types], type_bits & found.memoryTypeBits,
            HOST_VISIBLE | HOST_COHERENT,
        )  # fmt: skip
        source = api.struct(
            "VkImportMemoryHostPointerInfoEXT", handleType=kind, pHostPointer=address
        )
        info = api.struct(
            "VkMemoryAllocateInfo", pNext=source, allocationSize=memory.size_bytes,
            memoryTypeIndex=index,
        )  # fmt: skip
        super().__init__(device.create("vkAllocateMemory", "VkDeviceMemory", info))

    def _destroy(self) -> None:
        self.device.command("vkFreeMemory")(self.device.handle, self.handle, api.ffi.NULL)


class ImportedBuffer(api.VulkanObject):
    """A buffer on host memory that other devices may see too. Vulkan: vkCreateBuffer

    Raises LookupError or VulkanError where the device does not take the memory.
    """

    kind = "VkBuffer"

    def __init__(self, device: Device, memory: HostMemory, size_bytes: int) -> None:
        self.device = device
        self.memory = memory
        self.size_bytes = size_bytes
        external = api.struct(
            "VkExternalMemoryBufferCreateInfo",
            handleTypes=api.constant("VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT"),
        )
        usage = ("STORAGE_BUFFER", "TRANSFER_SRC", "TRANSFER_DST")
        info = api.struct(
            "VkBufferCreateInfo", pNext=external, size=size_bytes,
            usage=sum(api.constant(f"VK_BUFFER_USAGE_{name}_BIT") for name in usage),
            sharingMode=api.constant("VK_SHARING_MODE_EXCLUSIVE"),
        )  # fmt: skip
        super().__init__(device.create("vkCreateBuffer", "VkBuffer", info))
        self._imported: _Imported | None = None
        try:
            needs = api.struct("VkMemoryRequirements")
            device.call("vkGetBufferMemoryRequirements", self.handle, needs)
            if needs.size > memory.size_bytes:
                detail = f"{needs.size} bytes in {memory.size_bytes}"
                raise OutOfMemoryError("vkBindBufferMemory", "VK_ERROR_OUT_OF_HOST_MEMORY", detail)
            self._imported = _Imported(device, memory, needs.memoryTypeBits)
            device.call("vkBindBufferMemory", self.handle, self._imported.handle, 0)
        except BaseException:
            self.close()
            raise

    @property
    def mapped(self) -> memoryview:
        """Return the buffer's bytes as the host sees them."""
        return self.memory.view[: self.size_bytes]

    def _destroy(self) -> None:
        self.device.command("vkDestroyBuffer")(self.device.handle, self.handle, api.ffi.NULL)
        if self._imported is not None:
            self._imported.close()
