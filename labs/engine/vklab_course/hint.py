"""hint: the next hint of an exercise at every call, from a nudge to almost the line itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape

from vklab_course.definition.exercise import find

__all__ = ["Hint", "hint"]

NO_MORE = "There are no more hints: this is the last one again."
_given: Counter[str] = Counter()


@dataclass(frozen=True)
class Hint:
    """One hint of several; draws itself as a note."""

    id: str
    number: int
    of: int
    text: str
    note: str = ""

    def __str__(self) -> str:
        text = f"{self.id}, hint {self.number} of {self.of}: {self.text}"
        return f"{text}\n{self.note}" if self.note else text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        more = " The next call gives the next one." if self.number < self.of else self.note
        return (
            '<div style="border-left:.4em solid #E69F00;padding:.2em .9em;margin:.4em 0">'
            f"<strong>{escape(self.id)}, hint {self.number} of {self.of}</strong> "
            f"<small>{more}</small><div>{escape(self.text)}</div></div>"
        )


def hint(identifier: str, number: int | None = None) -> Hint:
    """Return the next hint of an exercise, or the one with a given number.

    Args:
        identifier: the exercise, "03-1".
        number: 1 for the first; None for the hint after the last one shown.
    """
    try:
        exercise = find(str(identifier))
    except LookupError as error:
        return Hint(str(identifier), 0, 0, str(error))
    count = len(exercise.hints)
    note = NO_MORE if number is None and _given[exercise.id] == count else ""
    wanted = min(_given[exercise.id] + 1 if number is None else max(1, int(number)), count)
    _given[exercise.id] = max(_given[exercise.id], wanted)
    return Hint(exercise.id, wanted, count, exercise.render(exercise.hints[wanted - 1]), note)
