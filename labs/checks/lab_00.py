"""Visible checks of lab 00."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from vklab.course.definition.exercise import exercise
from vklab.course.definition.report import Report
from vklab.course.words import short
from vklab.doctor import Check
from vklab.doctor import Report as DoctorReport
from vklab.plan.memory import Lifetime

__all__ = [
    "check_confusion",
    "check_one_after_the_other",
    "check_repair_list",
    "check_to_input",
]

# ------------------------------------------------------------------------------------- 00-1


@exercise(
    "00-1",
    points=3,
    hints=(
        "uint8 divided by 255 is float64: NumPy chooses. A method of arrays gives the type that "
        "you choose; its name begins with as.",
        "The method is .astype(...); its result is an array of that type. Now count the axes: the "
        "input has three, and one of length 1 is missing.",
        "The missing axis stands between the pictures and their rows: indexing with [:, None] "
        "adds an axis of length 1 in second place.",
    ),
)
def check_to_input(answer: Any, report: Report) -> None:
    """Convert pictures whose brightest pixel is not white: dividing by the maximum fails."""
    pixels = np.random.default_rng(0).integers(0, 201, (3, 28, 28), dtype=np.uint8)
    dim = np.full((1, 28, 28), 51, np.uint8)
    with report.part("the numbers run from 0 to 1", 1):
        for given, words in ((dim, "one picture, every pixel 51"), (pixels, "three pictures")):
            got = _array(report, answer, given, words)
            report.expect(got.size == given.size and got.dtype.kind in "buif",
                          f"expected {given.size} numbers, got {short(got)}")  # fmt: skip
            got = np.asarray(got, np.float64)
            report.close(got.reshape(given.shape), given / 255, rtol=1e-5,
                         hint="white is 255, also where no pixel is white")  # fmt: skip
    with report.part("the type is float32", 1):
        got = _array(report, answer, pixels, "three pictures")
        report.expect(got.dtype == np.float32, f"expected dtype float32, got {got.dtype}")
    with report.part("the shape is [pictures, 1, 28, 28]", 1):
        for given, words in ((pixels, "three pictures"), (dim, "one picture")):
            got = _array(report, answer, given, words)
            wanted = (len(given), 1, 28, 28)
            report.expect(got.shape == wanted, f"expected shape {wanted}, got {got.shape}")


def _array(report: Report, answer: Any, pixels: np.ndarray, words: str) -> np.ndarray:
    got = report.call(answer, pixels, on=words)
    report.expect(isinstance(got, np.ndarray),
                  f"expected an array, float32 of shape {(len(pixels), 1, 28, 28)}, "
                  f"got {_kind(got)}")  # fmt: skip
    return np.asarray(got)


def _kind(value: Any) -> str:
    return "None (is a return missing?)" if value is None else f"a {type(value).__name__}"


# ------------------------------------------------------------------------------------- 00-2


def _machine(*checks: Check) -> DoctorReport:
    return DoctorReport(checks)


@exercise(
    "00-2",
    points=4,
    hints=(
        "Write down, for the machine above, which lines come out, in which order. Then ask which "
        "rule put each line there.",
        "Three rounds over report.checks: what failed and is essential; what failed and is not; "
        "what is ok and still names a repair.",
        "dict.fromkeys(lines) keeps the first of equal lines, in order. Empty lines go out last.",
    ),
)
def check_repair_list(answer: Any, report: Report) -> None:
    """Sort the repairs of machines on which one rule at a time decides."""
    with report.part("a machine that needs nothing gets an empty list", 1):
        fine = _machine(Check("Python", True, "3.11.2"), Check("devices", True, "1 of 1"))
        report.equal(report.call(answer, fine, on="two checks, both ok"), [])
        unknown = _machine(Check("disk", False, "full"), Check("Python", True, "3.11.2"))
        report.equal(report.call(answer, unknown, on="a failed check that names no repair"), [],
                     hint="a check without a repair adds no line")  # fmt: skip
    with report.part("what failed and is essential comes first, in the report's order", 1):
        both = _machine(
            Check("GLSL compiler", False, "broken", "C", essential=False),
            Check("Vulkan loader", False, "not there", "B"),
            Check("drivers", False, "not there", "A"),
        )
        got = report.call(answer, both, on="C (not essential), then B and A (essential) failed")
        report.equal(got, ["B", "A", "C"])
    with report.part("notes come last", 1):
        notes = _machine(
            Check("layers", True, "optional", "D"),
            Check("tools", True, "optional", "A", essential=False),
            Check("GLSL compiler", False, "broken", "C", essential=False),
            Check("drivers", False, "not there", "B"),
        )
        got = report.call(answer, notes, on="D and A are notes, C (not essential) and B failed")
        report.equal(got, ["B", "C", "D", "A"])
    with report.part("each line is said once, where it is needed first", 1):
        twice = _machine(
            Check("layers", True, "optional", "B"),
            Check("loader", False, "not there", "A"),
            Check("device 1", False, "crashed", "A", essential=False),
            Check("bindings", False, "no loader", "A"),
            Check("devices", False, "none", "B"),
        )
        got = report.call(answer, twice, on="B is a note, later an essential repair; A three times")
        report.equal(got, ["A", "B"])


# ------------------------------------------------------------------------------------- 00-3


def _logits(predicted: Sequence[int], classes: int) -> np.ndarray:
    """Return logits, some negative, with the largest of each row at the predicted class."""
    rows = np.random.default_rng(1).uniform(-9, -3, (len(predicted), classes))
    rows[np.arange(len(predicted)), predicted] += 8
    return rows.astype(np.float32)


def _counted(labels: Sequence[int], predicted: Sequence[int], classes: int) -> np.ndarray:
    pairs = list(zip(labels, predicted, strict=True))
    cells = [[pairs.count((row, column)) for column in range(classes)] for row in range(classes)]
    return np.array(cells, np.int64)


@exercise(
    "00-3",
    points=3,
    hints=(
        "The class that the model votes for is the column of the largest logit: argmax, along "
        "which axis?",
        "Start from a table of zeros with one row and one column per class. Each picture adds one "
        "to a single cell: which row, which column?",
        "table[labels, predicted] += 1 adds one per cell, however many pictures meet there. A loop "
        "over zip(labels, predicted) adds one per picture.",
    ),
)
def check_confusion(answer: Any, report: Report) -> None:
    """Count small cases: three classes, repeated pairs, a class that never occurs."""
    with report.part("every picture is counted once", 1):
        same = (0, 0, 0, 2, 2, 1)
        got = _table(report, answer, same, same, 3, "six pictures, all predicted right")
        report.expect(got.sum() == 6, f"expected a sum of 6, got {int(got.sum())}: are three "
                                      "pictures in one cell three?")  # fmt: skip
        report.equal(got, _counted(same, same, 3))
    with report.part("rows are what is true, columns what is predicted", 1):
        labels, predicted = (0, 0, 1, 2), (1, 1, 1, 0)
        got = _table(report, answer, labels, predicted, 3, "labels 0 0 1 2, predicted 1 1 1 0")
        report.equal(got, _counted(labels, predicted, 3))
    with report.part("a class that nobody wrote has its row, too", 1):
        few, said = (4, 4, 0), (4, 1, 0)
        got = _table(report, answer, few, said, 10, "ten classes, three pictures")
        report.equal(got, _counted(few, said, 10))


def _table(
    report: Report, answer: Any, labels: Sequence[int], predicted: Sequence[int], classes: int,
    words: str,
) -> np.ndarray:  # fmt: skip
    """Return the answer's table as int64; lists of lists and whole floats are accepted."""
    wanted = (classes, classes)
    got = report.call(answer, np.array(labels), _logits(predicted, classes), on=words)
    report.expect(isinstance(got, np.ndarray | list | tuple),
                  f"expected counts of shape {wanted}, got {_kind(got)}")  # fmt: skip
    try:
        table = np.asarray(got)
    except ValueError:  # rows of different lengths
        report.expect(False, f"expected {classes} rows of {classes} counts, got {short(got)}")
    report.expect(table.shape == wanted, f"expected shape {wanted}, got {table.shape}")
    whole = table.dtype.kind in "iu"
    whole = whole or (table.dtype.kind == "f" and bool(np.all(table == np.rint(table))))
    report.expect(whole, f"expected whole numbers, got {short(table)}")
    return np.asarray(table, np.int64)


# ------------------------------------------------------------------------------------- 00-4

ASSIGN, PLACE = "vklab.plan.memory.assign_offsets", "vklab.plan.memory._place"
CASES = (
    ("three values of 256 bytes", (256, 256, 256)),
    ("values of 100, 256 and 257 bytes", (100, 256, 257)),
    ("values of 1000, 4, 2560 and 30 bytes", (1000, 4, 2560, 30)),
)


@exercise(
    "00-4",
    points=4,
    hints=(
        "Visit the lifetimes in order and keep one number: the first byte that is still free.",
        "The value gets that number as its offset; then the number grows by the value's size, "
        "rounded up to a multiple of 256. first and last play no part.",
        "vklab.plan.memory.round_up does the rounding. At the end that number is the total.",
    ),
    seams=(ASSIGN, PLACE),
)
def check_one_after_the_other(answer: Any, report: Report) -> None:
    """Check a placement without aliasing; the order of the values is free."""
    with report.part("every value has an offset that is a multiple of 256", 1):
        for words, sizes in CASES:
            offsets, _ = _placed(report, answer, sizes, words)
            report.equal(sorted(offsets), [f"v{number}" for number in range(len(sizes))])
            for name, offset in sorted(offsets.items()):
                report.expect(type(offset) is int,
                              f"expected an int, got {type(offset).__name__} {short(offset)} "
                              f"for {name}")  # fmt: skip
                report.expect(offset >= 0 and offset % 256 == 0,
                              f"expected a multiple of 256, got {offset} for {name}")  # fmt: skip
    with report.part("no two values share a byte, whenever they are alive", 1):
        for words, sizes in CASES:
            offsets, _ = _placed(report, answer, sizes, words)
            spans = [(f"v{n}", offsets[f"v{n}"], offsets[f"v{n}"] + s) for n, s in enumerate(sizes)]
            for (a, start, end), (b, other, stop) in combinations(spans, 2):
                report.expect(end <= other or stop <= start,
                              f"{a} has bytes {start} to {end}, {b} has {other} to {stop}: they "
                              "share some")  # fmt: skip
    with report.part("the total is the bytes of all, each rounded up, and no more", 1):
        for words, sizes in CASES:
            offsets, total = _placed(report, answer, sizes, words)
            report.equal(total, sum((size + 255) // 256 * 256 for size in sizes))
            last = max(offsets[f"v{n}"] + size for n, size in enumerate(sizes))
            report.expect(last <= total, f"the last value ends at {last}, behind the total {total}")
    with report.part("an empty sequence gives ({}, 0)", 1):
        report.equal(report.call(answer, (), on="no values"), ({}, 0))


def _placed(
    report: Report, answer: Any, sizes: Sequence[int], words: str
) -> tuple[dict[str, int], int]:
    # No two are alive at one step: a placement by lifetimes would put all of them at 0.
    lives = tuple(Lifetime(f"v{n}", size, n, n) for n, size in enumerate(sizes))
    got = report.call(answer, lives, True, on=words)
    pair = isinstance(got, tuple | list) and len(got) == 2 and isinstance(got[0], dict)
    report.expect(pair, f"expected two things, a dict of {len(sizes)} offsets and the total, "
                        f"got {_kind(got)}")  # fmt: skip
    offsets, total = got
    return offsets, total
