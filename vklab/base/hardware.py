"""Descriptions of a physical device, as plain data: `vklab.types` has them, too.

Uses no driver: `vulkan/physical_device.py` reads what stands here. Visited by lab 02.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vklab.base.late import Door


@dataclass(frozen=True)
class QueueFamily:
    """One kind of queue of a physical device."""

    index: int
    queue_count: int
    flags: frozenset[str]
    timestamp_valid_bits: int


@dataclass(frozen=True)
class MemoryHeap:
    """One memory heap; budget and usage are present values if the driver reports them."""

    size_bytes: int
    device_local: bool
    budget_bytes: int
    usage_bytes: int


@dataclass(frozen=True)
class MemoryType:
    """One memory type: its heap, and its property flags as names and as bits."""

    heap: int
    flags: frozenset[str]
    bits: int


@dataclass(frozen=True)
class CooperativeMatrix:
    """One matrix shape that a subgroup multiplies in one instruction: C[m,n] += A[m,k] B[k,n]."""

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    result: str


@dataclass(frozen=True)
class DeviceInfo:
    """Description of one physical device, read once from its driver."""

    index: int
    name: str
    type: str
    vendor: str
    vendor_id: int
    device_id: int
    driver: str
    driver_version: int
    api_version: tuple[int, int, int]
    uuid: str
    queue_families: tuple[QueueFamily, ...]
    heaps: tuple[MemoryHeap, ...]
    memory_types: tuple[MemoryType, ...]
    limits: Mapping[str, int | float | tuple[int, ...] | tuple[float, ...]] = field(repr=False)
    subgroup_size: int
    subgroup_operations: frozenset[str]
    features: frozenset[str] = field(repr=False)
    extensions: frozenset[str] = field(repr=False)
    cooperative_matrices: tuple[CooperativeMatrix, ...] = field(repr=False)
    refusal: str = ""

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of all device-local heaps."""
        return sum(heap.size_bytes for heap in self.heaps if heap.device_local)

    @property
    def is_cpu(self) -> bool:
        """Return whether this device is a CPU, as with lavapipe."""
        return self.type == "cpu"

    def limit(self, name: str) -> int:
        """Return one integer limit by its Vulkan name, such as maxStorageBufferRange."""
        value = self.limits[name]
        if not isinstance(value, int):
            raise TypeError(f"limit {name} is {value!r}, not one integer")
        return value

    def summary(self) -> dict[str, Any]:
        """Return the facts that distinguish devices, ready for JSON."""
        names = (
            "index",
            "name",
            "type",
            "vendor",
            "vendor_id",
            "device_id",
            "driver",
            "driver_version",
            "api_version",
            "uuid",
            "memory_bytes",
            "subgroup_size",
            "is_cpu",
            "refusal",
        )
        version = ".".join(map(str, self.api_version))
        return {name: getattr(self, name) for name in names} | {"api_version": version}

    @property
    def label(self) -> str:
        """Return the number and the name, as 0: llvmpipe."""
        return f"{self.index}: {self.name}"

    def __str__(self) -> str:
        version = ".".join(map(str, self.api_version))
        return f"{self.label} ({self.type}, {self.driver}, Vulkan {version})"

    # Functions of `draw/device.py`, whose first parameter is the description.
    rows = Door[list[tuple[str, str]]]("vklab.base.draw.device", "rows")
    _repr_html_ = Door[str]("vklab.base.draw.device", "html")
