"""Exercises of lab 14: a scale and a zero point, small floats, an exact int8 layer, a choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report

CODES = "vklab.apps.quantization.codes"


def _pair(got: Any, wanted: str, report: Report) -> None:
    report.expect(
        isinstance(got, list | tuple) and len(got) == 2,
        f"expected {wanted}, got {words.short(got)}",
    )


# ------------------------------------------------------------------------------------------- 14-1


def exact_scale(low: float, high: float, bits: int, signed: bool) -> tuple[float, int]:
    """Return the step and the code of 0 of a range, by exact fractions."""
    least, most = min(Fraction(low), Fraction(0)), max(Fraction(high), Fraction(0))
    if least == most:
        return 1.0, 0
    step = (most - least) / (2**bits - 1)
    return float(step), round(-least / step) - (2 ** (bits - 1) if signed else 0)


@exercise(
    "14-1",
    hints=(
        "First make the range hold 0: how far down, and how far up, does it have to go?",
        "2^bits codes: how many steps are there between the first and the last one?",
        "How many steps is 0 above the lower end of the range? Count them from the first code.",
    ),
    seams=(f"{CODES}.of_range", f"{CODES}.quantized"),
)
class ScaleAndZero(Function):
    parts = {"around": ("ranges with numbers on both sides of 0", 2),
             "beside": ("ranges that do not hold 0", 1),
             "empty": ("a range that is 0 alone, and others of one number", 1)}  # fmt: skip
    follows = {"beside": "around", "empty": "around"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def case(part: str, low: float, high: float, bits: int, signed: bool) -> Case:
            kind = "signed" if signed else "unsigned"
            args = (float(low), float(high), int(bits), bool(signed))
            return Case(part, args, on=f"{args[0]:.5g} to {args[1]:.5g}, {bits} bits, {kind}")

        for bits in range(2, 9):
            for signed in (False, True):
                low, high = random.lognormal(0, 2, 2)
                yield case("around", -low, high, bits, signed)
        for half in (0.5, 1.5, 2.5):  # the code of 0 lies in the middle of two codes
            for signed in (False, True):
                yield case("around", -half, 255 - half, 8, signed)
                yield case("around", -half, 7 - half, 3, signed)
        for bits, signed in ((8, True), (8, False), (5, True), (4, False), (2, True)):
            low, more = random.lognormal(0, 1.5, 2)
            yield case("beside", low, low + more, bits, signed)
            yield case("beside", -low - more, -low, bits, signed)
            yield case("beside", 0, more, bits, signed)
            yield case("beside", -more, 0, bits, signed)
        for bits, signed in ((8, False), (8, True), (4, True), (2, False)):
            yield case("empty", 0, 0, bits, signed)
            number = float(random.lognormal(0, 2))
            yield case("empty", number, number, bits, signed)
            yield case("empty", -number, -number, bits, signed)

    def expected(self, case: Case) -> Any:
        return exact_scale(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        _pair(got, "(step, zero)", report)
        step, zero = case.expected
        report.close(got[0], step, 1e-12, 0, "the step")
        report.kind(got[1], int | np.integer, "a whole number as the code of 0")
        report.equal(got[1], zero, "the code of 0")


# ------------------------------------------------------------------------------------------- 14-2


def positive_numbers(exponent_bits: int, mantissa_bits: int, bias: int) -> np.ndarray:
    """Return the numbers of a small float format that are not negative; a code is its index."""
    exponent, mantissa = np.divmod(np.arange(2 ** (exponent_bits + mantissa_bits)),
                                   2**mantissa_bits)  # fmt: skip
    normal = (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)
    numbers: np.ndarray = np.where(
        exponent > 0, normal, mantissa / 2**mantissa_bits * 2.0 ** (1 - bias)
    )
    return numbers


def nearest_codes(x: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the code of the nearest number for each of `x`, ties to the even code."""
    size, last = np.abs(x).astype(np.float64), len(numbers) - 1
    middles = (numbers[:-1] + numbers[1:]) / 2
    codes = np.searchsorted(middles, size)  # the middles below each size
    tie = (codes < last) & (size == middles[np.minimum(codes, last - 1)])
    codes = codes + (tie & (codes % 2 == 1))
    return (codes + np.signbit(x) * len(numbers)).astype(np.uint8)


@exercise(
    "14-2",
    hints=(
        "Inside one power of two, neighbours have the same distance. Divide a number by this "
        "distance, and round: np.rint takes ties to even.",
        "np.frexp(size) gives the power of two. Below the least normal number the distance no "
        "longer shrinks, so put a lower limit under the size before you ask for its power.",
        "Codes of numbers that are not negative grow with the numbers. What is the largest one?",
    ),
    variants=({"shift": 0}, {"shift": 1}, {"shift": 2}, {"shift": 4}),
)
class ToSmallFloat(Function):
    parts = {"values": ("numbers of every size in the range", 1),
             "ties": ("the middle of two neighbours", 1),
             "small": ("subnormals, and numbers next to 0", 1),
             "large": ("numbers that are too large, and infinity", 1),
             "double": ("numbers that float16 rounds onto a middle", 1)}  # fmt: skip
    follows = {"ties": "values", "small": "values", "large": "values", "double": "values ties"}
    FORMATS = ((5, 2), (4, 3), (3, 4), (2, 5), (3, 2))

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for bits in self.FORMATS:
            numbers = positive_numbers(*bits, self._bias(bits[0]))
            for part, drawn in self._drawn(random, numbers, 2 ** bits[1]).items():
                sizes = np.asarray(drawn, np.float32)
                x = sizes * random.choice([-1, 1], sizes.size).astype(np.float32)
                x = random.permutation(x)
                yield Case(part, (x, *bits), on=f"{bits[0]} bits of exponent, {bits[1]} of "
                           "mantissa")  # fmt: skip
            yield Case("values", (np.zeros(0, np.float32), *bits), on="no numbers", mixed=True)

    def _bias(self, exponent_bits: int) -> int:
        return 2 ** (exponent_bits - 1) - 1 + int(self.params["shift"])

    @staticmethod
    def _drawn(random: np.random.Generator, numbers: np.ndarray, normal: int) -> dict[str, Any]:
        """Return sizes for each part; `normal` is the code of the least normal number."""
        gaps, middles = np.diff(numbers), (numbers[:-1] + numbers[1:]) / 2
        near = numbers[:-1] + gaps * random.choice([0.15, 0.3, 0.42, 0.58, 0.7, 0.9], len(gaps))
        above = np.arange(normal, len(gaps))
        some = random.choice(above, min(30, len(above)), replace=False)
        largest, gap = numbers[-1], gaps[-1]
        least = numbers[1]
        # float16 has 11 bits for its normal numbers: it moves these by less than half a step.
        fine = middles[above][middles[above] >= 2.0**-14]
        fine = random.choice(fine, min(30, len(fine)), replace=False)
        return {
            "values": [*near[some], *numbers[some]],
            "ties": middles[some],
            "small": [0, 0, *numbers[1:normal], *near[:normal], *middles[:normal], least * 0.51,
                      least * 0.49, least * 1e-4, 1e-42],
            "large": [largest, largest + gap * 0.3, largest + gap * 0.49, largest + gap * 0.51,
                      largest + gap, largest * 1.7, largest * 2.5, largest * 70, 1e30, np.inf,
                      np.inf, largest - gap * 0.3],
            "double": [*fine * (1 + 2.0**-12), *fine * (1 - 2.0**-12)],
        }  # fmt: skip

    def expected(self, case: Case) -> Any:
        x, *bits = case.args
        return nearest_codes(x, positive_numbers(*bits, self._bias(bits[0])))

    def compare(self, case: Case, got: Any, report: Report) -> None:
        wanted = case.expected
        right = isinstance(got, np.ndarray) and (got.shape, got.dtype) == (wanted.shape,
                                                                           wanted.dtype)  # fmt: skip
        if right and (got != wanted).any():
            place = int(np.flatnonzero(got != wanted)[0])
            width = 1 + case.args[1] + case.args[2]
            report.expect(
                False,
                f"x[{place}] = {case.args[0][place]:.9g}: expected the code "
                f"{wanted[place]:0{width}b}, got {got[place]:0{width}b}; "
                f"{int((got != wanted).sum())} of {got.size} differ",
            )
        report.equal(got, wanted)
