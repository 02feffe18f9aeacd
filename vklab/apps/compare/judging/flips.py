"""Classes that flip between two sets of scores, and the flips that margins predict. Pure.

The margin of a row is its highest score minus the second highest. A class can flip only if two
scores move against each other by the margin: if each score is off by at most e, margins from 2 e
on are safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Flips:
    """Changes that rounding made to the classes of some rows.

    Attributes:
        rows: the number of rows.
        error: the largest absolute error of any score; NaN if a score is not a number.
        flipped: the rows whose class changed.
        predicted: the rows that could flip: margin < 2 x the row's own largest error.
        bounded: the rows with a margin < 2 x `error`, the bound that needs no second run.
        smallest_margin: of all rows.
        margins: quantiles of the margins by percent.
    """

    rows: int
    error: float
    flipped: tuple[int, ...]
    predicted: tuple[int, ...]
    bounded: tuple[int, ...]
    smallest_margin: float
    margins: dict[int, float]

    def __str__(self) -> str:
        quantiles = ", ".join(
            f"{value:.3g} ({percent} %)" for percent, value in self.margins.items()
        )
        return (
            f"{len(self.flipped)} of {self.rows} classes flip, rows {list(self.flipped)}; "
            f"{len(self.predicted)} predicted by their own error, {len(self.bounded)} by the "
            f"largest error, {self.error:.3g}\n"
            f"margins: smallest {self.smallest_margin:.3g}, below {quantiles}"
        )


def margins(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Return float64 [rows], the highest score of each row minus its second highest."""
    highest = np.sort(np.asarray(scores, np.float64), axis=1)
    return np.asarray(highest[:, -1] - highest[:, -2])


def judge(expected: NDArray[Any], actual: NDArray[Any]) -> Flips:
    """Compare the classes of two score arrays [rows, classes]; `expected` is the truth.

    A row whose actual scores are not all numbers has flipped, and no error predicts it.
    Raises ValueError if the shapes differ or there are fewer than two classes.
    """
    truth, found = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
    if truth.shape != found.shape or truth.ndim != 2 or truth.shape[1] < 2:
        raise ValueError(f"scores of {truth.shape} and {found.shape}; both must be [rows, classes]")
    errors = np.abs(found - truth).max(axis=1)
    margin = margins(truth)
    flipped = (found.argmax(axis=1) != truth.argmax(axis=1)) | ~np.isfinite(found).all(axis=1)
    quantiles = {percent: float(np.percentile(margin, percent)) for percent in (1, 10, 50)}
    return Flips(
        len(truth),
        float(errors.max()),
        _rows(flipped),
        _rows(margin < 2 * errors),
        _rows(margin < 2 * errors.max()),
        float(margin.min()),
        quantiles,
    )


def _rows(chosen: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(row) for row in np.flatnonzero(chosen))
