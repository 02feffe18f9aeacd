"""A driver layer that gives lavapipe and SwiftShader dma-bufs: memfds, mapped into each device.

What one device writes the other really reads, by the calls that a real driver would get. Neither
driver has VK_EXT_external_memory_dma_buf itself.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

from vklab.vulkan import api, dma_buf
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance

DMA_BUF = api.constant("VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT")
HOST = api.constant("VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT")
DEDICATED, EXPORTABLE, IMPORTABLE = 1, 2, 4
PAGE = 1 << 16


class FakeDmaBuf:
    """The layer; its attributes make it refuse.

    Attributes:
        features: what vkGetPhysicalDeviceExternalBufferProperties says.
        lacking: indices of devices without the extension.
        reads_elsewhere: an import sees other bytes than those of the exporter.
        memory: what is alive: (descriptor, pages) by the number of its VkDeviceMemory.
    """

    def __init__(self) -> None:
        self.features = EXPORTABLE | IMPORTABLE
        self.lacking: set[int] = set()
        self.reads_elsewhere = False
        self.dedicated = 0
        self.memory: dict[int, tuple[int, Any]] = {}
        self._commands, self._init = Device.command, Device.__init__
        self._instance_command = Instance.command

    def __enter__(self) -> FakeDmaBuf:
        def init(device: Device, *arguments: Any) -> None:
            self._init(device, *arguments)
            if device.info.index not in self.lacking:
                device.extensions |= set(dma_buf.EXTENSIONS)

        def instance_command(instance: Instance, name: str) -> Any:
            if name == "vkGetPhysicalDeviceExternalBufferProperties":
                return self._ask
            return self._instance_command(instance, name)

        def command(device: Device, name: str) -> Any:
            real, own = self._commands, getattr(self, f"_{name}", None)
            if own:
                return lambda *arguments: own(device, *arguments)
            return real(device, name)

        Device.__init__, Device.command = init, command  # type: ignore[method-assign]
        Instance.command = instance_command  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        Device.__init__, Device.command = self._init, self._commands  # type: ignore[method-assign]
        Instance.command = self._instance_command  # type: ignore[method-assign]

    def _ask(self, physical: Any, info: Any, found: Any) -> None:
        assert info.handleType == DMA_BUF and info.usage
        found.externalMemoryProperties.externalMemoryFeatures = self.features

    def _vkCreateBuffer(self, device: Device, handle: Any, info: Any, *rest: Any) -> int:
        for chained in _chain(info, "VkExternalMemoryBufferCreateInfo"):
            if chained.handleTypes == DMA_BUF:
                chained.handleTypes = HOST
        return int(self._commands(device, "vkCreateBuffer")(handle, info, *rest))

    def _vkAllocateMemory(self, device: Device, handle: Any, info: Any, *rest: Any) -> int:
        real = self._commands(device, "vkAllocateMemory")
        dedicated = _chain(info, "VkMemoryDedicatedAllocateInfo")
        exported = _chain(info, "VkExportMemoryAllocateInfo")
        imported = _chain(info, "VkImportMemoryFdInfoKHR")
        if not exported and not imported:
            return int(real(handle, info, *rest))
        assert bool(dedicated) == bool(self.features & DEDICATED)
        self.dedicated += len(dedicated)
        if imported and not self.reads_elsewhere:
            descriptor = os.dup(imported[0].fd)
        else:
            descriptor = os.memfd_create("dma-buf")
            os.ftruncate(descriptor, -(-info.allocationSize // PAGE) * PAGE)
        pages = mmap.mmap(descriptor, 0)
        start = api.ffi.from_buffer(pages)
        source = api.struct(
            "VkImportMemoryHostPointerInfoEXT",
            handleType=HOST,
            pHostPointer=api.ffi.cast("void *", start),
        )
        changed = api.struct(
            "VkMemoryAllocateInfo",
            pNext=source,
            allocationSize=len(pages),
            memoryTypeIndex=info.memoryTypeIndex,
        )
        result = int(real(handle, changed, *rest))
        if result:
            os.close(descriptor)
            return result
        if imported:
            os.close(imported[0].fd)  # an import that succeeds takes it over
        self.memory[_number(rest[-1][0])] = descriptor, (pages, start)
        return result

    def _vkFreeMemory(self, device: Device, handle: Any, memory: Any, allocator: Any) -> None:
        self._commands(device, "vkFreeMemory")(handle, memory, allocator)
        descriptor, _ = self.memory.pop(_number(memory), (None, None))
        if descriptor is not None:
            os.close(descriptor)

    def _vkGetMemoryFdKHR(self, device: Device, handle: Any, info: Any, out: Any) -> int:
        assert info.handleType == DMA_BUF
        out[0] = os.dup(self.memory[_number(info.memory)][0])
        return 0

    def _vkGetMemoryFdPropertiesKHR(
        self, device: Device, handle: Any, kind: int, descriptor: int, found: Any
    ) -> int:
        assert kind == DMA_BUF and os.fstat(descriptor).st_size
        found.memoryTypeBits = (1 << len(device.info.memory_types)) - 1
        return 0


def _chain(info: Any, name: str) -> list[Any]:
    """Return the structures of a name that are chained to another."""
    found = []
    link = info.pNext
    while link != api.ffi.NULL:
        base = api.ffi.cast("VkBaseInStructure *", link)
        if base.sType == api.structure_type(name):
            found.append(api.ffi.cast(f"{name} *", link))
        link = base.pNext
    return found


def _number(handle: Any) -> int:
    return int(api.ffi.cast("uintptr_t", handle))


def descriptors() -> int:
    """Return how many file descriptors of memory this process has open."""
    names = (os.path.join("/proc/self/fd", each) for each in os.listdir("/proc/self/fd"))
    return sum(os.path.islink(name) and "dma-buf" in os.readlink(name) for name in names)
