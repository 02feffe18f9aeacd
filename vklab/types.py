"""Plain data shared by all parts of vklab: tensors and dispatches; `hardware` describes devices.

Uses no driver and no graph. Visited by labs 02, 09 and 11.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vklab.base.hardware import CooperativeMatrix, DeviceInfo, MemoryHeap, MemoryType, QueueFamily
from vklab.base.protocols import Layout

__all__ = ["ANY_SHAPE", "CooperativeMatrix", "DeviceInfo", "Dispatch", "Formula", "MemoryHeap",
           "MemoryType", "Operand", "Pointwise", "QueueFamily", "StridedView", "TensorInfo",
           "dense_strides", "size_bytes"]  # fmt: skip

Shape = tuple[int | str, ...]
# The shape of a tensor of unknown rank.
ANY_SHAPE: Shape = ("...",)
_CALL = re.compile(r"onnx::(\w+)")


def size_bytes(dtype: str, shape: Shape) -> int:
    """Return the size of a dense tensor in bytes; every dimension must be a number."""
    return TensorInfo("", dtype, shape).size_bytes


@dataclass(frozen=True, eq=False)
class TensorInfo:
    """Name, dtype and shape of a tensor, and its value if that is known before the run.

    A dimension is a number, or a name while its size is unknown. Two infos mean the same tensor
    only if they are the same object: an operator that reads `X` twice reads one tensor.
    """

    name: str
    dtype: str
    shape: Shape
    constant: np.ndarray | None = None
    layout: Layout | None = field(default=None, compare=False)  # not saved

    @property
    def rank(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @functools.cached_property
    def is_static(self) -> bool:
        """Return whether every dimension is a number."""
        return all(isinstance(dim, int) for dim in self.shape)

    @functools.cached_property
    def dims(self) -> tuple[int, ...]:
        """Return the shape as numbers; ValueError if a dimension is still a name."""
        return tuple(dim if isinstance(dim, int) else int(dim) for dim in self.shape)

    @functools.cached_property
    def count(self) -> int:
        """Return the number of elements."""
        return math.prod(self.dims)

    @functools.cached_property
    def size_bytes(self) -> int:
        """Return the size of a dense copy of this tensor in bytes."""
        return self.count * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        shape = ",".join(str(dim) for dim in self.shape)
        return f"{self.name}: {self.dtype}[{shape}]"

    __repr__ = __str__


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a row-major tensor, in elements."""
    strides, step = [], 1
    for dim in reversed(shape):
        strides.append(step)
        step *= dim
    return tuple(reversed(strides))


@dataclass(frozen=True)
class StridedView:
    """Positions of a tensor's elements in a buffer: start + the sum of index * stride over axes.

    Attributes:
        strides: distance between neighbours along each axis, in elements; 0 repeats one element,
            a negative stride reads backwards.
        start: position of the element with index 0 on every axis, in elements.
    """

    strides: tuple[int, ...]
    start: int = 0

    @classmethod
    def dense(cls, shape: tuple[int, ...]) -> StridedView:
        """Return the view of a whole row-major tensor."""
        return cls(dense_strides(shape))

    def is_dense(self, shape: tuple[int, ...]) -> bool:
        """Return whether the n-th element of the shape is the n-th element of the buffer."""
        pairs = zip(shape, self.strides, dense_strides(shape), strict=True)
        return self.start == 0 and all(dim == 1 or s == d for dim, s, d in pairs)


@dataclass(frozen=True)
class Operand:
    """A tensor that a `Pointwise` reads: elements are taken along `view` and converted to `dtype`.

    `view` has one stride for each axis of the result.
    """

    info: TensorInfo
    dtype: str
    view: StridedView


@dataclass(frozen=True)
class Formula:
    """One step of a `Pointwise`: a Slang expression in a, b, c and p0, p1.

    Attributes:
        text: the expression.
        arguments: indices of a, b, c: operands are numbered first, then earlier formulas.
        numbers: values of p0, p1, ...
        dtype: type to which the result is rounded, as if it were stored and loaded again.
        name: name of the operator, for display.
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
    """An element-wise computation: each element of the result is the value of the last formula.

    Attributes:
        shape: index space; the result has one element for each index.
        operands: tensors that are read.
        formulas: steps in order.
        target: view of the result's elements; None for a row-major result.
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
    """One kernel launch: the shader, its buffers, its numbers and its workgroups.

    Attributes:
        kernel: name of the shader.
        reads: the tensors read, as pairs of binding name and tensor.
        writes: the tensors written, as pairs of binding name and tensor.
        workgroups: number of workgroups in x, y and z.
        push: push constants, as pairs of name and number or tuple of numbers.
        defines: compile-time defines, which select the compiled variant.
        constants: specialization constants, as pairs of name and number.
        flops: floating-point operations.
        iterations: upper bound on the loop iterations of one invocation, if it depends on the sizes
            of the model; else 0.
        pointwise: the computation of an element-wise dispatch.
        prologue: computation applied to each element read from `x_buffer` (fusion).
        epilogue: computation applied to each value before it is stored; operand 0 is the value.
        siblings: computations fused into one dispatch, one for each of `writes`.
        fragment: generated Slang of the fused computations, placed before the kernel's text.
        in_place: binding names of reads whose memory a result may reuse.
        stores: whether the kernel stores each element of y once, at its row-major index, so that an
            epilogue can be fused.
        loads: whether the kernel reads each element of x only at its row-major index, so that a
            prologue can be fused.
        rounds: whether the model lets a kernel round the rows of A below their dtype, to int8 with
            a scale for 32 of them, or to halves.
        measured: class of products whose measurement chose the kernel; "" if none was used.
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
    stores: bool = False
    loads: bool = False
    rounds: bool = False
    measured: str = ""

    @property
    def tensors_read(self) -> list[TensorInfo]:
        """Return the tensors that are read, by work that is fused into the kernel too.

        The answer is the same before the work is written into the kernel's text and afterwards.
        """
        works = self.siblings
        if self.kernel == "pointwise" and self.pointwise:
            works = (self.pointwise,)
        if works:
            return [operand.info for work in works for operand in work.operands]
        own = [i for name, i in self.reads if not (self.prologue and name == "x_buffer")]
        before = self.prologue.operands if self.prologue else ()
        after = self.epilogue.operands[1:] if self.epilogue else ()
        return own + [operand.info for operand in (*before, *after)]

    @property
    def tensors_written(self) -> list[TensorInfo]:
        """Return the tensors that are written."""
        return [info for _, info in self.writes]

    @property
    def push_values(self) -> dict[str, Any]:
        """Return the push constants by name, as a new dict."""
        return dict(self.push)

    @property
    def define_values(self) -> dict[str, str]:
        """Return the compile-time defines by name, as a new dict."""
        return dict(self.defines)

    @property
    def constant_values(self) -> dict[str, Any]:
        """Return the specialization constants by name, as a new dict."""
        return dict(self.constants)

    @property
    def size_bytes(self) -> int:
        """Return the bytes moved if every operand is read or written once."""
        return sum(info.size_bytes for _, info in self.reads + self.writes)

    @property
    def variant(self) -> tuple[str, tuple[tuple[str, str], ...], str]:
        """Return the arguments of the shader compiler: kernel, defines and generated text."""
        return self.kernel, self.defines, self.fragment

    def __str__(self) -> str:
        reads = ", ".join(info.name for _, info in self.reads)
        # results have no names before they are lowered
        made = "".join(f"{info.name} = " for _, info in self.writes if info.name)
        return f"{made}{self.kernel}({reads}) on {'x'.join(map(str, self.workgroups))}"
