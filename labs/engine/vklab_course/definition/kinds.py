"""Kinds of exercise beside functions and values: kernels, choices, texts and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Exercise, Value
from vklab_course.definition.report import Report

__all__ = ["Choice", "Predict", "Text"]


class Choice(Value):
    """Questions with options; the answer is a dictionary from question to option.

    A definition gives `questions`: the right option, and all options, by question. The points are
    given for all questions together, because one question alone can be guessed.
    """

    parts: ClassVar[Mapping[str, tuple[str, float]]] = {"all": ("every question", 2)}

    def questions(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """Return the right option and all options of each question."""
        raise NotImplementedError(f"exercise {self.id} has no questions here")

    @staticmethod
    def written(right: Any) -> str:
        """Return the right options as code."""
        pairs = ",\n    ".join(f'"{name}": "{option}"' for name, option in right.items())
        return f"{{\n    {pairs},\n}}"

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        """Yield one case with the options, and without the right ones."""
        options = {name: list(options) for name, (_, options) in self.questions().items()}
        yield Case(on="your answer", facts={"options": options})

    def expected(self, case: Case) -> Any:
        """Return the right options."""
        return {name: right for name, (right, _) in self.questions().items()}

    def compare(self, case: Case, got: Any, report: Report) -> None:
        """Count the right options; name a question only if its option does not exist.

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
        for name, options in asked.items():
            report.expect(name in got, f"{name!r} has no answer")
            listed = ", ".join(map(repr, options))
            same = isinstance(got[name], str | int | np.integer) and type(got[name]) is not bool
            report.expect(
                same and got[name] in options,
                f"{name!r}: got {words.short(got[name])}; choose one of {listed}",
            )
        right = sum(got[name] == option for name, option in case.expected.items())
        report.expect(right == len(case.expected), f"{right} of {len(case.expected)} are right")


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
