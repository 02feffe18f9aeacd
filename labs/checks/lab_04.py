"""Exercises of lab 04: six kernels, the grid of a dispatch, and the interface of a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from vklab.course import words
from vklab.course.children.kernel_answers import Kernel
from vklab.course.counting.observe import Observed
from vklab.course.definition.case import Case
from vklab.course.definition.exercise import Function, exercise
from vklab.course.definition.kinds import Predict
from vklab.course.definition.report import Report

VALUES = ("each y[i] has its value", 1)
INSIDE = ("only elements that exist are read and written", 1)
SHAPE = ("each invocation does its own share of the work", 2)


def _numbers(count: int, random: np.random.Generator) -> np.ndarray:
    """Return values of both signs between 0.05 and 4, none of which follows from its neighbours."""
    signs = random.choice(np.array([-1, 1]), count)
    return (random.uniform(0.05, 4, count) * signs).astype(np.float32)


def _odd(random: np.random.Generator, size: int) -> int:
    """Draw a count that no workgroup size divides."""
    return int(size * random.integers(2, 12) + random.integers(1, size))


@exercise("04-1", hints=(
    "Each invocation handles one element: which number tells the invocations apart?",
    "id.x runs over all workgroups: 0 to 64 * workgroups - 1. Some of these numbers are too large.",
    "Everything that touches x or y belongs under one condition: which one?",
), variants=({"low": "0.0"}, {"low": "0.5"}, {"low": "-0.25"}, {"low": "2.0"}))  # fmt: skip
class SquaredRelu(Kernel):
    parts = {"values": VALUES, "inside": INSIDE, "shape": SHAPE}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        low = float(self.params["low"])
        near = np.array([0, low, -low, low / 2, low - 0.1, low + 0.1, 0.125, -0.125], np.float32)
        for count, groups in ((1, 1), (64, 2), (67, 2), (_odd(random, 64), 16)):
            x = _numbers(count, random)
            x[8 : 8 + near.size] = near[: max(0, count - 8)]
            yield self.dispatch_case({"x": x}, count, (groups,), {"count": count},
                                     f"count={count}", room=5 if groups == 16 else 0)

    def expected(self, case: Case) -> Any:
        return np.maximum(case.args[0]["x"], np.float32(self.params["low"])) ** 2


@exercise("04-2", hints=(
    "The struct lists what the host pushes: a type and a name for each number.",
    "The host packs by name, so the order of the two members is yours. Names and types are the "
    "host's: which of the two numbers counts, which one scales?",
    "In main: the number of the invocation, the guard, and one assignment.",
))  # fmt: skip
class ScaledSum(Kernel):
    parts = {"types": ("the struct has the types that the host pushes", 1),
             "values": VALUES, "inside": INSIDE, "shape": SHAPE}  # fmt: skip
    types = {"count": ("uint",), "scale": ("float",)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        drawn = float(np.float32(random.uniform(2, 9)))
        for count, groups, scale in ((64, 1, 1.0), (67, 2, -0.5), (_odd(random, 64), 13, drawn)):
            a, b = _numbers(count, random), np.float32(1.9) * _numbers(count, random)[::-1]
            yield self.dispatch_case({"a": a, "b": b}, count, (groups,), {
                "count": count, "scale": scale}, f"count={count}, scale={scale:g}",
                room=7 if groups == 13 else 0)

    def expected(self, case: Case) -> Any:
        arrays, _, push = case.args
        return np.float32(push["scale"]) * arrays["a"] + arrays["b"]


@exercise("04-3", hints=(
    "Start with one row: how many workgroups cover 65 elements at size 64? And 64? And none?",
    "Python's // rounds down. Which number, added before the division, makes it round up?",
    "Above the limit x is the length of a row, and y the number of rows, rounded up as well: the "
    "last row may be only partly needed, and the kernel's guard takes care of the rest.",
), variants=({"limit": 65535, "row": 32768}, {"limit": 65535, "row": 16384},
             {"limit": 32767, "row": 8192}, {"limit": 49151, "row": 4096}),
    seams=("vklab.ops.registry.grid",))  # fmt: skip
class Workgroups(Function):
    parts = {"row": ("one row: enough workgroups, and not one too many", 2),
             "rows": ("above the limit the grid continues along y", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        limit, row = self.params["limit"], self.params["row"]
        for count, size in ((1000, 64), (1024, 64), (1025, 64), (1, 64), (0, 64), (7, 1),
                            *random.integers(1, 1025, (3, 2)).tolist()):  # fmt: skip
            yield Case("row", (count, size))
        yield Case("row", (1000,), on="workgroups(1000), without a size")
        some = [limit, limit + 1, row * (limit // row + 2), row * (limit // row + 2) + 1,
                *random.integers(limit + 1, 40 * row, 3).tolist()]  # fmt: skip
        for groups in some:
            on = f"count={groups * 64} (that is {groups} workgroups of 64)"
            yield Case("rows", (groups * 64, 64), on=on)
        many = row * max(40, limit // row + 2)
        for count, size in ((limit * 64 + 1, 64), (many * 64 + 1, 64), (many * 96 + 1, 96),
                            (many * 256 + 1, 256), (limit * 256, 256)):  # fmt: skip
            yield Case("rows", (count, size))

    def expected(self, case: Case) -> Any:
        count, size = (*case.args, 64)[:2]
        groups = (count + size - 1) // size
        if groups <= self.params["limit"]:
            return groups, 1, 1
        return self.params["row"], (groups + self.params["row"] - 1) // self.params["row"], 1

    def compare(self, case: Case, got: Any, report: Report) -> None:
        """Expect this grid as ints: a dispatch takes no other type."""
        report.expect(isinstance(got, tuple | list) and len(got) == 3,
                      f"expected {case.expected}: three ints in a tuple, got {words.short(got)}")
        for number in got:
            report.expect(isinstance(number, int | np.integer) and not isinstance(number, bool),
                          f"expected ints, got the {type(number).__name__} {number!r} "
                          "(np.ceil and / make floats)")  # fmt: skip
        report.equal(tuple(int(number) for number in got), case.expected)


@exercise("04-4", hints=(
    "x is stored row by row: the element in row r, column c has the number r * columns + c.",
    "y has `columns` rows of `rows` elements each. Write that down as you would for x.",
    "The grid is too large in both directions: the guard asks about the row and the column.",
))  # fmt: skip
class Transpose(Kernel):
    parts = {"values": ("y is x with rows and columns exchanged", 1), "inside": INSIDE,
             "shape": SHAPE}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        sides = random.integers(9, 60, 2).tolist()
        for rows, columns, room in ((37, 53, 0), (53, 37, 0), (8, 8, 0), (1, 9, 0), (*sides, 11)):
            x, push = _numbers(rows * columns, random), {"rows": rows, "columns": columns}
            grid = (columns // 8 + 1, rows // 8 + 1)
            yield self.dispatch_case({"x": x}, x.size, grid, push,
                                     f"{rows} rows, {columns} columns", room)  # fmt: skip

    def matrix(self, case: Case) -> tuple[int, int]:
        return case.args[2]["columns"], case.args[2]["rows"]

    def owner(self, case: Case, elements: np.ndarray) -> np.ndarray:
        _, groups, push = case.args
        return elements % push["rows"] * (8 * groups[0]) + elements // push["rows"]

    def expected(self, case: Case) -> Any:
        arrays, _, push = case.args
        rows, columns = push["rows"], push["columns"]
        return arrays["x"][: rows * columns].reshape(rows, columns).T.reshape(-1).copy()


@exercise("04-5", hints=(
    "With a count that the number of elements per invocation does not divide: which elements does "
    "the last invocation handle? Which of them exist?",
    "A guard protects one index. Here every invocation has several.",
    "Inside the loop: give the element of this turn a name, and ask about that one.",
), variants=({"each": 4}, {"each": 3}, {"each": 5}, {"each": 8}))  # fmt: skip
class Halves(Kernel):
    parts = {"values": VALUES, "inside": INSIDE, "shape": SHAPE}
    in_a_row = True

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        block = 64 * self.params["each"]
        for count in (block, block + 1, 4 * block - 2, _odd(random, block)):
            groups = -(-count // block) + count % 2
            yield self.dispatch_case({"x": _numbers(count, random)}, count, (groups,),
                                     {"count": count}, f"count={count}",
                                     room=0 if count % block < 2 else 3)  # fmt: skip

    def expected(self, case: Case) -> Any:
        return np.float32(0.5) * case.args[0]["x"]


@exercise("04-6", hints=(
    "Neighbouring elements of y share most of their nine values. Which neighbours share the most?",
    "Sixteen in a row need 3 x 18 different values. Which other shapes have 16 elements, and how "
    "many different values does each of them need?",
    "Load every value of the tile's surroundings once into a local array, then add up from there.",
), variants=({"each": 16},))  # fmt: skip
class BoxSum(Kernel):
    parts = {"loads": ("few loads of x, with every value right", 4)}
    is_mapped = False
    loads_of_element = 9

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        sides = 16 * random.integers(1, 4, 2)
        for rows, columns in ((32, 48), (16, 80), sides.tolist()):
            x = _numbers((rows + 2) * (columns + 2), random)
            push = {"rows": rows, "columns": columns}
            groups = -(-rows * columns // 1024)
            yield self.dispatch_case({"x": x}, rows * columns, (groups,), push,
                                     f"{rows} rows, {columns} columns")  # fmt: skip

    def matrix(self, case: Case) -> tuple[int, int]:
        return case.args[2]["rows"], case.args[2]["columns"]

    def expected(self, case: Case) -> Any:
        (rows, columns), x = self.matrix(case), case.args[0]["x"]
        windows = np.lib.stride_tricks.sliding_window_view(x.reshape(rows + 2, columns + 2), (3, 3))
        return windows.sum((2, 3), np.float64).astype(np.float32).reshape(-1)

    def compare(self, case: Case, got: Observed, report: Report) -> None:
        """Score the loads of an answer that is right; a wrong one has no score."""
        for aspect in (self._values, self._inside, self._shape):
            aspect(case, got, report)
        loads = got.counts.reads[self.name_in(got, "x")].sum() / case.expected.size
        bound = case.args[0]["x"].size / case.expected.size  # every element of x, once
        report.score(round(float(loads), 2), round(bound, 2), 9, "loads an element", full=2.25)


STORAGE_BUFFER = 7  # Vulkan's enum values, so that a check needs no driver
KINDS = {6: "UNIFORM_BUFFER", 7: "STORAGE_BUFFER", 8: "UNIFORM_BUFFER_DYNAMIC",
         9: "STORAGE_BUFFER_DYNAMIC"}  # fmt: skip


@exercise("04-7", hints=(
    "Look at the three `layout(set = 0, binding = ...)` lines of vector_add.comp, and at its "
    "push_constant line: which of their numbers does your function get?",
    "One slot for each buffer: its binding number, the type of descriptor, and how many buffers "
    "the slot holds.",
    "Every member of the struct takes four bytes. Without members there is no range.",
))  # fmt: skip
class KernelInterface(Function):
    parts = {"numbers": ("one slot for each buffer, by its binding number", 1),
             "types": ("each slot is one storage buffer", 1),
             "range": ("the range covers the struct, and no more", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield Case(args=({"a": 0, "b": 1, "y": 2}, ("uint",)), on="vector_add")
        yield Case(args=({"x": 3}, ()), on="one buffer at binding 3, no push constants")
        yield Case(args=({"x": 1, "y": 0}, ("uint", "uint", "float")))
        for count in (2, 4, 5):
            numbers = random.choice(12, count, replace=False).tolist()
            members = random.choice(["uint", "int", "float"], random.integers(1, 7)).tolist()
            buffers = {name: int(n) for name, n in zip("pqrst", numbers, strict=False)}
            yield Case(args=(buffers, tuple(members)))

    def expected(self, case: Case) -> Any:
        buffers, members = case.args
        slots = [(number, STORAGE_BUFFER, 1) for number in sorted(buffers.values())]
        return slots, ((0, 4 * len(members)) if members else None)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        given = "None (is a return missing?)" if got is None else words.short(got)
        two = isinstance(got, tuple | list) and len(got) == 2
        report.expect(two, f"expected two things, (slots, push_range), got {given}"
                      if report.part == "numbers" else "the result has another shape: see above")
        slots, pushed = got
        if report.part == "range":
            report.equal(pushed, case.expected[1], "the first byte, and the bytes of the struct")
            return
        report.expect(isinstance(slots, list | tuple) and all(
            isinstance(slot, tuple | list) and len(slot) == 3 for slot in slots),
            "slots: expected a list of (binding, descriptor type, descriptor count), "
            f"got {words.short(slots)}")  # fmt: skip
        if report.part == "types":
            for number, kind, count in slots:
                told = KINDS.get(kind, "?") if isinstance(kind, int) else "?"
                report.equal(kind, STORAGE_BUFFER, f"binding {number} is a {told} in your slot, a "
                                                   "`buffer` block in the kernel")  # fmt: skip
                report.equal(count, 1, f"buffers of binding {number}")
        report.equal(sorted(slot[0] for slot in slots), [slot[0] for slot in case.expected[0]],
                     "a slot for each binding that the kernel names")  # fmt: skip


# ------------------------------------------------------------------------------------ predictions


@exercise("04-p1", hints=("A prediction has no hints.",))
class IdleInvocations(Predict):
    explains = ("15 workgroups cover 960 elements, 16 cover 1024. So 1024 invocations run, "
                "and the last 24 have no element: they are why the kernel asks `if (i < "
                "params.count)`.")

    def answers(self) -> dict[str, Any]:
        return {"workgroups": 16, "invocations": 1024, "idle": 24}


@exercise("04-p2", hints=("A prediction has no hints.",))
class WritesOutside(Predict):
    explains = ("All 100 elements get their value. Invocations 100 to 127 run as well, and "
                "each of them writes one float behind the end of y.")

    def answers(self) -> dict[str, Any]:
        return {"elements_right": 100, "writes_outside": 28}


@exercise("04-p3", hints=("A prediction has no hints.",))
class WhatIsNamed(Predict):
    explains = ("The compiler names the line of the misspelt word. The kernel that never "
                "reads x is correct Slang, and runs; the message tells that x is gone.")

    def answers(self) -> dict[str, Any]:
        return {"misspelt": "compile_error", "unused": "ran"}


@exercise("04-p4", hints=("A prediction has no hints.",))
class TwoAxes(Predict):
    explains = ("53 columns need 7 workgroups of 8, 37 rows need 5. That makes 35 workgroups "
                "or 2240 invocations for 1961 elements.")

    def answers(self) -> dict[str, Any]:
        return {"across": 7, "down": 5, "idle": 279}


@exercise("04-p5", hints=("A prediction has no hints.",))
class FourAtOnce(Predict):
    explains = ("4 divides 1000. With 1003 the last invocation that passes the guard starts "
                "at element 1000 and writes elements 1000 to 1003: the last one does not "
                "exist.")

    def answers(self) -> dict[str, Any]:
        return {"outside_1000": 0, "outside_1003": 1}


@exercise("04-p6", hints=("A prediction has no hints.",))
class TwoSlots(Predict):
    explains = ("Each structure on its own is valid, and no driver compares the two. What the "
                "kernel then does is undefined: zeros, other memory, a crash of this process. "
                "Validation layers (a library between program and driver that checks every "
                "call; lab 06) report it.")

    def answers(self) -> dict[str, Any]:
        return {"calls": "no error"}


@exercise("04-p7", hints=("A prediction has no hints.",))
class RoundedDown(Predict):
    explains = ("1000 // 256 is 3, so 768 elements are written and 232 are not. With 4 "
                "workgroups 1024 invocations write; without a guard 24 of them write behind "
                "the end.")

    def answers(self) -> dict[str, Any]:
        return {"written": 768, "outside_when_rounded_up": 24}
