"""VkPhysicalDevice -> DeviceInfo: all properties of one device, read once from its driver.

Decides which devices can be used, with the reason for a refusal; `runtime.open_devices` chooses
among them. Visited by lab 02b.
"""

from __future__ import annotations

from typing import Any

from vklab.types import CooperativeMatrix, DeviceInfo, MemoryHeap, MemoryType, QueueFamily
from vklab.vulkan import api
from vklab.vulkan.instance import Instance

MINIMUM_VERSION = (1, 3)
BFLOAT16 = frozenset({"shaderBFloat16Type", "shaderBFloat16CooperativeMatrix"})
_TYPES = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
_VENDORS = {
    0x1002: "AMD", 0x1010: "ImgTec", 0x106B: "Apple", 0x10DE: "NVIDIA", 0x13B5: "ARM",
    0x14E4: "Broadcom", 0x1AE0: "Google", 0x5143: "Qualcomm", 0x8086: "Intel",
    0x10005: "Mesa", 0x10001: "Vivante", 0x10002: "VeriSilicon", 0x10006: "PoCL",
}  # fmt: skip
_COMPONENTS = {
    0: "float16", 1: "float32", 2: "float64", 3: "int8", 4: "int16", 5: "int32", 6: "int64",
    7: "uint8", 8: "uint16", 9: "uint32", 10: "uint64", 1000141000: "bfloat16",
}  # fmt: skip


def describe(instance: Instance, handle: Any, index: int) -> DeviceInfo:
    """Read properties, features, memory, queues and extensions of a physical device.

    Args:
        instance: instance of the physical device.
        handle: VkPhysicalDevice.
        index: number of the device in vklab, as in `--device`.
    """
    extensions = frozenset(
        api.text(item.extensionName)
        for item in api.enumerate_all(
            "vkEnumerateDeviceExtensionProperties",
            "VkExtensionProperties",
            handle,
            api.ffi.NULL,
        )
    )
    version = api.version_tuple(_properties(handle, modern=False)[0].properties.apiVersion)
    modern = version >= MINIMUM_VERSION
    base, parts = _properties(handle, modern)
    properties, driver, subgroup = base.properties, parts["Driver"], parts["Subgroup"]
    features = _features(handle, modern, extensions)
    families = _queue_families(handle)
    return DeviceInfo(
        index=index,
        name=api.text(properties.deviceName),
        type=_TYPES.get(properties.deviceType, "other"),
        vendor=_VENDORS.get(properties.vendorID, "unknown"),
        vendor_id=properties.vendorID,
        device_id=properties.deviceID,
        driver=" ".join(filter(None, (api.text(driver.driverName), api.text(driver.driverInfo)))),
        driver_version=properties.driverVersion,
        api_version=version,
        uuid=bytes(parts["ID"].deviceUUID).hex(),
        queue_families=families,
        heaps=memory_heaps(handle, "VK_EXT_memory_budget" in extensions),
        memory_types=_memory_types(handle),
        limits=_limits(properties, parts),
        subgroup_size=subgroup.subgroupSize,
        subgroup_operations=api.flag_names(subgroup.supportedOperations, "VK_SUBGROUP_FEATURE_"),
        features=features,
        extensions=extensions,
        cooperative_matrices=_cooperative_matrices(instance, handle, features),
        refusal=refusal(version, families, features),
    )


def feature_structs(extensions: frozenset[str]) -> list[str]:
    """Return the names of the structures that list a device's features."""
    names = [f"VkPhysicalDeviceVulkan{version}Features" for version in (11, 12, 13)]
    if "VK_KHR_cooperative_matrix" in extensions:
        names.append("VkPhysicalDeviceCooperativeMatrixFeaturesKHR")
    return names


def bfloat16(**fields: Any) -> Any:
    """Return VkPhysicalDeviceShaderBfloat16FeaturesKHR as a structure of the same layout.

    The bindings are older than it. Its three features: type, dot product, cooperative matrix.
    """
    made = api.struct("VkPhysicalDeviceVulkanMemoryModelFeatures", **fields)
    made.sType = 1000141000
    return made


def refusal(
    version: tuple[int, ...], families: tuple[QueueFamily, ...], features: frozenset[str]
) -> str:
    """Return the reason why vklab cannot use a device, or the empty string.

    Args:
        version: Vulkan version of the device, as (major, minor, patch).
        families: its queue families.
        features: names of its features.
    """
    if version[:2] < MINIMUM_VERSION:
        return f"supports Vulkan {version[0]}.{version[1]}; vklab needs 1.3: update the driver"
    if not any("compute" in family.flags for family in families):
        return "has no queue family for compute"
    missing = {"timelineSemaphore", "synchronization2", "maintenance4"} - features
    if missing:
        return f"lacks the features {', '.join(sorted(missing))}: update the driver"
    return ""


def memory_heaps(handle: Any, has_budget: bool) -> tuple[MemoryHeap, ...]:
    """Read the heaps, with their present budget and usage where the driver reports them.

    Vulkan: vkGetPhysicalDeviceMemoryProperties2
    """
    budget = api.struct("VkPhysicalDeviceMemoryBudgetPropertiesEXT")
    chained = budget if has_budget else None
    properties = api.struct("VkPhysicalDeviceMemoryProperties2", pNext=chained)
    api.lib.vkGetPhysicalDeviceMemoryProperties2(handle, properties)
    memory = properties.memoryProperties
    local = api.constant("VK_MEMORY_HEAP_DEVICE_LOCAL_BIT")
    return tuple(
        MemoryHeap(
            size_bytes=memory.memoryHeaps[i].size,
            device_local=bool(memory.memoryHeaps[i].flags & local),
            budget_bytes=budget.heapBudget[i] if has_budget else memory.memoryHeaps[i].size,
            usage_bytes=budget.heapUsage[i] if has_budget else 0,
        )
        for i in range(memory.memoryHeapCount)
    )


def _properties(handle: Any, modern: bool) -> tuple[Any, dict[str, Any]]:
    """Return VkPhysicalDeviceProperties2 and the structures chained to it, by short name."""
    parts: dict[str, Any] = {}
    last: Any = None
    for name in (
        "ID",
        "Subgroup",
        "Maintenance3",
        "Driver",
        "Maintenance4",
        "SubgroupSizeControl",
        "FloatControls",
    ):
        last = parts[name] = api.struct(f"VkPhysicalDevice{name}Properties", pNext=last)
    base = api.struct("VkPhysicalDeviceProperties2", pNext=last if modern else None)
    api.lib.vkGetPhysicalDeviceProperties2(handle, base)
    return base, parts


def _limits(properties: Any, parts: dict[str, Any]) -> dict[str, int | float | tuple[int, ...]]:
    names = (name for name, _ in api.ffi.typeof("VkPhysicalDeviceLimits").fields)
    values = {name: getattr(properties.limits, name) for name in names}
    limits = {n: tuple(v) if isinstance(v, api.ffi.CData) else v for n, v in values.items()}
    controls = parts["FloatControls"]  # 1: alone, whatever other types do
    alone = controls.roundingModeIndependence == controls.denormBehaviorIndependence == 1
    return limits | {
        "maxMemoryAllocationSize": parts["Maintenance3"].maxMemoryAllocationSize,
        "maxBufferSize": parts["Maintenance4"].maxBufferSize,
        "minSubgroupSize": parts["SubgroupSizeControl"].minSubgroupSize,
        "maxSubgroupSize": parts["SubgroupSizeControl"].maxSubgroupSize,
        "exactFloat16": int(
            alone and controls.shaderRoundingModeRTEFloat16 and controls.shaderDenormPreserveFloat16
        ),
        "pipelineCacheUUID": tuple(properties.pipelineCacheUUID),
    }


def _features(handle: Any, modern: bool, extensions: frozenset[str]) -> frozenset[str]:
    groups: dict[str, Any] = {}
    last = young = bfloat16() if "VK_KHR_shader_bfloat16" in extensions else None
    for name in feature_structs(extensions) if modern else ():
        last = groups[name] = api.struct(name, pNext=last)
    base = api.struct("VkPhysicalDeviceFeatures2", pNext=last)
    api.lib.vkGetPhysicalDeviceFeatures2(handle, base)
    groups["VkPhysicalDeviceFeatures"] = base.features
    found = frozenset(
        feature
        for name, values in groups.items()
        for feature, member in api.ffi.typeof(name).fields
        if member.type.cname == "uint32_t" and getattr(values, feature)
    )
    multiplies = young and young.vulkanMemoryModelAvailabilityVisibilityChains
    return found | BFLOAT16 if multiplies else found


def _queue_families(handle: Any) -> tuple[QueueFamily, ...]:
    read = "vkGetPhysicalDeviceQueueFamilyProperties"
    families = api.enumerate_all(read, "VkQueueFamilyProperties", handle)
    return tuple(
        QueueFamily(
            index=index,
            queue_count=family.queueCount,
            flags=api.flag_names(family.queueFlags, "VK_QUEUE_"),
            timestamp_valid_bits=family.timestampValidBits,
        )
        for index, family in enumerate(families)
    )


def _memory_types(handle: Any) -> tuple[MemoryType, ...]:
    memory = api.struct("VkPhysicalDeviceMemoryProperties")
    api.lib.vkGetPhysicalDeviceMemoryProperties(handle, memory)
    return tuple(
        MemoryType(
            heap=memory.memoryTypes[i].heapIndex,
            flags=api.flag_names(memory.memoryTypes[i].propertyFlags, "VK_MEMORY_PROPERTY_"),
            bits=memory.memoryTypes[i].propertyFlags,
        )
        for i in range(memory.memoryTypeCount)
    )


def _cooperative_matrices(
    instance: Instance, handle: Any, features: frozenset[str]
) -> tuple[CooperativeMatrix, ...]:
    if "cooperativeMatrix" not in features:
        return ()
    shapes = api.enumerate_all(
        instance.command("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"),
        "VkCooperativeMatrixPropertiesKHR",
        handle,
    )
    return tuple(
        CooperativeMatrix(
            shape.MSize,
            shape.NSize,
            shape.KSize,
            *(
                _COMPONENTS.get(int(api.ffi.cast("int", kind)), f"type {kind}")
                for kind in (shape.AType, shape.BType, shape.CType, shape.ResultType)
            ),
        )
        for shape in shapes
    )
