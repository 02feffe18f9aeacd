"""Exercises of lab 15: operators of a program, pooling, classes that can flip, packages, shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab_course import data, rows, words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_course.definition.verdict import Verdict
from vklab_labs.lab_15 import packages, shapes

INSPECT = "vklab.apps.compare.coreml.inspect"
SHIPPED = ("mini_classifier.mlpackage", "text_classifier.mlpackage", "unnamed/p3.mlpackage",
           "unnamed/p6.mlpackage")  # fmt: skip
TYPES = ("const", "const", "cast", "reshape", "transpose", "conv", "linear", "relu", "add",
         "constexpr_lut_to_dense", "layer_norm")  # fmt: skip
EVERY = ("cast", "reshape", "transpose", "relu", "const")


def _drawn_block(random: np.random.Generator, count: int, deep: int) -> dict[str, Any]:
    """Return a block of `count` operations; some have blocks, at most `deep` of them nested."""
    operations: list[dict[str, Any]] = []
    for _ in range(count):
        made: dict[str, Any] = {"type": str(random.choice(TYPES))}
        if deep and random.random() < 0.3:
            made["type"] = str(random.choice(["cond", "while_loop"]))
            made["blocks"] = [
                _drawn_block(random, int(random.integers(1, 6)), deep - 1) for _ in range(2)
            ]
        elif random.random() < 0.2:
            made["blocks"] = []
        operations.append(made)
    return {"operations": operations}


def _block(*operations: Any) -> dict[str, Any]:
    """Return a block of operations: a type, or a type and its blocks."""
    made = [
        {"type": each} if isinstance(each, str) else {"type": each[0], "blocks": list(each[1:])}
        for each in operations
    ]
    return {"operations": made}


def _nested(levels: int) -> dict[str, Any]:
    """Return a block with a loop in it, whose body has a loop, and so on."""
    body = _block("add", *EVERY)
    for _ in range(levels):
        body = _block(("while_loop", _block("less"), body), "relu")
    return body


def _main(block: dict[str, Any]) -> dict[str, Any]:
    return {"functions": {"main": block}}


DEEP = ("cond", _block("relu", ("while_loop", _block("const", "less"), _block("add", "cast"))),
        _block(*EVERY))  # fmt: skip


@exercise(
    "15-1",
    hints=(
        "Which operations have blocks of their own, and what is in such a block?",
        "A function that counts the operations of one block can call itself for each block inside.",
        "Start it on the block of every function, with one dictionary for all.",
    ),
    variants=(
        {"left_out": "nothing else"},
        {"left_out": "cast"},
        {"left_out": "reshape"},
        {"left_out": "transpose"},
    ),
    seams=(f"{INSPECT}._types", f"{INSPECT}._operators", f"{INSPECT}.inspect"),
)
class CountOperators(Function):
    parts = {"shipped": ("real packages, without constants", 1),
             "nested": ("blocks inside of operations", 2),
             "several": ("all functions, and programs without operators", 1)}  # fmt: skip
    follows = {"nested": "shipped", "several": "shipped nested"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for name in SHIPPED:
            program = packages.as_data(data("packages") / name)
            yield Case("shipped", (program,), on="the program of a package")
        yield Case("shipped", (_main(_block(*EVERY, "conv", "cast")),), on="one plain block")
        for block, what in (
            (_block(*EVERY, DEEP), "blocks in three levels"),
            (_block(DEEP, DEEP), "two operations with blocks"),
            (_block(("cond", _block("const"), _block())), "a block with constants alone"),
            (_nested(3), "blocks in four levels"),
        ):
            yield Case("nested", (_main(block),), on=what)
        for _ in range(4):
            block = _drawn_block(random, 8, 3)
            block["operations"].insert(int(random.integers(8)), _block(DEEP)["operations"][0])
            yield Case("nested", (_main(block),), on="a drawn program with blocks inside")
        named = {"main": _block(*EVERY), "other": _block("relu", "conv", *EVERY)}
        yield Case("several", ({"functions": named},), on="functions main and other")
        yield Case("several", ({"functions": {**named, "main": _block()}},), on="an empty main")
        yield Case("several", ({"functions": {}},), on="a program without functions")
        yield Case("several", (_main(_block("const", "const")),), on="constants alone")
        for _ in range(3):
            drawn = {f"f{n}": _drawn_block(random, 6, 1) for n in random.permutation(4)}
            yield Case("several", ({"functions": drawn},), on="four functions", mixed=True)

    def expected(self, case: Case) -> Any:
        (program,) = case.args
        waiting: list[Any] = [*program["functions"].values()]
        counts: dict[str, int] = {}
        while waiting:
            for operation in waiting.pop()["operations"]:
                kind = operation["type"]
                if kind != "const" and kind != self.params["left_out"]:
                    counts[kind] = counts.get(kind, 0) + 1
                waiting += operation.get("blocks", ())
        return counts

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, Mapping), f"expected a dictionary of counts, got {words.short(got)}"
        )
        for kind, count in case.expected.items():
            report.expect(kind in got, f"{kind} is not in your dictionary; expected {count}")
            report.equal(got[kind], count, f"operators of the type {kind}")
        more = [kind for kind in got if kind not in case.expected]
        report.expect(not more, f"{words.short(more[0] if more else '')} is not to be counted here")


@exercise(
    "15-2",
    hints=(
        "One row for each bin: which elements does bin i average, and how many are they?",
        "Only whole numbers are needed. The end of bin i is rounded up, so neighbours can share an "
        "element.",
        "`-(-a // b)` is a / b rounded up.",
    ),
    extra=True,
)
class PoolingMatrix(Function):
    parts = {"divides": ("bins divide the size", 1), "other": ("they do not", 3)}
    follows = {"other": "divides"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for bins in (1, 3, *random.integers(2, 9, 3).tolist()):
            yield self._case("divides", bins * int(random.integers(2, 6)), bins)
        for size in (1, 4):
            yield self._case("divides", size, size)
        for size, bins in ((5, 3), (7, 4), (13, 5), (10, 4), (2, 3), (1, 4), (3, 8), (31, 30)):
            yield self._case("other", size, bins)
        for _ in range(8):
            bins = int(random.integers(2, 12))
            yield self._case("other", bins * int(random.integers(1, 5)) + 1, bins)

    def _case(self, part: str, size: int, bins: int) -> Case:
        return Case(part, (size, bins), on=f"size = {size}, bins = {bins}")

    def expected(self, case: Case) -> Any:
        size, bins = case.args
        matrix = np.zeros((bins, size), np.float32)
        for row in range(bins):
            covered = [n for n in range(size) if n * bins < (row + 1) * size and
                       (n + 1) * bins > row * size]  # fmt: skip
            matrix[row, covered] = 1 / len(covered)
        return matrix

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.close(got, case.expected, 0, 1e-6, "which elements has this bin?")


@exercise(
    "15-3",
    hints=(
        "Two scores can move towards each other. By how much together?",
        "`np.sort(scores, axis=1)` has the highest score of each row at its end.",
    ),
    seams=("vklab.apps.compare.judging.flips.judge", "vklab.apps.compare.judging.flips.margins"),
)
class CanFlip(Function):
    parts = {"rows": ("drawn rows", 2), "border": ("rows exactly at the border", 1),
             "equal": ("two highest scores that are equal", 1)}  # fmt: skip
    follows = {"border": "rows", "equal": "rows"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for classes in (2, 3, 6, int(random.integers(4, 12))):
            for scale, centre in ((1.0, 0.0), (8.0, 20.0), (0.25, -5.0)):
                error = scale * float(random.uniform(0.02, 0.4))
                yield self._case("rows", self._scores(random, classes, error, centre), error)
        yield Case("rows", (np.zeros((0, 4), np.float32), 0.5), on="no rows")
        for error in (0.5, 0.03125, 2.0):
            rows_of = np.float32(error) * self._border(random)
            yield self._case("border", rows_of, error)
        for classes in (2, 5):
            drawn = random.integers(-8, 8, (6, classes)).astype(np.float32)
            drawn[:4, 1] = drawn[:4, 0] = drawn[:4].max(axis=1)
            drawn[3], drawn[5] = -2, np.arange(classes)
            yield self._case("equal", drawn[random.permutation(6)], 0.125)

    def _case(self, part: str, scores: np.ndarray, error: float) -> Case:
        return Case(part, (scores, error), on=f"scores {scores.shape}, error {error:.4g}")

    def _scores(
        self, random: np.random.Generator, classes: int, error: float, centre: float
    ) -> np.ndarray:
        """Return rows with margins of 0.2 to 5 errors, half of them on each side of 2."""
        near = random.permutation(np.r_[random.uniform(0.2, 1.9, 8), random.uniform(2.1, 5, 8)])
        lower = centre - error * random.uniform(5.5, 9, (16, classes))
        made = lower - 0.01
        for row, margin in enumerate(near):
            first, second = random.permutation(classes)[:2]
            made[row, [first, second]] = centre, centre - margin * error
        return made.astype(np.float32)

    def _border(self, random: np.random.Generator) -> np.ndarray:
        """Return rows of whole numbers with margins of 1, 2 and 3."""
        made = random.integers(-9, 0, (9, 4)).astype(np.float32)
        made[:, 0], made[:, 1] = 4, np.tile([3, 2, 1], 3)
        return np.ascontiguousarray(random.permuted(random.permutation(made), axis=1))

    def expected(self, case: Case) -> Any:
        scores, error = case.args
        flags = [
            bool(first - second < 2 * error)
            for first, second in (
                sorted((float(score) for score in row), reverse=True)[:2] for row in scores
            )
        ]
        return np.array(flags, bool)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.equal(got, case.expected, "how far apart are the two highest scores?")


KINDS, TARGETS = ("mlProgram", "neuralNetwork"), ("iOS13", "iOS14", "iOS15", "iOS16", "iOS17",
                                                  "iOS18")  # fmt: skip
PRECISIONS = ("float16", "float32", "Core ML's choice")
WEIGHTS = ("as computed", "int8", "palette")
OPTIONS = {"kind": KINDS, "target": TARGETS, "precision": PRECISIONS, "weights": WEIGHTS}
# Only `questions` may use this: what each package was made as.
MADE = {
    "unnamed/p1.mlmodel": ("neuralNetwork", "iOS13", "Core ML's choice", "as computed"),
    "unnamed/p2.mlpackage": ("mlProgram", "iOS15", "float32", "as computed"),
    "unnamed/p3.mlpackage": ("mlProgram", "iOS17", "float32", "int8"),
    "unnamed/p4.mlpackage": ("mlProgram", "iOS16", "float16", "palette"),
    "unnamed/p5.mlpackage": ("mlProgram", "iOS17", "float16", "int8"),
    "unnamed/p6.mlpackage": ("mlProgram", "iOS18", "float16", "palette"),
    "mini_classifier.mlpackage": ("mlProgram", "iOS16", "float16", "as computed"),
    "text_classifier.mlpackage": ("mlProgram", "iOS17", "float16", "as computed"),
}
SPECIFICATION = {"iOS13": 4, "iOS14": 5, "iOS15": 6, "iOS16": 7, "iOS17": 8, "iOS18": 9}
# By option: the fact that decides it, and the reason of the right answer.
WHY = {
    "mlProgram": (
        "It has operators with names such as linear and relu.",
        "A program has operators; layers would be the older kind.",
    ),
    "neuralNetwork": (
        "It has layers with names such as innerProduct and activation, and no operators.",
        "Only the older kind holds layers.",
    ),
    "float16": (
        "Its result has 16 bits, although the caller hands over 32.",
        "From target iOS 16 on, a program that computes in 16 bits returns them without a cast.",
    ),
    "float32": (
        "Its result has 32 bits, and nothing before it was cast to 16.",
        "Nothing in the program is narrower than 32 bits, but for stored weights.",
    ),
    "Core ML's choice": (
        "Layers name no dtype for their arithmetic, and here none was asked for.",
        "A NeuralNetwork has float32 weights, and Core ML decides in what it computes.",
    ),
    "as computed": (
        "No operator of the kind constexpr is there.",
        "No constexpr operator is there to make weights out of something shorter.",
    ),
    "int8": (
        "Its constexpr operators multiply whole numbers by a scale: affine.",
        "affine_dequantize makes weights from bytes and a scale.",
    ),
    "palette": (
        "Its constexpr operators look something up: lut is a look-up table.",
        "lut_to_dense takes each weight from a small table of values.",
    ),
}


def _why(field: str, option: str) -> tuple[str, str]:
    if field != "target":
        return WHY[option]
    version = SPECIFICATION[option]
    return (
        f"Its specification has version {version}.",
        f"Version {version} is what the target {option} writes, whatever operators it uses.",
    )


def _flat(answer: Any) -> dict[str, Any]:
    """Return {"P kind": ...} of {"P": (kind, ...)}; {} if the answer has another form."""
    fits = isinstance(answer, dict) and all(
        isinstance(name, str) and isinstance(row, tuple | list) and len(row) == len(OPTIONS)
        for name, row in answer.items()
    )
    if not fits:
        return {}
    return {
        f"{name} {field}": value
        for name, row in answer.items()
        for field, value in zip(OPTIONS, row, strict=True)
    }


@exercise(
    "15-4",
    hints=(
        "The list above the exercise has the target of each version, and the operators that make "
        "weights out of something shorter.",
        "The dtype of an input says what a caller hands over, and casts of indices say nothing of "
        "the arithmetic. Which dtype says what the program computes in?",
        "A NeuralNetwork names no precision.",
    ),
    variants=tuple({"set": name} for name in packages.SETS),
)
class Contents(Choice):
    parts = {"all": ("one point for each package", 3)}

    def questions(self) -> Mapping[str, Question]:
        files = packages.SETS[self.params["set"]]
        return {
            f"{letter} {field}": Question(right, OPTIONS[field], *_why(field, right))
            for letter, file in zip("PQR", files, strict=True)
            for field, right in zip(OPTIONS, MADE[file], strict=True)
        }

    @staticmethod
    def written(right: Any) -> str:
        values = [*right.values()]
        lines = [
            f'    "{letter}": {tuple(values[4 * n : 4 * n + 4])!r},'
            for n, letter in enumerate("PQR")
        ]
        return "\n".join(["{", *lines, "}"])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        flat = _flat(got)
        report.expect(flat, f"expected {{'P': (four texts), 'Q': ..., 'R': ...}}, "
                            f"got {words.short(got)}")  # fmt: skip
        report.expect(set(got) <= {*"PQR"}, f"the packages are P, Q and R, not {[*got]}")
        wrong = {name[0] for name in rows.wrong_rows(case, flat)}
        invalid = (rows.no_option(case, flat, name) for name in case.facts["options"])
        said = next(filter(None, invalid), f"{3 - len(wrong)} of 3 packages are right")
        report.rows(3 - len(wrong), 3, said)

    def feedback(self, answer: Any, cases: Sequence[Case], verdict: Verdict) -> Verdict:
        return super().feedback(_flat(answer), cases, verdict)


def least_padding(sizes: Sequence[int], most: int) -> int:
    """Return the least padding of any lists of at most `most` lengths, by dynamic programming."""
    ordered = np.sort(np.asarray(sizes))
    ends = np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True]) + 1
    starts, tops = np.r_[0, ends], ordered[ends - 1]
    sums = np.r_[0, np.cumsum(ordered)]
    best = np.full(len(starts), np.inf)
    best[0] = 0
    for _ in range(most):
        # by last length and by the number of inputs that shorter ones hold
        held = ends[:, None] - starts[None, :]
        cost = tops[:, None] * held - (sums[ends][:, None] - sums[starts][None, :])
        reached = np.where(held > 0, best[None, :] + cost, np.inf).min(axis=1)
        best = np.r_[0, np.minimum(best[1:], reached)]
    return int(best[-1])


MARGIN = 1.01  # every natural answer is this much above the optimum


@exercise(
    "15-5",
    hints=(
        "Each allowed length of a best list is the length of some input. Why?",
        "Sort the different lengths. If the longest allowed one is fixed, and the one below it, "
        "what is left is the same problem with fewer inputs and one length fewer.",
        "Keep the best answer for the first n lengths and k shapes, and build on it.",
    ),
    extra=True,
)
class ChooseShapes(Function):
    parts = {
        "better": ("less padding than equal steps, halves and quantiles", 2),
        "best": ("less padding than greedy choices and exchanges, up to the least", 3),
    }

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        few = [int(size) for size in random.choice([5, 9, 30], 60)]
        yield Case("best", (few, 4), on="60 inputs of three lengths")
        for kind in shapes.KINDS:
            while True:
                sizes = shapes.draw_sizes(random, kind)
                most = int(random.integers(4, 7))
                found = shapes.naturals(sizes, most)
                plain = min(found[name] for name in ("equal_steps", "halves", "quantiles"))
                least, near = least_padding(sizes, most), min(found.values())
                if MARGIN * least <= near and MARGIN * near <= plain:
                    break
            yield Case(
                "",
                (sizes, most),
                on=f"{len(sizes)} inputs, {kind}, at most {most} lengths",
                facts={"plain": plain, "near": near},
            )

    def expected(self, case: Case) -> Any:
        return least_padding(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        fault = shapes.fault_of(*case.args, got)
        report.expect(not fault, fault)
        found = shapes.padding(case.args[0], got)
        if not case.facts:
            report.equal(found, case.expected, "there are fewer lengths than you may allow")
        elif report.part == "better":
            near, plain = case.facts["near"], case.facts["plain"]
            report.score(found, case.expected, plain, "elements of padding", near)
        else:
            report.score(found, case.expected, case.facts["near"], "elements of padding")


@exercise("15-p1", hints=("The smallest float16 above 0 is about 6e-8.",))
class StoredEpsilon(Predict):
    options = dict.fromkeys(
        ("from_1e_5", "from_1e_8", "from_1e_12"), ("nearly the same", "about 6e-8", "0")
    )
    explains = (
        "1e-5 becomes 1.001e-5. The two others lie below 5.96e-8, the smallest float16 above 0. "
        "IEEE rounding would make them 0; coremltools 9 stores 5.96e-8 for both, so that no "
        "division by 0 can come of it. That is 60,000 times 1e-12."
    )

    def answers(self) -> Mapping[str, Any]:
        return {
            "from_1e_5": "nearly the same",
            "from_1e_8": "about 6e-8",
            "from_1e_12": "about 6e-8",
        }
