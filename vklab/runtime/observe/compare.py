"""Comparison of arrays with a reference: largest errors, and the first elements that differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from vklab.base.draw import charts
from vklab.runtime import tolerances

RTOL, ATOL = tolerances.TABLE["float32"].rtol, tolerances.TABLE["float32"].atol
# For values stored in float16.
HALF = (tolerances.TABLE["float16"].rtol, tolerances.TABLE["float16"].atol)
SHOWN = 10
DRAWN = 24  # rows of a picture


@dataclass(frozen=True)
class Comparison:
    """Distance of outputs from the reference; `worst` lists the first ten wrong elements.

    If nodes were compared one by one, `nodes` is their number and `node` the first that differs.
    `note` gives the likely cause and what to do. `shares` pairs each output, or node, with its
    largest error as a share of the tolerance: up to 1 passes; it is infinite for a wrong integer, a
    NaN or another shape.
    """

    passed: bool
    max_abs_error: float
    max_rel_error: float
    worst: tuple[dict[str, Any], ...]
    node: str = ""
    nodes: int = 0
    note: str = ""
    shares: tuple[tuple[str, float], ...] = ()

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
        lines = [
            f"{verdict}: max abs error {self.max_abs_error:.3g}, "
            f"max relative error {self.max_rel_error:.3g}"
        ]
        if self.nodes:
            lines.append(
                f"  {self.nodes} nodes compared"
                + (f"; the first that differs is {self.node}" if self.node else "")
            )
        lines += [f"  {self.note}"] if self.note else []
        lines += [
            f"  {item['output']}{item['index']}: {item['got']!r}, expected {item['expected']!r}"
            for item in self.worst
        ]
        return "\n".join(lines)

    def picture(self) -> str:
        """Return the errors as SVG, on a logarithmic scale: of the largest ones, in order."""
        kept = sorted(range(len(self.shares)), key=lambda n: -self.shares[n][1])[:DRAWN]
        rows = [self.shares[number] for number in sorted(kept)]
        left = len(self.shares) - len(rows)
        what = "node" if self.nodes else "output"
        verdict = "agrees with" if self.passed else "DIFFERS from"
        return charts.log_marks(
            f"Error by {what}: the model {verdict} the reference",
            rows,
            f"largest error of each {what}, as a share of its tolerance (no unit)",
            f"{left} more with smaller errors are not drawn" if left else "",
        )

    def _repr_html_(self) -> str:
        lines = "".join(f"<div>{escape(line)}</div>" for line in str(self).splitlines())
        return lines + (self.picture() if self.shares else "")


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
    shares: dict[str, float] = {}
    max_abs = max_rel = 0.0
    passed = actual.keys() == expected.keys()
    for name, truth in expected.items():
        got = actual.get(name)
        if got is None or got.shape != truth.shape or got.dtype != truth.dtype:
            shown = None if got is None else f"{got.dtype}{list(got.shape)}"
            worst.append(
                {
                    "output": name,
                    "index": [],
                    "got": shown,
                    "expected": f"{truth.dtype}{list(truth.shape)}",
                }
            )
            passed = False
            shares[name] = math.inf
            continue
        error, relative, shares[name], bad = _errors(got, truth, rtol, atol)
        max_abs, max_rel = max(max_abs, error), max(max_rel, relative)
        passed = passed and not len(bad)  # not size: a scalar's index has no elements
        worst += [
            {
                "output": name,
                "index": index,
                "got": np.asarray(got[tuple(index)]).tolist(),
                "expected": np.asarray(truth[tuple(index)]).tolist(),
            }
            for index in bad[:SHOWN].tolist()
        ]
    lost = [
        name
        for name, truth in expected.items()
        if truth.size
        and truth.dtype.kind in "fcV"
        and not np.isfinite(truth.astype(np.float64)).any()
    ]
    note = f"of {', '.join(lost)} no element is finite: no error was measured there" if lost else ""
    return Comparison(
        passed, max_abs, max_rel, tuple(worst[:SHOWN]), note=note, shares=(*shares.items(),)
    )


def _errors(
    got: np.ndarray, truth: np.ndarray, rtol: float, atol: float
) -> tuple[float, float, float, np.ndarray]:
    """Return the largest absolute, relative and tolerated error, and indices of wrong elements.

    Args:
        got: the computed array.
        truth: the reference.
        rtol: as in `compare`.
        atol: as in `compare`.
    """
    if got.dtype.kind not in "fcV":  # V: dtypes that NumPy does not define, such as bfloat16
        differs = float(np.any(got != truth))
        return differs, differs, math.inf if differs else 0.0, np.argwhere(got != truth)
    wide, reference = got.astype(np.float64), truth.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(reference)
    distance = np.abs(wide[finite] - reference[finite])
    floor = atol * float(np.abs(reference[finite]).max(initial=0.0))
    close = np.isclose(wide, reference, rtol=rtol, atol=floor, equal_nan=True)
    size = np.maximum(np.abs(reference[finite]), max(floor, float(np.finfo(np.float32).tiny)))
    largest = float(distance.max()) if distance.size else 0.0
    relative = float((distance / size).max()) if distance.size else 0.0
    allowed = floor + rtol * np.abs(reference[finite])
    with np.errstate(divide="ignore"):  # without a tolerance every error is infinitely too large
        shares = np.divide(distance, allowed, out=np.zeros_like(distance), where=distance > 0)
    share = float(shares.max()) if distance.size else 0.0
    return largest, relative, share if close[~finite].all() else math.inf, np.argwhere(~close)
