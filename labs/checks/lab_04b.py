"""Exercises of lab 04b: a transpose, a guard in a loop, and a box sum with few loads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from vklab_course.children.kernel_answers import Kernel
from vklab_course.children.kernel_cases import (
    INSIDE,
    SHAPE,
    VALUES,
    odd_count,
    rooms,
    signed_numbers,
)
from vklab_course.counting.observe import Observed
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_04.operator_pieces import TRANSPOSE


@exercise(
    "04b-1",
    hints=(
        "x is stored row by row: the element in row r, column c has the number r * columns + c.",
        "y has `columns` rows of `rows` elements each. Write that down as you would for x.",
        "The grid is too large in both directions: the guard asks about the row and the column.",
    ),
    builds=TRANSPOSE,
)
class Transpose(Kernel):
    parts = {"values": ("y is x with rows and columns exchanged", 1), "inside": INSIDE,
             "shape": SHAPE}  # fmt: skip
    size = 64

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        sides = random.integers(65, 90, 2).tolist()
        behind = rooms(random, max(sides))  # a row or a column more would fit
        for rows, columns, room in (
            (37, 53, 0),
            (53, 37, 0),
            (8, 8, 0),
            (1, 9, 0),
            (*sides, behind),
        ):
            x, push = signed_numbers(rows * columns, random), {"rows": rows, "columns": columns}
            grid = (columns // 8 + 1, rows // 8 + 1)
            yield self.dispatch_case(
                {"x": x}, x.size, grid, push, f"{rows} rows, {columns} columns", room
            )

    def matrix(self, case: Case) -> tuple[int, int]:
        return case.args[2]["columns"], case.args[2]["rows"]

    def owner(self, case: Case, elements: np.ndarray) -> np.ndarray:
        _, groups, push = case.args
        return elements % push["rows"] * (8 * groups[0]) + elements // push["rows"]

    def expected(self, case: Case) -> Any:
        arrays, _, push = case.args
        rows, columns = push["rows"], push["columns"]
        return arrays["x"][: rows * columns].reshape(rows, columns).T.reshape(-1).copy()


@exercise(
    "04b-2",
    hints=(
        "With a count that the number of elements per invocation does not divide: which elements "
        "does "
        "the last invocation handle? Which of them exist?",
        "A guard protects one index. Here every invocation has several.",
        "Give the element of this turn of the loop a name, and check that one.",
    ),
    variants=({"each": 4}, {"each": 3}, {"each": 5}, {"each": 8}),
)
class Halves(Kernel):
    parts = {"values": VALUES, "inside": INSIDE, "shape": SHAPE}
    in_a_row = True
    size = 64

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        each = self.params["each"]
        block, few = 64 * each, int(random.integers(1, each))
        many = 16 * block + odd_count(random, block)
        every = [2 * block - rest for rest in range(1, each)]  # no remainder is left out
        for count in (block, block + 1, *every, many, few, 0):
            groups = max(1, -(-count // block) + count % 2)
            yield self.dispatch_case(
                {"x": signed_numbers(count, random)},
                count,
                (groups,),
                {"count": count},
                f"count={count}",
                room=rooms(random) if count not in (block, block + 1) else 0,
            )

    def expected(self, case: Case) -> Any:
        return np.float32(0.5) * case.args[0]["x"]


@exercise(
    "04b-3",
    hints=(
        "Neighbouring elements of y share most of their nine values. Which neighbours share the "
        "most?",
        "Sixteen in a row need 3 x 18 different values. Which other shapes have 16 elements, and "
        "how "
        "many different values does each of them need?",
        "Load every value of the tile's surroundings once into a local array, then add up from "
        "there.",
    ),
    variants=({"each": 16},),
)
class BoxSum(Kernel):
    parts = {
        "row": ("loads of x, with every value right: from 9 down to 3.38", 1),
        "tile": ("loads of x: from 3.38 down to 2.25", 3),
    }
    is_mapped = False
    loads_of_element = 9
    uses_of_element = 18
    size = 64

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        sides, wide = 16 * random.integers(1, 4, 2), 16 * int(random.integers(5, 9))
        for rows, columns in ((32, 48), (16, wide), sides.tolist()):
            x = signed_numbers((rows + 2) * (columns + 2), random)
            push = {"rows": rows, "columns": columns}
            groups = -(-rows * columns // 1024)
            yield self.dispatch_case(
                {"x": x}, rows * columns, (groups,), push, f"{rows} rows, {columns} columns"
            )

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
        natural, full = (9, 3.38) if report.part == "row" else (3.38, 2.25)
        report.score(round(float(loads), 2), round(bound, 2), natural, "loads an element", full)


# ------------------------------------------------------------------------------------ predictions


@exercise(
    "04b-p1", hints=("Each axis is a division that rounds up. Which axis counts along a row?",)
)
class TwoAxes(Predict):
    explains = (
        "53 columns need 7 workgroups of 8, 37 rows need 5. That makes 35 workgroups: "
        "2240 invocations, of which 279 are idle."
    )

    def answers(self) -> dict[str, Any]:
        return {"across": 7, "down": 5}


@exercise(
    "04b-p2", hints=("Which is the last element that an invocation with a true guard writes?",)
)
class FourAtOnce(Predict):
    explains = (
        "4 divides 1000. With 1003 the last invocation that passes the guard starts "
        "at element 1000 and writes elements 1000 to 1003: the last one does not "
        "exist."
    )

    def answers(self) -> dict[str, Any]:
        return {"outside_1000": 0, "outside_1003": 1}


@exercise(
    "04b-p3",
    hints=("Divide each element's number by 8, rounding down: that is the number of its sector.",),
)
class Sectors(Predict):
    explains = (
        "The elements 432 to 439 of x are exactly one sector. In y the eight elements are "
        "37 apart, so each of them is in another sector."
    )

    def answers(self) -> dict[str, Any]:
        return {"x_sectors": 1, "y_sectors": 8}
