"""Accesses of a kernel to buffers and shared arrays: byte offset, and whether it is inside.

Each chain of indices is written anew from its variable, with indices that lead an access outside
of a buffer to the guard words behind that buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.course.counting.spirv import Code, Decoration, Module, Op
from vklab.errors import ShaderError

__all__ = ["Layouts", "Place", "Root", "chain", "whole"]

MOST_PIECES = 64
MOST_STRIDE = 1024  # a quarter of the guard words behind a buffer


@dataclass(frozen=True)
class Root:
    """A variable whose accesses are counted.

    Attributes:
        id: id of the variable.
        name: its name in the kernel's text.
        type_id: type of its content.
        number: number of the buffer; for a shared array, its number behind the buffers.
        size: id of the size in bytes; 0 for a shared array.
    """

    id: int
    name: str
    type_id: int
    number: int
    size: int = 0


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

    def stride(self, type_id: int) -> int:
        """Return the bytes from one element of an array or vector to the next; 0 if unknown."""
        decorated = self.module.decorations[type_id].get(Decoration.ARRAY_STRIDE)
        return decorated or self.size(self.module.types[type_id][1][0])

    def offset(self, type_id: int, member: int) -> int:
        """Return the byte offset of a member of a structure."""
        facts = self.module.members[type_id, member]
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
        opcode, words = self.module.types[type_id]
        found: list[tuple[int, int]] = []
        if opcode == Op.TYPE_STRUCT:
            for n, member in enumerate(words):
                found += self.pieces(member, start + self.offset(type_id, n))
        elif opcode in (Op.TYPE_ARRAY, Op.TYPE_MATRIX):
            count = words[1] if opcode == Op.TYPE_MATRIX else self.module.constants.get(words[1], 0)
            if not 0 < count <= MOST_PIECES:
                raise ShaderError(f"an array of {count or 'unknown'} elements is copied at once: "
                                  "copy the elements one by one")  # fmt: skip
            for n in range(count):
                found += self.pieces(words[0], start + n * self.stride(type_id))
        else:
            found.append((start, self.size(type_id)))
        return found


class _Walk:
    """The way from a variable along indices: offset, checks, and the place of the first index."""

    def __init__(self, code: Code, layouts: Layouts, root: Root) -> None:
        self.code, self.layouts, self.root = code, layouts, root
        self.module = code.module
        self.type_id, self.fixed = root.type_id, 0
        self.at, self.raw = 0, 0
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
        if self.root.size and not 0 < stride <= MOST_STRIDE:
            raise ShaderError(f"an element of an array in {self.root.name} has {stride} bytes; "
                              f"1 to {MOST_STRIDE} can be followed")  # fmt: skip
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
        if opcode != Op.TYPE_RUNTIME_ARRAY or not self.root.size:
            raise ShaderError(f"an index into {self.root.name} leads into a type that cannot be "
                              "followed")  # fmt: skip
        left = self.root.size
        if self.fixed:
            fixed = self.module.number(self.fixed)
            behind = self.code.flag(Op.U_LESS_THAN, left, fixed)
            left = self.code.word(Op.SELECT, behind, fixed, left)
            left = self.code.word(Op.I_SUB, left, fixed)
        return self.code.word(Op.U_DIV, left, self.module.number(stride))

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
        if self.root.size:
            size = self.module.number(self.layouts.size(self.type_id))
            end = self.code.word(Op.I_ADD, at, size)
            checks.append(self.code.flag(Op.U_LESS_THAN_EQUAL, end, self.root.size))
        result = checks[0] if checks else self.code.module.true
        for check in checks[1:]:
            result = self.code.flag(Op.LOGICAL_AND, result, check)
        return result


def chain(
    code: Code,
    layouts: Layouts,
    place: Place,
    indices: Sequence[int],
    unit: int,
) -> tuple[Place, tuple[int, ...]]:
    """Follow indices from a place; return the new place, and indices that do no harm.

    Args:
        code: receives the instructions that compute the offset.
        layouts: sizes of the module's types.
        place: where the chain begins.
        indices: ids of the further indices, as 32-bit numbers.
        unit: bytes of one element of the buffer.
    """
    module, walk = code.module, _Walk(code, layouts, place.root)
    every = (*place.indices, *indices)
    for position, index in enumerate(every):
        walk.step(position, index)
    at = walk.offset()
    inside = walk.inside(at)
    safe = list(every)
    for number, (position, stride) in enumerate(walk.arrays):
        away = module.number(0)
        if number == 0 and place.root.size:
            above = code.word(Op.I_ADD, place.root.size, module.number(stride - 1))
            away = code.word(Op.U_DIV, above, module.number(stride))
        safe[position] = code.word(Op.SELECT, inside, every[position], away)
    is_plain = len(walk.arrays) == 1 and walk.arrays[0][1] == unit and not walk.fixed
    said = walk.raw if is_plain else _element(code, at, unit)
    return Place(place.root, every, walk.type_id, at, inside, said), tuple(safe)


def _element(code: Code, at: int, unit: int) -> int:
    shift = code.module.number(unit.bit_length() - 1)
    return code.word(Op.SHIFT_RIGHT_ARITHMETIC, at, shift)


def whole(code: Code, layouts: Layouts, root: Root) -> Place:
    """Return the place of a whole variable."""
    walk = _Walk(code, layouts, root)
    zero = code.module.number(0)
    return Place(root, (), root.type_id, zero, walk.inside(zero), zero)

