"""A function of generated Slang: its lines, and the buffers and push constants that it needs.

What its lines compute is decided in `codegen`. Visited by lab 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from vklab.types import Pointwise, StridedView, TensorInfo

__all__ = ["Function"]

WORD = 0xFFFFFFFF


@dataclass
class Function:
    """A generated function with the buffers, push constants and defines that it needs."""

    prefix: str = ""
    native: bool = False
    lines: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    reads: list[tuple[str, TensorInfo]] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    push: list[tuple[str, Any]] = field(default_factory=list)
    defines: dict[str, str] = field(default_factory=dict)
    in_place: list[str] = field(default_factory=list)
    indices: list[str] = field(default_factory=list)

    def number(self, name: str, value: Any, kind: str = "uint") -> str:
        """Add a push constant and return the Slang expression of it; equal ones are pushed once.

        Args:
            name: its name, to which a prefix and a number are added.
            value: a number, or a tuple for an array.
            kind: the Slang type of the number.
        """
        for known, old in self.push:
            if _equal(old, value) and known.rstrip("0123456789") == self.prefix + name:
                return f"params.{known}"
        unique = f"{self.prefix}{name}{len(self.push)}"
        size = f"[{len(value)}]" if isinstance(value, tuple) else ""
        self.fields.append(f"{kind} {unique}{size};")
        self.push.append((unique, value))
        return f"params.{unique}"

    def offset(self, work: Pointwise, view: StridedView) -> str:
        """Return the Slang expression of the buffer offset of `element` in a view.

        Args:
            work: the computation, whose elements are numbered row by row.
            view: a view of a buffer over its shape.
        """
        if view.is_dense(work.shape):
            return "element"
        start = f" + {self.number('start', view.start)}" if view.start else ""
        moving = [axis for axis, stride in enumerate(view.strides) if stride]
        if not moving:
            return start[3:] or "0"
        block = range(moving[0], moving[-1] + 1)
        inside = StridedView(tuple(view.strides[a] for a in block))
        if len(moving) == len(block) and inside.is_dense(tuple(work.shape[a] for a in block)):
            run = math.prod(work.shape[moving[-1] + 1 :])
            size = math.prod(work.shape[a] for a in block)
            index = "element" if moving[-1] == len(work.shape) - 1 else (
                f"element / {self.number('run', run)}")  # fmt: skip
            return (index if moving[0] == 0 else f"{index} % {self.number('size', size)}") + start
        return " + ".join([*self._terms(work, view), *([start[3:]] if start else [])])

    def _terms(self, work: Pointwise, view: StridedView) -> list[str]:
        """Return index * stride for each axis whose stride in a view is not zero."""
        if not self.indices:
            shape, rest = self.number("shape", work.shape), "element"
            for axis in reversed(range(len(work.shape))):
                index = f"{rest} % {shape}[{axis}]" if axis else rest
                self.indices.append(f"    uint {self.prefix}i{axis} = {index};")
                rest += f" / {shape}[{axis}]"
        strides = self.number("stride", tuple(s & WORD for s in view.strides))
        return [f"{self.prefix}i{axis} * {strides}[{axis}]" for axis, s in enumerate(view.strides) if s]


def _equal(one: Any, other: Any) -> bool:
    """Tell whether two push constants are equal numbers, for every size of the model."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return all(map(_equal, one, other))
    return one is other or (type(one) in (int, float) and type(other) is type(one) and one == other)
