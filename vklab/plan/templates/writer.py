"""Write the Python function that rebuilds a traced plan for other sizes.

Objects without a symbol in them are shared by all plans of a template. Visited by lab 11.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab.plan.templates.arrays import TracedArray
from vklab.plan.templates.symbols import SizeTrace, Symbol

# What the generated function may call by name.
_NAMES = {"__builtins__": {"abs": abs, "int": int}, "array": np.array, "same": np.array_equal,
          "ceil": math.ceil, "floor": math.floor, "inf": math.inf, "nan": math.nan}  # fmt: skip
# A variable of a trace; what only lines about arrays hold: a call of an object, or of "array".
_VARIABLE, _ARRAY = re.compile(r"\bt\d+\b"), re.compile(r"\b(k\d+|array)\(")


def write(trace: SizeTrace, variables: Sequence[Symbol], made: Any) -> Callable[..., Any]:
    """Return a function from sizes to an object as traced, or None where a guard does not hold.

    Args:
        trace: the assignments and guards.
        variables: the symbols that become the function's parameters.
        made: the traced object.
    """
    writer = _Writer()
    result = writer.name(made)
    names = ", ".join(variable.name for variable in variables)
    lines = [
        f"def build({names}):",
        *_ordered(trace.lines, [*writer.lines, result]),
        *writer.lines,
        f"return {result}",
    ]
    namespace: dict[str, Any] = {**_NAMES, **trace.constants, **writer.constants}
    exec("\n ".join(lines), namespace)
    build: Callable[..., Any] = namespace["build"]
    return build


def _ordered(lines: Sequence[str], readers: Sequence[str]) -> list[str]:
    """Return the lines of a trace that decide something, numbers first: most guards need no array.

    Args:
        lines: assignments and guards.
        readers: lines that read what these assign.
    """
    wanted = {name for line in readers for name in _VARIABLE.findall(line)}
    kept = []
    for line in reversed(lines):
        if line.startswith("if ") or line.partition(" ")[0] in wanted:
            wanted.update(_VARIABLE.findall(line))
            kept.append(line)
    arrays = set[str]()
    numbers, others = list[str](), list[str]()
    for line in reversed(kept):
        is_array = _ARRAY.search(line) or not arrays.isdisjoint(_VARIABLE.findall(line))
        (others if is_array else numbers).append(line)
        arrays.update([line.partition(" ")[0]] if is_array else [])
    return [*numbers, *others]


class _Writer:
    """Lines that build objects with symbols in them, each object once.

    Attributes:
        lines: one assignment for each object.
        constants: objects without symbols, by the names that the lines give them.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}  # of objects by id: empty for one without symbols
        self._kept: list[Any] = []  # keeps ids from being reused

    def name(self, value: Any) -> str:
        """Return the expression for an object in the lines."""
        return self._symbolic(value) or self._constant(value)

    def _constant(self, value: Any) -> str:
        if type(value) in (int, bool, str, type(None)):
            return repr(value)
        name = f"k{id(value)}"
        self.constants[name] = value
        return name

    def _symbolic(self, value: Any) -> str:
        """Return the name of an object with symbols in it; "" for any other."""
        kind = type(value)
        if kind in (Symbol, TracedArray):
            return str(value.name)
        if kind in (int, float, bool, str, type(None)):
            return ""
        known = self._names.get(id(value))
        if known is None:
            self._kept.append(value)
            self._names[id(value)] = ""  # plans hold no cycles
            text = self._built(value)
            known = self._names[id(value)] = f"s{len(self.lines)}" if text else ""
            if text:
                self.lines.append(f"{known} = {text}")
        return known

    def _built(self, value: Any) -> str:
        """Return the expression that builds an object anew; "" if it holds no symbols."""
        if isinstance(value, Mapping):
            items = [
                f"{key!r}: {name}" for key, each in value.items() if (name := self._symbolic(each))
            ]
            return f"{{**{self._constant(value)}, {', '.join(items)}}}" if items else ""
        if isinstance(value, tuple | list):
            if not any(self._symbolic(each) for each in value):
                return ""
            parts = "".join(f"{self.name(each)}, " for each in value)
            if hasattr(value, "_fields"):
                return f"{self._constant(type(value))}({parts})"
            return f"({parts})" if isinstance(value, tuple) else f"[{parts}]"
        if dataclasses.is_dataclass(value):
            fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
            if any(self._symbolic(each) for each in fields):
                return f"{self._constant(type(value))}({', '.join(map(self.name, fields))})"
        return ""
