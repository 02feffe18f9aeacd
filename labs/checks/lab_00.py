"""Exercises of lab 00: pictures for a network, repairs, batches, a placement, and four bugs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from vklab.plan.memory import Lifetime, round_up
from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_00 import batches
from vklab_labs.lab_00.doctor import made_up
from vklab_labs.shared import offsets

INT = int | np.integer


@exercise(
    "00-1",
    hints=(
        "An integer array divided by a Python number is float64: NumPy chooses. A method of "
        "arrays gives the type that you choose; its name begins with as.",
        "The method is .astype(...); its result is an array of that type. Now count the axes: the "
        "input has three, and one of length 1 is missing.",
        "np.expand_dims(array, axis) adds an axis of length 1. Which position has the missing axis "
        "in [pictures, 1, 28, 28]? Positions count from 0.",
    ),
    variants=[
        {"white": 2**bits - 1, "third": (2**bits - 1) // 3, "bits": bits, "type": type_}
        for bits, type_ in ((8, "uint8"), (10, "uint16"), (12, "uint16"), (16, "uint16"))
    ],
)
class ToInput(Function):
    parts = {"range": ("the numbers are right, from 0 to 1", 1),
             "type": ("the type is float32", 1),
             "shape": ("the shape is [pictures, 1, 28, 28]", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        white, third, kind = (self.params[key] for key in ("white", "third", "type"))
        one = np.full((1, 28, 28), third, kind)
        yield Case(args=(one,), on=f"one picture, every pixel {third}")
        for count in (3, int(random.integers(4, 9))):
            pixels = random.integers(0, white * 4 // 5, (count, 28, 28)).astype(kind)
            yield Case(args=(pixels,), on=f"{count} pictures")
        yield Case(args=(np.ones((1, 28, 28), kind),), on="one picture, every pixel 1")
        pixels = random.integers(0, white + 1, (2, 28, 28)).astype(kind)
        pixels[0, :3], pixels[1, :3] = white, 0
        yield Case(args=(pixels,), on="2 pictures with black and white")

    def expected(self, case: Case) -> Any:
        return (case.args[0] / self.params["white"]).astype(np.float32)[:, np.newaxis]

    def compare(self, case: Case, got: Any, report: Report) -> None:
        wanted = case.expected
        report.kind(got, np.ndarray, f"an array, float32 of shape {wanted.shape}")
        report.expect(
            got.size == wanted.size and got.dtype.kind in "buif",
            f"expected {wanted.size} numbers, got {words.short(got)}",
        )
        if report.part == "type":
            report.expect(got.dtype == np.float32, f"expected dtype float32, got {got.dtype}")
        elif report.part == "shape":
            report.expect(
                got.shape == wanted.shape, f"expected shape {wanted.shape}, got {got.shape}"
            )
        else:
            brightest = got.size > 0 and abs(float(got.max()) - 1) < 1e-6
            report.close(
                got.astype(np.float64).reshape(wanted.shape),
                wanted.astype(np.float64),
                1e-6,
                0,
                f"white is {self.params['white']}, also where no pixel is white"
                if brightest
                else "",
            )


# Part, and the checks of a report as `made_up` reads them; A to D are lines that are drawn.
REPORTS = (
    ("none", "ok, ok"),
    ("none", "failed, failed A, ok, failed-minor"),
    ("none", "note B, failed-minor, ok-minor"),
    ("urgent", "failed-minor A, failed B, failed C"),
    ("urgent", "failed D, failed-minor C, failed A"),
    ("urgent", "failed-minor B, failed-minor A, failed C"),
    ("urgent", "failed-minor A, failed-minor B, failed D"),
    ("notes", "note D, note-minor A, failed-minor C, failed B"),
    ("notes", "note-minor C, failed A, note B, note-minor D"),
    ("once", "note B, failed A, failed-minor A, failed A, failed B"),
    ("once", "failed A-tools, note B, failed A, failed-minor D, failed B, note D-tools"),
    (
        "once",
        "failed-minor B, failed C, failed-minor A, note C, note D, failed-minor D, failed B, "
        "note python3, failed-minor vulkan",
    ),
    ("once", "failed apt install A, failed apt install B, note apt install A, note get A"),
)


@exercise(
    "00-2",
    hints=(
        "Write down, for the machine above, which lines come out, in which order. Then ask which "
        "rule put each line there.",
        "Go through the checks three times: for failures that are essential, for failures that are "
        "not, and for notes. Is it the same rule for every note, essential or not?",
        "A dictionary keeps the first of equal keys, in order: list(dict.fromkeys('abca')) is "
        "['a', 'b', 'c'].",
    ),
)
class RepairList(Function):
    parts = {"none": ("a check without a repair adds no line", 1),
             "urgent": ("failed and essential comes first, in the report's order", 1),
             "notes": ("notes come last, in the report's order", 1),
             "once": ("each line is listed once, where it is needed first", 1)}  # fmt: skip
    follows = {"notes": "urgent", "once": "none urgent"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        words = random.permutation(["loader", "driver", "slangc", "glslc", "layer", "python"])
        lines = str.maketrans(dict(zip("ABCD", map(str, words), strict=False)))
        reports = list(REPORTS)
        for _ in range(3):
            marks = random.choice(["ok", "note", "note-minor", "failed", "failed-minor"], 7)
            rows = (
                mark if mark == "ok" else f"{mark} {random.choice([*'ABCD'])}" for mark in marks
            )
            reports.append(("once", ", ".join(rows)))
        for part, text in reports:
            rows = text.translate(lines)
            minor = " (minor: not essential)" if "minor" in rows else ""
            yield Case(part, (made_up(rows),), on=f"checks: {rows}{minor}")

    def expected(self, case: Case) -> Any:
        checks = case.args[0].checks
        ranked = sorted(checks, key=lambda one: 2 if one.ok else 0 if one.essential else 1)
        return list(dict.fromkeys(one.repair for one in ranked if one.repair))


FIRST = 1 << 32  # weight of the first of two costs in one number


def least(pictures: int, sizes: Sequence[int], run: int, then: int = 0) -> tuple[int, int]:
    """Return the least cost and, of the choices that have it, the least with the price `then`."""
    steps = [(size, (size + run) * FIRST + size + then) for size in sizes]
    best = [0] * max(sizes)  # the last is for 0 pictures; one more number for each further picture
    for _ in range(pictures):
        best.append(min([best[-size] + step for size, step in steps]))
    return divmod(best[-1], FIRST)


def drawn(
    random: np.random.Generator,
    run: int,
    other: int,
    some: tuple[int, int] = (100, 200),
    count: int = 4,
    kinds: int = 1,
    runs: int = 1,
) -> tuple[int, list[int]]:
    """Draw a case that no obvious choice solves, nor the best choice at another price.

    The best choice of two sizes is better than the obvious ones. The least cost needs more than
    `kinds` different sizes of `count`, and at least `runs` runs.
    """
    while True:
        sizes = random.choice(np.arange(5, 65), count, replace=False).tolist()
        pictures = int(random.integers(*some))
        obvious = batches.obvious_cost(pictures, sizes, run)
        if obvious - pictures - run * -(-pictures // max(sizes)) < 4:
            continue  # no choice can be so much cheaper
        cost, dearer = least(pictures, sizes, run, run + 1)  # it is dearer by 1 for each run
        if (
            dearer - cost >= runs
            and obvious - cost >= 4
            and (other == run or least(pictures, sizes, other, run)[1] > cost)
            and (
                kinds == 1  # one size only is an obvious choice
                or all(least(pictures, few, run)[0] > cost for few in combinations(sizes, kinds))
            )
            and any(least(pictures, two, run)[0] < obvious for two in combinations(sizes, 2))
        ):
            return pictures, sizes


@exercise(
    "00-3",
    hints=(
        "Begin with a list that is valid: any one size, repeated. Then see how the picture changes "
        "when one run has another size.",
        "The best choice for 40 pictures begins with some size. What remains after that run is the "
        "same question with fewer pictures.",
        "Answer the question for 1 picture, then for 2, and so on, and keep the cost and the list "
        "of each. Each answer needs one step from earlier answers, for each size.",
    ),
    extra=True,
)
class ChooseBatches(Function):
    parts = {
        "valid": ("every picture is read, in sizes that exist, with no run too many", 1),
        "cost": ("the cost, between the obvious choices (0) and the least (all)", 4),
    }
    seconds = 20.0

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def case(part: str, pictures: int, sizes: list[int], run: int) -> Case:
            asked = pictures, sizes, run
            return Case(
                part,
                asked,
                on=f"{pictures} pictures, sizes {sizes}, run={run}",
                facts={"natural": batches.obvious_cost(*asked)},
            )

        for pictures, sizes in ((17, [16, 32]), (16, [16, 32]), (1, [8]), (0, [4, 8])):
            yield case("valid", pictures, sizes, 6)
        for run, other in ((6, 1), (1, 20), (20, 1), (2, 4), (20, 6), (1, 2), (45, 6)):
            yield case("", *drawn(random, run, other), run)
        yield case("", *drawn(random, 6, 1, (40, 100)), 6)
        yield case("", 180, [55, 40, 6, 57], 45)  # the best has more empty rows than 6
        yield case("", *drawn(random, 2, 2, count=6, kinds=3), 2)
        yield case("", *drawn(random, 1, 20, (300, 400), count=5, kinds=2, runs=9), 1)

    def expected(self, case: Case) -> Any:
        return least(*case.args)[0]

    def compare(self, case: Case, got: Any, report: Report) -> None:
        pictures, sizes, run = case.args
        report.kind(got, list | tuple, "a list of sizes")
        report.expect(len(got) <= pictures, f"{len(got)} runs for {pictures} pictures")
        for one in got:
            report.kind(one, INT, "sizes of type int")
            report.expect(one in sizes, f"{one} is none of the sizes {sizes}")
        got = [int(one) for one in got]  # NumPy's small integers would overflow
        total = sum(got)
        report.expect(total >= pictures, f"only {total} of {pictures} pictures are read")
        for one in got:
            report.expect(
                total - one < pictures, f"the list has {total} rows: a run of {one} is not needed"
            )
        if report.part == "cost":
            report.score(
                total + run * len(got), case.expected, case.facts["natural"], "units of cost"
            )


@exercise(
    "00-4",
    hints=(
        "Visit the lifetimes in order and keep one number: the first byte that is still free.",
        "The value gets that number as its offset; then the number grows. By how much, so that the "
        "next offset is a multiple of 256 again? first and last play no part.",
        "vklab.plan.memory.round_up does the rounding. What is the free byte after the last value?",
    ),
    seams=[
        f"vklab.plan.memory.{name}"
        for name in ("assign_offsets", "_sweep", "pack", "_place", "_search")
    ],
    builds=offsets.ONE_AFTER_THE_OTHER,
    extra=True,
)
class OneAfterTheOther(Function):
    parts = {
        "aligned": ("every value has an offset that is a multiple of 256", 1),
        "apart": ("no two values share a byte, whenever they are alive", 1),
        "total": ("the total is the bytes of all, each rounded up, and no more", 2),
    }
    follows = {"total": "aligned apart"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        drawn = random.integers(1, 5000, 6).tolist()
        for sizes in ((256, 256, 256), (100, 256, 257), (1000, 4, 2560, 30), drawn):
            # No two are alive at one step: a placement by lifetimes would put all of them at 0.
            lives = tuple(Lifetime(f"v{n}", int(size), n, n) for n, size in enumerate(sizes))
            yield Case(args=(lives, True), on=f"sizes {', '.join(map(str, sizes))}")
        yield Case("total", ((), True), on="no values")
        empty = tuple(Lifetime(f"v{n}", size, n, n) for n, size in enumerate((300, 0, 0, 20)))
        yield Case("total", (empty, True), on="sizes 300, 0, 0, 20")
        some = tuple(
            Lifetime(name, size, first, last, 64)
            for name, size, first, last in (
                ("x1", 300, 3, 3),
                ("image", (5 << 30) + 1, 0, 0),
                ("w", 1, 3, 5),
                ("a", 256, 0, 2),
                ("x10", 70000, 1, 1),
            )
        )
        some += tuple(Lifetime(f"n{k}", 7 * k + 1, k + 20, k + 20) for k in range(9))
        yield Case(args=(some, True), on="14 values in no order of time, one of 5 GiB")
        yield Case(args=(some, False), on="the same 14 values, with aliasing=False")
        yield Case(args=(some,), on="the same 14 values, without the argument `aliasing`")

    def expected(self, case: Case) -> Any:
        return sum(round_up(life.size_bytes) for life in case.args[0])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        lives = case.args[0]
        report.kind(got, tuple | list, "two things, (offsets, total)")
        report.expect(len(got) == 2, f"expected (offsets, total), got {len(got)} things")
        offsets, total = got
        report.kind(offsets, dict, "a dict from name to offset as offsets")
        report.kind(total, INT, "an int as total")
        report.equal(
            sorted(map(str, offsets)),
            sorted(life.name for life in lives),
            "the names that have an offset",
        )
        for life in lives:
            report.kind(offsets[life.name], INT, f"an int as offset of {life.name}")
        spans = sorted((int(offsets[life.name]), life.size_bytes, life.name) for life in lives)
        if report.part == "aligned":
            for start, _, name in spans:
                report.expect(
                    start >= 0 and start % 256 == 0,
                    f"expected a multiple of 256, from 0 on, got {start} for {name}",
                )
        elif report.part == "apart":
            for (start, size, name), (other, more, second) in pairwise(spans):
                report.expect(
                    start + size <= other,
                    f"{name} has bytes {start} to {start + size}, "
                    f"{second} has {other} to {other + more}: they share some",
                )
        else:
            report.equal(total, case.expected, "the total")
            for start, size, name in spans:
                report.expect(
                    start + size <= total,
                    f"{name} ends at {start + size}, behind the total {total}",
                )


# By list: the fact that decides it, and the reason of the right answer.
WHY = {
    "A": (
        "In the training pictures black is 0. Print x.min() after each line.",
        "Without its mean, a picture has its black below 0. The network was trained with black at "
        "0: the numbers are only a little wrong, and so are the answers.",
    ),
    "B": (
        "The network expects pixels from 0 to 1, and clip cuts off everything above 1. Print "
        "x.max() after each line.",
        "The second division leaves pixels below 0.004, so the network hardly sees its input. The "
        "first one must stay: clip expects pixels from 0 to 1.",
    ),
    "C": (
        "Shape, dtype and range are all as they should be. Draw a picture after each line: is its "
        "digit still upright?",
        "swapaxes(1, 2) exchanges rows and columns of each picture. The network sees a mirrored "
        "digit that lies on its side, and misreads it.",
    ),
    "D": (
        "Photos and training pictures are both white on black. Print a pixel of a corner after "
        "each line.",
        "255 - x makes the pictures black on white. The network was trained on white on black.",
    ),
}


@exercise(
    "00-5",
    hints=(
        "Copy one list of lines: leave out one line, and run it again. Is it as good as the "
        "network can be?",
        "Print x.min(), x.max() and x.shape after each line. Which line makes something that the "
        "network was not trained on? Draw some: digits.draw_digits(x[:3], labels[:3], labels[:3], "
        "'').",
    ),
)
class LineTooMany(Choice):
    parts = {"all": ("the line to delete in each list", 3)}

    def questions(self) -> dict[str, Question]:
        right = {"A": 3, "B": 4, "C": 1, "D": 2}
        return {name: Question(line, (1, 2, 3, 4), *WHY[name]) for name, line in right.items()}


@exercise("00-p1", hints=("Every driver reports the devices that it can drive.",))
class HowManyDevices(Predict):
    right = {"devices": 3}
    explains = (
        "Each of the two GPUs has a driver, and lavapipe reports the processor as a third "
        "device. The loader lists the devices of all drivers. If two drivers know the "
        "same GPU, that GPU is even listed twice."
    )


@exercise("00-p2", hints=("Look for FAILED, and skip what is not essential.",))
class HowManyRepairs(Predict):
    right = {"lines": 2}
    explains = (
        "Three checks name the same line, which installs the loader; the check of the "
        "drivers names another. (apt often installs both at once; the doctor does not rely "
        "on that.) The GLSL compiler is not essential, and the validation layer is a note: "
        "both can wait."
    )


@exercise("00-p3", hints=("It was trained on 1,438 other pictures.",))
class HowManyOfTen(Predict):
    right = {"right": 9}
    explains = (
        "The 5 is read as a 9. Look at the picture below before you blame the network: "
        "would you have read it right? Of all 359 pictures that were kept aside, the "
        "network reads 354 right."
    )


@exercise("00-p4", hints=("Which nodes could one kernel do together?",))
class HowManyDispatches(Predict):
    right = {"dispatches": 6}
    explains = (
        "Each Relu is fused into the Conv or Gemm before it, which saves three dispatches. "
        "Flatten needs no kernel. 10 - 3 - 1 = 6. The switch VKLAB_DISABLE_FUSION=1 turns "
        "fusion off; then there are 9 dispatches."
    )


@exercise("00-p5", hints=("Does a sum depend on where its terms are stored?",))
class SameLogits(Predict):
    right = {"same": True}
    explains = (
        "The position of a value in memory does not change the value. The kernels do the "
        "same arithmetic in the same order."
    )


@exercise("00-p6", hints=("A workgroup is 8 pixels wide.",))
class HowManyWorkgroups(Predict):
    right = {"workgroups": 40}
    explains = (
        "320 / 8 = 40 side by side, and 200 / 8 = 25 below each other: 1,000 workgroups. A driver "
        "may run them in any order, and many at once. Run the next cell and look at them."
    )
