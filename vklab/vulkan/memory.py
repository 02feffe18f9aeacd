"""VkDeviceMemory and VkBuffer: choosing a memory type, sub-allocating blocks, counting bytes.

A few big allocations are cut into buffers, because drivers limit the number of allocations and
each one is slow. Visited by lab 03.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vklab import settings
from vklab.errors import OutOfMemoryError, PlanError
from vklab.vulkan import api, physical_device
from vklab.vulkan.device import Device, DeviceObject

__all__ = ["Allocator", "Block", "Buffer", "DeviceMemory", "FreeRanges", "buffer_info",
           "choose_memory_type"]  # fmt: skip

DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
BLOCK_BYTES = 64 << 20
USAGE = ("STORAGE_BUFFER", "TRANSFER_SRC", "TRANSFER_DST")
# What each kind of buffer is for -> (flags it must have, flags that are better).
KINDS = {
    "device": (DEVICE_LOCAL, 0),  # touched by kernels only
    "upload": (HOST_VISIBLE | HOST_COHERENT, DEVICE_LOCAL),  # host writes, kernels read: ReBAR
    "staging": (HOST_VISIBLE | HOST_COHERENT, 0),  # host writes, a copy reads
    "readback": (HOST_VISIBLE | HOST_COHERENT, HOST_CACHED),  # device writes, host reads
}


def choose_memory_type(
    memory_types: Sequence[int], type_bits: int, required: int, preferred: int = 0
) -> int:
    """Return the index of the memory type to allocate from.

    Args:
        memory_types: property flags of each type, in the driver's order.
        type_bits: bit i is set where type i may hold the buffer.
        required: flags that the type must have.
        preferred: flags that are counted; ties go to the lower index, as drivers sort them.

    Raises LookupError if no type has all required flags.
    """
    suitable = [
        index for index, flags in enumerate(memory_types)
        if type_bits >> index & 1 and flags & required == required
    ]  # fmt: skip
    if not suitable:
        raise LookupError(f"no memory type in mask {type_bits:#b} has flags {required:#b}")
    return max(suitable, key=lambda index: (memory_types[index] & preferred).bit_count())


class FreeRanges:
    """Hand out aligned ranges of one block, first fit, and join what comes back."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._free = [(0, size_bytes)]  # (offset, size), sorted, never touching

    @property
    def free_bytes(self) -> int:
        """Return the bytes that nobody holds."""
        return sum(size for _, size in self._free)

    def take(self, size_bytes: int, alignment: int) -> int | None:
        """Return the offset of a free aligned range, or None if nothing fits."""
        for number, (offset, size) in enumerate(self._free):
            start = -(-offset // alignment) * alignment
            if start + size_bytes <= offset + size:
                before = [(offset, start - offset)] if start > offset else []
                end = start + size_bytes
                after = [(end, offset + size - end)] if end < offset + size else []
                self._free[number : number + 1] = before + after
                return start
        return None

    def give_back(self, offset: int, size_bytes: int) -> None:
        """Return a range that `take` handed out."""
        joined: list[tuple[int, int]] = []
        for start, size in sorted([*self._free, (offset, size_bytes)]):
            if joined and joined[-1][0] + joined[-1][1] == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + size)
            else:
                joined.append((start, size))
        self._free = joined


class DeviceMemory(api.VulkanObject):
    """Bytes of one memory type, new or imported from elsewhere. Vulkan: vkAllocateMemory

    Args:
        chain: what is to be said beside size and type: where they come from, who else sees them.
    """

    kind = "VkDeviceMemory"

    def __init__(
        self, device: Device, type_index: int, size_bytes: int, chain: Any = None
    ) -> None:
        self.device = device
        self.type_index = type_index
        info = api.struct(
            "VkMemoryAllocateInfo", allocationSize=size_bytes, memoryTypeIndex=type_index,
            pNext=chain,
        )  # fmt: skip
        detail = f"{size_bytes} bytes of memory type {type_index} of {device.info.name}"
        super().__init__(device.create("vkAllocateMemory", "VkDeviceMemory", info, detail))

    def _destroy(self) -> None:
        self.device.command("vkFreeMemory")(self.device.handle, self.handle, api.ffi.NULL)


class Block(DeviceMemory):
    """Device memory that many buffers share, mapped for its whole life if the host can see it."""

    def __init__(self, device: Device, type_index: int, size_bytes: int) -> None:
        self.ranges = FreeRanges(size_bytes)
        super().__init__(device, type_index, size_bytes)
        self.mapped: memoryview | None = None
        if device.info.memory_types[type_index].bits & HOST_VISIBLE:
            out = api.ffi.new("void **")
            try:
                # Whole size: the bindings' VK_WHOLE_SIZE overflows, the real size does not.
                device.call("vkMapMemory", self.handle, 0, size_bytes, 0, out)
            except BaseException:
                self.close()
                raise
            self.mapped = memoryview(api.ffi.buffer(out[0], size_bytes))


@dataclass
class Allocator:
    """All device memory of one device: blocks by memory type, and the bytes in use."""

    device: Device
    blocks: list[Block] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes allocated from the driver."""
        return sum(block.ranges.size_bytes for block in self.blocks)

    @property
    def used_bytes(self) -> int:
        """Return the bytes that buffers occupy."""
        return sum(block.ranges.size_bytes - block.ranges.free_bytes for block in self.blocks)

    def take(self, size: int, alignment: int, type_bits: int, kind: str) -> tuple[Block, int]:
        """Return a block and an offset in it for a buffer of a kind of `KINDS`.

        Falls back to the next suitable memory type where a heap is full. OutOfMemoryError if
        none has room.
        """
        required, preferred = KINDS[kind]
        flags = [memory_type.bits for memory_type in self.device.info.memory_types]
        if not any(have & required == required for have in flags):
            required &= ~DEVICE_LOCAL
        refused: OutOfMemoryError | None = None
        with self.lock:
            while True:
                try:
                    index = choose_memory_type(flags, type_bits, required, preferred)
                except LookupError:
                    if refused:
                        raise refused from None
                    raise
                try:
                    return self._take_from(index, size, alignment)
                except OutOfMemoryError as error:
                    refused = refused or error
                    type_bits &= ~(1 << index)

    def _take_from(self, type_index: int, size: int, alignment: int) -> tuple[Block, int]:
        for block in self.blocks:
            if block.type_index == type_index:
                offset = block.ranges.take(size, alignment)
                if offset is not None:
                    return block, offset
        # A tensor of half a block or more gets a block of its own: no room is wasted on it.
        block_bytes = size if size > BLOCK_BYTES // 2 else BLOCK_BYTES
        room = self.available_bytes(self.device.info.memory_types[type_index].heap)
        if block_bytes > room >= size:
            block_bytes = size
        if size > room:
            raise OutOfMemoryError(
                "vkAllocateMemory",
                "VK_ERROR_OUT_OF_DEVICE_MEMORY",
                f"asked for {size} bytes on {self.device.info.name}, {max(room, 0)} are left "
                f"under the limit VKLAB_MEMORY_LIMIT={settings.get('MEMORY_LIMIT')}",
            )
        block = Block(self.device, type_index, block_bytes)
        self.blocks.append(block)
        offset = block.ranges.take(size, alignment)
        assert offset == 0, "a fresh block starts free"
        return block, offset

    def available_bytes(self, heap_index: int) -> int:
        """Return the bytes of a heap that may still be allocated, by its budget of this moment."""
        has_budget = "VK_EXT_memory_budget" in self.device.extensions
        heap = physical_device.memory_heaps(self.device.physical, has_budget)[heap_index]
        types = self.device.info.memory_types
        mine = (b for b in self.blocks if types[b.type_index].heap == heap_index)
        own = sum(block.ranges.size_bytes for block in mine)
        used = max(heap.usage_bytes, own)
        return int(heap.budget_bytes * float(settings.get("MEMORY_LIMIT"))) - used

    def room_bytes(self) -> int:
        """Return the bytes that buffers may still take of device-local heaps at this moment."""
        types, heaps = self.device.info.memory_types, self.device.info.heaps
        local = [number for number, heap in enumerate(heaps) if heap.device_local]
        with self.lock:
            free = sum(b.ranges.free_bytes for b in self.blocks
                       if types[b.type_index].heap in local)  # fmt: skip
            return free + sum(max(0, self.available_bytes(number)) for number in local)

    def give_back(self, block: Block, offset: int, size: int) -> None:
        """Return a range; a block that is empty goes back to the driver."""
        with self.lock:
            block.ranges.give_back(offset, size)
            if block.ranges.free_bytes == block.ranges.size_bytes:
                self.blocks.remove(block)
                block.close()


def buffer_info(device: Device, size_bytes: int, **more: Any) -> Any:
    """Return what every buffer is created for: kernels and copies, on all queues of a device."""
    families = device.queue_family_indices
    shared = len(families) > 1
    return api.struct(
        "VkBufferCreateInfo",
        size=size_bytes,
        usage=sum(api.constant(f"VK_BUFFER_USAGE_{name}_BIT") for name in USAGE),
        sharingMode=api.constant(f"VK_SHARING_MODE_{'CONCURRENT' if shared else 'EXCLUSIVE'}"),
        queueFamilyIndexCount=len(families) if shared else 0,
        pQueueFamilyIndices=list(families),
        **more,
    )


class Buffer(DeviceObject):
    """One VkBuffer bound to memory of a kind of `KINDS`. Vulkan: vkCreateBuffer"""

    kind = "VkBuffer"

    def __init__(self, allocator: Allocator, size_bytes: int, kind: str = "device") -> None:
        device = allocator.device
        self.allocator = allocator
        self.size_bytes = size_bytes
        largest = device.info.limit("maxBufferSize") or 2**63
        if not 0 < size_bytes <= largest:
            raise PlanError(
                f"a buffer of {size_bytes} bytes: {device.info.name} takes 1 to {largest}"
            )
        super().__init__(device, buffer_info(device, size_bytes))
        self.block: Block | None = None
        try:
            self._bind(kind)
        except BaseException:
            self.close()
            raise

    def _bind(self, kind: str) -> None:
        needs = api.struct("VkMemoryRequirements")
        self.device.call("vkGetBufferMemoryRequirements", self.handle, needs)
        self._taken = int(needs.size)
        self.block, self.offset = self.allocator.take(
            self._taken, int(needs.alignment), needs.memoryTypeBits, kind
        )
        self.device.call("vkBindBufferMemory", self.handle, self.block.handle, self.offset)

    @property
    def mapped(self) -> memoryview | None:
        """Return the buffer's bytes as the host sees them, or None."""
        assert self.block is not None
        whole = self.block.mapped
        return None if whole is None else whole[self.offset : self.offset + self.size_bytes]

    def _destroy(self) -> None:
        super()._destroy()
        if self.block is not None:
            self.allocator.give_back(self.block, self.offset, self._taken)
            self.block = None
