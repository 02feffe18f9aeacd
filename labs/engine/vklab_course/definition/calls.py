"""The case of a check as code: a call that a student can paste into a cell of the notebook."""

from __future__ import annotations

from vklab_course import words
from vklab_course.definition.case import Case

__all__ = ["call_text"]

LONGEST = 500  # characters of a call that is written out


def call_text(title: str, identifier: str, case: Case, number: int) -> str:
    """Return the call of a function on a case; a long one takes its arguments from `given`.

    Args:
        title: the function's name.
        identifier: its exercise.
        case: the case.
        number: its number among the public cases, from 1.
    """
    try:
        listed = [words.code(value) for value in case.args]
        listed += [f"{name}={words.code(value)}" for name, value in case.named.items()]
        call = f"{title}({', '.join(listed)})"
        if len(call) <= LONGEST and not case.steps:
            return call
    except TypeError:
        pass  # a value that no code can write
    if case.steps or case.named:
        return ""
    return f"from vklab_course import given; {title}(*given({identifier!r}, {number}))"
