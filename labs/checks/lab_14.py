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
        tops = random.permutation(above[above % normal == normal - 1])[:5]  # carries begin here
        some = np.append(some, tops)
        largest, gap = numbers[-1], gaps[-1]
        least = numbers[1]
        # float16 has 11 bits for its normal numbers: it moves these by less than half a step.
        fine = middles[above][middles[above] >= 2.0**-14]
        fine = random.choice(fine, min(30, len(fine)), replace=False)
        return {
            "values": [*near[some], *numbers[some], *numbers[tops] + gaps[tops] * 0.7],
            "ties": middles[some],
            "small": [0, 0, *numbers[1:normal], *near[:normal], *middles[:normal], least * 0.51,
                      least * 0.49, least * 1e-4, 1e-42],
            "large": [largest, largest + gap * 0.3, largest + gap * 0.49, largest + gap * 0.51,
                      largest + gap, largest * 1.7, largest * 2.5, largest * 70, 1e30, np.inf,
                      np.inf, largest - gap * 0.3, largest / 2],
            "double": [*fine * (1 + 2.0**-12), *fine * (1 - 2.0**-12)],
        }  # fmt: skip

    def expected(self, case: Case) -> Any:
        x, *bits = case.args
        return nearest_codes(x, positive_numbers(*bits, self._bias(bits[0])))

    def compare(self, case: Case, got: Any, report: Report) -> None:
        wanted = case.expected
        alike = isinstance(got, np.ndarray) and got.shape == wanted.shape
        if alike and got.dtype == wanted.dtype and (got != wanted).any():
            place = int(np.flatnonzero(got != wanted)[0])
            width = 1 + case.args[1] + case.args[2]
            report.expect(
                False,
                f"x[{place}] = {case.args[0][place]:.9g}: expected the code "
                f"{wanted[place]:0{width}b}, got {got[place]:0{width}b}; "
                f"{int((got != wanted).sum())} of {got.size} differ",
            )
        report.equal(got, wanted)


# ------------------------------------------------------------------------------------------- 14-3


def exact_layer(a: np.ndarray, b: np.ndarray, a_zero: int, b_zeros: np.ndarray, steps: Any,
                out: tuple[float, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return the sums, the codes, and the codes before rounding."""
    wide = a.astype(np.int64) - a_zero, b.astype(np.int64) - b_zeros.astype(np.int64)
    sums = wide[0] @ wide[1]
    places = sums * (steps[0] * steps[1]) / out[0]
    codes = np.clip(np.round(places) + out[1], 0, 255)
    return sums.astype(np.int32), codes.astype(np.uint8), places


@exercise(
    "14-3",
    hints=(
        "Which numbers can a - a_zero have, and do they fit into uint8? And a product of two "
        "differences?",
        "int32 holds every sum here. Which type does NumPy give to uint8 @ int8?",
        "One code has the number sum x step of A x step of the column. How many steps of the "
        "output is that?",
    ),
)
class Int8Layer(Function):
    parts = {"sums": ("exact sums", 3), "codes": ("codes of the output", 2)}
    follows = {"codes": "sums"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part, zeros in (("sums", (7, True)), ("sums", (0, True)), ("sums", (128, False)),
                            ("sums", (0, False)), ("sums", (255, True)), ("codes", (7, True)),
                            ("codes", (0, False)), ("codes", (128, True))):  # fmt: skip
            shape = (int(n) for n in random.integers((2, 3, 2), (6, 40, 6)))
            yield self._drawn(part, random, (*shape,), *zeros)
        yield self._drawn("sums", random, (3, 0, 2), 5, True, "depth 0")
        yield self._drawn("codes", random, (2, 0, 3), 5, True, "depth 0")
        yield self._drawn("sums", random, (0, 4, 2), 5, True, "no rows")
        most = (np.full((1, 521), 255, np.uint8), np.full((521, 2), 127, np.int8), 0,
                np.array([0, -1], np.int8))  # fmt: skip
        yield Case("sums", (*most, (1.0, np.ones(2)), (2.0**17, 0)), on="depth 521 of 255 x 127")
        least = (np.zeros((2, 300), np.uint8), np.full((300, 1), -128, np.int8), 255,
                 np.array([127], np.int8))  # fmt: skip
        yield Case("sums", (*least, (1.0, np.ones(1)), (2.0**18, 128)), on="the widest differences")
        # Steps that are powers of two: middles of two codes, and numbers outside of the codes.
        a = np.arange(0, 64, dtype=np.uint8).reshape(-1, 1)
        b, zeros = np.array([[1, -1, 3, 100, -100]], np.int8), np.zeros(5, np.int8)
        for zero in (100, 101):
            args = a, b, 1, zeros, (0.5, np.array([1.0, 1.0, 0.5, 0.25, 0.25])), (1.0, zero)
            yield Case("codes", args, on=f"middles of two codes, zero {zero}")

    def _drawn(self, part: str, random: np.random.Generator, shape: tuple[int, ...], a_zero: int,
               weighted: bool, words_of: str = "") -> Case:  # fmt: skip
        m, k, n = shape
        a = random.integers(0, 256, (m, k)).astype(np.uint8)
        b = random.integers(-128, 128, (k, n)).astype(np.int8)
        zeros = random.integers(-60, 60, n).astype(np.int8) if weighted else np.zeros(n, np.int8)
        while True:
            steps = float(random.uniform(0.005, 0.05)), random.uniform(0.001, 0.01, n)
            sums, _, _ = exact_layer(a, b, a_zero, zeros, steps, (1.0, 0))
            real = np.abs(sums * (steps[0] * steps[1])).max(initial=0.1)
            out = float(real / random.uniform(80, 200)), int(random.integers(90, 160))
            places = exact_layer(a, b, a_zero, zeros, steps, out)[2]
            if (np.abs(places - np.floor(places) - 0.5) > 1e-6).all():
                break
        told = words_of or f"{m} x {k} times {k} x {n}"
        with_zeros = "with" if weighted else "without"
        return Case(part, (a, b, a_zero, zeros, steps, out),
                    on=f"{told}, a_zero = {a_zero}, {with_zeros} b_zeros")  # fmt: skip

    def expected(self, case: Case) -> Any:
        return exact_layer(*case.args)[:2]

    def compare(self, case: Case, got: Any, report: Report) -> None:
        _pair(got, "(sums, codes)", report)
        number = 0 if report.part == "sums" else 1
        report.equal(got[number], case.expected[number], report.part)


# ------------------------------------------------------------------------------------------- 14-4

OPTIONS = ("static", "dynamic", "weight-only", "FP8")
NETWORKS = (
    "A camera finds scratches: convolutions with Relu. 500 pictures of the same camera are there. "
    "The GPU multiplies int8",
    "A controller reads voltages from 0 to 3.3. Each layer ends in a Clip to fixed limits. There "
    "is no picture, no log, no sample. Its chip has integer arithmetic only",
    "A classifier of e-mails, Linear and Relu, in batches of 64. The customer may not hand out one "
    "mail before delivery. The CPU multiplies int8",
    "Sound, Linear and Relu, in batches on a CPU that multiplies int8. 300 recordings are there, "
    "but one batch may be a thousand times louder than the next",
    "A chat for one person: one token at a time on a laptop's GPU. Loading 7 billion float16 "
    "numbers takes nearly all of the time",
    "A network with Relu needs 24 GB in float16. The GPU has 8 GB, and time to spare. It "
    "multiplies float16 well",
    "A transformer in large batches on a GPU with units for every type. A few channels are a "
    "thousand times larger than the rest, and they are others in each batch; one step for all "
    "channels",
    "Training sends Relu's gradients between two GPUs, 8 bits for each number. Their sizes reach "
    "from 1 to 2^20, and all sizes matter",
)
# Only `questions` may use these: a release ships what the variants use.
ROWS = (
    (
        "static",
        "The ranges can be known before delivery, and a layer that knows its range need not look "
        "for it in each run.",
        "The 500 pictures calibrate the ranges, and the int8 units multiply with fixed steps.",
    ),
    (
        "static",
        "Who needs samples? Someone who does not know the range of each value.",
        "The input and every Clip have known limits, so fixed ranges need no sample.",
    ),
    (
        "dynamic",
        "Before delivery nobody has seen one activation of this customer.",
        "Without calibration data each run measures its ranges. Large batches make int8 products "
        "worth it.",
    ),
    (
        "dynamic",
        "A range that holds the loudest recording leaves less than one step to the quiet ones.",
        "Only ranges measured in each batch fit both a loud and a quiet one.",
    ),
    (
        "weight-only",
        "One token uses each stored number once, so bytes decide, not arithmetic.",
        "Fewer bytes of weights are loaded for each token. Activations are small: their codes "
        "would save nothing.",
    ),
    (
        "weight-only",
        "24 GB to less than 8 GB is less than a third: 8-bit codes of everything are 12 GB.",
        "Only four bits for each weight fit. They are widened to float16 for the products.",
    ),
    (
        "FP8",
        "With one step for all channels, integer codes of the small channels all become 0, and no "
        "earlier batch tells which channels these are.",
        "A float's error is relative: it is the same for the large and the small channels.",
    ),
    (
        "FP8",
        "An integer code of 8 bits reaches from 1 to 127 steps, which is less than 2^7.",
        "e5m2 reaches over nearly 2^30, so each size keeps two bits of mantissa.",
    ),
)


def _networks(*numbers: int) -> dict[str, str]:
    return {letter: NETWORKS[number] for letter, number in zip("abcd", numbers, strict=True)}


@exercise(
    "14-4",
    hints=(
        "For each network: what is known of the ranges of its activations before it runs?",
        "What limits it: bytes of weights, or multiplications? Only one of the four leaves the "
        "activations as they are.",
        "Which codes serve numbers of very different sizes at the same time?",
    ),
    variants=(_networks(2, 0, 5, 6), _networks(1, 7, 3, 2), _networks(4, 3, 7, 1),
              _networks(6, 5, 0, 4)),
)  # fmt: skip
class WhichQuantisation(Choice):
    parts = {"all": ("every network", 3)}

    def questions(self) -> Mapping[str, Question]:
        rows = {
            network: Question(right, OPTIONS, fact, reason)
            for network, (right, fact, reason) in zip(NETWORKS, ROWS, strict=True)
        }
        return {letter.upper(): rows[network] for letter, network in self.params.items()}


@exercise("14-p1", hints=("How large can one product be, and how large two of them together?",))
class PairsOverflow(Predict):
    explains = (
        "Two products of 255 and -128 add up to -65,280, and int16 ends at -32,768. With weights "
        "of 7 bits it is 2 x 255 x -64 = -32,640; with activations below 128 it is "
        "2 x 127 x -128 = -32,512. Both fit."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"full_range": True, "seven_bit_weights": False, "seven_bit_activations": False}
