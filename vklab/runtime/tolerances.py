"""One table of tolerances, by dtype and by the number of terms in a sum, with reasons.

CHECK, the conformance suite and the parity report read it. It judges no array itself: that is
`compare`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vklab.errors import ModelError


@dataclass(frozen=True)
class DtypeLimits:
    """Limits of one dtype, and where they come from.

    Attributes:
        epsilon: distance of neighbouring numbers at 1.
        rtol: share of an element that a whole model may be wrong by.
        atol: share of the largest element that a whole model may be wrong by, in addition.
        function: error in units of epsilon of a function such as exp, relative to an element.
        reason: where the numbers come from.
    """

    epsilon: float
    rtol: float
    atol: float
    function: float
    reason: str


@dataclass(frozen=True)
class Tolerance:
    """Allowed error: |actual - expected| <= atol * max|expected| + rtol * |expected|."""

    rtol: float
    atol: float
    reason: str


# exp has 3 + 2 |x| ULP in float32 and 1 + 2 |x| in float16 (Vulkan, "Precision of Operation
# Instructions"); |x| is at most 88 and 11 before the result overflows.
TABLE: dict[str, DtypeLimits] = {
    "float64": DtypeLimits(
        2.0**-52, 2e-13, 1e-14, 4,
        "the numbers of float32 in units of float64's epsilon, which is 2^29 times smaller"),
    "float32": DtypeLimits(
        2.0**-23, 1e-4, 5e-6, 179,
        "some thousand float32 terms in another order change results by about 1e-6 of the largest "
        "output; relative to an element that is small by cancellation, by much more"),
    "tfloat32": DtypeLimits(
        2.0**-10, 4e-3, 2e-2, 179,
        "products read their factors with 10 bits of mantissa, as in float16; sums and stored "
        "values are float32"),
    "float16": DtypeLimits(
        2.0**-10, 4e-3, 2e-2, 23,
        "each rounding error is up to 5e-4 of an element, and a deep network accumulates some "
        "hundred of them; the largest occur beside the largest elements"),
    "bfloat16": DtypeLimits(
        2.0**-7, 3.2e-2, 1.6e-1, 4,
        "eight times the numbers of float16, which has three more bits of mantissa"),
    "int8": DtypeLimits(
        2.0**-7, 0.0, 0.125, 16,
        "16 steps of 1/127 of a range, where a model's own steps are unknown; static int8 of the "
        "two shipped CNNs is wrong by 3 and 8 % of the largest output, and by 16 % where 16-bit "
        "sums saturate, which must fail"),
}  # fmt: skip

# Standard deviations that an 8-bit model may be wrong by. The largest of a thousand normal errors
# is about 3.7 of them; the roundings of one network are not quite independent.
DEVIATIONS = 6
# Roundings that one operator may add up: of its factors, of its sum, and of its result.
ROUNDINGS = 8


def epsilon(dtype: str) -> float:
    """Return the distance of neighbouring numbers at 1; ModelError for an unknown dtype."""
    return _entry(dtype).epsilon


def model(arithmetic: str, weights: str = "") -> Tolerance:
    """Return the tolerance of a whole model, of any depth: the larger of both dtypes'.

    Args:
        arithmetic: dtype of products and activations.
        weights: dtype of the stored weights; "" for the same.
    """
    entry = max((_entry(d) for d in (arithmetic, weights or arithmetic)), key=lambda e: e.epsilon)
    return Tolerance(entry.rtol, entry.atol, entry.reason)


def quantised(deviation: float) -> Tolerance:
    """Return the tolerance of a whole 8-bit model whose steps were followed to the outputs.

    Args:
        deviation: standard deviation that the steps, as independent noise, give the outputs, as a
            part of the largest element.

    The sums of the model are float32, whatever is rounded: its tolerance is added.
    """
    wide = model("float32")
    if not deviation:  # nothing was quantised, as in a model of one pool
        return wide
    return Tolerance(
        wide.rtol,
        DEVIATIONS * deviation + wide.atol,
        f"{DEVIATIONS} standard deviations of the noise that rounding to 8 bits gives "
        f"the outputs of this network; one is {deviation:.2%} of the largest output. "
        "In reports of five models no error was above 4",
    )


def operator(dtype: str) -> Tolerance:
    """Return the tolerance of one operator whose sums have at most ROUNDINGS^2 = 64 terms.

    A kernel rounds a float16 result once, the reference at every step; in float32 and float64 only
    the cancellation in sums matters.
    """
    unit = epsilon(dtype)
    return Tolerance(2 * unit, ROUNDINGS * unit, f"{ROUNDINGS} roundings in {dtype}")


def layer(
    arithmetic: str, weights: str = "", sums: str = "", length: int = 1, functions: bool = False
) -> Tolerance:
    """Return the tolerance of one layer that is fed the right inputs.

    The rounding errors of n additions, random in sign, leave an error of about sqrt(n) roundings.

    Args:
        arithmetic: dtype of products and activations.
        weights: dtype of the stored weights; "" for the same.
        sums: dtype of long sums; "" for the same.
        length: number of terms of the layer's sums.
        functions: whether the layer computes functions such as exp, which devices approximate.

    Source: Higham, "Accuracy and Stability of Numerical Algorithms", section 2.8
    """
    single = operator(arithmetic)
    summed = epsilon(sums or arithmetic) * math.sqrt(max(length, 1))
    stored = epsilon(weights or arithmetic)
    rounded = stored if stored > epsilon(arithmetic) else 0.0
    called = _entry(arithmetic).function * epsilon(arithmetic) if functions else 0.0
    reasons = [single.reason]
    reasons += [f"sums of {length} terms in {sums or arithmetic}"] if summed > single.atol else []
    reasons += [f"weights rounded to {weights}"] if rounded else []
    reasons += ["functions to Vulkan's precision"] if functions else []
    return Tolerance(
        single.rtol + rounded + called, max(single.atol, summed) + 2 * rounded, ", ".join(reasons)
    )


def _entry(dtype: str) -> DtypeLimits:
    try:
        return TABLE[dtype]
    except KeyError:
        raise ModelError(
            f"no tolerance for dtype {dtype!r}; the table has {', '.join(TABLE)}"
        ) from None
