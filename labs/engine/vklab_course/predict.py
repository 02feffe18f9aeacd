"""predict: record a prediction, and only then show what happens. Never marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from vklab_course import words
from vklab_course.definition.exercise import find
from vklab_course.definition.kinds import Predict
from vklab_course.definition.verdict import NOTE

__all__ = ["Prediction", "predict"]


@dataclass(frozen=True)
class Prediction:
    """A recorded prediction with the explanation, or the question while a value is missing."""

    id: str
    rows: tuple[tuple[str, str, str], ...] = ()
    text: str = ""
    said: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        lines = [f"{name}: you said {said}, it is {right}" for name, said, right in self.rows]
        return "\n".join([*lines, self.text])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(said)}</td><td>{escape(right)}</td>"
            f"<td>{'✔' if said == right else '→ read on'}</td></tr>"
            for name, said, right in self.rows
        )
        table = (
            f"<table><tr><th></th><th>you said</th><th>it is</th><th></th></tr>{rows}</table>"
            if rows
            else ""
        )
        text = escape(self.text).replace("\n", "<br>")
        style = "border-left:.4em solid #56B4E9;padding:.2em .9em;margin:.4em 0"
        html = f'<div role="status" style="{style}">{table}{text}</div>'
        shown = {"text/plain": repr(self), "text/html": html}
        note = {} if self.rows else {NOTE: {"id": self.id, "status": "not_attempted"}}
        return shown | note


def predict(identifier: str, **values: Any) -> Prediction:
    """Record predicted values; return them beside the right ones, with the explanation.

    Args:
        identifier: the prediction, "03-p1".
        values: a value for each name; `...` stands for one that is not written yet.
    """
    prediction = find(identifier)
    if not isinstance(prediction, Predict):
        raise LookupError(f"{identifier} is an exercise: use check({identifier!r}, ...)")
    answers = prediction.answers()
    if values.keys() != answers.keys():
        raise TypeError(
            f"predict({identifier!r}) takes {_names(answers)}; you gave "
            f"{_names(values) or 'nothing'}"
        )
    if any(value is ... for value in values.values()):
        return Prediction(
            identifier,
            (),
            "write a value in place of each ..., then run the cell: "
            "the explanation follows your prediction",
        )
    wanted = {name: prediction.wanted(name, value) for name, value in values.items()}
    if lines := [
        f"{name} takes {kind}; you gave {words.short(values[name])}"
        for name, kind in wanted.items()
        if kind
    ]:
        return Prediction(identifier, (), "\n".join([*lines, "Mend that, and run the cell again."]))
    rows = tuple(
        (name, words.short(values[name]), words.short(right)) for name, right in answers.items()
    )
    return Prediction(identifier, rows, prediction.render(prediction.explains), values)


def _names(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}=..." for name in values)
