"""Comparison of an answer's result with the expected one; the first difference ends a part.

Decides how values are compared; the definitions of each lab decide which values are expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from vklab_course import words
from vklab_course.definition.codec import Opaque

__all__ = ["Differs", "Report"]

MEASURES = {"bytes", "KiB", "MiB", "ms", "W", "cents", "units"}  # "less"; "fewer" for counts


class Differs(AssertionError):
    """A difference from the expected value; ends the part."""


class Report:
    """Compare results for one part of an exercise.

    Attributes:
        part: key of the part.
        notes: lines below the parts of the verdict, right or wrong.
        share: share of the part's points, where `score` has set one.
    """

    def __init__(self, part: str = "", notes: list[str] | None = None) -> None:
        self.part, self.notes = part, [] if notes is None else notes
        self.share = 1.0
        self.scored = ""
        self._on = ""

    def on(self, text: str) -> None:
        """Name the input of the next comparisons."""
        self._on = text

    def note(self, text: str) -> None:
        """Add a line below the parts of the verdict, once."""
        if text not in self.notes:
            self.notes.append(text)

    def score(
        self, achieved: float, bound: float, natural: float, what: str, full: float | None = None
    ) -> None:
        """Give a share of the part's points: none at the natural answer's score, all at `full`.

        The worst case of a part counts. Smaller is better.

        Args:
            achieved: what the answer needs, counted.
            bound: what no answer can go below.
            natural: what the obvious answer needs.
            what: the unit, "bytes moved". One that begins with no measure is a count: "binds".
            full: the score that earns all points, where the bound itself is out of reach;
                default: the bound.
        """
        enough = bound if full is None else full
        share = float(np.clip((natural - achieved) / max(natural - enough, 1e-12), 0, 1))
        share = share if np.isfinite(share) else 0.0
        if share <= self.share or not self.scored:
            less = "less" if what.split()[0] in MEASURES else "fewer"
            self.scored = (
                f"{self._on_text()}{achieved:g} {what}; no answer needs {less} than "
                f"{bound:g}, the obvious answer needs {natural:g}"
            )
            self.scored += "" if full is None else f"; full points for {full:g} or {less}"
        self.share = min(self.share, share)

    def rows(self, right: int, of: int, message: str) -> None:
        """Give each row its share of the part's points.

        Args:
            right: the number of right rows.
            of: the number of rows.
            message: the sentence for the student, unless all rows are right.
        """
        self.share = min(self.share, right / of)
        self.scored = "" if right == of else f"{self._on_text()}{message}"

    # ------------------------------------------------------------------------------- comparing

    def _on_text(self) -> str:
        return f"on {self._on}: " if self._on else ""

    def expect(self, true: Any, message: str) -> None:
        """Expect a condition to be true; `message` is the whole sentence for the student."""
        if not true:
            raise Differs(f"{self._on_text()}{message}")

    def kind(self, got: Any, kinds: Any, what: str) -> None:
        """Expect a value of a type; True is no int.

        Args:
            got: the answer's value.
            kinds: the type, or several, as `isinstance` takes them.
            what: the kind of value in words, "a list of sizes".
        """
        right = isinstance(got, kinds) and (kinds is bool or not isinstance(got, bool))
        self.expect(right, f"expected {what}, got {_kind(got)}")

    def equal(self, got: Any, expected: Any, hint: str = "") -> None:
        """Expect exactly one value; a list equals a tuple, a NumPy number a number; 1 is True.

        Args:
            got: the answer's value.
            expected: the right value.
            hint: a question for the student, shown with a difference.
        """
        if isinstance(expected, np.ndarray):
            array = self._array(got, expected, hint)
            self._elements(array, expected, array == expected, hint)
        elif not _same(got, expected):
            self._differs(f"expected {words.short(expected)}, got {_got(got)}", hint)

    def close(
        self, got: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-6, hint: str = ""
    ) -> None:
        """Expect numbers within a tolerance; arrays must have the same shape and dtype.

        Args:
            got: the answer's value.
            expected: the right value.
            rtol: relative tolerance.
            atol: absolute tolerance.
            hint: a question for the student, shown with a difference.
        """
        if isinstance(expected, np.ndarray):
            array = self._array(got, expected, hint)
        elif isinstance(got, int | float | np.number) and not isinstance(got, bool):
            array = np.asarray(float(got))
        else:
            self._differs(f"expected {words.short(expected)}, got {_got(got)}", hint)
        wanted = np.asarray(expected)
        right = np.isclose(array, wanted, rtol, atol, equal_nan=True)
        self._elements(array, wanted, right, hint)

    def _array(self, got: Any, expected: np.ndarray, hint: str) -> np.ndarray:
        if not isinstance(got, np.ndarray):
            self._differs(f"expected {_array_text(expected)}, got {_got(got)}", hint)
        if got.shape != expected.shape:
            self._differs(f"expected shape {expected.shape}, got {got.shape}", hint)
        if got.dtype != expected.dtype:
            self._differs(f"expected dtype {expected.dtype}, got {got.dtype}", hint)
        return np.asarray(got)

    def _elements(
        self, got: np.ndarray, expected: np.ndarray, right: np.ndarray, hint: str
    ) -> None:
        wrong = np.argwhere(~np.atleast_1d(right))
        if not len(wrong):
            return
        if not got.shape:
            self._differs(_both(expected[()], got[()]), hint)
        lines = [
            f"element {index}: {_both(expected[tuple(place)], got[tuple(place)])}"
            for place in wrong[:3]
            for index in [", ".join(map(str, place))]
        ]
        nan = f", {np.isnan(got).sum()} of them NaN" if _nans(got) > _nans(expected) else ""
        count = f"{len(wrong)} of {got.size} elements differ{nan}"
        self._differs(f"{count}; " + "; ".join(lines), hint)

    def _differs(self, text: str, hint: str = "") -> NoReturn:
        raise Differs(f"{self._on_text()}{text}" + (f"  ({hint})" if hint else ""))


def _both(expected: Any, got: Any) -> str:
    """Return `expected 1, got 2`, with all digits where fewer of them would be the same."""
    texts = words.short(expected), words.short(got)
    texts = (str(expected), str(got)) if texts[0] == texts[1] else texts
    return f"expected {texts[0]}, got {texts[1]}"


def _nans(array: np.ndarray) -> int:
    return int(np.isnan(array).sum()) if array.dtype.kind in "fc" else 0


def _got(value: Any) -> str:
    return "None (is a return missing?)" if value is None else words.short(value)


def _kind(value: Any) -> str:
    name = value.type if isinstance(value, Opaque) else type(value).__name__
    return _got(None) if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _array_text(array: np.ndarray) -> str:
    """Describe an expected array by dtype and shape, with its values if they fit into a line."""
    text = f"an array, {array.dtype} of shape {array.shape}"
    if not 0 < array.size <= 16:
        return text
    return f"{text}: {_values(array)}"


def _values(array: np.ndarray) -> str:
    if not array.shape:
        return words.short(array[()])
    return f"[{', '.join(_values(row) for row in array)}]"


def _same(got: Any, expected: Any) -> bool:
    if isinstance(got, np.generic):
        got = got.item()
    if isinstance(expected, bool):
        return isinstance(got, int) and int.__add__(got, 0) == int(expected)
    if isinstance(got, bool):
        return False
    if isinstance(expected, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(expected):
            return False
        return all(_same(a, b) for a, b in zip(got, expected, strict=True))
    if isinstance(expected, Mapping):
        return (
            isinstance(got, Mapping)
            and got.keys() == expected.keys()
            and all(_same(got[key], expected[key]) for key in expected)
        )
    if isinstance(expected, int | float):
        # The base class's addition, because a subclass may claim to equal anything.
        if isinstance(got, int):
            return int.__add__(got, 0) == expected
        return isinstance(got, float) and float.__add__(got, 0.0) == expected
    kind: Any = type(expected)
    return kind.__eq__(expected, got) is True
