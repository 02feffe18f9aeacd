"""The judge of a parity report as a piece that exercise 17-2 builds. Visited by lab 17."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vklab.apps.compare.judging import errors
from vklab.runtime.tolerances import Tolerance
from vklab_course import words
from vklab_course.piece import Given, Piece

__all__ = ["JUDGE", "Verdict", "judging"]

Verdict = Callable[[np.ndarray, np.ndarray, float, float], tuple[bool, float]]
_REAL = errors.share  # while an answer stands at the seam, the name means the answer


def _runtime_verdict(params: Mapping[str, Any]) -> Verdict:
    """Return the report's judge behind the signature of exercise 2."""

    def verdict(
        actual: np.ndarray, expected: np.ndarray, rtol: float, atol: float
    ) -> tuple[bool, float]:
        share = errors.share(actual, expected, Tolerance(rtol, atol, ""))
        return share <= 1, share

    return verdict


def judging(verdict: Verdict) -> Callable[[Any, Any, Tolerance], float]:
    """Return a function with the signature of `errors.share` that asks a student's verdict.

    Integers and booleans, which must be equal, are left to the report. Raises AssertionError with
    a sentence for a share that is not the report's own.
    """

    def share(actual: Any, expected: Any, tolerance: Tolerance) -> float:
        right = _REAL(actual, expected, tolerance)
        if np.asarray(expected).dtype.kind in "biu":
            return right
        got, truth = (np.asarray(each).astype(np.float64) for each in (actual, expected))
        said = verdict(got, truth, tolerance.rtol, tolerance.atol)
        assert isinstance(said, tuple | list) and len(said) == 2, (
            f"expected (passed, share), got {words.short(said)}"
        )
        passed, mine = bool(said[0]), float(said[1])
        assert mine == right or math.isclose(mine, right, rel_tol=1e-6), (
            f"your share is {mine:.6g}, and the report's is {right:.6g}"
        )
        assert passed == (right <= 1), f"a share of {right:.6g} and passed = {passed}"
        return mine

    return share


def _judging(given: Given) -> Callable[[Any, Any, Tolerance], float]:
    return judging(given.value)


JUDGE = Piece(
    "share",
    "vklab.apps.compare.judging.errors.share",
    {"17-2": _runtime_verdict},
    _judging,
    outside="it judges the results of runs: `vklab parity` calls it, and no run of a model does",
)
