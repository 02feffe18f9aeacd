"""VkDevice and VkQueue: one open device, its queues and its commands.

Decides which features and queue families are used: a compute-only family and a transfer-only one
where they exist. `runtime.open_devices` chooses the device. Visited by labs 02 and 04.
"""

from __future__ import annotations

import threading
from typing import Any

from vklab.base import forking
from vklab.errors import SetupError, VulkanError
from vklab.types import DeviceInfo, QueueFamily
from vklab.vulkan import api, physical_device
from vklab.vulkan.instance import Instance

# Enabled if the device has them. `plan.storage` checks dtypes against the features that the device
# offers, `runtime.kernels` each kernel's SPIR-V against the enabled ones.
WANTED_FEATURES = frozenset({
    "shaderInt16", "shaderInt64", "shaderFloat64",
    "storageBuffer16BitAccess", "storageBuffer8BitAccess", "shaderFloat16", "shaderInt8",
    "uniformAndStorageBuffer8BitAccess", "uniformAndStorageBuffer16BitAccess",
    "shaderSubgroupExtendedTypes", "shaderIntegerDotProduct", "scalarBlockLayout",
    "vulkanMemoryModel", "vulkanMemoryModelDeviceScope", "bufferDeviceAddress",
    "timelineSemaphore", "hostQueryReset", "synchronization2", "maintenance4",
    "subgroupSizeControl", "computeFullSubgroups", "cooperativeMatrix",
    "variablePointers", "variablePointersStorageBuffer", *physical_device.BFLOAT16,
})  # fmt: skip
WANTED_EXTENSIONS = (
    "VK_KHR_push_descriptor", "VK_EXT_memory_budget", "VK_EXT_calibrated_timestamps",
    "VK_KHR_portability_subset", "VK_KHR_cooperative_matrix", "VK_KHR_shader_bfloat16",
    "VK_EXT_external_memory_host", "VK_KHR_external_memory_fd", "VK_EXT_external_memory_dma_buf",
    "VK_KHR_external_semaphore_fd",
)  # fmt: skip


def choose_queue_families(families: tuple[QueueFamily, ...]) -> tuple[int, int]:
    """Return the indices of the queue families for compute and for copies.

    A compute family without graphics is preferred, because it runs beside the desktop's work.
    Copies use a family for transfers alone, else the compute family. Raises LookupError if no
    family has the compute flag.
    Source: Vulkan 1.3, section 'Queues'.
    """
    computing = [family for family in families if "compute" in family.flags]
    if not computing:
        raise LookupError("no queue family has the compute flag")
    compute = min(computing, key=lambda family: ("graphics" in family.flags, family.index))
    copying = [
        family
        for family in families
        if "transfer" in family.flags
        and not family.flags & {"graphics", "compute"}
        and not any(flag.startswith(("video", "optical")) for flag in family.flags)
    ]
    return compute.index, copying[0].index if copying else compute.index


class Queue:
    """One VkQueue; its lock provides Vulkan's external synchronisation between threads."""

    def __init__(self, device: Device, family: QueueFamily) -> None:
        self.family = family
        self.lock = threading.Lock()
        out = api.ffi.new("VkQueue *")
        device.command("vkGetDeviceQueue")(device.handle, family.index, 0, out)
        self.handle = out[0]


class Device(api.VulkanObject):
    """One physical device, opened for this process. Vulkan: vkCreateDevice

    Raises SetupError for a device with a refusal.

    Args:
        instance: instance of the physical device.
        physical: VkPhysicalDevice.
        info: description of the physical device.
    """

    kind = "VkDevice"

    def __init__(self, instance: Instance, physical: Any, info: DeviceInfo) -> None:
        if info.refusal:
            raise SetupError(f"device {info.index} ({info.name}) cannot be used: {info.refusal}")
        self.instance = instance
        self.physical = physical
        self.info = info
        self.extensions = frozenset(WANTED_EXTENSIONS) & info.extensions
        self.features = WANTED_FEATURES & info.features
        self._commands: dict[str, Any] = {}
        compute, transfer = choose_queue_families(info.queue_families)
        self.queue_family_indices = tuple(dict.fromkeys((compute, transfer)))
        super().__init__(self._create())
        queues = {i: Queue(self, info.queue_families[i]) for i in self.queue_family_indices}
        self.compute_queue, self.transfer_queue = queues[compute], queues[transfer]

    def _features(self, name: str, **chain: Any) -> Any:
        """Return a structure of features with every wanted and available feature enabled."""
        members = [m for m, _ in api.ffi.typeof(name).fields if m in self.features]
        return api.struct(name, **dict.fromkeys(members, 1), **chain)

    def _create(self) -> Any:
        chain = (
            physical_device.bfloat16(
                vulkanMemoryModel=1, vulkanMemoryModelAvailabilityVisibilityChains=1
            )
            if self.features >= physical_device.BFLOAT16
            else None
        )
        for name in physical_device.feature_structs(self.extensions):
            chain = self._features(name, pNext=chain)
        core = self._features("VkPhysicalDeviceFeatures")
        queues = [
            api.struct(
                "VkDeviceQueueCreateInfo",
                queueFamilyIndex=index,
                queueCount=1,
                pQueuePriorities=[1.0],
            )
            for index in self.queue_family_indices
        ]
        info = api.struct(
            "VkDeviceCreateInfo",
            queueCreateInfoCount=len(queues),
            pQueueCreateInfos=queues,
            pNext=api.struct("VkPhysicalDeviceFeatures2", pNext=chain, features=core),
            enabledExtensionCount=len(self.extensions),
            ppEnabledExtensionNames=sorted(self.extensions),
        )
        out = api.ffi.new("VkDevice *")
        api.call("vkCreateDevice", self.physical, info, api.ffi.NULL, out, detail=self.info.name)
        return out[0]

    def command(self, name: str) -> Any:
        """Return a command of the device's driver. Vulkan: vkGetDeviceProcAddr

        Raises VklabError in a child that `os.fork` made after the device was opened.
        """
        forking.require_own(self.owner, f"the open device {self.info.name}")
        if name not in self._commands:
            pointer = api.lib.vkGetDeviceProcAddr(self.handle, name.encode())
            if pointer == api.ffi.NULL:
                raise VulkanError(name, "VK_ERROR_EXTENSION_NOT_PRESENT", self.info.name)
            self._commands[name] = api.ffi.cast(f"PFN_{name}", pointer)
        return self._commands[name]

    def call(self, name: str, *arguments: Any, detail: str = "") -> None:
        """Call a device command with this device as first argument; VulkanError on failure.

        Args:
            name: name of the command.
            arguments: the command's arguments after the device.
            detail: text for the error; by default the device's name.
        """
        result = self.command(name)(self.handle, *arguments)
        if result is not None:
            api.check(name, result, detail or self.info.name)

    def create(self, name: str, ctype: str, info: Any, detail: str = "") -> Any:
        """Call a command of the form (device, info, allocator, out) and return the new handle.

        Args:
            name: name of the vkCreate or vkAllocate command.
            ctype: C type of the handle.
            info: the command's create or allocate structure.
            detail: text for the error; by default the device's name.
        """
        out = api.ffi.new(f"{ctype} *")
        self.call(name, info, api.ffi.NULL, out, detail=detail)
        return out[0]

    def _destroy(self) -> None:
        # No wait here: the submitter of work waits for it, with a limit, before closing.
        self.command("vkDestroyDevice")(self.handle, api.ffi.NULL)


class DeviceObject(api.VulkanObject):
    """Own a handle created by a device; `kind` names its vkCreate and vkDestroy commands."""

    def __init__(self, device: Device, info: Any) -> None:
        self.device = device
        name = self.kind.removeprefix("Vk")
        super().__init__(device.create(f"vkCreate{name}", self.kind, info))

    def _destroy(self) -> None:
        name = self.kind.removeprefix("Vk")
        self.device.command(f"vkDestroy{name}")(self.device.handle, self.handle, api.ffi.NULL)
