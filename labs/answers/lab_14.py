"""Answers to try the checks of lab 14 with: wrong ones, and a second right one for each."""

import math

import numpy as np

from vklab_course.author.answers import alternative, equivalent, wrong


def _scaler(widen=True, steps=lambda bits: 2**bits - 1, nearest=round, first=lambda bits: 2 ** (
            bits - 1), empty=(1.0, 0), kind=int):  # fmt: skip
    """Return an answer to 14-1 in which one decision may be wrong."""
    def scale_and_zero(low, high, bits, signed):
        if widen:
            low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        if low == high:
            return empty
        below = steps(bits) * -low / (high - low)
        return (high - low) / steps(bits), kind(nearest(below) - (first(bits) if signed else 0))

    return scale_and_zero


alternative("14-1")(_scaler())
for words, decision in (
    ("the code of 0", {"nearest": int}),
    ("the code of 0", {"nearest": lambda x: math.floor(x + 0.5)}),
    ("the code of 0", {"nearest": math.ceil}),
    ("the step", {"widen": False}),
    ("the step", {"steps": lambda bits: 2**bits}),
    ("the step", {"steps": lambda bits: 255}),
    ("the code of 0", {"first": lambda bits: 0}),
    ("the code of 0", {"first": lambda bits: 128}),
    ("expected 0, got -128", {"empty": (1.0, -128)}),
    ("the step", {"empty": (0.0, 0)}),
    ("the step", {"empty": (math.nan, 0)}),
    ("a whole number as the code of 0, got a float", {"kind": float}),
    ("expected (step, zero), got 1", {"empty": 1}),
):
    wrong("14-1", says=words)(_scaler(**decision))


@wrong("14-1", says="the step")
def symmetric(low, high, bits, signed):
    largest = max(-low, high)
    return largest / (2 ** (bits - 1) - 1), 0 if signed else 2 ** (bits - 1)


def _formats(bits, shift=0):
    """Return all numbers of a format with their codes, from loops over exponent and mantissa."""
    bias, found = 2 ** (bits[0] - 1) - 1 + shift, []
    for exponent in range(2 ** bits[0]):
        for mantissa in range(2 ** bits[1]):
            whole = mantissa + (2 ** bits[1] if exponent else 0)
            found.append(math.ldexp(whole, max(exponent, 1) - bias - bits[1]))
    return np.array(found)


def _floater(before=lambda x: x, flush=False, even=True, sign=np.signbit, shift=0, top=0):
    """Return an answer to 14-2, by distances to all numbers, in which one decision may be wrong."""
    def to_small_float(x, exponent_bits, mantissa_bits):
        numbers = _formats((exponent_bits, mantissa_bits), shift)
        with np.errstate(over="ignore"):
            size = np.minimum(np.abs(before(x)).astype(np.float64), numbers[-1])
        far = np.abs(size[:, None] - numbers)
        codes = far.argmin(axis=1)
        if even:
            next_one = np.minimum(codes + 1, len(numbers) - 1)
            rows = np.arange(len(x))
            codes = codes + (codes % 2) * (far[rows, codes] == far[rows, next_one])
            codes = np.minimum(codes, len(numbers) - 1 - top)
        if flush:
            codes = np.where(codes < 2**mantissa_bits, 0, codes)
        return (codes + sign(x) * len(numbers)).astype(np.uint8)

    return to_small_float


alternative("14-2")(_floater())
for words, decision in (
    ("expected the code", {"even": False}),
    ("expected the code", {"before": lambda x: x.astype(np.float16)}),
    ("expected the code", {"flush": True}),
    ("expected the code", {"sign": lambda x: x < 0}),
    ("expected the code", {"sign": lambda x: 0}),
    ("expected the code", {"shift": 1}),
    ("expected the code", {"top": 1}),
):
    wrong("14-2", says=words)(_floater(**decision))
wrong("14-2", says="expected dtype uint8, got int64")(
    lambda x, *bits: _floater()(x, *bits).astype(np.int64))


@wrong("14-2", says="raised KeyError")
def by_ml_dtypes(x, exponent_bits, mantissa_bits):
    import ml_dtypes

    made = {(5, 2): ml_dtypes.float8_e5m2, (4, 3): ml_dtypes.float8_e4m3fn,
            (3, 4): ml_dtypes.float8_e3m4, (3, 2): ml_dtypes.float6_e3m2fn}  # fmt: skip
    return x.astype(made[exponent_bits, mantissa_bits]).view(np.uint8)
