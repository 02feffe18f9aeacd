"""Compute pipelines: SPIR-V and a layout, compiled by the driver into a kernel for one device.

Keeps the driver's compiled code on disk, keyed by device and driver; `shader` makes the SPIR-V.
Visited by lab 05.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Sequence
from typing import Any

from vklab.base import store
from vklab.vulkan import api
from vklab.vulkan.descriptors import DescriptorSetLayout
from vklab.vulkan.device import Device, DeviceObject

# (specialization constant id, struct format of its type, value)
Constant = tuple[int, str, int | float | bool]


class PipelineCache(DeviceObject):
    """Compiled pipelines of one driver, read from a file and written to it.

    A file that is damaged, unreadable or from another driver counts as empty.
    Vulkan: vkCreatePipelineCache
    """

    kind = "VkPipelineCache"

    def __init__(self, device: Device) -> None:
        folder = store.folder("pipelines")
        self.path = folder / f"{self._key(device)}.bin" if folder else None
        # Damaged data crashes some drivers, so `store` returns undamaged files only.
        data = store.read(self.path) or b""
        info = api.struct(
            "VkPipelineCacheCreateInfo",
            initialDataSize=len(data),
            pInitialData=data or None,
        )
        super().__init__(device, info)
        self._saved = self._data()

    @staticmethod
    def _key(device: Device) -> str:
        info = device.info
        uuid = bytes(info.limits["pipelineCacheUUID"]).hex()  # type: ignore[arg-type]
        return f"{uuid}-{info.vendor_id:x}-{info.device_id:x}-{info.driver_version:x}"

    def _data(self) -> bytes:
        size = api.ffi.new("size_t *")
        command = self.device.command("vkGetPipelineCacheData")
        self.device.call("vkGetPipelineCacheData", self.handle, size, api.ffi.NULL)
        data = api.ffi.new("char[]", max(size[0], 1))
        result = command(self.device.handle, self.handle, size, data)
        if api.result_name(result) == "VK_INCOMPLETE":
            return self._data()  # another thread has added a pipeline meanwhile
        api.check("vkGetPipelineCacheData", result, self.device.info.name)
        return bytes(api.ffi.buffer(data, size[0]))

    def save(self) -> None:
        """Write the cache to its file if it has changed. Vulkan: vkGetPipelineCacheData"""
        data = self._data()
        if data != self._saved and store.write(self.path, data):
            self._saved = data


class _PipelineLayout(DeviceObject):
    kind = "VkPipelineLayout"


class _ShaderModule(DeviceObject):
    kind = "VkShaderModule"


class ComputePipeline(api.VulkanObject):
    """One kernel, compiled by the driver. Vulkan: vkCreateComputePipelines

    Args:
        device: device that compiles and runs the kernel.
        words: SPIR-V as bytes.
        bindings: binding numbers of its storage buffers, all in descriptor set 0.
        push_bytes: size of its push-constant block.
        constants: specialization constants as (id, struct format, value).
        push_descriptors: whether descriptors are pushed into the command buffer.
        cache: compiled pipelines of earlier sessions.
        entry: name of the entry point.
        label: name of the kernel in error messages; by default the entry point.
    """

    kind = "VkPipeline"

    def __init__(
        self,
        device: Device,
        words: bytes,
        bindings: Sequence[int],
        push_bytes: int,
        constants: Sequence[Constant] = (),
        push_descriptors: bool = False,
        cache: PipelineCache | None = None,
        entry: str = "main",
        label: str = "",
    ) -> None:
        self.device = device
        self.set_layout = DescriptorSetLayout(device, bindings, push_descriptors)
        self._parts: list[DeviceObject] = [self.set_layout]
        try:
            layout = self._make_layout(push_bytes)
            self._parts.append(layout)
            self.layout = layout.handle
            with self._make_module(words) as module:
                stage = self._make_stage(module, entry, constants)
                super().__init__(self._make_pipeline(stage, cache, label or entry))
        except BaseException:
            self._close_parts()
            raise

    def _make_layout(self, push_bytes: int) -> DeviceObject:
        stage = api.constant("VK_SHADER_STAGE_COMPUTE_BIT")
        ranges = [api.struct("VkPushConstantRange", stageFlags=stage, size=push_bytes)]
        info = api.struct(
            "VkPipelineLayoutCreateInfo",
            setLayoutCount=1,
            pSetLayouts=[self.set_layout.handle],
            pushConstantRangeCount=1 if push_bytes else 0,
            pPushConstantRanges=ranges,
        )
        return _PipelineLayout(self.device, info)

    def _make_module(self, words: bytes) -> DeviceObject:
        code = api.ffi.new("uint32_t[]", len(words) // 4)
        api.ffi.memmove(code, words, len(words))
        info = api.struct("VkShaderModuleCreateInfo", codeSize=len(words), pCode=code)
        return _ShaderModule(self.device, info)

    def _make_stage(self, module: DeviceObject, entry: str, constants: Sequence[Constant]) -> Any:
        data, entries = b"", []
        for identifier, kind, value in constants:
            packed = packing.pack(f"<{kind}", value)
            entries.append(
                api.struct(
                    "VkSpecializationMapEntry",
                    constantID=identifier,
                    offset=len(data),
                    size=len(packed),
                )
            )
            data += packed
        special = api.struct(
            "VkSpecializationInfo",
            mapEntryCount=len(entries),
            pMapEntries=entries,
            dataSize=len(data),
            pData=data or None,
        )
        return api.struct(
            "VkPipelineShaderStageCreateInfo",
            stage=api.constant("VK_SHADER_STAGE_COMPUTE_BIT"),
            module=module.handle,
            pName=entry,
            pSpecializationInfo=special,
        )

    def _make_pipeline(self, stage: Any, cache: PipelineCache | None, label: str) -> Any:
        info = api.struct("VkComputePipelineCreateInfo", stage=stage, layout=self.layout)
        out = api.ffi.new("VkPipeline *")
        self.device.call(
            "vkCreateComputePipelines",
            cache.handle if cache else api.ffi.NULL,
            1,
            info,
            api.ffi.NULL,
            out,
            detail=f"kernel {label} on {self.device.info.name}",
        )
        return out[0]

    def _close_parts(self) -> None:
        while self._parts:
            self._parts.pop().close()

    def _destroy(self) -> None:
        self.device.command("vkDestroyPipeline")(self.device.handle, self.handle, api.ffi.NULL)
        self._close_parts()
