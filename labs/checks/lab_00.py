"""Exercises of lab 00: pictures for a network, repairs, batches, a placement, and four bugs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from vklab.course import words
from vklab.course.definition.case import Case
from vklab.course.definition.codec import Opaque
from vklab.course.definition.exercise import Function, exercise
from vklab.course.definition.kinds import Choice, Predict
from vklab.course.definition.report import Report
from vklab.doctor import Check
from vklab.doctor import Report as Doctor
from vklab.plan.memory import Lifetime, round_up


def _kind(value: Any) -> str:
    if value is None:
        return "None (is a return missing?)"
    name = value.type if isinstance(value, Opaque) else type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


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
    variants=tuple({"white": 2**bits - 1, "third": (2**bits - 1) // 3, "bits": bits,
                    "type": "uint8" if bits == 8 else "uint16"} for bits in (8, 10, 12, 16)),
)  # fmt: skip
class ToInput(Function):
    parts = {"range": ("the numbers run from 0 to 1", 1),
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
        report.expect(isinstance(got, np.ndarray),
                      f"expected an array, float32 of shape {wanted.shape}, got {_kind(got)}")
        report.expect(got.size == wanted.size and got.dtype.kind in "buif",
                      f"expected {wanted.size} numbers, got {words.short(got)}")
        if report.part == "type":
            report.expect(got.dtype == np.float32, f"expected dtype float32, got {got.dtype}")
        elif report.part == "shape":
            report.expect(got.shape == wanted.shape,
                          f"expected shape {wanted.shape}, got {got.shape}")
        else:
            brightest = got.size > 0 and abs(float(got.max()) - 1) < 1e-6
            report.close(got.astype(np.float64).reshape(wanted.shape), wanted.astype(np.float64),
                         rtol=1e-5, hint=f"white is {self.params['white']}, also where no pixel is "
                                         "white" if brightest else "")  # fmt: skip


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

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def case(part: str, *rows: str) -> Case:
            return Case(part, (Doctor(tuple(_check(row) for row in rows)),),
                        on=f"checks: {', '.join(rows)}")  # fmt: skip

        one, two, three, four = (str(line) for line in random.permutation(
            ["loader", "driver", "slangc", "glslc", "layer", "python"])[:4])  # fmt: skip
        yield case("none", "ok", "ok")
        yield case("none", "failed", f"failed {one}", "ok", "failed-minor")
        yield case("none", f"note {two}", "failed-minor", "ok-minor")
        yield case("urgent", f"failed-minor {one}", f"failed {two}", f"failed {three}")
        yield case("urgent", f"failed {four}", f"failed-minor {three}", f"failed {one}")
        yield case("notes", f"note {four}", f"note-minor {one}", f"failed-minor {three}",
                   f"failed {two}")  # fmt: skip
        yield case("notes", f"note-minor {three}", f"failed {one}", f"note {two}",
                   f"note-minor {four}")  # fmt: skip
        yield case("once", f"note {two}", f"failed {one}", f"failed-minor {one}", f"failed {one}",
                   f"failed {two}")  # fmt: skip
        yield case("once", f"failed {one}-tools", f"note {two}", f"failed {one}",
                   f"failed-minor {four}", f"failed {two}", f"note {four}-tools")  # fmt: skip
        yield case("once", f"failed-minor {two}", f"failed {three}", f"failed-minor {one}",
                   f"note {three}", f"note {four}", f"failed-minor {four}", f"failed {two}",
                   "note python3", "failed-minor vulkan")  # fmt: skip
        yield case("once", f"failed apt install {one}", f"failed apt install {two}",
                   f"note apt install {one}")  # fmt: skip
        yield case("urgent", f"failed-minor {two}", f"failed-minor {one}", f"failed {three}")
        yield case("urgent", f"failed-minor {one}", f"failed-minor {two}", f"failed {four}")
        for _ in range(3):
            marks = random.choice(["ok", "note", "note-minor", "failed", "failed-minor"], 7)
            lines = random.choice([one, two, three, four], 7)
            yield case("once", *(mark if mark == "ok" else f"{mark} {line}"
                                 for mark, line in zip(marks, lines, strict=True)))  # fmt: skip

    def expected(self, case: Case) -> Any:
        checks = case.args[0].checks
        ranked = sorted(checks, key=lambda one: 2 if one.ok else 0 if one.essential else 1)
        return list(dict.fromkeys(one.repair for one in ranked if one.repair))


def _check(row: str) -> Check:
    """Return the check that a row describes: mark, `-minor` if not essential, and a line."""
    mark, _, line = row.partition(" ")
    return Check(f"a check: {mark}", not mark.startswith("failed"), "", line,
                 essential=not mark.endswith("-minor"))  # fmt: skip


def totals(pictures: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield for 1, 2, ... runs the least number of rows that reads every picture."""
    sums, runs = 1, 0  # bit n of `sums`: some choice of `runs` sizes has n rows
    while runs * min(sizes) < pictures:
        sums, runs = sum_of_shifts(sums, sizes), runs + 1
        enough = sums >> pictures
        if enough:
            yield runs, pictures + (enough & -enough).bit_length() - 1


def sum_of_shifts(sums: int, sizes: Sequence[int]) -> int:
    """Return the sums that one more run reaches, as bits."""
    reached = 0
    for size in sizes:
        reached |= sums << size
    return reached


def least_cost(pictures: int, sizes: Sequence[int], run: int) -> int:
    """Return the least cost of reading some pictures."""
    return min((rows + run * runs for runs, rows in totals(pictures, sizes)), default=0)


def natural_choices(pictures: int, sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the choices that come to mind first: one size only, and the largest size that fits."""
    for size in sizes:
        yield [size] * -(-pictures // size)
    fitting, left = [], pictures
    for size in sorted(sizes, reverse=True):
        fitting += [size] * (left // size)
        left %= size
    yield fitting + [min(sizes)] * (left > 0)
    largest = [max(sizes)] * (pictures // max(sizes))
    rest = pictures % max(sizes)
    yield largest + [min(size for size in sizes if size >= rest)] * (rest > 0)


def drawn(
    random: np.random.Generator, run: int, other: int, some: tuple[int, int] = (100, 400),
    count: int = 4, kinds: int = 1, runs: int = 1,
) -> tuple[int, list[int]]:
    """Draw a case that no obvious choice solves, nor the best choice at another price.

    The least cost needs more than `kinds` different sizes of `count`, and at least `runs` runs.
    """
    while True:
        sizes = random.choice(np.arange(5, 65), count, replace=False).tolist()
        pictures = int(random.integers(*some))
        least = least_cost(pictures, sizes, run)
        easy = any(rows + run * number == least for number, rows in totals(pictures, sizes)
                   if number < runs)  # fmt: skip
        if easy or any(least_cost(pictures, few, run) == least
                       for few in combinations(sizes, kinds)):  # fmt: skip
            continue
        costs = [sum(each) + run * len(each) for each in natural_choices(pictures, sizes)]
        tempting = least_cost(pictures, sizes, other)
        misled = [rows + run * runs for runs, rows in totals(pictures, sizes)
                  if rows + other * runs == tempting]  # fmt: skip
        if min(costs) - least >= 4 and (other == run or min(misled) > least):
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
)
class ChooseBatches(Function):
    parts = {"valid": ("every picture is read, in sizes that exist", 1),
             "cost": ("the cost, between the obvious choices (0) and the least (all)", 4)}
    seconds = 20.0

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def case(part: str, pictures: int, sizes: list[int], run: int) -> Case:
            on = f"{pictures} pictures, sizes {sizes}, run={run}"
            return Case(part, (pictures, sizes, run), on=on)

        for pictures, sizes in ((17, [16, 32]), (16, [16, 32]), (1, [8]), (0, [4, 8])):
            yield case("valid", pictures, sizes, 6)
        for run, other in ((6, 1), (1, 20), (20, 1), (2, 2), (20, 6), (1, 6), (45, 6)):
            yield case("", *drawn(random, run, other), run)
        yield case("", *drawn(random, 6, 1, (40, 100)), 6)
        yield case("", *drawn(random, 2, 2, count=6, kinds=3), 2)
        yield case("", *drawn(random, 1, 20, count=5, kinds=2, runs=9), 1)

    def expected(self, case: Case) -> Any:
        return least_cost(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        pictures, sizes, run = case.args
        report.expect(isinstance(got, list | tuple), f"expected a list of sizes, got {_kind(got)}")
        report.expect(len(got) <= pictures, f"{len(got)} runs for {pictures} pictures")
        odd = [one for one in got if not _is_int(one)]
        report.expect(not odd, f"expected sizes of type int, got {_kind(odd[0])}" if odd else "")
        strange = [int(one) for one in got if one not in sizes]
        report.expect(not strange, f"{words.short(strange[:1])[1:-1]} is none of the sizes {sizes}")
        total = int(sum(got))
        report.expect(total >= pictures, f"only {total} of {pictures} pictures are read")
        spare = [one for one in got if total - one >= pictures]
        report.expect(not spare, f"the list has {total} rows: a run of {spare[:1]} is not needed")
        if report.part == "cost":
            natural = min(sum(each) + run * len(each) for each in natural_choices(pictures, sizes))
            report.score(total + run * len(got), case.expected, natural, "units of cost")


ASSIGN, PLACE = "vklab.plan.memory.assign_offsets", "vklab.plan.memory._sweep"


@exercise(
    "00-4",
    hints=(
        "Visit the lifetimes in order and keep one number: the first byte that is still free.",
        "The value gets that number as its offset; then the number grows. By how much, so that the "
        "next offset is a multiple of 256 again? first and last play no part.",
        "vklab.plan.memory.round_up does the rounding. What is the free byte after the last value?",
    ),
    seams=(ASSIGN, PLACE, *(f"vklab.plan.memory.{name}" for name in ("pack", "_place", "_search"))),
)
class OneAfterTheOther(Function):
    parts = {"aligned": ("every value has an offset that is a multiple of 256", 1),
             "apart": ("no two values share a byte, whenever they are alive", 1),
             "total": ("the total is the bytes of all, each rounded up, and no more", 2)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        drawn = random.integers(1, 5000, 6).tolist()
        for sizes in ((256, 256, 256), (100, 256, 257), (1000, 4, 2560, 30), (), drawn):
            # No two are alive at one step: a placement by lifetimes would put all of them at 0.
            lives = tuple(Lifetime(f"v{n}", int(size), n, n) for n, size in enumerate(sizes))
            listed = ", ".join(map(str, sizes))
            yield Case(args=(lives, True), on=f"sizes {listed}" if sizes else "no values")
        some = tuple(Lifetime(name, size, first, last, 64) for name, size, first, last in (
            ("x1", 300, 3, 3), ("image", 5 << 30, 0, 0), ("w", 1, 3, 5), ("a", 256, 0, 2),
            ("x10", 70000, 1, 1)))
        some += tuple(Lifetime(f"n{k}", 7 * k + 1, k + 20, k + 20) for k in range(9))
        yield Case(args=(some, True), on="14 values in no order of time, one of 5 GiB")
        yield Case(args=(some, False), on="the same 14 values, with aliasing=False")
        yield Case(args=(some,), on="the same 14 values, without the argument `aliasing`")

    def expected(self, case: Case) -> Any:
        return sum(round_up(life.size_bytes) for life in case.args[0])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        lives = case.args[0]
        report.expect(isinstance(got, tuple | list) and len(got) == 2,
                      f"expected two things, (offsets, total), got {_kind(got)}")  # fmt: skip
        offsets, total = got
        report.expect(isinstance(offsets, dict), "expected (offsets, total) with a dict from name "
                      f"to offset, got {_kind(offsets)} as offsets")  # fmt: skip
        report.expect(_is_int(total), f"expected an int as total, got {_kind(total)}, "
                                      f"{words.short(total)}")  # fmt: skip
        report.expect(offsets.keys() == {life.name for life in lives},
                      f"expected an offset for each of {[life.name for life in lives]}, "
                      f"got {list(offsets)}")  # fmt: skip
        if report.part == "total":
            report.equal(total, case.expected, "the total")
        for life in lives:
            offset = offsets[life.name]
            report.expect(_is_int(offset), f"expected an int, got {words.short(offset)} for "
                                           f"{life.name}")  # fmt: skip
            if report.part == "aligned":
                report.expect(offset >= 0 and offset % 256 == 0,
                              f"expected a multiple of 256, from 0 on, got {offset} for "
                              f"{life.name}")  # fmt: skip
            elif report.part == "total":
                end = offset + life.size_bytes
                report.expect(end <= total, f"{life.name} ends at {end}, behind the total {total}")
        for a, b in combinations(lives, 2) if report.part == "apart" else ():
            start, other = offsets[a.name], offsets[b.name]
            end, stop = start + a.size_bytes, other + b.size_bytes
            report.expect(end <= other or stop <= start, f"{a.name} has bytes {start} to {end}, "
                          f"{b.name} has {other} to {stop}: they share some")  # fmt: skip


@exercise(
    "00-5",
    hints=(
        "Change a copy of one pipeline: leave out one line, and run it again. Is it as good as the "
        "network can be?",
        "Print x.min(), x.max() and x.shape after each line. Which line makes something that the "
        "network was not trained on?",
    ),
)
class LineTooMany(Choice):
    parts = {"all": ("the line to delete in each pipeline", 3)}

    def questions(self) -> dict[str, tuple[Any, tuple[Any, ...]]]:
        right = {"A": 3, "B": 4, "C": 1, "D": 2}
        return {name: (line, (1, 2, 3, 4)) for name, line in right.items()}


# -------------------------------------------------------------------------------------- predictions


@exercise("00-p1", hints=("Every driver reports the devices that it can drive.",))
class HowManyDevices(Predict):
    explains = ("Each of the two GPUs has a driver, and lavapipe reports the processor as a third "
                "device. The loader lists the devices of all drivers. If two drivers know the "
                "same GPU, that GPU is even listed twice.")

    def answers(self) -> dict[str, Any]:
        return {"devices": 3}


@exercise("00-p2", hints=("Count the different lines after `to repair`.",))
class HowManyRepairs(Predict):
    explains = ("Three checks name the same line, which installs the loader; the drivers need "
                "another. The GLSL compiler is not essential, and the validation layer is a note: "
                "both can wait.")

    def answers(self) -> dict[str, Any]:
        return {"lines": 2}


@exercise("00-p3", hints=("It was trained on 1,438 other pictures.",))
class HowManyOfTen(Predict):
    explains = ("The 5 is read as a 9. Look at the picture below before you blame the network: "
                "would you have read it right? Of all 359 pictures that were kept aside, the "
                "network reads 354 right.")

    def answers(self) -> dict[str, Any]:
        return {"right": 9}


@exercise("00-p4", hints=("Which nodes could one kernel do together?",))
class HowManyDispatches(Predict):
    explains = ("Each ReLU is fused into the Conv or Gemm before it: one kernel computes both, "
                "which saves three dispatches. Flatten only gives the same numbers another shape, "
                "so nothing is computed for it. 10 - 3 - 1 = 6. The switch VKLAB_DISABLE_FUSION=1 "
                "turns fusion off; then there are 9 dispatches.")

    def answers(self) -> dict[str, Any]:
        return {"dispatches": 6}


@exercise("00-p5", hints=("Does a sum depend on where its terms are stored?",))
class SameLogits(Predict):
    explains = ("The position of a value in memory does not change the value. The kernels do the "
                "same arithmetic in the same order.")

    def answers(self) -> dict[str, Any]:
        return {"same": True}
