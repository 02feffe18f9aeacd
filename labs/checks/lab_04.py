"""Exercises of lab 04: two kernels, and the grid of a dispatch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.children.kernel_answers import Kernel
from vklab_course.children.kernel_cases import (
    INSIDE,
    SHAPE,
    VALUES,
    odd_count,
    rooms,
    signed_numbers,
)
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_04.operator_pieces import ADD


@exercise(
    "04-1",
    hints=(
        "Each invocation handles one element: which number tells the invocations apart?",
        "id.x runs over all workgroups: 0 to 64 * workgroups - 1. Some of these numbers are too "
        "large.",
        "Everything that touches x or y belongs under one condition: which one?",
    ),
    variants=({"low": "0.0"}, {"low": "0.5"}, {"low": "-0.25"}, {"low": "2.0"}),
)
class SquaredMax(Kernel):
    parts = {"values": VALUES, "inside": INSIDE, "shape": SHAPE}
    size = 64
    atol = 0.0

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        low = float(self.params["low"])
        near = np.array(
            [0, low, -low, low / 2, low - 0.1, low + 0.1, 0.125, -0.125, 5.5, 300, -300, 1e6, -1e6],
            np.float32,
        )
        many = 4096 + odd_count(random, 64)
        for count, groups in ((1, 1), (64, 2), (67, 2), (many, 80), (0, 1)):
            x = signed_numbers(count, random)
            x[8 : 8 + near.size] = near[: max(0, count - 8)]
            yield self.dispatch_case(
                {"x": x},
                count,
                (groups,),
                {"count": count},
                f"count={count}",
                room=rooms(random) if count in (0, many) else 0,
            )

    def expected(self, case: Case) -> Any:
        return np.maximum(case.args[0]["x"], np.float32(self.params["low"])) ** 2


@exercise(
    "04-2",
    hints=(
        "The struct lists what the host pushes, in its order: a type and a name for each number.",
        "The first member has the bytes 0 to 3, the second the bytes 4 to 7. Which of the two "
        "numbers "
        "has which bytes in the picture?",
        "In main: the number of the invocation, the guard, and one assignment.",
    ),
    builds=ADD,
)
class ScaledSum(Kernel):
    parts = {"types": ("the struct has the types and places that the host pushes", 1),
             "values": VALUES, "inside": INSIDE, "shape": SHAPE}  # fmt: skip
    pushed = {"count": ("uint", 0), "scale": ("float", 4)}
    size = 64

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        drawn = float(np.float32(random.uniform(2, 9)))
        many = 4096 + odd_count(random, 64)
        for count, groups, scale in (
            (64, 1, 1.0),
            (67, 2, -0.5),
            (many, 80, drawn),
            (1, 1, 0.0),
            (0, 1, drawn),
        ):
            a, b = signed_numbers(count, random), signed_numbers(count, random)[::-1]
            b = np.float32(1.9) * b
            yield self.dispatch_case(
                {"a": a, "b": b},
                count,
                (groups,),
                {"count": count, "scale": scale},
                f"count={count}, scale={scale:g}",
                room=rooms(random) if count in (0, many) else 0,
            )

    def expected(self, case: Case) -> Any:
        arrays, _, push = case.args
        return np.float32(push["scale"]) * arrays["a"] + arrays["b"]


@exercise(
    "04-3",
    hints=(
        "Start with one row: how many workgroups cover 65 elements at size 64? And 64? And none?",
        "Python's // rounds down. Which number, added before the division, makes it round up?",
        "Above the limit x is the length of a row, and y the number of rows, rounded up as well: "
        "the "
        "last row may be only partly needed, and the kernel's guard takes care of the rest.",
    ),
    variants=(
        {"limit": 65535, "row": 32768},
        {"limit": 65535, "row": 16384},
        {"limit": 32767, "row": 8192},
        {"limit": 49151, "row": 4096},
    ),
    seams=("vklab.ops.registry.grid",),
)
class Workgroups(Function):
    parts = {
        "row": ("one row: enough workgroups, and not one too many", 2),
        "rows": ("near the limit and above it: rows along y", 2),
    }
    follows = {"rows": "row"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        limit, row = self.params["limit"], self.params["row"]
        for count, size in (
            (1000, 64),
            (1024, 64),
            (1025, 64),
            (1, 64),
            (0, 64),
            (7, 1),
            *random.integers(1, 1025, (3, 2)).tolist(),
        ):
            yield Case("row", (count, size))
        yield Case("row", (1000,), on="workgroups(1000), without a size")
        some = [
            limit,
            limit + 1,
            row * (limit // row + 2),
            row * (limit // row + 2) + 1,
            *random.integers(limit + 1, 40 * row, 3).tolist(),
        ]
        for groups in some:
            on = f"count={groups * 64} (that is {groups} workgroups of 64)"
            yield Case("rows", (groups * 64, 64), on=on)
        many = row * max(40, limit // row + 2)
        for count, size in (
            (limit * 64 + 1, 64),
            (many * 64 + 1, 64),
            (many * 96 + 1, 96),
            (many * 256 + 1, 256),
            (limit * 256, 256),
            (row * 1000 * 64 + 1, 64),
        ):
            yield Case("rows", (count, size))

    def expected(self, case: Case) -> Any:
        count, size = (*case.args, 64)[:2]
        groups = (count + size - 1) // size
        if groups <= self.params["limit"]:
            return groups, 1, 1
        return self.params["row"], (groups + self.params["row"] - 1) // self.params["row"], 1

    def compare(self, case: Case, got: Any, report: Report) -> None:
        """Expect this grid as ints: a dispatch takes no other type."""
        report.expect(
            isinstance(got, tuple | list) and len(got) == 3,
            f"expected {case.expected}: three ints in a tuple, got {words.short(got)}",
        )
        for number in got:
            report.expect(
                isinstance(number, int | np.integer) and not isinstance(number, bool),
                f"expected ints, got the {type(number).__name__} {number!r} "
                "(np.ceil and / make floats)",
            )
        report.equal(tuple(int(number) for number in got), case.expected)


# ------------------------------------------------------------------------------------ predictions


@exercise("04-p1", hints=("15 workgroups have 960 invocations. Is that enough?",))
class IdleInvocations(Predict):
    explains = (
        "15 workgroups cover 960 elements, 16 cover 1024. So 1024 invocations run, "
        "and the last 24 have no element: they are why the kernel asks whether i "
        "is below params.count."
    )

    def answers(self) -> dict[str, Any]:
        return {"workgroups": 16, "invocations": 1024, "idle": 24}


@exercise("04-p3", hints=("Which of the two texts is no correct Slang?",))
class WhatIsNamed(Predict):
    options = dict.fromkeys(("misspelt", "unused"), ("ran", "compile_error"))
    explains = (
        "The compiler names the line of the misspelt word. The kernel that never "
        "reads x is correct Slang, and runs; the message tells that x is gone."
    )

    def answers(self) -> dict[str, Any]:
        return {"misspelt": "compile_error", "unused": "ran"}


@exercise(
    "04-p4",
    hints=("What does // do to 1000 / 256? And how many invocations run in four workgroups?",),
)
class RoundedDown(Predict):
    explains = (
        "1000 // 256 is 3, so 768 elements are written and 232 are not. With 4 "
        "workgroups 1024 invocations write; without a guard 24 of them write behind "
        "the end."
    )

    def answers(self) -> dict[str, Any]:
        return {"written": 768, "outside_when_rounded_up": 24}


@exercise(
    "04-p5", hints=("Which four bytes does each member read, and what did the host write there?",)
)
class ExchangedMembers(Predict):
    options = {
        "scale": ("0.5", "1000", "almost 0"),
        "count": ("0", "1000", "about a billion"),
    }
    explains = (
        "scale reads the bytes of the uint 1000: as a float they are 1.4e-42, so close to "
        "0 that some GPUs compute with 0 instead. count reads "
        "the bytes of the float 0.5: as a uint they are 1056964608."
    )

    def answers(self) -> dict[str, Any]:
        return {"scale": "almost 0", "count": "about a billion"}
