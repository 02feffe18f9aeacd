"""Exercises of lab 17: steps between floats, a verdict, which checks pass, the blame, a search."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab_course import rows as feedback
from vklab_course import words
from vklab_course.definition import verdict as verdicts
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_17 import plans
from vklab_labs.lab_17.verdicts import JUDGE

ERRORS = "vklab.apps.compare.judging.errors"

# ------------------------------------------------------------------------------------------- steps


def rank(values: np.ndarray) -> np.ndarray:
    """Return the number of steps from zero to each float32, negative below zero; NaN gives 0."""
    size = np.abs(np.where(np.isnan(values), 0, values).astype(np.float64))
    finite = np.isfinite(size)
    _, exponents = np.frexp(np.where(finite, size, 1.0))
    power = np.maximum(np.where(size == 0, -126, exponents - 1), -126)
    within = np.ldexp(np.where(finite, size, 1.0), 23 - power)
    steps = np.where(finite, (power + 126) * 2**23 + within, 255 * 2**23).astype(np.int64)
    return np.where(np.signbit(values), -steps, steps)


def steps_between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the steps between two arrays of float32; -1 for a NaN and a number."""
    nans = np.isnan(a).astype(int) + np.isnan(b)
    return np.where(nans == 0, np.abs(rank(a) - rank(b)), np.where(nans == 2, 0, -1))


def _walked(start: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the floats that lie some steps above the start."""
    found = []
    for value, count in zip(start, steps, strict=True):
        for _ in range(abs(int(count))):
            value = np.nextafter(value, np.float32(np.inf if count > 0 else -np.inf))
        found.append(value)
    return np.array(found, np.float32)


@exercise(
    "17-1",
    hints=(
        "`x.view(np.int32)` reads the same bits as whole numbers. For which floats do these "
        "numbers grow with the float, and for which do they fall?",
        "Without its sign bit (`& 0x7fffffff`) a negative float gives its steps to zero. Put it "
        "on the other side of zero. Is -0 then the same as 0?",
        "The difference of two such numbers can be larger than an int32. NaN comes last: "
        "`np.where` puts in what the two rules for NaN ask.",
    ),
    seams=("vklab.apps.compare.judging.errors.ulp_size", f"{ERRORS}.measure"),
)
class UlpDistance(Function):
    parts = {"near": ("neighbours of the same exponent", 1),
             "power": ("numbers on both sides of a power of two", 1),
             "zero": ("numbers on both sides of zero, and the two zeros", 1),
             "far": ("numbers far from each other", 1),
             "special": ("infinity and NaN", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def pair(part: str, a: Any, b: Any, on: str) -> Case:
            left, right = np.array(a, np.float32), np.array(b, np.float32)
            if random.random() < 0.5:
                left, right = right, left
            return Case(part, (left, right), on=on)

        for _ in range(3):
            start = (random.uniform(1.1, 1.9, 6) * 2.0 ** random.integers(-90, 90, 6)).astype("f4")
            start *= random.choice(np.array([-1, 1], np.float32), 6)
            yield pair("near", start, _walked(start, random.integers(-40, 41, 6)), "near numbers")
        yield pair("near", [], [], "empty arrays")
        for _ in range(3):
            powers = 2.0 ** random.integers(-100, 100, 6).astype(np.float64)
            powers[:2] = 2.0**-126, 2.0 ** random.integers(-140, -127)
            below = _walked(powers.astype("f4"), -random.integers(1, 30, 6))
            above = _walked(powers.astype("f4"), random.integers(0, 30, 6))
            signs = random.choice(np.array([-1, 1], np.float32), 6)
            yield pair("power", below * signs, above * signs, "around powers of two")
        tiny = np.float32(2.0**-149)
        yield pair("zero", [0.0, -0.0, 0.0, -tiny], [-0.0, -0.0, tiny, tiny], "zeros")
        for _ in range(2):
            few = random.integers(1, 1000, (2, 5))
            yield pair("zero", -few[0] * tiny, few[1] * tiny, "tiny numbers of both signs")
        yield pair("zero", [-0.0, 0.0], random.uniform(1, 2, 2), "a zero and a number")
        yield pair("far", [-1, 1e-30, -3e38], [1, 1e30, 3e38], "numbers far from each other")
        for _ in range(2):
            a, b = random.standard_normal((2, 5)) * 10.0 ** random.integers(-30, 30, (2, 5))
            yield pair("far", np.abs(a), -np.abs(b), "drawn numbers of both signs")
            yield pair("far", a, a * 10.0 ** random.integers(3, 8, 5), "drawn numbers")
        top, inf, nan = np.finfo(np.float32).max, np.inf, np.nan
        yield pair("special", [inf, -inf, inf, inf], [top, -top, inf, -inf], "infinities")
        yield pair("special", [nan, -nan, nan, 1.0, inf, 0.0], [nan, nan, 2, nan, nan, nan], "NaN")
        yield pair("special", [1.0, -inf, nan, 4.0], [inf, 0.0, -inf, 4.0], "all kinds")

    def expected(self, case: Case) -> Any:
        return steps_between(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        asks = {
            "zero": "-0 and 0 are equal; how many steps is each number from zero?",
            "far": "do the numbers of steps fit into the dtype in which you subtract?",
            "special": "infinity is one step above the largest number; the rules for NaN come last",
        }
        report.equal(got, case.expected, asks.get(report.part, ""))


# ----------------------------------------------------------------------------------------- verdict


def judged(actual: Any, expected: Any, rtol: float, atol: float) -> tuple[bool, float]:
    """Return whether an array passes, and its largest error as a share of what is allowed."""
    if np.shape(actual) != np.shape(expected):
        return False, math.inf
    got, truth = np.ravel(actual).tolist(), np.ravel(expected).tolist()
    largest = max((abs(e) for e in truth if math.isfinite(e)), default=0.0)
    share = 0.0
    for a, e in zip(got, truth, strict=True):
        if math.isfinite(a) and math.isfinite(e):
            error, allowed = abs(a - e), atol * largest + rtol * abs(e)
            one = error / allowed if allowed else math.inf * bool(error) if error else 0.0
        else:
            one = 0.0 if a == e or (a != a and e != e) else math.inf
        share = max(share, one)
    return share <= 1, share


@exercise(
    "17-2",
    hints=(
        "What cannot be compared comes first: unequal shapes, then places where only one of the "
        "two is NaN or infinite, or the infinities differ.",
        "Keep the places that are finite in both arrays. What is the largest of no elements? "
        "`max` takes `initial`.",
        "An error of 0 is a share of 0, whatever is allowed. `np.divide` takes `where` and `out`.",
    ),
    seams=(f"{ERRORS}.share", f"{ERRORS}.measure", "vklab.runtime.observe.compare.compare"),
    builds=JUDGE,
)
class Verdict(Function):
    parts = {"share": ("the share of drawn arrays, and the border of 1", 1),
             "small": ("small elements and zeros", 1),
             "lost": ("NaN and infinity", 1),
             "shapes": ("unequal shapes", 1),
             "empty": ("empty arrays", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def case(part: str, a: Any, e: Any, rtol: float, atol: float, on: str, mixed: bool = False
                 ) -> Case:  # fmt: skip
            return Case(part, (np.asarray(a), np.asarray(e), rtol, atol), on=on, mixed=mixed)

        def pair(shape: Any, error: float, dtype: str = "f4") -> tuple[np.ndarray, np.ndarray]:
            truth = random.standard_normal(shape).astype(dtype)
            off = random.uniform(-error, error, shape)
            return (truth + off).astype(dtype), truth

        for error, dtype in ((1e-4, "f4"), (4e-4, "f4"), (1e-3, "f8"), (3e-2, "f2")):
            made = pair((int(random.integers(2, 6)), 7), error, dtype)
            yield case("share", *made, 1e-3, 1e-4, f"errors up to {error:g}")
        yield case("share", [3.0, 2.0], [2.0, 2.0], 0.5, 0.0, "an error of exactly what is allowed")
        yield case("share", [3.0, 8.0], [2.0, 8.0], 0.0, 0.125, "the same, by atol")
        yield case("share", np.float16([6e4, 1]), np.float16([-6e4, 1]), 1.0, 0.0, "large halves")
        yield case("share", np.float32(1.25), np.float32(1.0), 0.1, 0.0, "arrays of shape ()")
        big = np.array([-300.0, 2.0, 1e-3, 0.0])
        for off, atol in ((2e-4, 1e-6), (5e-4, 1e-6), (1e-9, 0.0), (0.0, 0.0)):
            yield case("small", big + [0, 0, off, 0], big, 1e-3, atol, f"{off:g} beside 0.001")
            yield case("small", big + [0, 0, 0, off], big, 1e-3, atol, f"{off:g} beside 0")
        tiny = 1e-6 * random.standard_normal(9)
        yield case("small", -tiny, tiny, 1e-3, 1e-4, "small elements with the wrong sign")
        yield case("small", np.zeros(4), tiny[:4], 1e-3, 1e-4, "zeros for small elements")
        nan, inf = np.nan, np.inf
        for actual, expected, on in (
            ([1.0, nan, 3.0], [1.0, 2.0, 3.0], "a NaN for a number"),
            ([nan] * 3, [1.0, 2.0, 3.0], "NaN for all numbers"),
            ([1.0, 2.0, 3.0], [1.0, nan, 3.0], "a number for a NaN"),
            ([1.0, nan, 3.25], [1.0, nan, 3.0], "NaN in both"),
            ([inf, -inf, 3.25], [inf, -inf, 3.0], "equal infinities"),
            ([inf, 1.0], [-inf, 1.0], "infinities of unequal sign"),
            ([inf, 1.0], [nan, 1.0], "an infinity for a NaN"),
            ([4e38, 1.0], [inf, 1.0], "a number for an infinity"),
            ([inf, 1.0], [4.0, 1.0], "an infinity for a number"),
            ([nan, inf], [nan, inf], "nothing finite"),
        ):
            yield case("lost", actual, expected, 0.25, 0.0, on)
            yield case("lost", actual, expected, 0.01, 0.125, on)
        truth = random.standard_normal(5)
        for actual, expected in (
            (truth[:, None], truth),
            (truth, truth[None]),
            (truth[:1], truth),
            (np.full(5, 2.0), np.float64(2.0)),
            (truth[:4], truth),
            (np.zeros((0, 3)), np.zeros((3, 0))),
            (np.zeros(0), np.zeros((0, 1))),
        ):
            shapes = f"shapes {np.shape(actual)} and {np.shape(expected)}"
            yield case("shapes", actual, expected, 1.0, 1.0, shapes)
        yield case("shapes", *pair((5, 1), 1e-4), 1e-3, 1e-4, "equal shapes", True)
        yield case("empty", np.zeros(0), np.zeros(0), 1e-3, 1e-4, "shape (0,)")
        yield case("empty", np.zeros((0, 3), "f4"), np.zeros((0, 3), "f4"), 0.0, 0.0, "(0, 3)")
        yield case("empty", *pair(1, 1e-3), 1e-3, 1e-4, "one element", True)

    def expected(self, case: Case) -> Any:
        actual, expected, rtol, atol = case.args
        wide = (each.astype(np.float64) for each in (actual, expected))
        return judged(*wide, rtol, atol)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple) and len(got) == 2,
            f"expected (passed, share), got {words.short(got)}",
        )
        report.close(got[1], case.expected[1], 1e-9, 0.0, "the share")
        report.expect(
            isinstance(got[0], bool | np.bool_),
            f"expected True or False for `passed`, got {words.short(got[0])}",
        )
        report.equal(bool(got[0]), case.expected[0], "passed")


# -------------------------------------------------------------------------------- checks and terms

# Limits of the page for float32 outputs: its section on the backend, table of part 4, report 4.1.
LIMITS = {
    "CPU": (1e-4, 1e-5, 1e-2),
    "CUDA": (1e-3, 1e-4, 1e-2),
    "DirectML": (1e-2, 1e-3, 1e-2),
}
# Layers: epsilon, terms of a sum, epsilons of a function.
LAYERS = {
    "convolution": (2.0**-23, 9, 0),
    "product": (2.0**-23, 1024, 0),
    "softmax": (2.0**-10, 64, 23),
}
FACTS = {
    "CPU": "section 2.3, part 4 and report 4.1 have three limits for it; compare each in turn",
    "CUDA": "section 2.5, part 4 and report 4.1 have three limits for it; compare each in turn",
    "DirectML": "section 2.4, part 4 and report 4.1 have limits for it, and two are the same",
    "convolution": "its sums have 9 terms. Is their root more than the roundings?",
    "product": "its sums have 1,024 terms. Is their root more than the roundings?",
    "softmax": "it computes exp in float16. What does that add, and to which of the two?",
}
_tried: defaultdict[tuple[str, int], dict[str, None]] = defaultdict(dict)


@exercise(
    "17-3",
    hints=(
        "A check passes if the error is below its limit. The letters stand in the order section, "
        "table, report.",
        "The root of the terms is compared with the roundings, and epsilon is a factor of both.",
        "Only the softmax has a function. Its 23 epsilons are relative to an element.",
    ),
    variants=(
        {"error": 5e-5, "roundings": 4},
        {"error": 4e-4, "roundings": 6},
        {"error": 3e-3, "roundings": 10},
        {"error": 2e-2, "roundings": 16},
    ),
    seams=("vklab.runtime.tolerances.layer", "vklab.runtime.tolerances.operator"),
)
class WhichChecksPass(Value):
    parts = {"checks": ("which of the page's checks pass", 2),
             "layers": ("rtol and atol of three layers", 2)}  # fmt: skip

    @staticmethod
    def written(right: Any) -> str:
        pairs = (
            f'"{name}": "{value}"'
            if isinstance(value, str)
            else f'"{name}": ({value[0]:.6g}, {value[1]:.6g})'
            for name, value in right.items()
        )
        return "{" + ",\n          ".join(pairs) + "}"

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in self.parts:
            yield Case(part, on="your answer")

    def expected(self, case: Case) -> Any:
        error, roundings = self.params["error"], self.params["roundings"]
        letters = {
            name: "".join("FP"[error < limit] for limit in limits)
            for name, limits in LIMITS.items()
        }
        layers = {
            name: ((2 + function) * epsilon, epsilon * max(roundings, math.sqrt(terms)))
            for name, (epsilon, terms, function) in LAYERS.items()
        }
        return {**letters, **layers}

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, dict) and {*got} == {*case.expected},
            f"expected a dictionary of {', '.join(case.expected)}, got {words.short(got)}",
        )
        names = [n for n, each in case.expected.items() if isinstance(each, str) == self._texts(
            report.part)]  # fmt: skip
        for name in names:
            report.expect(
                self._form(got[name], report.part),
                f"{name}: expected "
                + ("three letters P or F" if self._texts(report.part) else "(rtol, atol)")
                + f", got {words.short(got[name])}",
            )
        right = sum(self._right(got[name], case.expected[name]) for name in names)
        report.rows(right, len(names), f"{right} of {len(names)} are right")

    @staticmethod
    def _texts(part: str) -> bool:
        return part == "checks"

    def _form(self, value: Any, part: str) -> bool:
        if self._texts(part):
            return isinstance(value, str) and len(value) == 3 and {*value} <= {*"PF"}
        return (
            isinstance(value, list | tuple)
            and len(value) == 2
            and all(
                isinstance(each, int | float | np.number) and not isinstance(each, bool)
                for each in value
            )
        )

    @staticmethod
    def _right(got: Any, expected: Any) -> bool:
        if isinstance(expected, str):
            return bool(got == expected)
        return all(math.isclose(a, e, rel_tol=0.01) for a, e in zip(got, expected, strict=True))

    def feedback(
        self, answer: Any, cases: Sequence[Case], verdict: verdicts.Verdict
    ) -> verdicts.Verdict:  # fmt: skip
        """Return the verdict without a count of rows; a fact from the third wrong answer on."""
        if verdict.status == "correct":
            told = (
                "one run passes and fails: a limit belongs to a dtype, not to a section of a page",
                "the product allows 32 epsilons in every variant, as its terms have the root 32",
            )
            return replace(verdict, messages=(*verdict.messages, *told))
        if not any(0 <= part.share < 1 for part in verdict.parts) or not isinstance(answer, dict):
            return verdict
        tried = _tried[self.id, self.variant]
        tried[repr(sorted(answer.items(), key=lambda row: str(row[0])))] = None
        said = feedback.WRONG
        if len(tried) > feedback.ALONE:
            right = cases[0].expected
            first = next((n for n in right if not self._right(answer[n], right[n])), "")
            said += f". Row {first}: {FACTS[first]}" if first else ""
        parts = tuple(
            part if part.share in (1, -1) else replace(part, share=-1.0, message=said)
            for part in verdict.parts
        )
        points = sum(part.earned for part in parts if part.share == 1)
        return replace(verdict, status="incorrect", points=points, parts=parts)


# ----------------------------------------------------------------------------------------- blaming

Layer = dict[str, Any]


def first_wrong(layers: Sequence[Layer], passed: bool, limit: float) -> str | None:
    """Return the name of the layer to blame."""
    keys = ("local",) if passed else ("local", "cumulative")
    wrong = (
        layer["name"]
        for key in keys
        for layer in layers
        if layer[key] is not None and layer[key] > limit
    )
    return next(wrong, None)


def _layers(random: np.random.Generator, local: Any, cumulative: Any) -> list[Layer]:
    """Return layers with a share of each kind; None is not measured."""
    names = random.permutation(
        [
            "conv1",
            "relu1",
            "norm",
            "q",
            "k",
            "v",
            "scores",
            "softmax",
            "mix",
            "add",
            "gelu",
            "logits",
        ]
    )
    rows = zip(names, local, cumulative, strict=False)
    return [{"name": str(name), "local": _share(a), "cumulative": _share(b)} for name, a, b in rows]


def _share(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)


@exercise(
    "17-4",
    hints=(
        "Two loops, one after the other: first over the local shares of all layers, then over the "
        "cumulative ones.",
        "None is no number: it cannot be compared. And when do cumulative shares prove nothing?",
    ),
    variants=({"limit": 1}, {"limit": 1.5}, {"limit": 2}, {"limit": 3}),
    seams=("vklab.apps.compare.layerwise.layers.first_failing",),
)
class ToBlame(Function):
    parts = {"local": ("a layer is wrong by itself", 2),
             "cumulative": ("only cumulative shares are too large", 1),
             "passed": ("the outputs passed", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        limit = self.params["limit"]

        def fine(count: int, most: float = 0.9) -> np.ndarray:
            return random.uniform(0.05, most, count) * limit

        def case(part: str, layers: list[Layer], passed: bool, on: str) -> Case:
            return Case(part, (layers, passed), on=on)

        def several(on: str, passed: bool = False) -> Case:
            count, local = 10, fine(10).tolist()
            first, second, third = sorted(random.choice(np.arange(1, count - 1), 3, replace=False))
            local[first], local[second] = 1.1 * limit, float(random.uniform(5, 9)) * limit
            local[third] = float(random.uniform(2, 4)) * limit
            cumulative = np.sort(fine(count, 3))
            cumulative[0] = 1.2 * limit  # rounding alone is past the tolerance
            local[0] = None
            return case(
                "passed" if passed else "local", _layers(random, local, cumulative), passed, on
            )

        for _ in range(4):
            yield several("several local shares above the limit")
        local = [0.2 * limit, None, limit, math.inf, 0.4 * limit]
        yield case("local", _layers(random, local, fine(5)), False, "an infinite local share")
        for part, passed in (("local", False), ("passed", True)):
            edge = [0.5 * limit, 1.0 * limit, 1.0 * limit, 1.002 * limit, 7.0 * limit]
            said = "shares that equal the limit"
            yield case(part, _layers(random, edge, [2.0 * limit] * 5), passed, said)
        for _ in range(3):
            count, at = 9, int(random.integers(2, 6))
            after = random.uniform(0.5, 9, count - at) * limit
            cumulative = np.concatenate([fine(at), after])
            cumulative[at] = random.uniform(1.05, 1.3) * limit
            cumulative[-2] = 12 * limit
            local = [None if random.random() < 0.5 else each for each in fine(count)]
            layers = _layers(random, local, cumulative)
            yield case("cumulative", layers, False, "no local share above the limit")
            yield case("passed", layers, True, "the same, and the outputs passed")
        none = _layers(random, [None] * 4, [None, 0.3 * limit, 5 * limit, 0.5 * limit])
        yield case("cumulative", none, False, "nothing local was measured")
        yield case("cumulative", _layers(random, [None] * 4, [None] * 4), False, "nothing measured")
        yield case("cumulative", _layers(random, fine(6), fine(6)), False, "all shares below")
        equal = _layers(random, [0.1, 0.1, 0.1], [1.0 * limit, 1.0 * limit, 1.5 * limit])
        yield case("cumulative", equal, False, "a cumulative share that equals the limit")
        yield case("cumulative", [], False, "no layers")
        for _ in range(2):
            yield several("a wrong layer for which later ones made up", passed=True)

    def expected(self, case: Case) -> Any:
        return first_wrong(*case.args, self.params["limit"])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.equal(got, case.expected)


# -------------------------------------------------------------------------------------- the search


def least_cost(chances: Sequence[int], costs: Sequence[int], setup: int) -> int:
    """Return the least expected cost of a plan in thousandths, over all sets of suspects."""
    count = len(chances)
    masks = np.arange(1 << count)
    weight = sum(chance * (masks >> n & 1) for n, chance in enumerate(chances))
    tests, prices = [], []
    for i in range(count):
        for j in range(i, count):
            tests.append((1 << j + 1) - (1 << i))
            prices.append(setup + sum(costs[i : j + 1]))
    inside, price = np.array(tests), np.array(prices)
    least = np.zeros(1 << count, np.int64)
    for mask in range(3, 1 << count):
        if mask & (mask - 1):
            fails = mask & inside
            works = (fails != 0) & (fails != mask)
            fails = fails[works]
            both = price[works] * weight[mask] + least[fails] + least[mask ^ fails]
            least[mask] = both.min()
    return int(least[-1])


@exercise(
    "17-5",
    hints=(
        "After some tests a set of layers is still suspected. A test divides it in two. What does "
        "the best plan for a set cost, if the best plans for all smaller sets are known?",
        "`functools.cache` remembers a set; a tuple of layers can be its argument. Each test is "
        "paid with the chance of the whole set, whatever it tells.",
        "The suspects need not be neighbours. A test of layers i to j also divides a set with "
        "gaps, and is paid for every layer from i to j.",
    ),
    seconds=60,
    extra=True,
)
class SearchPlan(Function):
    parts = {"better": ("better than bisection: all points for the best simple rule", 2),
             "best": ("better than every simple rule: all points for the optimum", 3)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for setup in (2, 3, 4):
            yield self._hard(random, setup)
        costs = random.integers(1, 10, plans.LAYERS).tolist()
        sure = [0] * plans.LAYERS
        sure[int(random.integers(1, plans.LAYERS))] = plans.WHOLE
        some = [0, 200] * (plans.LAYERS // 2)
        some[1] = 0
        yield Case(args=(sure, costs, 3), on="all chances on one layer", facts={"free": True})
        yield Case(args=(some, costs, 2), on="layers with chance 0", facts={"free": True})

    def _hard(self, random: np.random.Generator, setup: int) -> Case:
        """Draw layers until every rule is at least 3 % above the optimum."""
        while True:
            chances, costs = plans.draw_layers(random)
            found = {
                name: plans.total(plans.built(rule(chances, costs, setup), len(chances)),
                                  chances, costs, setup)
                for name, rule in plans.OBVIOUS.items()
            }  # fmt: skip
            best = least_cost(chances, costs, setup)
            rule = min(found.values())
            if rule >= 1.03 * best and rule <= 0.97 * found["bisection"]:
                facts = {"bisection": found["bisection"], "rule": rule}
                return Case(args=(chances, costs, setup), on=f"set-up {setup}", facts=facts)

    def expected(self, case: Case) -> Any:
        return least_cost(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        chances, costs, setup = case.args
        wrong = plans.flaw(got, len(chances))
        report.expect(not wrong, wrong)
        try:
            mine = plans.total(got, chances, costs, setup)
        except ValueError as error:
            report.expect(False, str(error))
        if case.facts.get("free"):
            return
        best, rule = case.expected / plans.WHOLE, case.facts["rule"] / plans.WHOLE
        plain, words_of = case.facts["bisection"] / plans.WHOLE, "units of cost on average"
        if report.part == "better":
            report.score(mine / plans.WHOLE, best, plain, words_of, full=rule)
        else:
            report.score(mine / plans.WHOLE, best, rule, words_of)


# ------------------------------------------------------------------------------------- predictions

SHARES = ("none", "about a tenth", "about half", "more than nine tenths")


@exercise("17-p1", hints=("How far do the logits of a small network move, if its weights are?",))
class BlindBackend(Predict):
    options = dict.fromkeys(("default_weights", "trained_weights"), SHARES)
    explains = (
        "With default weights the logits hardly depend on the image: each differs from its mean by "
        "about 0.01 at most, so more than nine tenths pass. With trained weights the logits move "
        "by whole units, and none passes."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"default_weights": SHARES[3], "trained_weights": SHARES[0]}


@exercise("17-p2", hints=("Which line runs before the comparison, and what does it raise?",))
class PrintedAsSkip(Predict):
    options = {"gpu_row": ("PASS", "FAIL", "SKIP")}
    explains = (
        "`.numpy()` raises a TypeError for a tensor on a GPU. `except Exception` stores its text, "
        "and the table prints SKIP: a bug of the report looks like a machine without the backend. "
        "No row is FAIL, so the count of failures is 0."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"gpu_row": "SKIP", "failures": 0}
