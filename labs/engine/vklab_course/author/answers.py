"""Answers that test a lab's checks: wrong ones, a second right one, mutants without an effect.

An author writes them in `labs/answers/lab_NN.py`; the gates run them as functions in one process.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vklab_course.author.lab import Lab, LabError

__all__ = ["Answers", "alternative", "answers_of", "equivalent", "fits", "taught",
           "taught_in", "wrong"]  # fmt: skip

T = TypeVar("T")


@dataclass
class Answers:
    """Answers that one file registers, by exercise."""

    wrong: list[tuple[str, Any, str, str]] = field(default_factory=list)
    alternative: list[tuple[str, Any]] = field(default_factory=list)
    equivalent: dict[tuple[str, str, str], str] = field(default_factory=dict)
    taught: dict[str, str] = field(default_factory=dict)


_current = Answers()


def wrong(identifier: str, says: str, status: str = "incorrect") -> Callable[[T], T]:
    """Register a wrong answer.

    Args:
        identifier: the exercise, "03-1".
        says: words that its verdict must contain.
        status: the verdict's status; `incorrect` stands for `partial`, too.
    """

    def register(answer: T) -> T:
        _current.wrong.append((identifier, answer, says, status))
        return answer

    return register


def fits(status: str, listed: str) -> bool:
    """Tell whether the status of a verdict is what a wrong answer lists, or skipped."""
    return status in (listed, "skipped") or (status, listed) == ("partial", "incorrect")


def alternative(identifier: str) -> Callable[[T], T]:
    """Register a second, independent answer that is right."""

    def register(answer: T) -> T:
        _current.alternative.append((identifier, answer))
        return answer

    return register


def equivalent(identifier: str, before: str, after: str, because: str) -> None:
    """List a mutant that no check can reject, because it computes the same.

    Args:
        identifier: the exercise, "03-1".
        before: the solution's line, as `vklab course lint` prints it.
        after: the mutant's line.
        because: the reason why both compute the same.
    """
    _current.equivalent[identifier, before.strip(), after.strip()] = because


def taught(expression: str, because: str) -> None:
    """List an expression of a solution that students may read: the lab teaches it before."""
    _current.taught[expression] = because


def taught_in(lab: Lab) -> list[str]:
    """Return the expressions that a lab lists as taught; none without a file of answers."""
    try:
        return list(answers_of(lab).taught)
    except LabError:
        return []


def answers_of(lab: Lab) -> Answers:
    """Load `answers/lab_NN.py` beside a lab's source folder; LabError if there is none."""
    global _current
    path = lab.path.parent.parent / "answers" / f"lab_{lab.number}.py"
    if not path.is_file():
        raise LabError(
            f"{lab.name}: there is no {path.parent.name}/{path.name}; write wrong "
            "answers, and a second right one for every exercise"
        )
    _current = Answers()
    name = f"vklab_answers_{lab.number}"
    spec = importlib.util.spec_from_file_location(name, Path(path))
    assert spec and spec.loader
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return _current
