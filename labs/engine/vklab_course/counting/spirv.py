"""SPIR-V modules that can be changed: sections, types, names, new ids, types and constants.

Source: SPIR-V 1.6, sections 2.4 'Logical Layout of a Module' and 3.49 'Instructions'.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from vklab.shader import reflection

__all__ = ["Code", "Decoration", "Instruction", "Module", "Op", "Storage"]

Instruction = reflection.Instruction


class Op(IntEnum):
    """Opcodes that the counters know by name."""

    NAME, MEMORY_MODEL, ENTRY_POINT, CAPABILITY, EXT_INST = 5, 14, 15, 17, 12
    TYPE_VOID, TYPE_BOOL, TYPE_INT, TYPE_FLOAT, TYPE_VECTOR, TYPE_MATRIX = 19, 20, 21, 22, 23, 24
    TYPE_ARRAY, TYPE_RUNTIME_ARRAY, TYPE_STRUCT, TYPE_POINTER, TYPE_FUNCTION = 28, 29, 30, 32, 33
    EXTENSION, EXECUTION_MODE, MODULE_PROCESSED, EXT_INST_IMPORT = 10, 16, 330, 11
    CONSTANT_TRUE, CONSTANT, SPEC_CONSTANT = 41, 43, 50
    FUNCTION, FUNCTION_PARAMETER, FUNCTION_END, FUNCTION_CALL, VARIABLE = 54, 55, 56, 57, 59
    LOAD, STORE, COPY_MEMORY, ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN = 61, 62, 63, 65, 66
    ARRAY_LENGTH, DECORATE, MEMBER_DECORATE, COPY_OBJECT = 68, 71, 72, 83
    COMPOSITE_CONSTRUCT, COMPOSITE_EXTRACT = 80, 81
    U_CONVERT, S_CONVERT, BITCAST = 113, 114, 124
    I_ADD, I_SUB, I_MUL, U_DIV = 128, 130, 132, 134
    LOGICAL_OR, LOGICAL_AND, LOGICAL_NOT, SELECT = 166, 167, 168, 169
    I_EQUAL, I_NOT_EQUAL = 170, 171
    U_LESS_THAN, U_LESS_THAN_EQUAL = 176, 178
    SHIFT_RIGHT, SHIFT_RIGHT_ARITHMETIC, SHIFT_LEFT = 194, 195, 196
    BITWISE_OR, BITWISE_AND = 197, 199
    CONTROL_BARRIER, ATOMIC_LOAD, ATOMIC_STORE, ATOMIC_EXCHANGE = 224, 227, 228, 229
    ATOMIC_I_ADD, ATOMIC_OR, ATOMIC_XOR, ATOMIC_F_ADD = 234, 241, 242, 6035
    PHI, LOOP_MERGE, SELECTION_MERGE, LABEL = 245, 246, 247, 248
    BRANCH, BRANCH_CONDITIONAL, RETURN = 249, 250, 253


class Storage(IntEnum):
    """Storage classes of variables."""

    INPUT, UNIFORM, WORKGROUP, PRIVATE, FUNCTION, PUSH_CONSTANT, BUFFER = 1, 2, 4, 6, 7, 9, 12


class Decoration(IntEnum):
    """Decorations of ids and of members of structures."""

    BLOCK, BUFFER_BLOCK, ROW_MAJOR, ARRAY_STRIDE, MATRIX_STRIDE, BUILT_IN = 2, 3, 4, 6, 7, 11
    BINDING, SET, OFFSET = 33, 34, 35


_LISTS_ALL = 0x10400  # from this version on, an entry point lists all global variables
_HAS_BUFFERS = 0x10300
# Instructions that may stand among annotations, and those that open the section of types.
_ANNOTATIONS = frozenset({71, 72, 73, 74, 75, 332, 5632, 5633})
_DECLARATIONS = frozenset({*range(19, 40), *range(41, 53), Op.VARIABLE})


class Code(list[Instruction]):
    """Instructions to insert into a module, with one method for each form of instruction."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module

    def do(self, opcode: int, *operands: int) -> None:
        """Add an instruction without a result."""
        self.append((opcode, operands))

    def value(self, opcode: int, type_id: int, *operands: int) -> int:
        """Add an instruction with a result; return the id of the result.

        Args:
            opcode: the instruction.
            type_id: type of the result.
            operands: the words after the result.
        """
        result = self.module.fresh()
        self.append((opcode, (type_id, result, *operands)))
        return result

    def word(self, opcode: int, *operands: int) -> int:
        """Add an instruction whose result is a 32-bit unsigned number; return its id."""
        return self.value(opcode, self.module.uint, *operands)

    def flag(self, opcode: int, *operands: int) -> int:
        """Add an instruction whose result is a bool; return its id."""
        return self.value(opcode, self.module.bool, *operands)

    def label(self) -> int:
        """Open a new block; return the id of its label."""
        return self.open(self.module.fresh())

    def open(self, label: int) -> int:
        """Open the block of a label that was named before; return the label."""
        self.do(Op.LABEL, label)
        return label


class Module:
    """One SPIR-V module by sections: head, annotations, declarations and functions."""

    def __init__(self, spirv: bytes) -> None:
        self._header = struct.unpack_from("<5I", spirv)
        self._next = self._header[3]
        self.version = self._header[1]
        self.head: list[Instruction] = []
        self.annotations: list[Instruction] = []
        self.declared: list[Instruction] = []
        self.functions: list[Instruction] = []
        section = self.head
        for opcode, operands in reflection.instructions(spirv):
            if opcode == Op.FUNCTION:
                section = self.functions
            elif section is not self.functions and opcode in _DECLARATIONS:
                section = self.declared
            elif section is self.head and opcode in _ANNOTATIONS:
                section = self.annotations
            section.append((opcode, operands))
        self._read()

    def _read(self) -> None:
        self.names = {words[0]: _text(words[1:]) for op, words in self.head if op == Op.NAME}
        self.decorations: dict[int, dict[int, int]] = defaultdict(dict)
        self.member_decorations: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for opcode, words in self.annotations:
            if opcode == Op.DECORATE:
                self.decorations[words[0]][words[1]] = (*words, 1)[2]
            elif opcode == Op.MEMBER_DECORATE:
                self.member_decorations[words[0], words[1]][words[2]] = (*words, 1)[3]
        self.types: dict[int, Instruction] = {}
        self.constants: dict[int, int] = {}  # the first word of every constant number
        self.type_of: dict[int, int] = {}
        self._known: dict[tuple[Any, ...], int] = {}
        for opcode, words in self.declared:
            if Op.TYPE_VOID <= opcode <= 39:
                self.types[words[0]] = (opcode, words[1:])
                self._known.setdefault((opcode, *words[1:]), words[0])
            elif opcode in _DECLARATIONS:
                self.type_of[words[1]] = words[0]
                if opcode == Op.CONSTANT:
                    self.constants[words[1]] = words[2]
        self.void = self.declare(Op.TYPE_VOID)
        self.bool = self.declare(Op.TYPE_BOOL)
        self.uint = self.declare(Op.TYPE_INT, 32, 0)
        self.true = self.fresh()
        self.declared.append((Op.CONSTANT_TRUE, (self.bool, self.true)))

    def fresh(self) -> int:
        """Return an id that nothing uses."""
        self._next += 1
        return self._next - 1

    def declare(self, opcode: int, *operands: int) -> int:
        """Return the id of a type, which is declared if the module has none like it."""
        key = (opcode, *operands)
        if key not in self._known:
            self._known[key] = self.fresh()
            self.types[self._known[key]] = (opcode, operands)
            self.declared.append((opcode, (self._known[key], *operands)))
        return self._known[key]

    def number(self, value: int) -> int:
        """Return the id of a 32-bit unsigned constant."""
        key = ("number", value)
        if key not in self._known:
            result = self._known[key] = self.fresh()
            self.declared.append((Op.CONSTANT, (self.uint, result, value & 0xFFFFFFFF)))
            self.constants[result] = value & 0xFFFFFFFF
        return self._known[key]

    def pointer(self, storage: int, type_id: int) -> int:
        """Return the id of the type of pointers to a type."""
        return self.declare(Op.TYPE_POINTER, storage, type_id)

    def variable(self, storage: int, type_id: int) -> int:
        """Declare a variable of a type; return its id."""
        result = self.fresh()
        pointer = self.pointer(storage, type_id)
        self.declared.append((Op.VARIABLE, (pointer, result, storage)))
        self.type_of[result] = pointer
        return result

    def forget_pointers(self, storage: int) -> None:
        """Declare pointers of a storage class anew when they are next asked for."""
        for key in [key for key in self._known if key[:2] == (Op.TYPE_POINTER, storage)]:
            del self._known[key]

    def name(self, target: int, text: str) -> None:
        """Give an id a name."""
        data = text.encode() + b"\0" * (4 - len(text.encode()) % 4)
        words = struct.unpack(f"<{len(data) // 4}I", data)
        opcodes = [opcode for opcode, _ in self.head]
        at = opcodes.index(Op.MODULE_PROCESSED) if Op.MODULE_PROCESSED in opcodes else len(opcodes)
        self.head.insert(at, (Op.NAME, (target, *words)))

    def set_interface(
        self, private: Sequence[int], inputs: Sequence[int], others: Sequence[int]
    ) -> None:
        """List the variables of the entry point, and name the extension of storage buffers.

        Args:
            private: variables that are no inputs any more.
            inputs: new input variables.
            others: new variables of other kinds, which only newer versions list.
        """
        for n, (opcode, words) in enumerate(self.head):
            if opcode != Op.ENTRY_POINT:
                continue
            start = 2 + len(_text(words[2:]).encode()) // 4 + 1
            listed = [*words[start:], *inputs, *others]
            if self.version < _LISTS_ALL:
                listed = [*(each for each in words[start:] if each not in private), *inputs]
            self.head[n] = (opcode, (*words[:start], *listed))
        if self.version < _HAS_BUFFERS:
            self._add_extension("SPV_KHR_storage_buffer_storage_class")

    def _add_extension(self, text: str) -> None:
        data = text.encode() + b"\0" * (4 - len(text) % 4)
        line = (Op.EXTENSION, struct.unpack(f"<{len(data) // 4}I", data))
        if line not in self.head:
            last = max(n for n, (opcode, _) in enumerate(self.head) if opcode == Op.CAPABILITY)
            self.head.insert(last + 1, line)

    def decorate(self, target: int, *operands: int) -> None:
        """Decorate an id."""
        self.annotations.append((Op.DECORATE, (target, *operands)))

    def assembled(self) -> bytes:
        """Return the module as bytes."""
        header = list(self._header)
        header[3] = self._next
        lines = [*self.head, *self.annotations, *self.declared, *self.functions]
        return reflection.assemble(struct.pack("<5I", *header), lines)


def _text(words: tuple[int, ...]) -> str:
    data = struct.pack(f"<{len(words)}I", *words)
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")
