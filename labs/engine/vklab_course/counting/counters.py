"""Counters in a module: their buffer, variables, and the functions that count one access.

A kernel calls a function for each access, so no block of the kernel itself is split. Counts of an
invocation stay in private variables, which are written to the buffer where `main` returns.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab_course.counting import layout, shadows
from vklab_course.counting.cells import Cells
from vklab_course.counting.layout import FIELDS, HEADER, OWN, READ, WRITE
from vklab_course.counting.spirv import Code, Module, Op

__all__ = ["Counters"]


class Counters(Cells):
    """Counters of one module.

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
        super().__init__(module, binding)
        self.watched: dict[int, shadows.Watched] = {}
        self.buffers, self.units, self._is_full = buffers, units, is_full
        self._functions: dict[tuple[int, int, bool], int] = {}
        self._ends: dict[str, int] = {}
        self._blocks: list[dict[str, int]] = []
        self._is_new = True

    # ------------------------------------------------------------------ counts by block

    def open_block(self) -> None:
        """Begin a block of the kernel: its counts are kept as the number of its executions."""
        self._is_new = True

    def tally(self, code: Code, name: str, by: int = 1) -> None:
        """Count an event of the present block; all events of a block cost one addition.

        Args:
            code: receives the addition, at the first event of a block.
            name: a name of `FIELDS`, or of `OWN` with the number of a buffer.
            by: amount to count.
        """
        if self._is_new:
            self._is_new = False
            block = f"block {len(self._blocks)}"
            self._blocks.append({})
            self.set(code, block, code.word(Op.I_ADD, self.get(code, block), self.module.number(1)))
        known = self._blocks[-1]
        known[name] = known.get(name, 0) + by

    def turn(self, code: Code) -> int:
        """Count a turn of a loop; return the id of a bool: whether more turns are allowed."""
        turns = code.word(Op.I_ADD, self.get(code, "turns"), self.module.number(1))
        self.set(code, "turns", turns)
        return code.flag(Op.U_LESS_THAN, turns, self.get(code, "turn_room"))

    # ------------------------------------------------------------------ start and end of main

    def call(self, code: Code, name: str) -> None:
        """Call `begin` or `finish`, which are made when the whole kernel is known."""
        self._ends.setdefault(name, self.module.fresh())
        code.value(Op.FUNCTION_CALL, self.module.void, self._ends[name])

    def define(self, name: str, code: Code) -> None:
        """Define `begin` or `finish` with these instructions, if it was called."""
        if name not in self._ends:
            return
        module, head = self.module, Code(self.module)
        signature = module.declare(Op.TYPE_FUNCTION, module.void)
        head.do(Op.FUNCTION, module.void, self._ends[name], 0, signature)
        head.label()
        module.functions += [*head, *code, (Op.RETURN, ()), (Op.FUNCTION_END, ())]

    def begin(self, code: Code, group: int) -> None:
        """Set all private variables, at the start of `main`.

        Args:
            code: receives the instructions.
            group: id of the linear number of the workgroup.
        """
        number = self.module.number
        for name in ("log_room", "dump", "traffic"):
            self.set(code, name, self.header(code, name))
        # Once an invocation has met an endless loop, those that start later make one turn each.
        is_endless = code.flag(Op.I_NOT_EQUAL, self.header(code, "endless"), number(0))
        room = code.word(Op.SELECT, is_endless, number(0), self.header(code, "turn_room"))
        self.set(code, "turn_room", room)
        mine = code.word(Op.I_MUL, self.get(code, "invocation"), self.get(code, "log_room"))
        mine = code.word(Op.I_MUL, mine, number(layout.ENTRY))
        self.set(code, "log_at", code.word(Op.I_ADD, self.header(code, "log_at"), mine))
        shadows.begin(code, self, group)
        skipped = code.word(Op.I_MUL, self.header(code, "sectors"), group)
        mine = code.word(Op.I_ADD, self.header(code, "sectors_at"), skipped)
        for n, unit in enumerate(self.units):
            self._begin_buffer(code, n, unit, mine)
        self._set_limits(code)
        for name in self._changing():
            self.set(code, name, number(0))

    def _begin_buffer(self, code: Code, n: int, unit: int, mine: int) -> None:
        number = self.module.number
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

    def _changing(self) -> list[str]:
        """Return the names of the variables that the kernel changes."""
        own = {f"{name} {n}" for n in range(len(self.buffers)) for name in OWN}
        return [
            name
            for name in self._private
            if name.startswith("block") or name in FIELDS or name in own
        ]

    def finish(self, code: Code) -> None:
        """Write the counts of an invocation to the buffer, before `main` returns."""
        number = self.module.number
        names = [*FIELDS, *(f"{name} {n}" for n in range(len(self.buffers)) for name in OWN)]
        skipped = code.word(Op.I_MUL, self.get(code, "invocation"), number(len(names)))
        first = code.word(Op.I_ADD, self.header(code, "records_at"), skipped)
        for n, name in enumerate(names):
            word = code.word(Op.I_ADD, first, number(n))
            code.do(Op.STORE, self.word_at(code, word), self._total(code, name))
        if "turns" in self._private:
            turns, room = self.get(code, "turns"), self.header(code, "turn_room")
            is_inside = code.flag(Op.U_LESS_THAN, turns, room)
            stopped = code.word(Op.SELECT, is_inside, number(0), number(1))
            self.atomic(code, Op.ATOMIC_OR, number(HEADER.index("endless")), stopped)

    def _total(self, code: Code, name: str) -> int:
        """Return the id of a count: what a variable holds, or a sum over executed blocks."""
        if name in self._private:
            return self.get(code, name)
        total = self.module.number(0)
        for n, known in enumerate(self._blocks):
            if by := known.get(name, 0):
                times = code.word(Op.I_MUL, self.get(code, f"block {n}"), self.module.number(by))
                total = code.word(Op.I_ADD, total, times)
        return total

    # ------------------------------------------------------------------ functions for an access

    def touch(
        self, code: Code, buffer: int, kind: int, *place: int, is_atomic: bool = False
    ) -> None:
        """Call the function that counts an access to one element.

        Args:
            code: receives the call.
            buffer: number of the buffer or, behind the buffers, of a shared array.
            kind: READ or WRITE.
            place: ids of byte offset, element, and the bool that tells whether it is inside.
            is_atomic: whether an atomic operation makes the access.
        """
        key = (buffer, kind, is_atomic)
        if key not in self._functions:
            self._functions[key] = self._function(*key)
        code.value(Op.FUNCTION_CALL, self.module.void, self._functions[key], *place)

    def _function(self, buffer: int, kind: int, is_atomic: bool) -> int:
        module, code = self.module, Code(self.module)
        types = (module.uint, module.uint, module.bool)
        function = module.fresh()
        signature = module.declare(Op.TYPE_FUNCTION, module.void, *types)
        code.do(Op.FUNCTION, module.void, function, 0, signature)
        at, said, inside = (code.value(Op.FUNCTION_PARAMETER, each) for each in types)
        code.label()
        if buffer >= len(self.buffers):
            tag = module.number(buffer * 4 + kind)
            self.note(code, inside, "shared_outside", {"shared_far": tag})
            if buffer in self.watched:
                shadows.watch(code, self, self.watched[buffer], kind, (at, inside), is_atomic)
        else:
            self.note(code, inside, f"outside_{kind} {buffer}", {f"far_{kind} {buffer}": said})
            if self._is_full or kind == WRITE:
                self._element(code, buffer, kind, at, inside)
            if self._is_full:
                self._sector(code, buffer, kind, at, inside)
                self._log(code, buffer, kind, said)
        code.do(Op.RETURN)
        code.do(Op.FUNCTION_END)
        module.functions += code
        return function

    def _element(self, code: Code, buffer: int, kind: int, at: int, inside: int) -> None:
        """Count an access to an element; those outside share the place behind the last one."""
        shift = self.module.number(self.units[buffer].bit_length() - 1)
        element = code.word(Op.SHIFT_RIGHT, at, shift)
        slot = code.word(Op.SELECT, inside, element, self.get(code, f"elements {buffer}"))
        word = code.word(Op.I_ADD, self.get(code, f"counts {kind} {buffer}"), slot)
        self.atomic(code, Op.ATOMIC_I_ADD, word, self.module.number(1))

    def _sector(self, code: Code, buffer: int, kind: int, at: int, inside: int) -> None:
        """Set the bit of a sector among those of the workgroup."""
        number = self.module.number
        is_counted = code.flag(Op.I_NOT_EQUAL, self.get(code, "traffic"), number(0))
        is_counted = code.flag(Op.LOGICAL_AND, is_counted, inside)
        high = code.word(Op.SHIFT_RIGHT, at, number(10))
        word = code.word(Op.I_ADD, self.get(code, f"sectors {kind} {buffer}"), high)
        word = code.word(Op.SELECT, is_counted, word, self.get(code, "dump"))
        low = code.word(Op.BITWISE_AND, code.word(Op.SHIFT_RIGHT, at, number(5)), number(31))
        self.atomic(code, Op.ATOMIC_OR, word, code.word(Op.SHIFT_LEFT, number(1), low))

    def _log(self, code: Code, buffer: int, kind: int, said: int) -> None:
        """Add an access to the invocation's part of the log, if that has room."""
        number, entry = self.module.number, self.get(code, "logged")
        self.set(code, "logged", code.word(Op.I_ADD, entry, number(1)))
        end = self.begin_if(code, code.flag(Op.U_LESS_THAN, entry, self.get(code, "log_room")))
        first = code.word(Op.I_MUL, entry, number(layout.ENTRY))
        first = code.word(Op.I_ADD, self.get(code, "log_at"), first)
        code.do(Op.STORE, self.word_at(code, first), number(buffer * 4 + kind))
        code.do(Op.STORE, self.word_at(code, code.word(Op.I_ADD, first, number(1))), said)
        self.end_if(code, end)
