"""Exercises of lab 07: a tree, lanes that wait, subgroups of any width, and a stable softmax."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vklab_course.children.kernel_answers import Kernel
from vklab_course.children.kernel_cases import INSIDE, VALUES, signed_numbers
from vklab_course.counting import shapes
from vklab_course.counting.observe import Observed
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_07.softmax_piece import SOFTMAX


@exercise(
    "07-1",
    hints=(
        "Two trees at the same time: one keeps the smaller, one the larger of two values. They can "
        "share the barriers.",
        "An invocation without an element must not change the result. With which number does min "
        "keep "
        "every other one, and with which does max?",
        "Begin with step = half of the workgroup. Invocation n takes the values at n + step, if n "
        "is "
        "smaller than step. All invocations go through the same loop and meet at its barrier.",
    ),
    variants=({"size": 64}, {"size": 128}, {"size": 256}, {"size": 32}),
)
class Spread(Kernel):
    parts = {"values": VALUES, "inside": INSIDE,
             "tree": ("few shared loads for each invocation, few barriers", 2),
             "races": ("right in any order of the invocations", 1)}  # fmt: skip
    follows = {"values": "inside races"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        size = self.params["size"]
        for count, sign in (
            (size, 0),
            (4 * size - size // 3, 0),
            (3 * size + 1, 1),
            (2 * size - 1, -1),
            (int(random.integers(size, 6 * size)), 0),
        ):
            x = signed_numbers(count, random)
            x = np.float32(2e38) * sign * (1 + np.abs(x) / 8) if sign else 30 * x
            groups = -(-count // size)
            words = {0: "", 1: ", all elements above 2e38", -1: ", all below -2e38"}[sign]
            yield self.dispatch_case(
                {"x": x},
                groups,
                (groups,),
                {"count": count},
                f"count={count}{words}",
                room=0 if count == size else 3,
            )

    def expected(self, case: Case) -> Any:
        arrays, _, push = case.args
        x, starts = arrays["x"][: push["count"]], range(0, push["count"], self.params["size"])
        return np.maximum.reduceat(x, starts) - np.minimum.reduceat(x, starts)

    def _tree(self, case: Case, got: Observed, report: Report) -> None:
        self._values(case, got, report)
        report.expect(
            "mirrored" in got.dispatches,
            "the kernel has subgroup operations, and they "
            "depend on the width; here everything goes through shared memory",
        )
        size, by = self.params["size"], got.counts.by_invocation
        report.expect(
            np.prod(got.counts.local) == size,
            f"a workgroup has {got.counts.local} invocations; asked were {size}",
        )
        said = shapes.load_shape(got, self.name_in(got, "x"), most=2, most_elements=1)
        report.expect(not said, f"{said}; the others come from shared memory")
        steps = size.bit_length() - 1
        most, worst = 4 * steps + 8, by["shared_loads"].max()
        report.expect(
            worst <= most,
            f"an invocation made {worst} loads from shared memory; a tree "
            f"of {size} values has {steps} steps, so {most} are enough",
        )
        groups = int(np.prod(got.counts.grid))
        every, enough = by["shared_loads"].sum() // groups, 5 * size
        report.expect(
            every <= enough,
            f"a workgroup made {every} loads from shared memory; each "
            f"step keeps half as many invocations busy, so {enough} are enough",
        )
        barriers = by["barriers"].max()
        report.expect(barriers <= steps + 2, f"{barriers} barriers; {steps} steps need {steps + 1}")

    def _races(self, case: Case, got: Observed, report: Report) -> None:
        for said in (
            shapes.race_shape(got),
            shapes.barrier_shape(got),
            shapes.order_matters(got, [self.name_in(got, "y")]),
            shapes.work_shape(got, self.name_in(got, "y")),
            shapes.input_shape(got, self.name_in(got, "y")),
            shapes.partial_shape(
                got, self.name_in(got, "y"), owner=lambda elements: elements * self.params["size"]
            ),
        ):
            report.expect(not said, said)
        self._values(case, got, report)


# ------------------------------------------------------------------------------- any width


# By kernel: the fact that decides it, and the reason of the right answer.
WHY = {
    "A": (
        "`WaveActiveSum` adds over one subgroup, and only invocation 0 stores its sum.",
        "The sum of one subgroup is that of the workgroup only if the subgroup holds all 64 "
        "invocations.",
    ),
    "B": (
        "The first lane of each subgroup adds one sum to `total`, and all pass the barrier before "
        "`total` is read.",
        "Each subgroup adds its sum exactly once, however many subgroups there are. Behind the "
        "barrier `total` is complete.",
    ),
    "C": (
        "The invocations 0, [[width]], 2 · [[width]] ... store the sums of their subgroups. Count "
        "the subgroups at the next smaller and at the next larger width.",
        "At width [[width]] each entry of `part` is the sum of another subgroup. If subgroups are "
        "smaller, sums are left out; if they are larger, a sum counts more than once.",
    ),
    "D": (
        "In the last steps, a lane reads what another lane has written in the step before, and no "
        "barrier stands between.",
        "Vulkan never promises that the lanes of a subgroup run in step, so a lane may read too "
        "early. A barrier in each step would make it right.",
    ),
    "E": (
        "All 64 invocations pass a barrier before each step, and no line uses a subgroup "
        "operation.",
        "The barriers order the steps, and in a step no lane reads what another one writes. The "
        "width plays no part.",
    ),
    "F": (
        "Some values may be 0, and their lanes do not enter the block. Lane 0 can be one of them.",
        "If lane 0 of a subgroup has the value 0, nobody adds the sum of that subgroup. "
        "`WaveIsFirstLane()` would choose a lane that is active.",
    ),
}


@exercise(
    "07-2",
    hints=(
        "A workgroup has 64 invocations. With a subgroup size of 8 it has eight subgroups: what "
        "does "
        "each line do in each of them?",
        "WaveActiveSum adds over one subgroup. How many subgroups has a workgroup of 64 at 4, 8, "
        "16, "
        "32, 64 lanes, and where do their sums meet?",
        "Vulkan does not promise that the lanes of a subgroup run in step, at any width.",
    ),
    variants=({"width": 32}, {"width": 16}, {"width": 8}, {"width": 4}),
)
class AnyWidth(Choice):
    parts = {"all": ("every question", 4)}

    def questions(self) -> Mapping[str, Question]:
        options = (
            "at every width",
            f"at width {self.params['width']} only",
            "at width 64 or more only",
            "not promised at any width",
        )
        right = {"A": 2, "B": 0, "C": 1, "D": 3, "E": 0, "F": 3}
        return {
            name: Question(options[number], options, *map(self.render, WHY[name]))
            for name, number in right.items()
        }


# ------------------------------------------------------------------------------- divergence


@exercise(
    "07-3",
    hints=(
        "Cut the list into subgroups first. What does a subgroup with the turns 3, 1, 0, 2 cost?",
        "A subgroup goes round until its slowest lane has finished; in each turn all its lanes are "
        "occupied, active or not.",
        "The last subgroup may have fewer invocations; its missing lanes are occupied, too.",
    ),
)
class LaneTurns(Function):
    parts = {
        "full": ("subgroups without a missing lane", 2),
        "rest": ("a last subgroup with missing lanes", 1),
    }
    follows = {"rest": "full"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield Case("full", ([3, 1, 0, 2], 4))
        yield Case("full", ([3, 1, 0, 2], 2))
        yield Case("full", ([0, 0, 7, 7], 2))
        yield Case("full", ([], 4))
        yield Case("rest", ([3, 1, 5], 2))
        yield Case("rest", ([2], 64))
        yield Case("rest", ([0, 0, 0], 2))
        for width in (4, 8, 16, 32, 64):
            turns = random.integers(0, 30, 64).tolist()
            yield Case("full", (turns, width), on=f"64 invocations, width={width}")
            count = int(64 + random.integers(1, width))
            turns = random.integers(0, 30, count).tolist()
            yield Case("rest", (turns, width), on=f"{count} invocations, width={width}")

    def expected(self, case: Case) -> Any:
        turns, width = case.args
        full = np.zeros(-(-len(turns) // width) * width, int)
        full[: len(turns)] = turns
        return int(full.sum()), int(width * full.reshape(-1, width).max(axis=1).sum())


# ------------------------------------------------------------------------------- softmax


@exercise(
    "07-4",
    hints=(
        "The larger of the two largest logits is the new one. By which factor does a sum change "
        "when "
        "its largest logit changes from a.x to that?",
        "exp(old - new) is that factor: never above 1, so nothing overflows. One of the two "
        "factors is "
        "exactly 1.",
        "A single logit is a pair, too: it is its own largest, and its sum is exp(0).",
    ),
    builds=SOFTMAX,
)
class Softmax(Kernel):
    parts = {"values": ("usual logits", 1),
             "large": ("large logits of both signs, and masked ones", 2),
             "loads": ("each logit is loaded twice at most, in equal shares", 2)}  # fmt: skip
    loads_of_element = 2

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part, rows, columns, scale in (
            ("values", 3, 200, 8),
            ("values", 5, 64, 3),
            ("values", 2, 37, 1),
            ("large", 2, 130, 10_000),
            ("large", 3, 70, 100),
            ("large", 1, 9, 1000),
            ("large", 2, 300, -1),
            ("loads", 2, 1000, 1),
            ("loads", 3, 65, 50),
            ("loads", 1, int(random.integers(200, 900)), 10),
        ):
            x = (abs(scale) * random.uniform(-1, 1, rows * columns)).astype(np.float32)
            words = f"{rows} rows of {columns} logits, up to {abs(scale)}"
            if scale < 0:
                x[random.random(x.size) < 0.6] = -np.inf
                x[::columns] = 0.5
                words = f"{rows} rows of {columns} logits, most of them -infinity"
            if part == "large" and scale == 100:  # the largest logit comes last, and is negative
                far = np.float32([[1e6], [1e12], [1e37]])
                x = np.sort(x.reshape(rows, columns) - far, axis=1).reshape(-1)
                words = f"{rows} rows of {columns} rising logits, all below -999,000"
            case = self.dispatch_case({"x": x}, x.size, (rows,), {"columns": columns}, words)
            yield Case(part, case.args, on=case.on, facts=case.facts)

    def expected(self, case: Case) -> Any:
        x = case.args[0]["x"].reshape(case.args[1][0], -1).astype(np.float64)
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return (e / e.sum(axis=1, keepdims=True)).astype(np.float32).reshape(-1)

    def _values(self, case: Case, got: Observed, report: Report) -> None:
        report.expect(not shapes.outside_shape(got), shapes.outside_shape(got))
        y, columns = self.name_in(got, "y"), case.args[2]["columns"]
        for said in (shapes.race_shape(got), shapes.barrier_shape(got)):
            report.expect(not said, said)  # first: the values of a race differ from run to run
        values = got.buffers[y].reshape(-1, columns)
        report.close(values, case.expected.reshape(-1, columns), 1e-4, 1e-7)
        each = -(-columns // 64)
        for said in (
            shapes.work_shape(got, y, elements_per_invocation=each),
            shapes.input_shape(got, y),
            shapes.order_matters(got, [y], relative=1e-3),
            shapes.partial_shape(got, y, owner=lambda at: at // columns * 64),
        ):
            report.expect(not said, said)

    _large = _values

    def _loads(self, case: Case, got: Observed, report: Report) -> None:
        self._values(case, got, report)
        x, share = self.name_in(got, "x"), 2 * -(-case.args[2]["columns"] // 64)
        often = int(got.counts.reads[x].max())
        report.expect(
            often <= 2,
            f"an element of x was loaded {often} times, asked were 2 at "
            "most: find the largest logit and the sum in the same pass",
        )
        most = int(got.counts.elements_read[x].max())
        report.expect(
            most <= share,
            f"an invocation made {most} loads from x; if all 64 share "
            f"both passes, {share} are enough",
        )


# ------------------------------------------------------------------------------- predictions


@exercise("07-p1", hints=("256, 128, 64 ... 1: how many halvings is that?",))
class Steps(Predict):
    explains = (
        "256 is halved 8 times until one value is left, and each step combines all pairs "
        "at once. Tree and serial loop both make 255 combinations; in the tree few of them "
        "wait for each other."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"tree_steps": 8, "combinations": 255}


@exercise("07-p2", hints=("float32 ends near 3.4e38. How large is exp(100)?",))
class Overflow(Predict):
    explains = (
        "exp(100) is 2.7e43, above the largest float32, so it becomes infinity, and "
        "infinity / infinity is NaN. exp(88) still fits. Subtracting the largest logit "
        "changes no quotient, and no exponent is above 0 then."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"logit_88_finite": True, "logit_100_finite": False}


@exercise("07-p3", hints=("Which invocation writes the element that invocation 0 reads?",))
class HiddenRace(Predict):
    explains = (
        "In plain order, invocation 0 reads before its neighbour writes: every run is "
        "right, and no test of values can see the fault. In mirrored order the neighbour "
        "writes first. The counters see that nothing orders the two accesses."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"plain_right": True, "mirrored_right": False, "race_seen": True}
