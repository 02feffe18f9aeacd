"""Feedback of `check` on a Choice: no count of right rows, and then a fact instead of an option.

The first two different wrong answers get "not all right". From the third on, the first wrong row
gets the fact that decides it. A right answer gets the reason of every row. The different answers
of an exercise are remembered as long as the notebook's process runs, as its hints are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Exercise
from vklab_course.definition.kinds import no_option, wrong_rows
from vklab_course.definition.verdict import Verdict

__all__ = ["WRONG", "explained"]

WRONG = "not all right"
ALONE = 2  # different wrong answers without a fact
# Wrong answers by exercise and variant; a dictionary keeps the order.
_wrong: defaultdict[tuple[str, int], dict[tuple[Any, ...], None]] = defaultdict(dict)


def explained(exercise: Exercise, answer: Any, case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict of the notebook on an answer to a `Choice`.

    Args:
        exercise: the exercise.
        answer: the answer that was judged.
        case: its case with the right options.
        verdict: the verdict by rows, as in grading.
    """
    if verdict.status == "correct":
        texts = case.facts.get("reasons", {})  # which cases of older releases do not have
        reasons = (f"{name}: {reason}" for name, reason in texts.items())
        return replace(verdict, messages=(*verdict.messages, *reasons))
    if not verdict.parts or verdict.parts[0].share < 0:
        return verdict  # the answer is no dictionary of these questions
    said = _said(exercise, answer, case) or verdict.parts[0].message
    parts = tuple(replace(part, share=-1.0, message=said) for part in verdict.parts)
    return replace(verdict, points=0, parts=parts)


def _said(exercise: Exercise, answer: Mapping[str, Any], case: Case) -> str:
    """Return what a wrong answer is told; "" if a row has no option, which counts as no try."""
    names = list(case.facts["options"])
    if any(no_option(case, answer, name) for name in names):
        return ""
    seen = _wrong[exercise.id, exercise.variant]
    seen[tuple(answer[name] for name in names)] = None
    if len(seen) <= ALONE:
        return WRONG
    first = wrong_rows(case, answer)[0]
    fact = case.facts.get("facts", {}).get(first, "")
    return f"{WRONG}. Row {first}: {fact}" if fact else WRONG
