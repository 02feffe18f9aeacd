"""Made-up machines for lab 02 and its checks: DeviceInfo values, no driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vklab.types import DeviceInfo, MemoryHeap, MemoryType, QueueFamily
from vklab.vulkan import physical_device

__all__ = ["Needs", "families", "machine"]

MIB = 1 << 20
CORE = ("timelineSemaphore", "synchronization2", "maintenance4")
WIDE = ("shaderFloat16", "shaderInt8", "shaderInt64")
_FLAGS = {"g": "graphics", "c": "compute", "t": "transfer", "s": "sparse_binding",
          "v": "video_decode"}  # fmt: skip


@dataclass(frozen=True)
class Needs:
    """Requirements of a program on a device; exercise 02-4 checks them in this order."""

    api_version: tuple[int, int] = (1, 3)
    queue: str = "compute"
    features: tuple[str, ...] = ()
    at_least: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    heap_mib: int = 0


def families(*kinds: str) -> tuple[QueueFamily, ...]:
    """Make up queue families from words such as "16gct": 16 queues, graphics compute transfer.

    A "-" at the end means that the queues cannot write timestamps.
    """
    return tuple(
        QueueFamily(
            index=index,
            queue_count=int("".join(c for c in kind if c.isdigit())),
            flags=frozenset(_FLAGS[c] for c in kind if c in _FLAGS),
            timestamp_valid_bits=0 if kind.endswith("-") else 64,
        )
        for index, kind in enumerate(kinds)
    )


def _device(name: str, kind: str, vendor: tuple[str, int], version: tuple[int, int, int],
            heaps: tuple[int, ...], queues: tuple[str, ...], uuid: str, subgroup: int = 32,
            extra: tuple[str, ...] = WIDE, **limits: int) -> DeviceInfo:  # fmt: skip
    """Make up a device; heaps are in MiB, a negative number is a heap of the host."""
    features = frozenset(CORE + extra)
    queue_families = families(*queues)
    local = frozenset({"device_local"})
    return DeviceInfo(
        index=0, name=name, type=kind, vendor=vendor[0], vendor_id=vendor[1], device_id=1,
        driver="made up", driver_version=1, api_version=version, uuid=uuid * 16,
        queue_families=queue_families,
        heaps=tuple(MemoryHeap(abs(mib) * MIB, mib > 0, abs(mib) * MIB, 0) for mib in heaps),
        memory_types=tuple(MemoryType(i, local if mib > 0 else frozenset(), int(mib > 0))
                           for i, mib in enumerate(heaps)),
        limits={"maxComputeWorkGroupInvocations": 1024, "maxComputeSharedMemorySize": 49152,
                "maxStorageBufferRange": (4 << 30) - 1, "maxPushConstantsSize": 256,
                "minStorageBufferOffsetAlignment": 16, **limits},
        subgroup_size=subgroup, subgroup_operations=frozenset({"basic", "arithmetic"}),
        features=features, extensions=frozenset(), cooperative_matrices=(),
        refusal=physical_device.refusal(version, queue_families, features),
    )  # fmt: skip


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
                ("1gct", "4ct", "2t", "1tv-"), "88", 64, minStorageBufferOffsetAlignment=4),
        _device("Video decoder", "other", ("unknown", 0x1234), (1, 3, 0), (512,), ("2tv-",), "99"),
    ),
}  # fmt: skip


def machine(name: str) -> tuple[DeviceInfo, ...]:
    """Return the made-up devices of a laptop, server, phone or workstation."""
    return _MACHINES[name]
