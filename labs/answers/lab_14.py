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
def empty_before_it_is_widened(low, high, bits, signed):
    return (1.0, 0) if low == high else _scaler()(low, high, bits, signed)


@wrong("14-1", says="the step")
def step_in_float32(low, high, bits, signed):
    step, zero = _scaler()(low, high, bits, signed)
    return float(np.float32(step)), zero


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


def _by_bits(carry=True, nearest=np.rint, clip=True):
    """Return an answer to 14-2 that keeps the upper bits of the mantissa of float64."""
    def to_small_float(x, exponent_bits, mantissa_bits):
        numbers = _formats((exponent_bits, mantissa_bits))
        size = np.minimum(np.abs(x).astype(np.float64), numbers[-1] if clip else 1e38)
        fraction, power = np.frexp(size)
        normal = np.abs(x) >= numbers[2**mantissa_bits]
        steps = nearest(fraction * 2 ** (mantissa_bits + 1)).astype(int)
        bias = 2 ** (exponent_bits - 1) - 1
        if not carry:  # the exponent stays, the mantissa begins again
            steps = 2**mantissa_bits + steps % 2**mantissa_bits
        codes = (power + bias - 2) * 2**mantissa_bits + steps
        codes = np.minimum(codes, len(numbers) - 1) if clip else codes % len(numbers)
        small = nearest(np.abs(x) / numbers[1]).clip(0, 2**mantissa_bits)
        return (np.where(normal, codes, small) + np.signbit(x) * len(numbers)).astype(np.uint8)

    return to_small_float


wrong("14-2", says="expected the code")(_by_bits(carry=False))
for nearest_one in (np.floor, lambda steps: np.floor(steps + 0.5), np.ceil):
    wrong("14-2", says="expected the code")(_by_bits(nearest=nearest_one))
wrong("14-2", says="expected the code")(_by_bits(clip=False))


@wrong("14-2", says="expected the code")
def by_ml_dtypes(x, exponent_bits, mantissa_bits):
    import ml_dtypes

    made = {(5, 2): ml_dtypes.float8_e5m2, (4, 3): ml_dtypes.float8_e4m3fn,
            (3, 4): ml_dtypes.float8_e3m4, (3, 2): ml_dtypes.float6_e3m2fn}  # fmt: skip
    return x.astype(made[exponent_bits, mantissa_bits]).view(np.uint8)


def _layer(wide=np.int64, a_zero=lambda z: z, b_zeros=lambda z: z, constant=True,
           sums_type=np.int32, nearest=np.rint, clip=True, steps=lambda s: s, zero_first=False,
           swapped=False, codes_type=np.uint8):  # fmt: skip
    """Return an answer to 14-3, by the four sums, in which one decision may be wrong."""
    def int8_layer(a, b, a_zero_, b_zeros_, steps_, out):
        za, zb = a_zero(a_zero_), b_zeros(b_zeros_).astype(np.int64)
        sums = (a.astype(wide) @ b.astype(wide)).astype(np.int64)
        sums = sums - a.sum(axis=1, dtype=np.int64)[:, None] * zb - za * b.sum(0, dtype=np.int64)
        if constant:
            sums = sums + a.shape[1] * za * zb
        real = sums * (steps_[0] * steps(steps_[1]))
        codes = nearest(real / out[0] + out[1]) if zero_first else nearest(real / out[0]) + out[1]
        codes = codes.clip(0, 255) if clip else codes.astype(np.int64)
        made = sums.astype(sums_type), codes.astype(codes_type)
        return made[::-1] if swapped else made

    return int8_layer


alternative("14-3")(_layer())
for words, decision in (
    ("elements differ", {"wide": np.float32}),
    ("elements differ", {"a_zero": lambda z: 0, "b_zeros": lambda z: z * 0}),
    ("elements differ", {"a_zero": lambda z: 0}),
    ("elements differ", {"b_zeros": lambda z: z * 0}),
    ("elements differ", {"b_zeros": lambda z: np.full_like(z, z[0])}),
    ("elements differ", {"constant": False}),
    ("expected dtype int32, got int64", {"sums_type": np.int64}),
    ("expected dtype uint8, got int64", {"codes_type": np.int64}),
    ("elements differ", {"nearest": np.floor}),
    ("elements differ", {"nearest": np.trunc}),
    ("elements differ", {"nearest": lambda x: np.floor(x + 0.5)}),
    ("elements differ", {"zero_first": True}),
    ("elements differ", {"clip": False}),
    ("elements differ", {"steps": lambda s: s[0]}),
    ("elements differ", {"steps": lambda s: s.mean()}),
    ("expected dtype int32, got uint8", {"swapped": True}),
):
    wrong("14-3", says=words)(_layer(**decision))


def _with_sums(sums_of):
    """Return an answer to 14-3 whose sums are made by a function, with right codes of them."""
    def int8_layer(a, b, a_zero, b_zeros, steps, out):
        sums = sums_of(a, b, a_zero, b_zeros)
        codes = np.rint(sums * (steps[0] * steps[1]) / out[0]) + out[1]
        return sums.astype(np.int32), codes.clip(0, 255).astype(np.uint8)

    return int8_layer


@wrong("14-3", says="elements differ")
@_with_sums
def in_the_given_dtypes(a, b, a_zero, b_zeros):
    return a @ b


@wrong("14-3", says="elements differ")
@_with_sums
def differences_in_the_given_dtypes(a, b, a_zero, b_zeros):
    a, b = a - np.uint8(a_zero), b - b_zeros
    return a.astype(np.int32) @ b.astype(np.int32)


@wrong("14-3", says="elements differ")
@_with_sums
def in_16_bits(a, b, a_zero, b_zeros):
    return (a.astype(np.int16) - np.int16(a_zero)) @ (b.astype(np.int16) - b_zeros)


@wrong("14-3", says="elements differ")
@_with_sums
def in_float32(a, b, a_zero, b_zeros):
    a, b = a.astype(np.float32) - a_zero, b.astype(np.float32) - b_zeros
    return a @ b


@wrong("14-3", says="elements differ")
@_with_sums
def pairs_in_16_bits(a, b, a_zero, b_zeros):
    a, b = a.astype(int) - a_zero, b.astype(int) - b_zeros
    products = a[:, :, None] * b
    products = np.pad(products, ((0, 0), (0, len(b) % 2), (0, 0)))
    return (products[:, ::2] + products[:, 1::2]).clip(-32768, 32767).sum(axis=1)


wrong("14-3", says="expected (sums, codes)")(lambda a, b, *more: a)

RIGHT = {"D": "FP8", "C": "weight-only", "B": "static", "A": "dynamic"}
alternative("14-4")(RIGHT)
for option in ("static", "dynamic", "weight-only", "FP8"):
    wrong("14-4", says="not all right")(dict.fromkeys("ABCD", option))
wrong("14-4", says="not all right")({**RIGHT, "A": "static", "C": "static"})  # Relu is named

OPERANDS = "the least, and the largest, of two numbers do not depend on their order"
equivalent("14-1", "low, high = (min(low, 0), max(high, 0))",
           "low, high = (min(0, low), max(high, 0))", because=OPERANDS)
equivalent("14-1", "low, high = (min(low, 0), max(high, 0))",
           "low, high = (min(low, 0), max(0, high))", because=OPERANDS)
equivalent("14-2", "power = np.frexp(np.maximum(size, 2.0 ** (1 - bias)))[1] - 1",
           "power = np.frexp(np.maximum(2.0 ** (1 - bias), size))[1] - 1", because=OPERANDS)
equivalent("14-2", "found = np.minimum((power + bias - 1) * 2 ** mantissa_bits + steps, "
                   "codes_of_size - 1)",
           "found = np.minimum(codes_of_size - 1, (power + bias - 1) * 2 ** mantissa_bits + steps)",
           because=OPERANDS)
equivalent("14-3", "return (sums, np.clip(found, 0, 255).astype(np.uint8))",
           "return (sums, np.clip(0, found, 255).astype(np.uint8))",
           because="np.clip takes the larger of its first two, then the smaller with the third")
