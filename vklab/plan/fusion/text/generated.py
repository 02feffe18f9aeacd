"""A function of generated Slang: its lines, and the buffers and push constants that it needs.

What its lines compute is decided in `codegen`. Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vklab.types import TensorInfo


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


def _equal(one: Any, other: Any) -> bool:
    """Tell whether two push constants are equal numbers, for every size of the model."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return all(map(_equal, one, other))
    return one is other or (type(one) in (int, float) and type(other) is type(one) and one == other)
