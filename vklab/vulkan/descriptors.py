"""Descriptor sets: assign buffers to the binding numbers of a kernel.

Descriptors are pushed into the command buffer where the device has VK_KHR_push_descriptor, else
allocated from a pool. `plan` decides which buffer each binding gets. Visited by lab 05.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vklab import settings
from vklab.vulkan import api
from vklab.vulkan.device import Device, DeviceObject

# (binding number, VkBuffer, offset in bytes, size in bytes)
Binding = tuple[int, Any, int, int]


def uses_push_descriptors(device: Device) -> bool:
    """Tell whether descriptors are pushed into the command buffer."""
    return "VK_KHR_push_descriptor" in device.extensions and not settings.get(
        "DISABLE_PUSH_DESCRIPTORS"
    )


class DescriptorSetLayout(DeviceObject):
    """Storage buffers of a kernel, by binding number. Vulkan: vkCreateDescriptorSetLayout

    Args:
        device: device of the kernel.
        bindings: binding number of each storage buffer.
        push: whether descriptors are pushed into the command buffer.
    """

    kind = "VkDescriptorSetLayout"

    def __init__(self, device: Device, bindings: Sequence[int], push: bool) -> None:
        entries = [
            api.struct(
                "VkDescriptorSetLayoutBinding",
                binding=binding,
                descriptorType=api.constant("VK_DESCRIPTOR_TYPE_STORAGE_BUFFER"),
                descriptorCount=1,
                stageFlags=api.constant("VK_SHADER_STAGE_COMPUTE_BIT"),
            )
            for binding in bindings
        ]
        name = "VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR"
        info = api.struct(
            "VkDescriptorSetLayoutCreateInfo",
            flags=api.constant(name) if push else 0,
            bindingCount=len(entries),
            pBindings=entries,
        )
        super().__init__(device, info)


class Writes:
    """VkWriteDescriptorSet structures of one set, with the memory they point to."""

    def __init__(self, bindings: Sequence[Binding], target: Any = None) -> None:
        count = len(bindings)
        self.count = count
        self.infos = api.ffi.new("VkDescriptorBufferInfo[]", count)
        self.array = api.ffi.new("VkWriteDescriptorSet[]", count)
        s_type = api.structure_type("VkWriteDescriptorSet")
        kind = api.constant("VK_DESCRIPTOR_TYPE_STORAGE_BUFFER")
        for number, (binding, buffer, offset, size) in enumerate(bindings):
            info, write = self.infos[number], self.array[number]
            info.buffer, info.offset, info.range = buffer, offset, size
            write.sType, write.dstBinding, write.descriptorCount = s_type, binding, 1
            write.descriptorType, write.pBufferInfo = kind, self.infos + number
            if target is not None:
                write.dstSet = target


class DescriptorPool(DeviceObject):
    """Memory for descriptor sets. Vulkan: vkCreateDescriptorPool

    Args:
        device: device of the pool.
        sets: most descriptor sets.
        descriptors: most descriptors in all sets together.
    """

    kind = "VkDescriptorPool"

    def __init__(self, device: Device, sets: int, descriptors: int) -> None:
        size = api.struct(
            "VkDescriptorPoolSize",
            type=api.constant("VK_DESCRIPTOR_TYPE_STORAGE_BUFFER"),
            descriptorCount=max(descriptors, 1),
        )
        info = api.struct(
            "VkDescriptorPoolCreateInfo", maxSets=max(sets, 1), poolSizeCount=1, pPoolSizes=[size]
        )
        super().__init__(device, info)

    def allocate(self, layout: DescriptorSetLayout, bindings: Sequence[Binding]) -> Any:
        """Return a new descriptor set with these buffers. Vulkan: vkAllocateDescriptorSets"""
        info = api.struct(
            "VkDescriptorSetAllocateInfo",
            descriptorPool=self.handle,
            descriptorSetCount=1,
            pSetLayouts=[layout.handle],
        )
        out = api.ffi.new("VkDescriptorSet *")
        self.device.call("vkAllocateDescriptorSets", info, out)
        writes = Writes(bindings, out[0])
        self.device.command("vkUpdateDescriptorSets")(
            self.device.handle, writes.count, writes.array, 0, api.ffi.NULL
        )
        return out[0]
