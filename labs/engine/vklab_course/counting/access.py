"""Accesses of a kernel to buffers and shared arrays: byte offset, and whether it is inside.

Each chain of indices is written anew from its variable, with indices that lead an access outside
of a buffer to the guard words behind that buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.errors import ShaderError
from vklab_course.counting.counters import Counters
from vklab_course.counting.spirv import Code, Decoration, Module, Op

__all__ = ["Layouts", "Place", "Root", "chain", "whole"]

MOST_PIECES, MOST_BYTES = 64, 1024  # of one access
MOST_STRIDE = 1024  # a quarter of the guard words behind a buffer


@dataclass(frozen=True)
class Root:
    """A variable whose accesses are counted.

    Attributes:
        id: id of the variable.
        name: its name in the kernel's text.
        type_id: type of its content.
        number: number of the buffer; for a shared array, its number behind the buffers.
        unit: bytes of one element of a buffer.
        is_shared: whether it is a shared array.
    """

    id: int
    name: str
    type_id: int
    number: int
    unit: int
    is_shared: bool


@dataclass(frozen=True)
class Place:
    """A pointer into a variable.

    Attributes:
        root: the variable.
        indices: ids of the indices, from the variable on.
        type_id: type of what is pointed to.
        at: id of the byte offset.
        inside: id of a bool.
        said: id of the element's number, also where it is outside.
    """

    root: Root
    indices: tuple[int, ...]
    type_id: int
    at: int
    inside: int
    said: int


class Layouts:
    """Sizes and strides of a module's types, by decorations or, without these, packed."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def size(self, type_id: int) -> int:
        """Return the bytes of a type; 0 where the length of an array is not a constant."""
        opcode, words = self.module.types[type_id]
        if opcode in (Op.TYPE_INT, Op.TYPE_FLOAT):
            return words[0] // 8
        if opcode == Op.TYPE_BOOL:
            return 4
        if opcode == Op.TYPE_VECTOR:
            return words[1] * self.size(words[0])
        if opcode == Op.TYPE_MATRIX:
            return words[1] * self.size(words[0])
        if opcode == Op.TYPE_STRUCT:
            ends = [self.offset(type_id, n) + self.size(member) for n, member in enumerate(words)]
            return max(ends, default=0)
        if opcode == Op.TYPE_ARRAY:
            return self.module.constants.get(words[1], 0) * self.stride(type_id)
        return 0

    def smallest(self, type_id: int) -> int:
        """Return the bytes of the smallest number in a type."""
        opcode, words = self.module.types[type_id]
        if opcode == Op.TYPE_STRUCT:
            return min(map(self.smallest, words), default=4)
        inner = opcode in (Op.TYPE_ARRAY, Op.TYPE_VECTOR, Op.TYPE_MATRIX)
        return self.smallest(words[0]) if inner else self.size(type_id)

    def stride(self, type_id: int) -> int:
        """Return the bytes from one element of an array or vector to the next; 0 if unknown."""
        decorated = self.module.decorations[type_id].get(Decoration.ARRAY_STRIDE)
        return decorated or self.size(self.module.types[type_id][1][0])

    def offset(self, type_id: int, member: int) -> int:
        """Return the byte offset of a member of a structure."""
        facts = self.module.member_decorations[type_id, member]
        if Decoration.ROW_MAJOR in facts and self._is_matrix(type_id, member):
            raise ShaderError("a matrix that is stored by rows cannot be followed; use an array")
        before = self.module.types[type_id][1][:member]
        return facts.get(Decoration.OFFSET, sum(map(self.size, before)))

    def _is_matrix(self, type_id: int, member: int) -> bool:
        inner = self.module.types[type_id][1][member]
        while self.module.types[inner][0] in (Op.TYPE_ARRAY, Op.TYPE_RUNTIME_ARRAY):
            inner = self.module.types[inner][1][0]
        if self.module.types[inner][0] != Op.TYPE_MATRIX:
            return False
        # A matrix of one column has no order of its numbers to mistake.
        return self.module.types[inner][1][1] > 1

    def pieces(self, type_id: int, start: int = 0) -> list[tuple[int, int]]:
        """Return the offset and size of every number and vector in a type."""
        if not 0 < self.size(type_id) <= MOST_BYTES:
            raise ShaderError(
                f"{self.size(type_id) or 'an unknown number of'} bytes are copied at "
                "once: copy the elements one by one"
            )
        opcode, words = self.module.types[type_id]
        found: list[tuple[int, int]] = []
        if opcode == Op.TYPE_STRUCT:
            for n, member in enumerate(words):
                found += self.pieces(member, start + self.offset(type_id, n))
        elif opcode in (Op.TYPE_ARRAY, Op.TYPE_MATRIX):
            count = words[1] if opcode == Op.TYPE_MATRIX else self.module.constants.get(words[1], 0)
            for n in range(count):
                found += self.pieces(words[0], start + n * self.stride(type_id))
        else:
            found.append((start, self.size(type_id)))
        return found


class _Walk:
    """Offset and checks of a pointer, from a variable along its indices."""

    def __init__(self, code: Code, counters: Counters, layouts: Layouts, root: Root) -> None:
        self.code, self.layouts, self.root = code, layouts, root
        self.module, self.counters = code.module, counters
        self.type_id, self.fixed = root.type_id, 0
        self.at, self.raw = 0, 0
        self.is_open = False  # in an array without a length: its elements are whole ones
        self.checks: list[int] = []
        self.arrays: list[tuple[int, int]] = []  # position among the indices, stride

    def step(self, position: int, index: int) -> None:
        """Follow one index, which is a 32-bit number."""
        opcode, words = self.module.types[self.type_id]
        if opcode == Op.TYPE_STRUCT:
            member = self.module.constants[index]
            self.fixed += self.layouts.offset(self.type_id, member)
            self.type_id = words[member]
            return
        stride = self._stride(self.type_id)
        self.arrays.append((position, stride))
        self.checks.append(self.code.flag(Op.U_LESS_THAN, index, self._limit(stride)))
        self.raw = self.raw or index
        self._add(self._times(index, stride))
        self.type_id = words[0]

    def _stride(self, type_id: int) -> int:
        stride = self.layouts.stride(type_id)
        if not self.root.is_shared and not 0 < stride <= MOST_STRIDE:
            raise ShaderError(
                f"an element of an array in {self.root.name} has {stride} bytes; "
                f"1 to {MOST_STRIDE} can be followed"
            )
        return stride

    def _times(self, index: int, stride: int) -> int:
        if stride == 0:  # a shared array whose inner length is a specialization constant
            size = self._dynamic_size(self.module.types[self.type_id][1][0])
            return self.code.word(Op.I_MUL, index, size)
        return self.code.word(Op.I_MUL, index, self.module.number(stride))

    def _dynamic_size(self, type_id: int) -> int:
        if size := self.layouts.size(type_id):
            return self.module.number(size)
        opcode, words = self.module.types[type_id]
        if opcode != Op.TYPE_ARRAY:
            raise ShaderError(f"the type of {self.root.name} cannot be followed: use plain arrays")
        return self.code.word(Op.I_MUL, words[1], self._dynamic_size(words[0]))

    def _limit(self, stride: int) -> int:
        """Return the id of the number of elements of the array or vector at hand."""
        opcode, words = self.module.types[self.type_id]
        if opcode in (Op.TYPE_VECTOR, Op.TYPE_MATRIX):
            return self.module.number(words[1])
        if opcode == Op.TYPE_ARRAY:
            return words[1]
        if opcode != Op.TYPE_RUNTIME_ARRAY or self.root.is_shared or self.at:
            raise ShaderError(
                f"an index into {self.root.name} leads into a type that cannot be followed"
            )
        self.is_open = True
        return self.counters.limit(self.code, self.root.number, stride, self.fixed)

    def _add(self, term: int) -> None:
        self.at = self.code.word(Op.I_ADD, self.at, term) if self.at else term

    def offset(self) -> int:
        """Return the id of the byte offset."""
        fixed = self.module.number(self.fixed)
        if self.at and self.fixed:
            return self.code.word(Op.I_ADD, self.at, fixed)
        return self.at or fixed

    def inside(self, at: int) -> int:
        """Return the id of a bool: whether all indices, and the last byte, are inside."""
        checks = list(self.checks)
        if not self.root.is_shared and not self.is_open:
            size = self.module.number(self.layouts.size(self.type_id))
            end = self.code.word(Op.I_ADD, at, size)
            room = self.counters.size(self.code, self.root.number)
            checks.append(self.code.flag(Op.U_LESS_THAN_EQUAL, end, room))
        result = checks[0] if checks else self.code.module.true
        for check in checks[1:]:
            result = self.code.flag(Op.LOGICAL_AND, result, check)
        return result


def chain(
    code: Code, counters: Counters, layouts: Layouts, place: Place, indices: Sequence[int]
) -> tuple[Place, tuple[int, ...]]:
    """Follow indices from a place; return the new place, and indices that do no harm.

    Args:
        code: receives the instructions that compute the offset.
        counters: the sizes of buffers.
        layouts: sizes of the module's types.
        place: where the chain begins.
        indices: ids of the further indices, as 32-bit numbers.
    """
    root, every = place.root, (*place.indices, *indices)
    walk = _Walk(code, counters, layouts, root)
    for position, index in enumerate(every):
        walk.step(position, index)
    at = walk.offset()
    inside = walk.inside(at)
    safe = list(every)
    for number, (position, stride) in enumerate(walk.arrays):
        away = code.module.number(0)
        if number == 0 and not root.is_shared:
            away = counters.beyond(code, root.number, stride)
        safe[position] = code.word(Op.SELECT, inside, every[position], away)
    is_plain = len(walk.arrays) == 1 and walk.arrays[0][1] == root.unit and not walk.fixed
    said = walk.raw
    if not is_plain and not root.is_shared:
        shift = code.module.number(root.unit.bit_length() - 1)
        said = code.word(Op.SHIFT_RIGHT_ARITHMETIC, at, shift)
    return Place(root, every, walk.type_id, at, inside, said or at), tuple(safe)


def whole(code: Code, counters: Counters, layouts: Layouts, root: Root) -> Place:
    """Return the place of a whole variable.

    Args:
        code: receives the check of its size.
        counters: the sizes of buffers.
        layouts: sizes of the module's types.
        root: the variable.
    """
    walk = _Walk(code, counters, layouts, root)
    zero = code.module.number(0)
    return Place(root, (), root.type_id, zero, walk.inside(zero), zero)
