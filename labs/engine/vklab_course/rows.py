"""Feedback of `check` on a Choice: no count of right rows, and then a fact instead of an option.

The first two different wrong answers get "not all right". From the third on, the first wrong row
gets the fact that decides it. A right answer gets the reason of every row. The different answers
of an exercise are remembered as long as the notebook's process runs, as its hints are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case

__all__ = ["WRONG", "explained", "no_option", "wrong_rows"]

WRONG = "not all right"
ALONE = 2  # different wrong answers without a fact
# Wrong answers by exercise and variant; a dictionary keeps the order.
_wrong: defaultdict[tuple[str, int], dict[tuple[Any, ...], None]] = defaultdict(dict)


def explained(exercise: tuple[str, int], answer: Mapping[str, Any], case: Case) -> str:
    """Return what a wrong answer is told; "" if a row has no option, which counts as no try.

    Args:
        exercise: its id and variant.
        answer: the answer.
        case: the case with the oracle's result.
    """
    names = list(case.facts["options"])
    if any(no_option(case, answer, name) for name in names):
        return ""
    seen = _wrong[exercise]
    seen[tuple(answer[name] for name in names)] = None
    if len(seen) <= ALONE:
        return WRONG
    first = wrong_rows(case, answer)[0]
    fact = case.facts.get("facts", {}).get(first, "")
    return f"{WRONG}. Row {first}: {fact}" if fact else WRONG


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
    given = repr(said) if type(said) is float else words.short(said)
    return f"{name!r}: got {given}; choose one of {', '.join(map(repr, options))}"


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
