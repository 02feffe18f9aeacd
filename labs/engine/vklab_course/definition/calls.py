"""Write the case of a check as a call for a cell of the notebook."""

from __future__ import annotations

from vklab_course import words
from vklab_course.definition.case import Case

__all__ = ["call_text", "in_words", "shown"]

LONGEST = 500  # characters of a call that is written out


def in_words(case: Case) -> str:
    """Return the input of a case in the words of its definition, else its arguments, cut short."""
    listed = [words.short(a) for a in case.args]
    listed += [f"{key}={words.short(value)}" for key, value in case.named.items()]
    return case.on or ", ".join(listed)


def shown(message: str, call: str, case: Case) -> str:
    """Return a message on a case, with the case as a call on a line of its own.

    Args:
        message: the message, which begins with the case in words.
        call: what `call_text` returns for the case.
        case: the case.
    """
    own = case.on.startswith(f"{call.partition('(')[0]}(")  # these words are a call already
    if call and (own or not case.on) and "given(" not in call:
        return f"{case.on or call}\n{message.removeprefix(f'on {in_words(case)}: ')}"
    return f"{message}\nto repeat it in a cell: {call}" if call else message


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
