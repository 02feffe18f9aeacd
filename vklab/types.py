"""Plain data that every part of vklab shares: tensors, dispatches and what a device can do.

Nothing here touches a driver or a graph. Visited by labs 02, 09 and 11.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vklab import draw

__all__ = [
    "ANY_SHAPE",
    "CooperativeMatrix",
    "DeviceInfo",
    "Dispatch",
    "Formula",
    "MemoryHeap",
    "MemoryType",
    "Operand",
    "Pointwise",
    "QueueFamily",
    "TensorInfo",
    "StridedView",
    "dense_strides",
    "size_bytes",
]

Shape = tuple[int | str, ...]
# The shape of a tensor of which not even the rank is known.
ANY_SHAPE: Shape = ("...",)
_CALL = re.compile(r"onnx::(\w+)")


def size_bytes(dtype: str, shape: Shape) -> int:
    """Return the bytes of a dense tensor; every dimension must be a number."""
    return int(math.prod(int(dim) for dim in shape)) * np.dtype(dtype).itemsize


@dataclass(frozen=True, eq=False)
class TensorInfo:
    """Name, dtype and shape of a tensor, and its value where that is known before the run.

    A dimension is a number, or a name as long as it is not known. Two infos are the same tensor
    only if they are the same object: an operator that reads `X` twice reads one tensor.
    """

    name: str
    dtype: str
    shape: Shape
    constant: np.ndarray | None = None

    @property
    def rank(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @functools.cached_property
    def is_static(self) -> bool:
        """Tell whether every dimension is a number."""
        return all(isinstance(dim, int) for dim in self.shape)

    @functools.cached_property
    def dims(self) -> tuple[int, ...]:
        """Return the shape as numbers; ValueError if a dimension is still a name."""
        return tuple(int(dim) for dim in self.shape)

    @functools.cached_property
    def count(self) -> int:
        """Return the number of elements."""
        return math.prod(self.dims)

    @functools.cached_property
    def size_bytes(self) -> int:
        """Return the bytes that a dense copy of this tensor takes."""
        return size_bytes(self.dtype, self.shape)

    def __str__(self) -> str:
        shape = ",".join(str(dim) for dim in self.shape)
        return f"{self.name}: {self.dtype}[{shape}]"

    __repr__ = __str__


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return row-major strides in elements."""
    strides, step = [], 1
    for dim in reversed(shape):
        strides.append(step)
        step *= dim
    return tuple(reversed(strides))


@dataclass(frozen=True)
class StridedView:
    """Where elements lie in a buffer: start + the sum of index * stride over the axes of a shape.

    In elements; stride 0 repeats, below 0 goes back.
    """

    strides: tuple[int, ...]
    start: int = 0

    @classmethod
    def dense(cls, shape: tuple[int, ...]) -> StridedView:
        """Return the view of a whole tensor, row by row."""
        return cls(dense_strides(shape))

    def is_dense(self, shape: tuple[int, ...]) -> bool:
        """Tell whether the n-th element of the shape is the n-th of the buffer."""
        pairs = zip(shape, self.strides, dense_strides(shape), strict=True)
        return self.start == 0 and all(dim == 1 or s == d for dim, s, d in pairs)


@dataclass(frozen=True)
class Operand:
    """A tensor that is read, what its elements are taken for, and the view of it."""

    info: TensorInfo
    dtype: str
    view: StridedView


@dataclass(frozen=True)
class Formula:
    """One step: a Slang expression of a, b, c (`arguments`) and p0, p1 (`numbers`).

    Arguments count operands first, then earlier formulas. What it makes is rounded to `dtype`, as
    if it had been stored and loaded again.
    """

    text: str
    arguments: tuple[int, ...]
    numbers: tuple[float, ...]
    dtype: str
    name: str = ""

    @property
    def title(self) -> str:
        """Return a short text for people: the function that is called, or "move" for a copy."""
        call = _CALL.search(self.text)
        return "move" if self.text == "a" else call[1] if call else self.text


@dataclass(frozen=True)
class Pointwise:
    """An element of the result for each index of `shape`: the value of the last formula.

    `target` is the view of the result; None where it is dense.
    """

    shape: tuple[int, ...]
    operands: tuple[Operand, ...]
    formulas: tuple[Formula, ...]
    target: StridedView | None = None

    @property
    def count(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return " ".join(formula.name or formula.text for formula in self.formulas)


Operands = tuple[tuple[str, TensorInfo], ...]
Number = int | float


@dataclass(frozen=True)
class Dispatch:
    """One kernel launch: which shader, on which buffers, with which numbers, how many workgroups.

    `reads` and `writes` pair the shader's binding names with tensors; `push` pairs push-constant
    names with numbers or tuples of them; `constants` are specialization constants by name;
    `defines` choose the compiled variant. `workgroups` counts workgroups in x, y and z.
    `iterations` is the most that one invocation loops, where that depends on the model.

    For fusion: `pointwise` says what an element-wise dispatch computes; `epilogue` what becomes of
    each value before it is stored (operand 0 is that value) and `prologue` of what is read as
    `x_buffer`. `siblings` is what one dispatch computes in the place of several, a result in
    `writes` for each. `fragment` is the Slang that they become, put before the kernel's own text.
    `in_place` names reads that may share their memory with what is written.
    """

    kernel: str
    reads: Operands
    writes: Operands
    workgroups: tuple[int, int, int]
    push: tuple[tuple[str, Number | tuple[Number, ...]], ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, Number], ...] = ()
    flops: int = 0
    iterations: int = 0
    pointwise: Pointwise | None = None
    prologue: Pointwise | None = None
    epilogue: Pointwise | None = None
    siblings: tuple[Pointwise, ...] = ()
    fragment: str = ""
    in_place: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Return the bytes moved if every operand is touched once."""
        return sum(info.size_bytes for _, info in self.reads + self.writes)

    @property
    def variant(self) -> tuple[str, tuple[tuple[str, str], ...], str]:
        """Return what the compiler needs to know: the kernel, its defines, generated text."""
        return self.kernel, self.defines, self.fragment

    def __str__(self) -> str:
        reads = ", ".join(info.name for _, info in self.reads)
        writes = ", ".join(info.name for _, info in self.writes)
        return f"{writes} = {self.kernel}({reads}) on {'x'.join(map(str, self.workgroups))}"


@dataclass(frozen=True)
class QueueFamily:
    """One kind of queue of a physical device."""

    index: int
    queue_count: int
    flags: frozenset[str]
    timestamp_valid_bits: int


@dataclass(frozen=True)
class MemoryHeap:
    """One pool of memory; budget and usage are live where the driver tells them."""

    size_bytes: int
    device_local: bool
    budget_bytes: int
    usage_bytes: int


@dataclass(frozen=True)
class MemoryType:
    """One way to allocate from a heap, with the names of its property flags."""

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
    """What one physical device is and can do, read once from its driver."""

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
        """Tell whether this device is a CPU that plays a GPU."""
        return self.type == "cpu"

    def limit(self, name: str) -> int:
        """Return one integer limit by its Vulkan name, such as maxStorageBufferRange."""
        value = self.limits[name]
        if not isinstance(value, int):
            raise TypeError(f"limit {name} is {value!r}, not one integer")
        return value

    def summary(self) -> dict[str, Any]:
        """Return the facts that tell devices apart, ready for JSON."""
        names = ("index", "name", "type", "vendor", "vendor_id", "device_id", "driver",
                 "driver_version", "api_version", "uuid", "memory_bytes", "subgroup_size",
                 "is_cpu", "refusal")  # fmt: skip
        version = ".".join(map(str, self.api_version))
        return {name: getattr(self, name) for name in names} | {"api_version": version}

    @property
    def label(self) -> str:
        """Return number and name."""
        return f"{self.index}: {self.name}"

    def __str__(self) -> str:
        version = ".".join(map(str, self.api_version))
        return f"{self.label} ({self.type}, {self.driver}, Vulkan {version})"

    def _repr_html_(self) -> str:
        return draw.table_html("Vulkan device", ("property", "value"), self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """Return the facts a person asks for first, as pairs of text."""
        queues = "; ".join(
            f"{family.index}: {family.queue_count} x {' '.join(sorted(family.flags))}"
            for family in self.queue_families
        )
        return [
            ("name", self.name),
            ("type", self.type),
            ("vendor", f"{self.vendor} (0x{self.vendor_id:04x})"),
            ("driver", self.driver),
            ("Vulkan", ".".join(map(str, self.api_version))),
            ("device-local memory", f"{self.memory_bytes / 2**20:.0f} MiB"),
            ("queue families", queues),
            ("subgroup size", str(self.subgroup_size)),
            ("shared memory", f"{self.limit('maxComputeSharedMemorySize') // 1024} KiB"),
            ("invocations a workgroup", str(self.limit("maxComputeWorkGroupInvocations"))),
            ("usable", self.refusal or "yes"),
        ]
