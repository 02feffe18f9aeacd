"""VkDeviceMemory and VkBuffer: memory types, blocks divided into buffers, bytes in use.

Divides a few large allocations, because drivers limit their number and each is slow. The offsets
of values inside a buffer are decided by `plan.memory`. Visited by lab 03.
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

DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
BLOCK_BYTES, HOST_BLOCK_BYTES = 64 << 20, 8 << 20  # of memory on the device, and on the host
USAGE = ("STORAGE_BUFFER", "TRANSFER_SRC", "TRANSFER_DST")
# Kind of buffer -> (required memory flags, preferred memory flags).
KINDS = {
    "device": (DEVICE_LOCAL, 0),  # kernels and copies read and write
    # The host writes, kernels or copies read; with ReBAR the memory is on the device.
    "upload": (HOST_VISIBLE | HOST_COHERENT, DEVICE_LOCAL),
    "staging": (HOST_VISIBLE | HOST_COHERENT, 0),  # host writes, a copy reads
    "readback": (HOST_VISIBLE | HOST_COHERENT, HOST_CACHED),  # device writes, host reads
}


def choose_memory_type(
    memory_types: Sequence[int], type_bits: int, required: int, preferred: int = 0
) -> int:
    """Return the index of the memory type to allocate from.

    Raises LookupError if no type has all required flags.

    Args:
        memory_types: property flags of each type, in the driver's order.
        type_bits: mask of the types that may hold the buffer: bit i for type i.
        required: flags that the type must have.
        preferred: flags of which the type has as many as possible; ties go to the lower index.

    Source: Vulkan 1.3, chapter 'Memory Allocation'.
    """
    suitable = [
        index
        for index, flags in enumerate(memory_types)
        if type_bits >> index & 1 and flags & required == required
    ]
    if not suitable:
        raise LookupError(
            f"no memory type in mask {type_bits:#b} has the required flags {required:#b}"
        )
    return max(suitable, key=lambda index: (memory_types[index] & preferred).bit_count())


class FreeRanges:
    """Allocate ranges of one block by first fit, and join adjacent ranges when they are freed.

    Source: Knuth, The Art of Computer Programming, volume 1 (1997), section 2.5.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._free = [(0, size_bytes)]  # (offset, size), sorted, never adjacent

    @property
    def free_bytes(self) -> int:
        """Return the number of free bytes."""
        return sum(size for _, size in self._free)

    def take(self, size_bytes: int, alignment: int) -> int | None:
        """Allocate an aligned range and return its offset, or None if none is large enough."""
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
        """Free a range that `take` allocated."""
        joined: list[tuple[int, int]] = []
        for start, size in sorted([*self._free, (offset, size_bytes)]):
            if joined and joined[-1][0] + joined[-1][1] == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + size)
            else:
                joined.append((start, size))
        self._free = joined


class DeviceMemory(api.VulkanObject):
    """An allocation of one memory type, new or imported. Vulkan: vkAllocateMemory

    Args:
        device: device that allocates.
        type_index: index of the memory type.
        size_bytes: size of the allocation.
        chain: `pNext` of VkMemoryAllocateInfo: how the memory is imported or exported.
    """

    kind = "VkDeviceMemory"

    def __init__(self, device: Device, type_index: int, size_bytes: int, chain: Any = None) -> None:
        self.device = device
        self.type_index = type_index
        info = api.struct(
            "VkMemoryAllocateInfo",
            allocationSize=size_bytes,
            memoryTypeIndex=type_index,
            pNext=chain,
        )
        detail = f"{size_bytes} bytes of memory type {type_index} of {device.info.name}"
        super().__init__(device.create("vkAllocateMemory", "VkDeviceMemory", info, detail))

    def _destroy(self) -> None:
        self.device.command("vkFreeMemory")(self.device.handle, self.handle, api.ffi.NULL)


class Block(DeviceMemory):
    """Device memory divided into buffers, mapped while it exists if it is host-visible.

    Args:
        device: device that allocates.
        type_index: index of the memory type.
        size_bytes: size of the block.
    """

    def __init__(self, device: Device, type_index: int, size_bytes: int) -> None:
        self.ranges = FreeRanges(size_bytes)
        super().__init__(device, type_index, size_bytes)
        self.mapped: memoryview | None = None
        if device.info.memory_types[type_index].bits & HOST_VISIBLE:
            out = api.ffi.new("void **")
            try:
                # The size in bytes, because the bindings' VK_WHOLE_SIZE overflows.
                device.call("vkMapMemory", self.handle, 0, size_bytes, 0, out)
            except BaseException:
                self.close()
                raise
            self.mapped = memoryview(api.ffi.buffer(out[0], size_bytes))


@dataclass
class Allocator:
    """Allocate memory of one device from blocks by memory type, and count the bytes in use."""

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
        """Allocate a range for one buffer; return its block and its offset there.

        Falls back to the next suitable memory type if a heap is full. Raises OutOfMemoryError if
        every suitable heap is full.

        Args:
            size: bytes, from VkMemoryRequirements.
            alignment: alignment of the offset in bytes.
            type_bits: mask of the memory types that may hold the buffer.
            kind: a kind of `KINDS`.
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
        # A buffer of more than half a block gets its own block, which wastes no memory.
        memory_type = self.device.info.memory_types[type_index]
        usual = BLOCK_BYTES if memory_type.bits & DEVICE_LOCAL else HOST_BLOCK_BYTES
        room = self.available_bytes(memory_type.heap)
        block_bytes = usual if 2 * size <= usual <= room else size
        if size > room:
            detail = (
                f"asked for {size} bytes on {self.device.info.name}, {max(room, 0)} are left "
                f"under the limit VKLAB_MEMORY_LIMIT={settings.get('MEMORY_LIMIT')}"
            )
            raise OutOfMemoryError("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY", detail)
        block = Block(self.device, type_index, block_bytes)
        self.blocks.append(block)
        offset = block.ranges.take(size, alignment)
        assert offset == 0, "a new block is free from its first byte"
        return block, offset

    def available_bytes(self, heap_index: int) -> int:
        """Return the bytes of a heap that may still be allocated under its present budget."""
        has_budget = "VK_EXT_memory_budget" in self.device.extensions
        heap = physical_device.memory_heaps(self.device.physical, has_budget)[heap_index]
        types = self.device.info.memory_types
        mine = (b for b in self.blocks if types[b.type_index].heap == heap_index)
        own = sum(block.ranges.size_bytes for block in mine)
        used = max(heap.usage_bytes, own)
        return int(heap.budget_bytes * float(settings.get("MEMORY_LIMIT"))) - used

    def room_bytes(self) -> int:
        """Return the device-local bytes available to buffers, in blocks and from the driver."""
        types, heaps = self.device.info.memory_types, self.device.info.heaps
        local = [number for number, heap in enumerate(heaps) if heap.device_local]
        with self.lock:
            free = sum(
                b.ranges.free_bytes for b in self.blocks if types[b.type_index].heap in local
            )
            return free + sum(max(0, self.available_bytes(number)) for number in local)

    def give_back(self, block: Block, offset: int, size: int) -> None:
        """Free a range; a block without allocated ranges is returned to the driver.

        Args:
            block: block of the range.
            offset: first byte of the range.
            size: bytes of the range.
        """
        with self.lock:
            block.ranges.give_back(offset, size)
            if block.ranges.free_bytes == block.ranges.size_bytes:
                self.blocks.remove(block)
                block.close()


def buffer_info(device: Device, size_bytes: int, **more: Any) -> Any:
    """Return the VkBufferCreateInfo of a buffer for kernels and copies on all queues of a device.

    Args:
        device: device of the buffer.
        size_bytes: size of the buffer.
        more: further fields of the structure, such as `pNext`.
    """
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
    """One VkBuffer bound to its own range of a block. Vulkan: vkCreateBuffer

    Raises PlanError for a size that the device refuses, OutOfMemoryError if no heap has room.

    Args:
        allocator: allocator of the device.
        size_bytes: size of the buffer.
        kind: a kind of `KINDS`, which decides the memory type.
    """

    kind = "VkBuffer"

    def __init__(self, allocator: Allocator, size_bytes: int, kind: str = "device") -> None:
        device = allocator.device
        self.allocator = allocator
        self.size_bytes = size_bytes
        largest = device.info.limit("maxBufferSize") or 2**63
        if not 0 < size_bytes <= largest:
            raise PlanError(
                f"a buffer of {size_bytes} bytes: {device.info.name} takes 1 to {largest} bytes"
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
        """Return the buffer's bytes as mapped on the host, or None for unmapped memory."""
        assert self.block is not None
        whole = self.block.mapped
        return None if whole is None else whole[self.offset : self.offset + self.size_bytes]

    def _destroy(self) -> None:
        super()._destroy()
        if self.block is not None:
            self.allocator.give_back(self.block, self.offset, self._taken)
            self.block = None
