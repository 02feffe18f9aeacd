"""Exercises of lab 04: the interface of a kernel, the grid of a dispatch, and four kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from vklab.course import words
from vklab.course.children.kernel_answers import Kernel
from vklab.course.definition.case import Case
from vklab.course.definition.exercise import Function, exercise
from vklab.course.definition.report import Report

GRID = "vklab.ops.registry.grid"
STORAGE_BUFFER = 7  # Vulkan's enum value, so that a check needs no driver


def _pair(got: Any, report: Report, wanted: str) -> tuple[Any, Any]:
    given = "None (is a return missing?)" if got is None else words.short(got)
    report.expect(isinstance(got, tuple | list) and len(got) == 2,
                  f"expected {wanted}, got {given}")  # fmt: skip
    return got[0], got[1]


def _grid(got: Any, expected: tuple[int, int, int], report: Report) -> None:
    """Expect this grid as ints: a dispatch takes no other type."""
    three = isinstance(got, tuple | list) and len(got) == 3
    report.expect(three, f"expected {expected}: three ints in a tuple, got {words.short(got)}")
    for number in got:
        report.expect(isinstance(number, int | np.integer) and not isinstance(number, bool),
                      f"expected ints, got the {type(number).__name__} {number!r} "
                      "(np.ceil and / make floats)")  # fmt: skip
    report.equal(tuple(int(number) for number in got), expected)


@exercise(
    "04-1",
    hints=(
        "Look at the three `layout(set = 0, binding = ...)` lines of vector_add.comp, and at "
        "its push_constant line: which of their numbers does your function get?",
        "One slot for each buffer: its binding number, the type of descriptor, and how many "
        "buffers the slot holds.",
        "Every member of the struct takes four bytes. Without members there is no range.",
    ),
)
class KernelInterface(Function):
    parts = {"numbers": ("one slot for each buffer, by its binding number", 1),
             "types": ("each slot is one storage buffer", 1),
             "range": ("the range covers the struct, and no more", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield Case(args=({"a": 0, "b": 1, "y": 2}, ("uint",)), on="vector_add")
        yield Case(args=({"x": 3}, ()), on="one buffer at binding 3, no push constants")
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
        slots, pushed = _pair(got, report, "two things, (slots, push_range)")
        if report.part == "range":
            report.equal(pushed, case.expected[1], "the first byte, and the bytes of the struct")
            return
        report.expect(isinstance(slots, list | tuple) and all(
            isinstance(slot, tuple | list) and len(slot) == 3 for slot in slots),
            "slots: expected a list of (binding, descriptor type, descriptor count), "
            f"got {words.short(slots)}")  # fmt: skip
        if report.part == "types":
            for number, kind, count in slots:
                report.equal(kind, STORAGE_BUFFER, f"type of binding {number}: which constant?")
                report.equal(count, 1, f"buffers of binding {number}")
        numbers = sorted(slot[0] for slot in slots)
        report.equal(numbers, [slot[0] for slot in case.expected[0]],
                     "a slot for each binding that the kernel names")  # fmt: skip


@exercise(
    "04-2",
    hints=(
        "How many workgroups cover as many elements as one workgroup has invocations? How many "
        "cover one element more?",
        "// rounds down. Which two numbers must be added before the division, so that it rounds "
        "up? Or: what does // do with a negative number?",
        "struct.pack turns a number into bytes; its format letter says how wide and which sign.",
    ),
)
class PushAndWorkgroups(Function):
    parts = {"bytes": ("the pushed bytes are the count, as a uint", 1),
             "groups": ("enough workgroups, and not one too many", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        size = 64
        for count in (1000, 16 * size, 16 * size + 1, size, 1, 70_000,
                      *random.integers(2, 200_000, 3).tolist()):  # fmt: skip
            yield Case(args=(int(count),))

    def expected(self, case: Case) -> Any:
        count, size = case.args[0], 64
        return count.to_bytes(4, "little"), ((count + size - 1) // size, 1, 1)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        pushed, groups = _pair(got, report, "two things, (pushed bytes, workgroups)")
        if report.part == "groups":
            _grid(groups, case.expected[1], report)
            return
        report.expect(isinstance(pushed, bytes), f"expected bytes, got {words.short(pushed)}")
        report.equal(list(pushed), list(case.expected[0]), "the bytes, one by one")


@exercise(
    "04-3",
    hints=(
        "Start with one row: how many workgroups cover 65 elements at size 64? And 64? And none?",
        "Python's // rounds down; of a negative number it rounds away from zero.",
        "Above the limit x is the length of a row, and y is the number of rows, rounded up as "
        "well: the last row may be only partly needed, and the kernel's guard takes care of it.",
    ),
    variants=({"limit": 65535, "row": 32768}, {"limit": 65535, "row": 16384},
              {"limit": 32767, "row": 8192}, {"limit": 49151, "row": 4096}),
    seams=(GRID,),
)  # fmt: skip
class Workgroups(Function):
    parts = {"row": ("one row: enough workgroups, and not one too many", 2),
             "rows": ("above the limit the grid continues along y", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        limit, row = self.params["limit"], self.params["row"]
        for count, size in ((1000, 64), (1024, 64), (1025, 64), (1, 64), (0, 64), (7, 1),
                            *random.integers(1, 1025, (3, 2)).tolist()):  # fmt: skip
            yield Case("row", (count, size))
        some = [limit, limit + 1, row * (limit // row + 2), row * (limit // row + 2) + 1,
                *random.integers(limit + 1, 40 * row, 3).tolist()]  # fmt: skip
        for groups in some:
            on = f"count={groups * 64} (that is {groups} workgroups of 64)"
            yield Case("rows", (groups * 64, 64), on=on)

    def expected(self, case: Case) -> Any:
        count, size = case.args
        groups = (count + size - 1) // size
        if groups <= self.params["limit"]:
            return groups, 1, 1
        return self.params["row"], (groups + self.params["row"] - 1) // self.params["row"], 1

    def compare(self, case: Case, got: Any, report: Report) -> None:
        _grid(got, case.expected, report)


def _ramp(count: int, random: np.random.Generator) -> np.ndarray:
    """Return values that differ from each other, alternate in sign, and are never -1."""
    steps = (np.arange(count) * 0.37 + 0.5 + random.uniform(0, 0.1)) * (-1.0) ** np.arange(count)
    return steps.astype(np.float32)


def _odd(random: np.random.Generator, size: int) -> int:
    """Draw a count that no workgroup size divides."""
    return int(size * random.integers(2, 12) + random.integers(1, size))


@exercise(
    "04-4",
    hints=(
        "Each invocation handles one element: which number tells them apart?",
        "id.x runs over all workgroups: 0 to 64 * workgroups - 1. Some of these are too large.",
        "Everything that touches x or y belongs under one condition: which one?",
    ),
    variants=({"low": "0.0"}, {"low": "0.5"}, {"low": "-0.25"}, {"low": "2.0"}),
)
class SquaredRelu(Kernel):
    parts = {"values": ("each y[i] has its value", 2),
             "inside": ("only elements that exist are read and written", 1),
             "shape": ("each invocation does its own element", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for count, groups in ((1, 1), (64, 2), (67, 2), (_odd(random, 64), 16)):
            push = {"count": count}
            yield self.dispatch_case({"x": _ramp(count, random)}, count, (groups,), push,
                                     f"count={count}")  # fmt: skip

    def expected(self, case: Case) -> Any:
        return np.maximum(case.args[0]["x"], np.float32(self.params["low"])) ** 2


@exercise(
    "04-5",
    hints=(
        "The struct lists what the host pushes: a type and a name for each number.",
        "The host packs by name, so the order of the two members is yours; names and types are "
        "the host's: which of the two can be negative, which has decimals?",
        "In main: the index, the guard, and one line.",
    ),
)
class ScaledSum(Kernel):
    parts = {"types": ("the struct has the types that the host pushes", 1),
             "values": ("y[i] = scale * a[i] + b[i]", 1),
             "inside": ("only elements that exist are read and written", 1),
             "shape": ("each invocation does its own element", 1)}  # fmt: skip
    types = {"count": ("uint",), "scale": ("float",)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        odd = _odd(random, 64)
        for count, groups, scale in ((64, 1, 1.0), (67, 2, -0.5), (odd, 13, 3.25)):
            arrays = {"a": _ramp(count, random), "b": 1.9 * _ramp(count, random)[::-1]}
            arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
            yield self.dispatch_case(arrays, count, (groups,), {"count": count, "scale": scale},
                                     f"count={count}, scale={scale:g}")  # fmt: skip

    def expected(self, case: Case) -> Any:
        arrays, _, push = case.args
        return np.float32(push["scale"]) * arrays["a"] + arrays["b"]


@exercise(
    "04-6",
    hints=(
        "x is stored row by row: the element in row r, column c has the number r * columns + c.",
        "y has `columns` rows of `rows` elements each. Write that down as you would for x.",
        "The grid is too large in both directions: the guard asks about the row and the column.",
    ),
)
class Transpose(Kernel):
    parts = {"values": ("y is x with rows and columns exchanged", 2),
             "inside": ("only elements that exist are read and written", 1),
             "shape": ("each invocation does its own element", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        sides = random.integers(9, 60, 2).tolist()
        for rows, columns in ((37, 53), (53, 37), (8, 8), (1, 9), tuple(sides)):
            x, push = _ramp(rows * columns, random), {"rows": rows, "columns": columns}
            grid = (columns // 8 + 1, rows // 8 + 1)
            yield self.dispatch_case({"x": x}, x.size, grid, push,
                                     f"{rows} rows, {columns} columns")  # fmt: skip

    def owner(self, case: Case, elements: np.ndarray) -> np.ndarray:
        _, (across, _), push = case.args
        column, row = np.divmod(elements, push["rows"])
        return row * across * 8 + column

    def expected(self, case: Case) -> Any:
        arrays, _, push = case.args
        return arrays["x"].reshape(push["rows"], push["columns"]).T.reshape(-1).copy()


@exercise(
    "04-7",
    hints=(
        "With a count that the number of elements per invocation does not divide: which elements "
        "does the last invocation handle? Which of them exist?",
        "A guard protects one index. Here every invocation has several.",
        "Inside the loop: give the element of this turn a name, and ask about that one.",
    ),
    variants=({"each": 4}, {"each": 3}, {"each": 5}, {"each": 8}),
)
class Halves(Kernel):
    parts = {"values": ("y[i] = 0.5 * x[i]", 2),
             "inside": ("only elements that exist are read and written", 1),
             "shape": ("each invocation does its own run of elements", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        block = 64 * self.params["each"]
        for count in (block, block + 1, 4 * block - 2, _odd(random, block)):
            groups = -(-count // block) + count % 2
            yield self.dispatch_case({"x": _ramp(count, random)}, count, (groups,),
                                     {"count": count}, f"count={count}")  # fmt: skip

    def expected(self, case: Case) -> Any:
        return np.float32(0.5) * case.args[0]["x"]


