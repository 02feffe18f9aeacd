"""Counters in a module: their buffer, variables, and the functions that count one access.

A kernel calls a function for each access, so no block of the kernel itself is split. Counts of an
invocation stay in private variables, which are written to the buffer where `main` returns.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.course.counting import layout
from vklab.course.counting.layout import FIELDS, HEADER, OWN, PLACES, READ, WRITE
from vklab.course.counting.spirv import Code, Decoration, Module, Op, Storage

__all__ = ["COUNTERS", "Counters"]

COUNTERS = "vklab counters"  # a space: no identifier of a kernel can be this name
_DEVICE, _QUEUE_FAMILY, _VULKAN_MODEL = 1, 5, 3


class Counters:
    """The counters of one module.

    Args:
        module: the module; it gets the declarations.
        buffers: names of the exercise's buffers; the place of a name is the number of its buffer.
        units: bytes of an element of each buffer.
        binding: binding number of the counters.
        is_full: whether reads of each element, sectors and the log are kept, too.
    """

    def __init__(
        self, module: Module, buffers: Sequence[str], units: Sequence[int], binding: int,
        is_full: bool,
    ) -> None:  # fmt: skip
        self.module, self.buffers, self.units = module, buffers, units
        self._is_full = is_full
        model = next(words[1] for op, words in module.head if op == Op.MEMORY_MODEL)
        scope = _QUEUE_FAMILY if model == _VULKAN_MODEL else _DEVICE
        self._scope, self._relaxed = module.number(scope), module.number(0)
        self._declare_buffer(binding)
        self._private: dict[str, int] = {}
        self._functions: dict[tuple[int, int], int] = {}

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
        """Store a value in a private variable."""
        code.do(Op.STORE, self.private(name), value)

    def more(self, code: Code, name: str, by: int = 1) -> None:
        """Increase a private variable by a constant."""
        self.set(code, name, code.word(Op.I_ADD, self.get(code, name), self.module.number(by)))

    def _at(self, code: Code, word: int) -> int:
        return code.value(Op.ACCESS_CHAIN, self._pointer, self.variable, self._relaxed, word)

    def header(self, code: Code, name: str) -> int:
        """Return the id of a word of the header."""
        return code.word(Op.LOAD, self._at(code, self.module.number(HEADER.index(name))))

    def _place(self, code: Code, buffer: int, name: str) -> int:
        row = len(HEADER) + buffer * len(PLACES) + PLACES.index(name)
        return code.word(Op.LOAD, self._at(code, self.module.number(row)))

    def _atomic(self, code: Code, opcode: int, word: int, value: int) -> int:
        return code.word(opcode, self._at(code, word), self._scope, self._relaxed, value)

    # ------------------------------------------------------------------ start and end of main

    def start(self, code: Code, group: int) -> None:
        """Set all private variables, at the start of `main`.

        Args:
            code: receives the instructions.
            group: id of the linear number of the workgroup.
        """
        number = self.module.number
        for name in FIELDS:
            self.set(code, name, number(0))
        for name in ("log_room", "log_at", "dump", "traffic"):
            self.set(code, name, self.header(code, name))
        skipped = code.word(Op.I_MUL, self.header(code, "sectors"), group)
        mine = code.word(Op.I_ADD, self.header(code, "sectors_at"), skipped)
        for n, unit in enumerate(self.units):
            size = self._place(code, n, "bytes")
            self.set(code, f"bytes {n}", size)
            above = code.word(Op.I_ADD, size, number(unit - 1))
            elements = code.word(Op.U_DIV, above, number(unit))
            self.set(code, f"elements {n}", elements)
            at = self._place(code, n, "elements_at")
            self.set(code, f"counts {READ} {n}", at)
            past = code.word(Op.I_ADD, at, code.word(Op.I_ADD, elements, number(1)))
            self.set(code, f"counts {WRITE} {n}", past)
            for kind, name in ((READ, "read_sectors"), (WRITE, "written_sectors")):
                sectors = code.word(Op.I_ADD, mine, self._place(code, n, name))
                self.set(code, f"sectors {kind} {n}", sectors)
            for name in OWN:
                value = layout.NONE if name in ("first", "last") else 0
                self.set(code, f"{name} {n}", number(value))

    def finish(self, code: Code) -> None:
        """Write the counts of an invocation to the buffer, before `main` returns."""
        number = self.module.number
        names = [*FIELDS, *(f"{name} {n}" for n in range(len(self.buffers)) for name in OWN)]
        skipped = code.word(Op.I_MUL, self.get(code, "invocation"), number(len(names)))
        first = code.word(Op.I_ADD, self.header(code, "records_at"), skipped)
        for n, name in enumerate(names):
            word = code.word(Op.I_ADD, first, number(n))
            code.do(Op.STORE, self._at(code, word), self.get(code, name))

    # ------------------------------------------------------------------ functions for an access

    def touch(self, code: Code, buffer: int, kind: int, *place: int) -> None:
        """Call the function that counts an access to one element.

        Args:
            code: receives the call.
            buffer: number of the buffer or, behind the buffers, of a shared array.
            kind: READ or WRITE.
            place: ids of byte offset, element, and the bool that tells whether it is inside.
        """
        key = (buffer, kind)
        if key not in self._functions:
            self._functions[key] = self._function(buffer, kind)
        code.value(Op.FUNCTION_CALL, self.module.void, self._functions[key], *place)

    def _function(self, buffer: int, kind: int) -> int:
        module, code = self.module, Code(self.module)
        types = (module.uint, module.uint, module.bool)
        function = module.fresh()
        signature = module.declare(Op.TYPE_FUNCTION, module.void, *types)
        code.do(Op.FUNCTION, module.void, function, 0, signature)
        at, said, inside = (code.value(Op.FUNCTION_PARAMETER, each) for each in types)
        code.label()
        if buffer >= len(self.buffers):
            self._note(code, inside, "shared_outside", [("shared_far", buffer * 4 + kind, 0)])
        else:
            self._own(code, buffer, kind, said, inside)
            if self._is_full or kind == WRITE:
                self._element(code, buffer, kind, at, inside)
            if self._is_full:
                self._sector(code, buffer, kind, at, inside)
                self._log(code, buffer, kind, said)
        code.do(Op.RETURN)
        code.do(Op.FUNCTION_END)
        module.functions += code
        return function

    def _own(self, code: Code, buffer: int, kind: int, said: int, inside: int) -> None:
        """Count an access as one of its invocation."""
        self.more(code, f"{'read' if kind == READ else 'written'} {buffer}")
        if kind == WRITE:
            first = self.get(code, f"first {buffer}")
            is_none = code.flag(Op.I_EQUAL, first, self.module.number(layout.NONE))
            self.set(code, f"first {buffer}", code.word(Op.SELECT, is_none, said, first))
            self.set(code, f"last {buffer}", said)
        facts = [(f"far {buffer}", 0, said), (f"far_kind {buffer}", kind, 0)]
        self._note(code, inside, f"outside {buffer}", facts)

    def _note(
        self, code: Code, inside: int, count: str, facts: Sequence[tuple[str, int, int]]
    ) -> None:
        """Count an access outside, and keep facts of the first one: name, constant or id."""
        number, before = self.module.number, self.get(code, count)
        outside = code.word(Op.SELECT, inside, number(0), number(1))
        self.set(code, count, code.word(Op.I_ADD, before, outside))
        is_known = code.flag(Op.LOGICAL_OR, inside, code.flag(Op.I_NOT_EQUAL, before, number(0)))
        for name, constant, value in facts:
            new = value or number(constant)
            self.set(code, name, code.word(Op.SELECT, is_known, self.get(code, name), new))

    def _element(self, code: Code, buffer: int, kind: int, at: int, inside: int) -> None:
        """Count an access to an element; those outside share the place behind the last one."""
        shift = self.module.number(self.units[buffer].bit_length() - 1)
        element = code.word(Op.SHIFT_RIGHT, at, shift)
        slot = code.word(Op.SELECT, inside, element, self.get(code, f"elements {buffer}"))
        word = code.word(Op.I_ADD, self.get(code, f"counts {kind} {buffer}"), slot)
        self._atomic(code, Op.ATOMIC_I_ADD, word, self.module.number(1))

    def _sector(self, code: Code, buffer: int, kind: int, at: int, inside: int) -> None:
        """Set the bit of a sector among those of the workgroup."""
        number = self.module.number
        is_counted = code.flag(Op.I_NOT_EQUAL, self.get(code, "traffic"), number(0))
        is_counted = code.flag(Op.LOGICAL_AND, is_counted, inside)
        high = code.word(Op.SHIFT_RIGHT, at, number(10))
        word = code.word(Op.I_ADD, self.get(code, f"sectors {kind} {buffer}"), high)
        word = code.word(Op.SELECT, is_counted, word, self.get(code, "dump"))
        low = code.word(Op.BITWISE_AND, code.word(Op.SHIFT_RIGHT, at, number(5)), number(31))
        self._atomic(code, Op.ATOMIC_OR, word, code.word(Op.SHIFT_LEFT, number(1), low))

    def _log(self, code: Code, buffer: int, kind: int, said: int) -> None:
        """Add an access to the log; one that finds it full leaves its count above the room."""
        number, room = self.module.number, self.get(code, "log_room")
        has_room = code.flag(Op.U_LESS_THAN_EQUAL, self.header(code, "logged"), room)
        end = self._if(code, has_room)
        entry = self._atomic(code, Op.ATOMIC_I_ADD, number(HEADER.index("logged")), number(1))
        inner = self._if(code, code.flag(Op.U_LESS_THAN, entry, room))
        first = code.word(Op.I_MUL, entry, number(layout.ENTRY))
        first = code.word(Op.I_ADD, self.get(code, "log_at"), first)
        tag = number((buffer * 4 + kind) << layout.KIND_BITS)
        tagged = code.word(Op.BITWISE_OR, self.get(code, "invocation"), tag)
        code.do(Op.STORE, self._at(code, first), tagged)
        code.do(Op.STORE, self._at(code, code.word(Op.I_ADD, first, number(1))), said)
        self._end(code, inner)
        self._end(code, end)

    def _if(self, code: Code, condition: int) -> int:
        end, inner = self.module.fresh(), self.module.fresh()
        code.do(Op.SELECTION_MERGE, end, 0)
        code.do(Op.BRANCH_CONDITIONAL, condition, inner, end)
        code.open(inner)
        return end

    def _end(self, code: Code, end: int) -> None:
        code.do(Op.BRANCH, end)
        code.open(end)
