"""Needs of a kernel's workgroup: invocations and shared memory, by specialization constants.

A driver may crash on a kernel beyond the limits of its device. Visited by lab 05.
Source: SPIR-V specification, sections 2.18 and 3.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# A number, a specialization constant ("constant", id, default), or (opcode, operands...).
Expression = int | tuple[Any, ...]
Words = tuple[int, ...]

_MODE_LOCAL_SIZE, _MODE_LOCAL_SIZE_ID = 17, 38
_BUILT_IN, _WORKGROUP_SIZE, _SPEC_ID, _WORKGROUP, _W32 = 11, 25, 1, 4, 0xFFFFFFFF
_OPERATIONS: dict[int | str, Callable[..., int]] = {
    "product": operator.mul, "sum": lambda *values: sum(values),
    113: int, 114: int, 124: int,  # conversions
    128: lambda a, b: a + b & _W32, 130: lambda a, b: a - b & _W32, 132: lambda a, b: a * b & _W32,
    134: operator.floordiv, 135: operator.floordiv, 137: operator.mod, 139: operator.mod,
    169: lambda condition, yes, no: yes if condition else no,
    170: operator.eq, 171: operator.ne, 172: operator.gt, 173: operator.gt, 174: operator.ge,
    175: operator.ge, 176: operator.lt, 177: operator.lt, 178: operator.le, 179: operator.le,
    194: operator.rshift, 195: operator.rshift, 196: lambda value, bits: value << min(bits, 64),
    197: operator.or_, 198: operator.xor, 199: operator.and_,
}  # fmt: skip


@dataclass(frozen=True)
class Workgroup:
    """Invocations along each axis, and bytes of shared memory, before constants are known."""

    size: tuple[Expression, ...] = (1, 1, 1)
    shared: tuple[Expression, ...] = ()

    def shape(self, constants: Mapping[int, int | float]) -> tuple[int, ...]:
        """Return the invocations along each axis for specialization constants by id."""
        return tuple(evaluate(size, constants) for size in self.size)

    def shared_bytes(self, constants: Mapping[int, int | float]) -> int:
        """Return the bytes of shared memory for specialization constants by id."""
        return sum(evaluate(size, constants) for size in self.shared)


def evaluate(expression: Expression, constants: Mapping[int, int | float]) -> int:
    """Return the value of an expression; 0 for one with an operation that is not known."""
    if isinstance(expression, int):
        return expression
    kind, *operands = expression
    if kind == "constant":
        return int(constants.get(operands[0], operands[1]))
    try:
        return int(_OPERATIONS[kind](*(evaluate(operand, constants) for operand in operands)))
    except (KeyError, TypeError, ZeroDivisionError, ValueError):
        return 0


def workgroup_of(module: Any) -> Workgroup:
    """Return the needs of a workgroup of a kernel, from a `reflection` of its instructions."""
    constants = _constants(module)
    shared = tuple(
        _size(module, module.types[words[0]][1][1], constants)
        for words in module.by_opcode[59]
        if words[2] == _WORKGROUP
    )
    size: tuple[Expression, ...] = (1, 1, 1)
    for words in (*module.by_opcode[16], *module.by_opcode[331]):
        if words[1] == _MODE_LOCAL_SIZE:
            size = words[2:5]
        elif words[1] == _MODE_LOCAL_SIZE_ID:
            size = tuple(constants[word] for word in words[2:5])
    for words in (*module.by_opcode[44], *module.by_opcode[51]):  # composites
        if module.decorations[words[1]].get(_BUILT_IN) == _WORKGROUP_SIZE:
            size = tuple(constants[word] for word in words[2:5])
    return Workgroup(size, shared)


def _constants(module: Any) -> dict[int, Expression]:
    """Return an expression for each scalar constant of a module, by its id."""
    found: dict[int, Expression] = {}
    for opcode, value in ((41, 1), (42, 0), (48, 1), (49, 0), (43, None), (50, None)):
        for words in module.by_opcode[opcode]:
            default = words[2] if value is None else value
            number = module.decorations[words[1]].get(_SPEC_ID)
            is_fixed = opcode < 48 or number is None
            found[words[1]] = default if is_fixed else ("constant", number, default)
    for words in module.by_opcode[52]:  # a later one may use an earlier one
        found[words[1]] = (words[2], *(found.get(word, 0) for word in words[3:]))
    return found


def _size(module: Any, type_id: int, constants: Mapping[int, Expression]) -> Expression:
    """Return the bytes of a type, without padding."""
    opcode, words = module.types[type_id]
    if opcode in (21, 22):  # integer, float
        return words[0] // 8
    if opcode in (23, 24):  # vector, matrix
        return ("product", words[1], _size(module, words[0], constants))
    if opcode == 28:  # array
        return ("product", constants.get(words[1], 0), _size(module, words[0], constants))
    if opcode == 30:  # structure
        return ("sum", *(_size(module, word, constants) for word in words))
    return 4 if opcode == 20 else 0  # a bool is stored like an integer
