"""Ids of invocations under the judge's control: base, mirrored and reversed order.

Every input variable of a kernel becomes a private variable that is set at the start of `main` from
the driver's ids, so that a kernel cannot tell a partial or mirrored dispatch from a plain one.
"""

from __future__ import annotations

from vklab_course.counting.counters import Counters
from vklab_course.counting.spirv import Code, Decoration, Module, Op, Storage

__all__ = ["Ids"]

_NUM_WORKGROUPS, _WORKGROUP_ID, _LOCAL_ID, _GLOBAL_ID, _LOCAL_INDEX = 24, 26, 27, 28, 29


class Ids:
    """Ids of a module's invocations.

    Args:
        module: the module; its input variables become private ones.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self._copies = self._make_private()
        self.private = list(self._copies)
        self._triple = module.declare(Op.TYPE_VECTOR, module.uint, 3)
        # The driver's variables: those that are always read, and what else the kernel asks for.
        self.inputs = {
            built_in: self._input(built_in, self._triple) for built_in in (_WORKGROUP_ID, _LOCAL_ID)
        }
        for variable, built_in in self._copies.items():
            if built_in not in (_NUM_WORKGROUPS, _GLOBAL_ID, _LOCAL_INDEX, *self.inputs):
                pointee = module.types[module.type_of[variable]][1][1]
                self.inputs[built_in] = self._input(built_in, pointee)

    def _make_private(self) -> dict[int, int]:
        """Turn input variables into private ones; return the built-in of each."""
        module = self.module
        for n, (opcode, words) in enumerate(module.declared):
            if opcode == Op.TYPE_POINTER and words[1] == Storage.INPUT:
                changed = (words[0], Storage.PRIVATE, words[2])
                module.declared[n] = (opcode, changed)
                module.types[words[0]] = (opcode, changed[1:])
        copies = {}
        for n, (opcode, words) in enumerate(module.declared):
            if opcode == Op.VARIABLE and words[2] == Storage.INPUT:
                module.declared[n] = (opcode, (words[0], words[1], Storage.PRIVATE))
                copies[words[1]] = module.decorations[words[1]].get(Decoration.BUILT_IN, -1)
        module.annotations = [
            (opcode, words)
            for opcode, words in module.annotations
            if not (opcode == Op.DECORATE and words[0] in copies)
        ]
        module.forget_pointers(Storage.INPUT)
        return copies

    def _input(self, built_in: int, type_id: int) -> int:
        variable = self.module.variable(Storage.INPUT, type_id)
        self.module.decorate(variable, Decoration.BUILT_IN, built_in)
        return variable

    def start(self, code: Code, counters: Counters) -> int:
        """Set the ids at the start of `main`; return the id of the workgroup's linear number.

        Args:
            code: receives the instructions.
            counters: the header says how ids are changed.
        """
        number = self.module.number
        driver = {
            built_in: self._load(code, variable) for built_in, variable in self.inputs.items()
        }
        is_mirrored = code.flag(Op.I_NOT_EQUAL, counters.header(code, "mirrored"), number(0))
        is_reversed = code.flag(Op.I_NOT_EQUAL, counters.header(code, "reversed"), number(0))
        groups, locals_, globals_ = [], [], []
        grid = [counters.header(code, f"grid_{axis}") for axis in "xyz"]
        size = [counters.header(code, f"local_{axis}") for axis in "xyz"]
        for n, axis in enumerate("xyz"):
            group = code.word(Op.COMPOSITE_EXTRACT, driver[_WORKGROUP_ID], n)
            group = code.word(Op.I_ADD, group, counters.header(code, f"base_{axis}"))
            groups.append(self._turned(code, is_reversed, group, grid[n]))
            local = code.word(Op.COMPOSITE_EXTRACT, driver[_LOCAL_ID], n)
            locals_.append(self._turned(code, is_mirrored, local, size[n]))
            first = code.word(Op.I_MUL, groups[n], size[n])
            globals_.append(code.word(Op.I_ADD, first, locals_[n]))
        wide = [code.word(Op.I_MUL, grid[n], size[n]) for n in range(3)]
        counters.set(code, "lane", self._linear(code, locals_, size))
        counters.set(code, "invocation", self._linear(code, globals_, wide))
        made = {
            _WORKGROUP_ID: self._vector(code, groups),
            _LOCAL_ID: self._vector(code, locals_),
            _GLOBAL_ID: self._vector(code, globals_),
            _NUM_WORKGROUPS: self._vector(code, grid),
            _LOCAL_INDEX: self._linear(code, locals_, size),
        }
        for variable, built_in in self._copies.items():
            self._store(code, variable, (driver | made)[built_in], built_in in made)
        return self._linear(code, groups, grid)

    def _load(self, code: Code, variable: int) -> int:
        pointee = self.module.types[self.module.type_of[variable]][1][1]
        return code.value(Op.LOAD, pointee, variable)

    def _store(self, code: Code, variable: int, value: int, is_made: bool) -> None:
        """Store an id, which a kernel may have declared as signed numbers."""
        wanted = self.module.types[self.module.type_of[variable]][1][1]
        if is_made and wanted not in (self._triple, self.module.uint):
            value = code.value(Op.BITCAST, wanted, value)
        code.do(Op.STORE, variable, value)

    def _turned(self, code: Code, condition: int, index: int, count: int) -> int:
        last = code.word(Op.I_SUB, count, self.module.number(1))
        return code.word(Op.SELECT, condition, code.word(Op.I_SUB, last, index), index)

    def _linear(self, code: Code, index: list[int], count: list[int]) -> int:
        row = code.word(Op.I_MUL, index[2], count[1])
        row = code.word(Op.I_MUL, code.word(Op.I_ADD, row, index[1]), count[0])
        return code.word(Op.I_ADD, row, index[0])

    def _vector(self, code: Code, parts: list[int]) -> int:
        return code.value(Op.COMPOSITE_CONSTRUCT, self._triple, *parts)
