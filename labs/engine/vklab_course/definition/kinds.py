"""Kinds of exercise beside functions and values: kernels, choices, texts and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Exercise, Value
from vklab_course.definition.report import Report

__all__ = ["Choice", "Predict", "Question", "Text", "no_option", "wrong_rows"]


@dataclass(frozen=True)
class Question:
    """One question of a `Choice`, a row of its answer.

    Attributes:
        right: the right option.
        options: all options.
        fact: what decides the question, without the right option.
        reason: why the option is right, shown after every row is.
    """

    right: Any
    options: tuple[Any, ...]
    fact: str
    reason: str


class Choice(Value):
    """Questions with options; the answer is a dictionary from question to option.

    A definition gives `questions`. Grading gives points by row. A check in the notebook gives them
    for all rows together, and tells no count (`vklab_course.rows`).
    """

    parts: ClassVar[Mapping[str, tuple[str, float]]] = {"all": ("every question", 2)}
    by_row = True

    def questions(self) -> Mapping[str, Question]:
        """Return the questions by name."""
        raise NotImplementedError(f"exercise {self.id} has no questions here")

    @staticmethod
    def written(right: Any) -> str:
        """Return the right options as code."""
        pairs = ",\n    ".join(f'"{name}": "{option}"' for name, option in right.items())
        return f"{{\n    {pairs},\n}}"

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        """Yield one case with options, facts and reasons, and without the right options."""
        rows = self.questions()
        facts = {
            "options": {name: list(row.options) for name, row in rows.items()},
            "facts": {name: row.fact for name, row in rows.items()},
            "reasons": {name: row.reason for name, row in rows.items()},
        }
        yield Case(on="your answer", facts=facts)

    def expected(self, case: Case) -> Any:
        """Return the right options."""
        return {name: row.right for name, row in self.questions().items()}

    def compare(self, case: Case, got: Any, report: Report) -> None:
        """Give each right row its share of the points.

        Args:
            case: the case with the oracle's result.
            got: what the answer returned.
            report: where differences are told.
        """
        report.expect(type(got) is dict, f"expected a dictionary, got {words.short(got)}")
        asked = case.facts["options"]
        report.expect(
            got.keys() <= asked.keys(),
            f"there is no question {words.short(next((n for n in got if n not in asked), None))}",
        )
        right = len(asked) - len(wrong_rows(case, got))
        invalid = next(filter(None, (no_option(case, got, name) for name in asked)), "")
        report.rows(right, len(asked), invalid or f"{right} of {len(asked)} are right")


def no_option(case: Case, got: Mapping[str, Any], name: str) -> str:
    """Return why a row has no option of its question, or "".

    Args:
        case: the case of a `Choice`.
        got: the answer.
        name: the row.
    """
    options = case.facts["options"][name]
    if name not in got:
        return f"{name!r} has no answer"
    said = got[name]
    plain = isinstance(said, str | int | np.integer) and type(said) is not bool
    if plain and said in options:
        return ""
    return f"{name!r}: got {words.short(said)}; choose one of {', '.join(map(repr, options))}"


def wrong_rows(case: Case, got: Mapping[str, Any]) -> list[str]:
    """Return the rows of an answer to a `Choice` whose option is not the right one.

    Args:
        case: the case with the oracle's result.
        got: the answer.
    """
    return [
        name
        for name, right in case.expected.items()
        if no_option(case, got, name) or got[name] != right
    ]


class Text(Value):
    """A written answer, marked by hand with a rubric: criterion and points."""

    takes = "text"
    rubric: ClassVar[Mapping[str, float]] = {}

    @property
    def points(self) -> float:
        """Return the points of all criteria."""
        return sum(self.rubric.values())


class Predict(Exercise):
    """A prediction: recorded before the explanation is shown, never marked.

    Attributes:
        right: the right value by name.
        explains: the explanation, shown after the student has committed to values.
    """

    takes = "prediction"
    marked = False
    right: ClassVar[Mapping[str, Any]] = {}
    explains: ClassVar[str] = ""

    def answers(self) -> Mapping[str, Any]:
        """Return the right value by name."""
        return self.right
