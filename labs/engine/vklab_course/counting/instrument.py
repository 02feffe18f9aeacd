"""Insert counters into a compiled kernel, around every access to buffers and shared arrays.

The kernel's text has no part in it: the SPIR-V is changed after compilation, so no name, define or
array length tells a kernel that it is observed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from vklab.errors import ShaderError
from vklab_course.counting import access, loops, refuse, shadows
from vklab_course.counting.access import Layouts, Place, Root
from vklab_course.counting.cells import COUNTERS
from vklab_course.counting.counters import Counters
from vklab_course.counting.ids import Ids
from vklab_course.counting.layout import READ, WRITE
from vklab_course.counting.spirv import Code, Decoration, Instruction, Module, Op, Storage

__all__ = ["COUNTERS", "Instrumented", "instrument"]

_WORKGROUP, _WORKGROUP_MEMORY = 2, 0x100  # a scope, and a bit of memory semantics
# What stands before the first instruction of a function that computes: lines, labels, variables.
_BEFORE_CODE = frozenset({8, 317, Op.FUNCTION, Op.FUNCTION_PARAMETER, Op.LABEL, Op.VARIABLE})


@dataclass(frozen=True)
class Instrumented:
    """A module with counters.

    Attributes:
        spirv: the module; one more buffer, named COUNTERS, holds the counts.
        shared: names of the shared arrays, in the order of their numbers.
        cells: elements of the shared arrays of a workgroup whose races are watched.
        uses_subgroups: whether the order of invocations may change the kernel's results.
    """

    spirv: bytes
    shared: tuple[str, ...]
    cells: int
    uses_subgroups: bool


def instrument(
    spirv: bytes, units: Mapping[str, int], is_full: bool = True, waits: bool = True
) -> Instrumented:
    """Return a kernel with counters; ShaderError where they could not follow an access.

    Args:
        spirv: the compiled kernel.
        units: the exercise's buffers: bytes of one element, by name.
        is_full: whether reads of each element, sectors and the log are kept, too.
        waits: whether invocations wait at a barrier; else it is counted and left out.
    """
    try:
        module = Module(spirv)
        bindings = _bindings(module)
        refuse.refuse(module, set(units), bindings)
        return _Pass(module, bindings, units, is_full, waits).run()
    except (LookupError, StopIteration, RecursionError, ValueError, struct.error) as error:
        raise ShaderError(f"damaged SPIR-V: {error!r}") from error


def _bindings(module: Module) -> dict[int, str]:
    """Return the name of each buffer by the id of its variable; in GLSL the block has it."""
    found = {}
    for opcode, words in module.declared:
        if opcode == Op.VARIABLE and words[2] in (Storage.UNIFORM, Storage.BUFFER):
            block = module.types[words[0]][1][1]
            found[words[1]] = module.names.get(words[1]) or module.names.get(block, "a buffer")
    return found


class _Pass:
    """One walk over the functions of a module."""

    def __init__(
        self, module: Module, bindings: Mapping[int, str], units: Mapping[str, int],
        is_full: bool, waits: bool,
    ) -> None:  # fmt: skip
        self.module, self.layouts, self.units = module, Layouts(module), list(units.values())
        used = [module.decorations[variable][Decoration.BINDING] for variable in bindings]
        self.ids = Ids(module)
        binding = max(used, default=-1) + 1
        self.counters = Counters(module, list(units), self.units, binding, is_full)
        order = list(units)
        self.roots = {
            variable: self._root(variable, name, order.index(name))
            for variable, name in bindings.items()
        }
        shared = [
            words[1]
            for opcode, words in module.declared
            if opcode == Op.VARIABLE and words[2] == Storage.WORKGROUP
        ]
        self.shared = tuple(module.names.get(variable, "a shared array") for variable in shared)
        for n, variable in enumerate(shared):
            self.roots[variable] = self._root(variable, self.shared[n], len(units) + n, True)
        if is_full:
            arrays = [self.roots[variable] for variable in shared]
            self.counters.watched = shadows.watched(
                {root.number: self.layouts.size(root.type_id) for root in arrays},
                {root.number: self.layouts.smallest(root.type_id) for root in arrays},
            )
        entry = next(words for opcode, words in module.head if opcode == Op.ENTRY_POINT)
        self.main, self.is_main = entry[1], False
        self.places: dict[int, Place] = {}
        self.aliases: dict[int, int] = {}
        self.barriers, self.waits = 0, waits

    def _root(self, variable: int, name: str, number: int, is_shared: bool = False) -> Root:
        pointee = self.module.types[self.module.type_of[variable]][1][1]
        return Root(
            variable, name, pointee, number, 4 if is_shared else self.units[number], is_shared
        )

    def run(self) -> Instrumented:
        module = self.module
        functions, module.functions = module.functions, []
        for opcode, words in functions:
            if opcode not in refuse.HAS_NO_TYPE and len(words) > 1:
                module.type_of[words[1]] = words[0]
        turns = loops.find_loops(functions)
        done, starting = Code(module), False
        for position, (opcode, words) in enumerate(functions):
            if opcode == Op.FUNCTION:
                self.is_main = starting = words[1] == self.main
            if starting and opcode not in _BEFORE_CODE:
                self.counters.call(done, "begin")
                starting = False
            if opcode == Op.LABEL:
                self.counters.open_block()
            if position in turns:
                self._turn(done, turns[position], opcode, words)
            else:
                self._one(done, opcode, words)
        self._define_ends()
        module.functions = [*done, *module.functions]
        inputs = list(self.ids.inputs.values())
        module.set_interface(self.ids.private, inputs, self.counters.variables())
        subgroups = refuse.uses_subgroups(module)
        cells = sum(each.cells for each in self.counters.watched.values())
        return Instrumented(module.assembled(), self.shared, cells, subgroups)

    def _define_ends(self) -> None:
        begin, finish = Code(self.module), Code(self.module)
        self.counters.finish(finish)
        self.counters.begin(begin, self.ids.start(begin, self.counters))
        self.counters.define("begin", begin)
        self.counters.define("finish", finish)

    # ------------------------------------------------------------------ one instruction

    def _one(self, done: Code, opcode: int, words: tuple[int, ...]) -> None:
        """Add an instruction of the kernel, with counters before it."""
        if opcode in (Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN) and self._is_far(words[2]):
            done.append(self._chain(done, words))
            return
        if opcode == Op.COPY_OBJECT and self._is_far(words[2]):
            self.aliases[words[1]] = self.aliases.get(words[2], words[2])
        elif opcode == Op.ARRAY_LENGTH:
            done.append(self._length(done, words))
            return
        elif opcode == Op.LOAD and self._is_far(words[2]):
            self._count(done, words[2], READ)
        elif opcode == Op.STORE and self._is_far(words[0]):
            self._count(done, words[0], WRITE)
        elif opcode == Op.COPY_MEMORY:
            for pointer, kind in ((words[1], READ), (words[0], WRITE)):
                if self._is_far(pointer):
                    self._count(done, pointer, kind)
        elif opcode in refuse.ATOMICS:
            self._atomic(done, opcode, words)
        elif opcode == Op.CONTROL_BARRIER:
            if self._barrier(done, words[0], words[2]) and not self.waits:
                return
        elif opcode == Op.RETURN and self.is_main:
            self.counters.call(done, "finish")
        done.do(opcode, *words)

    def _barrier(self, done: Code, scope: int, semantics: int) -> bool:
        """Count a barrier of the workgroup; one that orders only buffers ends no shared race.

        Args:
            done: receives the instructions.
            scope: id of the scope of invocations.
            semantics: id of the memory that the barrier orders.

        Returns whether it is a barrier of the workgroup.
        """
        numbers, path = self.module.constants, "barrier_path"
        if numbers.get(scope) != _WORKGROUP:
            return False
        self.counters.tally(done, "barriers")
        self.barriers += 1
        longer = done.word(Op.I_MUL, self.counters.get(done, path), self.module.number(31))
        longer = done.word(Op.I_ADD, longer, self.module.number(self.barriers))
        self.counters.set(done, path, longer)
        if numbers.get(semantics, 0) & _WORKGROUP_MEMORY:
            shadows.pass_barrier(done, self.counters)
        return True

    def _is_far(self, pointer: int) -> bool:
        """Tell whether a pointer leads into a buffer or a shared array."""
        pointer = self.aliases.get(pointer, pointer)
        return pointer in self.roots or pointer in self.places

    def _place(self, done: Code, pointer: int) -> Place:
        pointer = self.aliases.get(pointer, pointer)
        if pointer in self.places:
            return self.places[pointer]
        return access.whole(done, self.counters, self.layouts, self.roots[pointer])

    def _chain(self, done: Code, words: tuple[int, ...]) -> Instruction:
        type_id, result, base, *indices = words
        place = self._place(done, base)
        numbers = [self._as_word(done, index) for index in indices]
        place, safe = access.chain(done, self.counters, self.layouts, place, numbers)
        self.places[result] = place
        return (Op.ACCESS_CHAIN, (type_id, result, place.root.id, *safe))

    def _as_word(self, done: Code, index: int) -> int:
        """Return an index as a 32-bit unsigned number; constants stay constants."""
        module = self.module
        if index in module.constants:
            return module.number(module.constants[index])
        width, signed = module.types[module.type_of[index]][1]
        if width > 32:
            raise ShaderError("an index of 64 bits cannot be followed: use uint or int")
        if width < 32 and signed:
            index = done.value(Op.S_CONVERT, module.declare(Op.TYPE_INT, 32, 1), index)
        elif width < 32:
            return done.word(Op.U_CONVERT, index)
        return done.word(Op.BITCAST, index) if signed else index

    def _length(self, done: Code, words: tuple[int, ...]) -> Instruction:
        """Return the true length of a buffer, whatever is bound behind it."""
        type_id, result, pointer, member = words
        root = self.roots[self.aliases.get(pointer, pointer)]
        array = self.module.types[root.type_id][1][member]
        start = self.layouts.offset(root.type_id, member)
        length = self.counters.limit(done, root.number, self.layouts.stride(array), start)
        return (Op.COPY_OBJECT, (type_id, result, length))

    # ------------------------------------------------------------------ counting

    def _turn(self, done: Code, loop: loops.Loop, opcode: int, words: tuple[int, ...]) -> None:
        """Count a turn of a loop, and leave a loop that does not end.

        Args:
            done: receives the instructions.
            loop: the loop.
            opcode: the branch that begins the next turn.
            words: its operands.
        """
        goes_on = self.counters.turn(done)
        if not loop.can_leave:
            done.do(opcode, *words)
            return
        if opcode == Op.BRANCH_CONDITIONAL:
            wants = words[0]
            if words[1] != loop.header:
                wants = done.flag(Op.LOGICAL_NOT, wants)
            goes_on = done.flag(Op.LOGICAL_AND, wants, goes_on)
        done.do(Op.BRANCH_CONDITIONAL, goes_on, loop.header, loop.merge)

    def _atomic(self, done: Code, opcode: int, words: tuple[int, ...]) -> None:
        pointer = words[0] if opcode == Op.ATOMIC_STORE else words[2]
        if not self._is_far(pointer):
            return
        self.counters.tally(done, "atomics")
        if opcode != Op.ATOMIC_STORE:
            self._count(done, pointer, READ, True)
        if opcode != Op.ATOMIC_LOAD:
            self._count(done, pointer, WRITE, True)
            root = self._place(done, pointer).root
            if not root.is_shared:
                self.counters.tally(done, f"atomic {root.number}")

    def _count(self, done: Code, pointer: int, kind: int, is_atomic: bool = False) -> None:
        """Count an access through a pointer.

        Args:
            done: receives the instructions.
            pointer: id of the pointer.
            kind: READ or WRITE.
            is_atomic: whether an atomic operation makes the access.
        """
        place = self._place(done, pointer)
        root, tally, is_read = place.root, self.counters.tally, kind == READ
        if root.is_shared:
            tally(done, "shared_loads" if is_read else "shared_stores")
            if place.inside != self.module.true or root.number in self.counters.watched:
                self.counters.touch(
                    done, root.number, kind, place.at, place.said, place.inside, is_atomic=is_atomic
                )
            return
        pieces, unit = self.layouts.pieces(place.type_id), root.unit
        tally(done, "loads" if is_read else "stores")
        tally(done, "bytes_read" if is_read else "bytes_written", sum(size for _, size in pieces))
        starts = dict.fromkeys(
            start // unit * unit + n * unit if unit < size else start
            for start, size in pieces
            for n in range(max(size // unit, 1))
        )
        elements = {start // unit: start for start in starts}
        if len(elements) > access.MOST_PIECES:
            raise ShaderError(
                f"{len(elements)} elements of {root.name} are accessed at "
                "once: access them one by one"
            )
        tally(done, f"{'read' if is_read else 'written'} {root.number}", len(elements))
        number = self.module.number
        for element, start in elements.items():
            at, said = place.at, place.said
            if start:
                at = done.word(Op.I_ADD, at, number(start))
            if element:
                said = done.word(Op.I_ADD, said, number(element))
            self.counters.touch(done, root.number, kind, at, said, place.inside)
