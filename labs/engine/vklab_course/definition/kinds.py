"""Kinds of exercise beside functions and values: kernels, choices, texts and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from vklab_course import rows, words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Exercise, Value
from vklab_course.definition.report import Report
from vklab_course.definition.verdict import Verdict

__all__ = ["Choice", "Predict", "Question", "Text"]

LARGEST = 1e300  # of a predicted number; infinity and NaN are none


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
        asked = self.questions()
        facts = {
            "options": {name: list(row.options) for name, row in asked.items()},
            "facts": {name: row.fact for name, row in asked.items()},
            "reasons": {name: row.reason for name, row in asked.items()},
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
        right = len(asked) - len(rows.wrong_rows(case, got))
        invalid = next(filter(None, (rows.no_option(case, got, name) for name in asked)), "")
        report.rows(right, len(asked), invalid or f"{right} of {len(asked)} are right")

    def feedback(self, answer: Any, cases: Sequence[Case], verdict: Verdict) -> Verdict:
        """Return the verdict with reasons where all rows are right, else without a count.

        Args:
            answer: the options that were judged.
            cases: the one case.
            verdict: the verdict by rows, as in grading.
        """
        if verdict.status == "correct":
            reasons = cases[0].facts.get("reasons", {})  # which older releases do not have
            told = (f"{name}: {reason}" for name, reason in reasons.items())
            return replace(verdict, messages=(*verdict.messages, *told))
        if not verdict.parts or verdict.parts[0].share < 0:
            return verdict  # the answer is no dictionary of these questions
        key = self.id, self.variant
        said = rows.explained(key, answer, cases[0]) or verdict.parts[0].message
        parts = tuple(replace(part, share=-1.0, message=said) for part in verdict.parts)
        return replace(verdict, status="incorrect", points=0, parts=parts)


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
        options: by name, the texts to choose from; a number and a bool need none.
        explains: the explanation, shown after the student has committed to values.
    """

    takes = "prediction"
    marked = False
    right: ClassVar[Mapping[str, Any]] = {}
    options: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    explains: ClassVar[str] = ""

    def answers(self) -> Mapping[str, Any]:
        """Return the right value by name."""
        return self.right

    def wanted(self, name: str, said: Any) -> str:
        """Return what kind of value a name takes, or "" where `said` is one."""
        right = self.answers()[name]
        if name in self.options:
            is_one = isinstance(said, str) and said in self.options[name]
            return "" if is_one else f"one of {', '.join(map(repr, self.options[name]))}"
        if isinstance(right, bool):
            return "" if isinstance(said, bool | np.bool_) else "True or False"
        number = isinstance(said, int | float | np.integer | np.floating)
        fits = number and not isinstance(said, bool) and abs(said) < LARGEST
        return "" if fits else "a number"
