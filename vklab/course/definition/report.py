"""Report of a check: weighted parts, each passed or with a message.

A part ends at its first difference; the next part still runs. Decides how values are compared;
the checks of each lab decide which values are expected.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from vklab.course import seam, words
from vklab.course.children.run_kernel import Dispatched
from vklab.course.definition.verdict import Part
from vklab.course.limits import LimitReached, OutOfTime

__all__ = ["NotAttempted", "Report", "Stopped"]


class _Differs(AssertionError):
    """A difference from the expected value; ends the part."""


class NotAttempted(Exception):
    """A call of the stub: the exercise has not been tried."""


class Stopped(Exception):
    """End of a check that cannot continue; the message is for the student."""


class Report:
    """Collect the parts of one check, with messages on the calls and their results."""

    def __init__(self, real: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.parts: list[Part] = []
        self.notes: list[str] = []
        self._real = dict(real or {})
        self._on = ""

    def real(self, path: str) -> Callable[..., Any]:
        """Return a working copy of a seam's real function, which raises during the check."""
        return self._real[path]

    def note(self, text: str) -> None:
        """Add a line below the parts of the verdict, right or wrong."""
        self.notes.append(text)

    # ----------------------------------------------------------------------------------- parts

    @contextlib.contextmanager
    def part(self, name: str, points: float) -> Iterator[None]:
        """Open one weighted part; the first difference or error inside it ends it."""
        self._on = ""
        try:
            yield
        except _Differs as difference:
            self.parts.append(Part(name, points, False, str(difference)))
        except (NotAttempted, Stopped):
            raise
        except LimitReached as limit:
            said = f"{self._on_text()}{limit}"
            if isinstance(limit, OutOfTime):
                said = f"{self._on_text()}your function did not end ({limit}); does a loop stop?"
            self.parts.append(Part(name, points, False, said))
            raise Stopped("") from None
        except NotImplementedError as error:
            if words.short_message(error).startswith("Lab "):
                raise NotAttempted(words.short_message(error)) from None
            self._failed(name, points, error)
        except (Exception, SystemExit, GeneratorExit) as error:
            if words.short_message(error) == seam.REFUSAL:
                raise Stopped(seam.REFUSAL) from None
            self._failed(name, points, error)
        else:
            self.parts.append(Part(name, points, True))

    def _failed(self, name: str, points: float, error: BaseException) -> None:
        text = f"{self._on_text()}raised {words.error_text(error)}"
        self.parts.append(Part(name, points, False, text))

    def _on_text(self) -> str:
        return f"on {self._on}: " if self._on else ""

    # ------------------------------------------------------------------------------- answering

    def call(self, answer: Callable[..., Any], *arguments: Any, on: str = "", **named: Any) -> Any:
        """Call the answer on copies of the arguments, and remember the input for messages.

        Args:
            answer: the student's function.
            arguments: its positional arguments.
            on: the input in words a student recognises; default: the arguments themselves.
            named: its keyword arguments.
        """
        listed = [words.short(a) for a in arguments]
        listed += [f"{key}={words.short(value)}" for key, value in named.items()]
        self._on = on or ", ".join(listed)
        return answer(*_copied(arguments), **_copied(named))

    def on(self, text: str) -> None:
        """Name the input of the next comparisons."""
        self._on = text

    def raises(
        self, kind: type[BaseException], answer: Callable[..., Any], *arguments: Any, on: str = ""
    ) -> None:
        """Expect the answer to raise an exception.

        Args:
            kind: the exception's type.
            answer: the student's function.
            arguments: its positional arguments.
            on: as in `call`.
        """
        try:
            got = self.call(answer, *arguments, on=on)
        except kind as error:
            if isinstance(error, NotImplementedError) or words.short_message(error) == seam.REFUSAL:
                raise
            return
        self._differs(f"expected {kind.__name__} to be raised, got {words.short(got)}")

    # ------------------------------------------------------------------------------- comparing

    def expect(self, true: Any, message: str) -> None:
        """Expect a condition to be true; `message` is the whole sentence for the student."""
        if not true:
            raise _Differs(f"{self._on_text()}{message}")

    def equal(self, got: Any, expected: Any, hint: str = "") -> None:
        """Expect exactly one value; a list equals a tuple, a NumPy number a number.

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

    def inside(self, result: Dispatched) -> None:
        """Expect that a kernel wrote nothing outside its buffers."""
        for name, offsets in result.out_of_bounds.items():
            side = "behind its end" if offsets[-1] > 0 else "before its start"
            listed = ", ".join(map(str, offsets[:3])) + (", ..." if len(offsets) > 3 else "")
            self._differs(f"{name} was written {side}, at byte {listed}; is there a guard?")

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
            self._differs(f"expected {words.short(expected[()])}, got {words.short(got[()])}", hint)
        lines = [
            f"element {index}: expected {words.short(expected[tuple(place)])}, "
            f"got {words.short(got[tuple(place)])}"
            for place in wrong[:3]
            for index in [", ".join(map(str, place))]
        ]
        nan = f", {np.isnan(got).sum()} of them NaN" if _nans(got) > _nans(expected) else ""
        count = f"{len(wrong)} of {got.size} elements differ{nan}"
        self._differs(f"{count}; " + "; ".join(lines), hint)

    def _differs(self, text: str, hint: str = "") -> Any:
        raise _Differs(f"{self._on_text()}{text}" + (f"  ({hint})" if hint else ""))


def _nans(array: np.ndarray) -> int:
    return int(np.isnan(array).sum()) if array.dtype.kind in "fc" else 0


def _got(value: Any) -> str:
    return "None (is a return missing?)" if value is None else words.short(value)


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


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:
        return value  # a device or a session cannot be copied: pass the object itself


def _same(got: Any, expected: Any) -> bool:
    if isinstance(got, np.generic):
        got = got.item()
    if isinstance(expected, bool) or isinstance(got, bool):
        return got is expected
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
