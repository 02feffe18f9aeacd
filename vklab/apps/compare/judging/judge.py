"""Verdict on the outputs of one backend: paired with the truth's by name, then judged.

A missing output, another name, order or dtype, and NaN become sentences of the row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vklab.apps.compare.judging import errors
from vklab.apps.compare.judging.errors import Errors
from vklab.runtime.tolerances import Tolerance


@dataclass(frozen=True)
class Verdict:
    """Judgement of one backend's outputs.

    Attributes:
        passed: whether every output is there and within the tolerance.
        max_abs_error: largest absolute error of all outputs; infinite if a value is lost.
        shares: largest error by output, as a share of the tolerance: up to 1 passes.
        errors: statistics by output.
        notes: sentences on names, order, dtypes, and lost values.
    """

    passed: bool
    max_abs_error: float
    shares: dict[str, float] = field(default_factory=dict)
    errors: dict[str, Errors] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def pair(
    actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> tuple[dict[str, str], list[str]]:
    """Return the name in `actual` of each expected output, and sentences on differences.

    An output of an unknown name is taken if it is the only one left of its shape.
    """
    found = {name: name for name in expected if name in actual}
    notes = []
    unmatched = [name for name in actual if name not in expected]
    for name, truth in expected.items():
        alike = [other for other in unmatched if np.shape(actual[other]) == np.shape(truth)]
        rivals = [o for o in expected if o not in found and np.shape(expected[o]) == truth.shape]
        if name not in found and len(alike) == 1 and rivals == [name]:
            notes.append(f"output {name!r} is named {alike[0]!r}")
            found[name] = alike[0]
            unmatched.remove(alike[0])
    missing = [name for name in expected if name not in found]
    if missing:
        notes.append(
            f"no output {', '.join(map(repr, missing))}; there is "
            f"{', '.join(map(repr, actual)) or 'none'}"
        )
    known = [name for name in actual if name in expected]
    if known != [name for name in expected if name in known]:
        notes.append(f"outputs in the order {', '.join(known)}")
    return found, notes


def outputs(
    actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], tolerance: Tolerance,
    dtype: str = "float32",
) -> Verdict:  # fmt: skip
    """Judge outputs against the truth.

    Args:
        actual: a backend's outputs by name.
        expected: the oracle's outputs by name, in the model's order.
        tolerance: the allowed error.
        dtype: the dtype that computed the outputs, for ULPs.
    """
    found, notes = pair(actual, expected)
    shares = dict.fromkeys(expected, math.inf)
    measured: dict[str, Errors] = {}
    largest = 0.0
    for name, other in found.items():
        got, truth = np.asarray(actual[other]), np.asarray(expected[name])
        if got.shape != truth.shape:
            notes.append(
                f"output {name!r} has shape {list(got.shape)}, {list(truth.shape)} expected"
            )
            continue
        if got.dtype.kind != truth.dtype.kind or got.dtype.itemsize < min(4, truth.dtype.itemsize):
            notes.append(f"output {name!r} is {got.dtype}")
        each = measured[name] = errors.measure(got, truth, dtype)
        shares[name] = errors.share(got, truth, tolerance)
        largest = max(largest, each.largest)
        if each.lost:
            nans = int(np.isnan(got.astype(np.float64)).sum())
            notes.append(
                f"output {name!r}: {each.lost} of {got.size} values are lost, {nans} are NaN"
            )
    passed = bool(shares) and all(value <= 1 for value in shares.values())
    return Verdict(passed, largest, shares, measured, tuple(notes))
