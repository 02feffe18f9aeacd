"""Machines for exercises: DeviceInfo values and memory tables without a driver, as data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vklab.types import CooperativeMatrix, DeviceInfo, MemoryHeap, MemoryType, QueueFamily
from vklab.vulkan import physical_device
from vklab_course.definition.codec import register

__all__ = ["Needs", "families", "machine", "memory_table", "recorded_table", "ten_devices"]

MIB = 1 << 20
CORE = ("timelineSemaphore", "synchronization2", "maintenance4")
WIDE = ("shaderFloat16", "shaderInt8", "shaderInt64")
_FLAGS = {"g": "graphics", "c": "compute", "t": "transfer", "s": "sparse_binding",
          "v": "video_decode"}  # fmt: skip


for _record in (CooperativeMatrix, DeviceInfo, MemoryHeap, MemoryType, QueueFamily):
    register(_record)


@register
@dataclass(frozen=True)
class Needs:
    """Requirements of a program on a device, in the order in which they are tested.

    Attributes:
        api_version: oldest version of Vulkan, (major, minor).
        queue: flag that one queue family must have.
        features: names of features.
        at_least: limits that must have this value or a larger one.
        at_most: limits that must have this value or a smaller one.
        heap_mib: smallest size of the largest device-local heap, in MiB.
    """

    api_version: tuple[int, int] = (1, 3)
    queue: str = "compute"
    features: tuple[str, ...] = ()
    at_least: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    heap_mib: int = 0


def families(*kinds: str) -> tuple[QueueFamily, ...]:
    """Make up queue families from words: "16gct" is 16 queues with graphics, compute and transfer.

    Letters: g graphics, c compute, t transfer, s sparse binding, v video decoding. "-36" at the end
    means timestamps of 36 bits, "-0" none; without it they have 64.
    """
    made = []
    for index, kind in enumerate(kinds):
        found = re.fullmatch(rf"(\d+)([{''.join(_FLAGS)}]*)(?:-(\d+))?", kind)
        if not found:
            raise ValueError(
                f"{kind!r} names no queue family: write a number, letters of "
                f"{' '.join(_FLAGS)}, and perhaps a clock, as in '8ct-36'"
            )
        made.append(
            QueueFamily(
                index, int(found[1]), frozenset(_FLAGS[c] for c in found[2]), int(found[3] or 64)
            )
        )
    return tuple(made)


def _device(name: str, kind: str, vendor: tuple[str, int], version: tuple[int, int, int],
            heaps: tuple[int, ...], queues: tuple[str, ...], uuid: str, subgroup: int = 32,
            extra: tuple[str, ...] = WIDE, **limits: int) -> DeviceInfo:  # fmt: skip
    """Make up a device; heaps are in MiB, a negative number is a heap of the host."""
    features = frozenset(CORE + extra)
    queue_families = families(*queues)
    local = frozenset({"device_local"})
    return DeviceInfo(
        index=0,
        name=name,
        type=kind,
        vendor=vendor[0],
        vendor_id=vendor[1],
        device_id=1,
        driver="made up",
        driver_version=1,
        api_version=version,
        uuid=uuid * 16,
        queue_families=queue_families,
        heaps=tuple(MemoryHeap(abs(mib) * MIB, mib > 0, abs(mib) * MIB, 0) for mib in heaps),
        memory_types=tuple(
            MemoryType(i, local if mib > 0 else frozenset(), int(mib > 0))
            for i, mib in enumerate(heaps)
        ),
        limits={
            "maxComputeWorkGroupInvocations": 1024,
            "maxComputeSharedMemorySize": 49152,
            "maxStorageBufferRange": (4 << 30) - 1,
            "maxPushConstantsSize": 256,
            "minStorageBufferOffsetAlignment": 16,
            **limits,
        },
        subgroup_size=subgroup,
        subgroup_operations=frozenset({"basic", "arithmetic"}),
        features=features,
        extensions=frozenset(),
        cooperative_matrices=(),
        refusal=physical_device.refusal(version, queue_families, features),
    )


_INTEL, _NVIDIA, _AMD = ("Intel", 0x8086), ("NVIDIA", 0x10DE), ("AMD", 0x1002)
_QUALCOMM, _MESA = ("Qualcomm", 0x5143), ("Mesa", 0x10005)
_MACHINES = {
    "laptop": (
        _device("Laptop integrated", "integrated", _INTEL, (1, 3, 289), (7900,), ("1gct",), "1a",
                maxComputeSharedMemorySize=65536, minStorageBufferOffsetAlignment=4),
        _device("Laptop discrete", "discrete", _NVIDIA, (1, 4, 312), (8188, -15800, 246),
                ("16gcts", "2ts", "8cts", "1tv"), "2b"),
        _device("Laptop software", "cpu", _MESA, (1, 3, 255), (15800,), ("1gct",), "3c", 8,
                maxComputeSharedMemorySize=32768, maxStorageBufferRange=128 << 20),
    ),
    "server": (
        _device("Server card", "discrete", _NVIDIA, (1, 4, 303), (81559, -515000),
                ("16gcts", "2ts", "8cts"), "f4"),
        _device("Server card", "discrete", _NVIDIA, (1, 4, 303), (81559, -515000),
                ("16gcts", "2ts", "8cts"), "d5"),
        _device("Server old driver", "discrete", _AMD, (1, 2, 154), (16368, -515000),
                ("1gct", "4ct"), "66", 64),
    ),
    "phone": (
        _device("Phone", "integrated", _QUALCOMM, (1, 3, 128), (5600,), ("3gc",), "77", 64,
                ("shaderInt8",), maxComputeWorkGroupInvocations=256,
                maxComputeSharedMemorySize=16384, maxStorageBufferRange=128 << 20,
                maxPushConstantsSize=128, minStorageBufferOffsetAlignment=64),
    ),
    "workstation": (
        _device("Workstation", "discrete", _AMD, (1, 3, 280), (256, -31900, 16112),
                ("1gct", "4ct", "2t", "1tv-0"), "88", 64, minStorageBufferOffsetAlignment=4),
        _device("Video decoder", "other", ("unknown", 0x1234), (1, 3, 0), (512,), ("2tv-0",), "99"),
    ),
}  # fmt: skip


def machine(name: str) -> tuple[DeviceInfo, ...]:
    """Return the made-up devices of a laptop, server, phone or workstation."""
    return _MACHINES[name]


HEXADECIMAL = ("vendorID", "deviceID", "deviceUUID")


def ten_devices() -> tuple[dict[str, int], dict[str, list[object]]]:
    """Return fields of ten made-up devices: bytes by field, and by field a value of each device."""
    sizes = {
        "subgroup": 1,
        "families": 1,
        "type": 1,
        "extensions": 2,
        "heapMiB": 3,
        "vendorID": 4,
        "deviceID": 4,
        "driverVersion": 4,
        "apiVersion": 4,
        "deviceUUID": 16,
    }
    values = {
        "subgroup": "16 16 8 8 8 16 16 8 16 16",
        "families": "2 2 4 4 4 4 4 4 2 4",
        "type": "discrete discrete discrete virtual virtual discrete virtual virtual virtual "
        "discrete",
        "extensions": "203 203 203 203 203 131 131 131 98 131",
        "heapMiB": "16368 16368 8188 16368 16368 16368 16368 16368 8188 8188",
        "vendorID": "10de 10de 10de 10de 8086 10de 10de 10de 8086 5143",
        "deviceID": "2684 2685 2686 2686 2686 2685 2685 2686 2686 2686",
        "driverVersion": "24.0 25.0 25.0 24.0 24.0 26.1 25.0 23.2 25.0 26.1",
        "apiVersion": "1.2 1.3 1.2 1.2 1.2 1.2 1.2 1.2 1.3 1.3",
        "deviceUUID": "f142 e88a 69b7 be5c b2aa c498 bc6d 33ba 087a e86f",
    }
    return sizes, {
        name: [
            int(word) if word.isdecimal() and name not in HEXADECIMAL else word
            for word in text.split()
        ]
        for name, text in values.items()
    }


_FLAGS_OF_MEMORY = ("device_local", "host_visible", "host_coherent", "host_cached",
                    "lazily_allocated")  # fmt: skip
# Heaps as (bytes, device-local, budget, usage) and types as (heap, flags in bits), as drivers
# reported them. Sources: nowrep/obs-vkcapture issue 6 and KhronosGroup/Vulkan-ValidationLayers
# issue 5908 (one AMD card each, equal heaps, the four types without AMD's own flags);
# KhronosGroup/MoltenVK issue 2292 (M1); lavapipe 22.3.6 on a machine with 2 GiB for it.
_MEMORY: Mapping[str, tuple[tuple[tuple[int, bool, int, int], ...], tuple[tuple[int, int], ...]]]
_MEMORY = {
    "radeon": (((8321499136, True, 7675416576, 0), (8573157376, False, 8434692096, 0),
                (268435456, True, 181755904, 0)), ((0, 1), (1, 6), (2, 7), (1, 14))),
    "m1": (((17179869184, True, 11453251584, 65536),), ((0, 1), (0, 15), (0, 11), (0, 17))),
    "software": (((2 << 30, True, 2 << 30, 0),), ((0, 15),)),
}  # fmt: skip


def memory_table(name: str) -> tuple[tuple[MemoryHeap, ...], tuple[MemoryType, ...]]:
    """Return the heaps and memory types of a recorded device: "radeon", "m1" or "software"."""
    heaps, types = _MEMORY[name]
    return tuple(MemoryHeap(*heap) for heap in heaps), tuple(
        _memory_type(heap, (flag for bit, flag in enumerate(_FLAGS_OF_MEMORY) if bits >> bit & 1))
        for heap, bits in types
    )


def recorded_table(record: Mapping[str, Any]) -> tuple[tuple[MemoryHeap, ...],
                                                       tuple[MemoryType, ...]]:  # fmt: skip
    """Return the heaps and memory types of a record that `vklab_labs.shared.copies` has made."""
    return (
        tuple(MemoryHeap(**heap) for heap in record["heaps"]),
        tuple(_memory_type(kind["heap"], kind["flags"]) for kind in record["memory_types"]),
    )


def _memory_type(heap: int, flags: Iterable[str]) -> MemoryType:
    names = frozenset(flags)
    return MemoryType(
        heap, names, sum(1 << bit for bit, flag in enumerate(_FLAGS_OF_MEMORY) if flag in names)
    )
