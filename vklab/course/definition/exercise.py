"""Registry of exercises by id, with the check, points and hints of each.

The decorator is the registration. An exercise "03-1" is in `checks/lab_03.py` of the package, or
in the same file under the folder that the LABS switch names.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vklab.course.definition.report import Report
from vklab.course.places import labs_folder

__all__ = ["Exercise", "exercise", "exercises_of", "find", "number_of"]

Check = Callable[[Any, Report], None]
TAKES = ("function", "kernel", "value")


@dataclass(frozen=True)
class Exercise:
    """One exercise: its check, its points and its hints.

    Attributes:
        title: the answer's name, taken from the check's: `check_choose_memory_type`.
        takes: `function`; `kernel`, a shader's text; or `value`, anything else.
        seams: dotted paths whose real functions raise while an answer is checked.
        needs: device features without which the check is skipped.
        seconds: time limit of the check of an answer.
    """

    id: str
    title: str
    points: float
    hints: tuple[str, ...]
    check: Check
    takes: str = "function"
    seams: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    seconds: float = 10.0


# Keyed by module and id, because two folders of labs may use the same number.
_exercises: dict[tuple[str, str], Exercise] = {}


def exercise(
    identifier: str,
    *,
    points: float,
    hints: Sequence[str],
    takes: str = "function",
    seams: Sequence[str] = (),
    needs: Sequence[str] = (),
    seconds: float = 10.0,
) -> Callable[[Check], Check]:
    """Register the decorated `check_NAME(answer, report)` as the check of an exercise.

    Args:
        identifier: the exercise, "03-1".
        points: its points, the sum of its parts.
        hints: at least one, from a nudge to almost the line.
        takes: function, kernel or value, as in `Exercise`.
        seams: as in `Exercise`.
        needs: as in `Exercise`.
        seconds: as in `Exercise`.
    """
    if not re.fullmatch(r"\d\d-[1-9]\d?", identifier) or takes not in TAKES or not hints:
        raise ValueError(f"exercise {identifier!r}: write an id such as 03-1, takes= one of "
                         f"{', '.join(TAKES)}, and at least one hint")  # fmt: skip

    def register(function: Check) -> Check:
        title = function.__name__.removeprefix("check_")
        _exercises[function.__module__, identifier] = Exercise(
            identifier, title, points, tuple(hints), function, takes, tuple(seams), tuple(needs),
            seconds,
        )  # fmt: skip
        return function

    return register


def number_of(identifier: str) -> str:
    """Return the lab of an exercise: "03" of "03-1"."""
    return str(identifier).partition("-")[0]


def exercises_of(number: str) -> dict[str, Exercise]:
    """Return the exercises of a lab by id, in order."""
    module = _load(number)
    own = {key: value for (home, key), value in _exercises.items() if home == module}
    return dict(sorted(own.items(), key=lambda item: int(item[0].partition("-")[2])))


def find(identifier: str) -> Exercise:
    """Return an exercise by id. Raises LookupError with the ids that exist."""
    exercises = exercises_of(number_of(identifier))
    if identifier not in exercises:
        names = ", ".join(exercises) or f"no lab {number_of(identifier)!r}"
        raise LookupError(f"there is no exercise {identifier!r}; there is {names}")
    return exercises[identifier]


def _load(number: str) -> str:
    """Import the checks of a lab; return the module's name, or "" if there are none."""
    if not re.fullmatch(r"\d\d", number):
        return ""
    path = labs_folder() / "checks" / f"lab_{number}.py"
    if not path.is_file():
        return ""
    name = f"vklab_checks_{zlib.crc32(bytes(path.resolve())):08x}_{number}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return name
