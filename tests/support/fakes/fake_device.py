"""A device that is not there: a DeviceInfo made up for tests of plans and choices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.types import DeviceInfo, MemoryHeap, MemoryType, QueueFamily

LOCAL, VISIBLE, COHERENT, CACHED = 1, 2, 4, 8
_NAMES = {1: "device_local", 2: "host_visible", 4: "host_coherent", 8: "host_cached"}
# The smallest limits that section 6 of the design allows.
LIMITS: dict[str, Any] = {
    "maxComputeWorkGroupCount": (65535, 65535, 65535),
    "maxComputeWorkGroupInvocations": 256,
    "maxComputeSharedMemorySize": 16384,
    "maxPushConstantsSize": 128,
    "maxStorageBufferRange": 128 << 20,
    "maxMemoryAllocationSize": 1 << 30,
    "maxBufferSize": 1 << 30,
    "minStorageBufferOffsetAlignment": 256,
    "minSubgroupSize": 4,
    "maxSubgroupSize": 4,
}


def memory_types(*bits: int) -> tuple[MemoryType, ...]:
    """Return memory types of one heap with these property flags."""
    return tuple(
        MemoryType(0, frozenset(name for bit, name in _NAMES.items() if flags & bit), flags)
        for flags in bits
    )


UNIFIED = memory_types(LOCAL | VISIBLE | COHERENT | CACHED)
# As on a discrete GPU without ReBAR: nothing is both device-local and visible.
DISCRETE = memory_types(LOCAL, VISIBLE | COHERENT, VISIBLE | COHERENT | CACHED)


def fake_device(limits: dict[str, Any] | None = None, **changes: Any) -> DeviceInfo:
    """Return a modest device, with some facts changed."""
    info = DeviceInfo(
        index=0,
        name="Fake GPU",
        type="discrete",
        vendor="Fake",
        vendor_id=1,
        device_id=2,
        driver="fake 1.0",
        driver_version=1,
        api_version=(1, 3, 0),
        uuid="00",
        queue_families=(QueueFamily(0, 1, frozenset({"compute", "transfer"}), 64),),
        heaps=(MemoryHeap(4 << 30, True, 4 << 30, 0),),
        memory_types=UNIFIED,
        limits={**LIMITS, **(limits or {})},
        subgroup_size=4,
        subgroup_operations=frozenset({"basic", "shuffle"}),
        features=frozenset(),
        extensions=frozenset(),
        cooperative_matrices=(),
    )
    return replace(info, **changes)
