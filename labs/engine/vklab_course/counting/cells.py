"""Cells of the counters: words of their buffer, private variables, and sizes of the buffers.

A size that loops need is computed once, at the start of `main`, into a private variable.
"""

from __future__ import annotations

from collections.abc import Mapping

from vklab_course.counting.layout import FACTS, HEADER
from vklab_course.counting.spirv import Code, Decoration, Module, Op, Storage

__all__ = ["COUNTERS", "Cells"]

COUNTERS = "vklab counters"  # a space: no identifier of a kernel can be this name
_DEVICE, _QUEUE_FAMILY, _VULKAN_MODEL = 1, 5, 3


class Cells:
    """Buffer of counters of one module, and the private variables beside it.

    Args:
        module: the module; it gets the declarations.
        binding: binding number of the buffer.
    """

    def __init__(self, module: Module, binding: int) -> None:
        self.module = module
        model = next(words[1] for op, words in module.head if op == Op.MEMORY_MODEL)
        scope = _QUEUE_FAMILY if model == _VULKAN_MODEL else _DEVICE
        self._scope, self._relaxed = module.number(scope), module.number(0)
        self._declare_buffer(binding)
        self._private: dict[str, int] = {}
        self._limits: dict[str, tuple[int, int, int, bool]] = {}

    def _declare_buffer(self, binding: int) -> None:
        module = self.module
        array = module.fresh()
        module.declared.append((Op.TYPE_RUNTIME_ARRAY, (array, module.uint)))
        block = module.fresh()
        module.declared.append((Op.TYPE_STRUCT, (block, array)))
        module.decorate(array, Decoration.ARRAY_STRIDE, 4)
        module.decorate(block, Decoration.BLOCK)
        module.annotations.append((Op.MEMBER_DECORATE, (block, 0, Decoration.OFFSET, 0)))
        self.variable = module.variable(Storage.BUFFER, block)
        module.decorate(self.variable, Decoration.SET, 0)
        module.decorate(self.variable, Decoration.BINDING, binding)
        self._pointer = module.pointer(Storage.BUFFER, module.uint)
        module.name(self.variable, COUNTERS)

    # ------------------------------------------------------------------ words and variables

    def private(self, name: str) -> int:
        """Return the id of a private 32-bit variable by its name here."""
        if name not in self._private:
            self._private[name] = self.module.variable(Storage.PRIVATE, self.module.uint)
        return self._private[name]

    def variables(self) -> list[int]:
        """Return the ids of the buffer and of all private variables."""
        return [self.variable, *self._private.values()]

    def get(self, code: Code, name: str) -> int:
        """Return the id of the present value of a private variable."""
        return code.word(Op.LOAD, self.private(name))

    def set(self, code: Code, name: str, value: int) -> None:
        """Store a value in a private variable.

        Args:
            code: receives the instruction.
            name: name of the variable.
            value: id of the value.
        """
        code.do(Op.STORE, self.private(name), value)

    def word_at(self, code: Code, word: int) -> int:
        """Return the id of a pointer to a word of the buffer."""
        return code.value(Op.ACCESS_CHAIN, self._pointer, self.variable, self._relaxed, word)

    def header(self, code: Code, name: str) -> int:
        """Return the id of a word of the header."""
        return code.word(Op.LOAD, self.word_at(code, self.module.number(HEADER.index(name))))

    def _place(self, code: Code, buffer: int, name: str) -> int:
        row = len(HEADER) + buffer * len(FACTS) + FACTS.index(name)
        return code.word(Op.LOAD, self.word_at(code, self.module.number(row)))

    def atomic(self, code: Code, opcode: int, word: int, value: int) -> int:
        """Return the id of a word before an atomic operation on it.

        Args:
            code: receives the instructions.
            opcode: the operation.
            word: id of the word's position.
            value: id of the operand.
        """
        return code.word(opcode, self.word_at(code, word), self._scope, self._relaxed, value)

    # ------------------------------------------------------------------ sizes of buffers

    def size(self, code: Code, buffer: int) -> int:
        """Return the id of a buffer's size in bytes."""
        return self.get(code, f"bytes {buffer}")

    def limit(self, code: Code, buffer: int, stride: int, start: int) -> int:
        """Return the id of the number of whole elements of a given stride behind a start.

        Args:
            code: receives the instructions.
            buffer: number of the buffer.
            stride: bytes of an element.
            start: byte offset of the first element.
        """
        name = f"limit {buffer} {stride} {start}"
        self._limits[name] = (buffer, stride, start, False)
        return self.get(code, name)

    def beyond(self, code: Code, buffer: int, stride: int) -> int:
        """Return the id of the number of the first element that is wholly behind a buffer.

        Args:
            code: receives the instructions.
            buffer: number of the buffer.
            stride: bytes of an element.
        """
        name = f"beyond {buffer} {stride}"
        self._limits[name] = (buffer, stride, 0, True)
        return self.get(code, name)

    def _set_limits(self, code: Code) -> None:
        number = self.module.number
        for name, (buffer, stride, start, is_beyond) in self._limits.items():
            size = self.size(code, buffer)
            if is_beyond:
                size = code.word(Op.I_ADD, size, number(stride - 1))
            if start:
                is_short = code.flag(Op.U_LESS_THAN, size, number(start))
                size = code.word(Op.SELECT, is_short, number(start), size)
                size = code.word(Op.I_SUB, size, number(start))
            self.set(code, name, code.word(Op.U_DIV, size, number(stride)))

    # ------------------------------------------------------------------ conditions

    def note(self, code: Code, is_good: int, count: str, facts: Mapping[str, int]) -> None:
        """Count an access that is not good, and keep facts of the first one.

        Args:
            code: receives the instructions.
            is_good: id of a bool.
            count: name of the variable that counts.
            facts: ids of values, by the names of their variables.
        """
        number, before = self.module.number, self.get(code, count)
        more = code.word(Op.SELECT, is_good, number(0), number(1))
        self.set(code, count, code.word(Op.I_ADD, before, more))
        is_known = code.flag(Op.LOGICAL_OR, is_good, code.flag(Op.I_NOT_EQUAL, before, number(0)))
        for name, value in facts.items():
            kept = code.word(Op.SELECT, is_known, self.get(code, name), value)
            self.set(code, name, kept)

    def begin_if(self, code: Code, condition: int) -> int:
        """Open a block for a condition; return the label of the block behind it."""
        end, inner = self.module.fresh(), self.module.fresh()
        code.do(Op.SELECTION_MERGE, end, 0)
        code.do(Op.BRANCH_CONDITIONAL, condition, inner, end)
        code.open(inner)
        return end

    def end_if(self, code: Code, end: int) -> None:
        """Close the block of a condition."""
        code.do(Op.BRANCH, end)
        code.open(end)
