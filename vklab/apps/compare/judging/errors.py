"""Statistics of an array against the truth: largest errors, ULP, angle, noise, and classes.

The truth is float64. ULPs (units in the last place) are counted in the dtype that computed the
array. Whether an error is allowed is decided in `judge`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vklab.runtime.observe import compare
from vklab.runtime.tolerances import Tolerance

# Upper limits of the histogram's bins in ULP; a last bin holds all above. Rounded once: 0.5.
ULP_LIMITS = (0.0, 0.5, *(2.0**power for power in range(13)))
# Bits of the mantissa, and exponent of the smallest normal number.
FORMATS = {"float64": (52, -1022), "float32": (23, -126), "tfloat32": (10, -126),
           "float16": (10, -14), "bfloat16": (7, -126)}  # fmt: skip


@dataclass(frozen=True)
class Errors:
    """Distance of an array from the truth.

    Attributes:
        max_abs: largest absolute error of elements that are finite on both sides.
        max_rel: largest error relative to its own element of the truth, zeros left out.
        mean_abs: mean absolute error.
        max_ulp: largest error in units in the last place.
        ulps: number of elements by ULP_LIMITS; the last count is that of all larger errors.
        lost: elements that are NaN or infinite where the truth is not the same.
        cosine: cosine of the angle between the array and the truth.
        sqnr_db: signal to quantisation noise ratio in decibels; infinite for equal arrays.
        top1: share of rows (along the last axis) whose largest element is the truth's; None for
            rows of fewer than two elements.
    """

    max_abs: float
    max_rel: float
    mean_abs: float
    max_ulp: float
    ulps: tuple[int, ...]
    lost: int
    cosine: float
    sqnr_db: float
    top1: float | None

    @property
    def largest(self) -> float:
        """Return the largest absolute error; infinite if an element is lost."""
        return math.inf if self.lost else self.max_abs

    def summary(self) -> dict[str, Any]:
        """Return the statistics ready for JSON, which has no infinity: None stands for it."""
        return {name: plain(value) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Repeats:
    """Comparison of several runs of the same inputs.

    Attributes:
        runs: number of runs.
        identical: whether all outputs are equal bit by bit.
        max_abs: largest absolute difference from the first run; infinite if an element is lost.
    """

    runs: int
    identical: bool
    max_abs: float


def plain(value: Any) -> Any:
    """Return a value for JSON: tuples as lists, and None for what is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def ulp_size(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return the distance of neighbouring numbers of a dtype at each value, as float64."""
    bits, smallest = FORMATS.get(dtype, FORMATS["float32"])
    _, exponents = np.frexp(np.abs(values))  # |value| is in [0.5, 1) * 2^exponent
    return np.ldexp(1.0, np.maximum(exponents - 1, smallest) - bits)


def measure(actual: np.ndarray, expected: np.ndarray, dtype: str = "float32") -> Errors:
    """Return the statistics of an array; ValueError if its shape is not the truth's.

    Args:
        actual: the computed array, of any dtype of numbers.
        expected: the truth.
        dtype: the dtype that computed `actual`, in whose ULPs errors are counted.
    """
    got, truth = _wide(actual), _wide(expected)
    if got.shape != truth.shape:
        raise ValueError(f"shape {list(got.shape)}, {list(truth.shape)} expected")
    both = np.isfinite(got) & np.isfinite(truth)
    lost = int((~both & ~_same(got, truth)).sum())
    made, true = got[both], truth[both]
    distance = np.abs(made - true)
    nonzero = true != 0
    relative = distance[nonzero] / np.abs(true[nonzero])
    steps = distance / ulp_size(true, dtype)
    bins = np.searchsorted(ULP_LIMITS, steps)
    return Errors(
        float(distance.max(initial=0.0)),
        float(relative.max(initial=0.0)),
        float(distance.mean()) if distance.size else 0.0,
        float(steps.max(initial=0.0)),
        tuple(np.bincount(bins, minlength=len(ULP_LIMITS) + 1).tolist()),
        lost,
        _cosine(made, true),
        _sqnr_db(made, true),
        _top1(got, truth),
    )


def share(actual: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> float:
    """Return the largest error as a share of the tolerance: up to 1 passes.

    It is infinite for another shape, and for a NaN or an infinity that the truth does not have.
    Integers and booleans must be equal.

    Args:
        actual: the computed array.
        expected: the truth.
        tolerance: the allowed error.
    """
    if np.shape(actual) != np.shape(expected):
        return math.inf
    got, truth = _wide(actual), _wide(expected)
    if np.asarray(expected).dtype.kind in "biu":
        return 0.0 if _same(got, truth).all() else math.inf
    [(_, largest)] = compare.compare({"": got}, {"": truth}, tolerance.rtol, tolerance.atol).shares
    return largest


def repeats(runs: Sequence[Mapping[str, np.ndarray]]) -> Repeats:
    """Compare the outputs of several runs of the same inputs, bit by bit, with the first run."""
    identical, largest = True, 0.0
    for other in runs[1:]:
        for name, array in runs[0].items():
            first, again = np.asarray(array), np.asarray(other[name])
            if first.shape != again.shape or first.tobytes() != again.tobytes():
                identical = False
                same_shape = first.shape == again.shape
                apart = measure(again, first).largest if same_shape else math.inf
                largest = max(largest, apart)
    return Repeats(len(runs), identical, largest)


def _wide(array: Any) -> np.ndarray:
    return np.asarray(array).astype(np.float64)


def _same(got: np.ndarray, truth: np.ndarray) -> np.ndarray:
    equal: np.ndarray = (got == truth) | (np.isnan(got) & np.isnan(truth))
    return equal


def _cosine(made: np.ndarray, true: np.ndarray) -> float:
    """Return the cosine of the angle between two arrays; 1 if both are zero."""
    scale = max(float(np.abs(made).max(initial=0.0)), float(np.abs(true).max(initial=0.0)))
    if not scale:
        return 1.0
    made, true = made.ravel() / scale, true.ravel() / scale  # squares neither overflow nor vanish
    lengths = float(np.linalg.norm(made) * np.linalg.norm(true))
    return min(1.0, float(made @ true) / lengths) if lengths else 0.0


def _sqnr_db(made: np.ndarray, true: np.ndarray) -> float:
    """Return 10 log10(sum of squares of the truth / sum of squares of the error)."""
    scale = float(np.abs(true).max(initial=0.0)) or 1.0
    noise = float(np.square((made - true) / scale).sum())
    signal = float(np.square(true / scale).sum())
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _top1(got: np.ndarray, truth: np.ndarray) -> float | None:
    if truth.ndim < 1 or truth.shape[-1] < 2 or not truth.size:
        return None
    return float((got.argmax(-1) == truth.argmax(-1)).mean())
