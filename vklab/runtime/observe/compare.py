"""Comparison of arrays with a reference: largest errors, and the first elements that differ.

Visited by lab 17.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ATOL", "HALF", "RTOL", "Comparison", "arrays", "compare"]

# Summing some thousand float32 terms in another order changes results by about 1e-6 of the largest
# output; relative to an element that is small by cancellation, by much more.
RTOL, ATOL = 1e-4, 5e-6
# For values stored in float16: each rounding error is up to 5e-4 of an element, and a deep network
# accumulates some hundred of them; the largest occur beside the largest elements.
HALF = (4e-3, 2e-2)
SHOWN = 10


@dataclass(frozen=True)
class Comparison:
    """Distance of outputs from the reference; `worst` lists the first ten wrong elements.

    If nodes were compared one by one, `nodes` is their number and `node` the first that differs.
    `note` gives the likely cause and what to do.
    """

    passed: bool
    max_abs_error: float
    max_rel_error: float
    worst: tuple[dict[str, Any], ...]
    node: str = ""
    nodes: int = 0
    note: str = ""

    def summary(self) -> dict[str, Any]:
        """Return the comparison ready for JSON."""
        return {
            "passed": self.passed,
            "max_abs_error": self.max_abs_error,
            "max_rel_error": self.max_rel_error,
            "worst": list(self.worst),
            **({"node": self.node, "nodes": self.nodes} if self.nodes else {}),
            **({"note": self.note} if self.note else {}),
        }

    def __str__(self) -> str:
        verdict = "agrees with the reference" if self.passed else "DIFFERS from the reference"
        lines = [f"{verdict}: max abs error {self.max_abs_error:.3g}, "
                 f"max relative error {self.max_rel_error:.3g}"]  # fmt: skip
        if self.nodes:
            lines.append(f"  {self.nodes} nodes compared"
                         + (f"; the first that differs is {self.node}" if self.node else ""))
        lines += [f"  {self.note}"] if self.note else []
        lines += [
            f"  {item['output']}{item['index']}: {item['got']!r}, expected {item['expected']!r}"
            for item in self.worst
        ]
        return "\n".join(lines)


def arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return values as arrays by name: the items of sequences and maps get names of their own.

    Of a sequence of maps, as classifiers of scikit-learn return it, each key becomes one array.
    """
    found: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if isinstance(value, (list, tuple)) and value and all(isinstance(v, dict) for v in value):
            keys = dict.fromkeys(key for item in value for key in item)
            value = {key: np.asarray([item.get(key) for item in value]) for key in keys}
        if isinstance(value, (list, tuple)):
            value = {"length": np.asarray(len(value)), **dict(enumerate(value))}
        if isinstance(value, Mapping):
            found |= arrays({f"{name}[{key!r}]": item for key, item in value.items()})
        else:
            found[name] = np.asarray(value)
    return found


def compare(
    actual: Mapping[str, Any],
    expected: Mapping[str, Any],
    rtol: float = RTOL,
    atol: float = ATOL,
) -> Comparison:
    """Compare outputs by name: |a - e| <= atol * max|e| + rtol * |e|; NaN and infinity must match.

    Args:
        actual: the computed outputs.
        expected: the reference outputs.
        rtol: the tolerance relative to an element.
        atol: the tolerance relative to max|e|, the largest finite element of the same output.
    """
    actual, expected = arrays(actual), arrays(expected)
    worst: list[dict[str, Any]] = []
    max_abs = max_rel = 0.0
    passed = actual.keys() == expected.keys()
    for name, truth in expected.items():
        got = actual.get(name)
        if got is None or got.shape != truth.shape or got.dtype != truth.dtype:
            shown = None if got is None else f"{got.dtype}{list(got.shape)}"
            worst.append({"output": name, "index": [], "got": shown,
                          "expected": f"{truth.dtype}{list(truth.shape)}"})  # fmt: skip
            passed = False
            continue
        error, relative, bad = _errors(got, truth, rtol, atol)
        max_abs, max_rel = max(max_abs, error), max(max_rel, relative)
        passed = passed and not len(bad)  # not size: a scalar's index has no elements
        worst += [
            {"output": name, "index": index, "got": np.asarray(got[tuple(index)]).tolist(),
             "expected": np.asarray(truth[tuple(index)]).tolist()}
            for index in bad[:SHOWN].tolist()
        ]  # fmt: skip
    return Comparison(passed, max_abs, max_rel, tuple(worst[:SHOWN]))


def _errors(
    got: np.ndarray, truth: np.ndarray, rtol: float, atol: float
) -> tuple[float, float, np.ndarray]:
    """Return the largest absolute and relative error, and the indices of the wrong elements."""
    if got.dtype.kind not in "fcV":  # V: dtypes that NumPy does not define, such as bfloat16
        return float(np.any(got != truth)), float(np.any(got != truth)), np.argwhere(got != truth)
    wide, reference = got.astype(np.float64), truth.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(reference)
    distance = np.abs(wide[finite] - reference[finite])
    floor = atol * float(np.abs(reference[finite]).max(initial=0.0))
    close = np.isclose(wide, reference, rtol=rtol, atol=floor, equal_nan=True)
    size = np.maximum(np.abs(reference[finite]), max(floor, float(np.finfo(np.float32).tiny)))
    largest = float(distance.max()) if distance.size else 0.0
    relative = float((distance / size).max()) if distance.size else 0.0
    return largest, relative, np.argwhere(~close)
