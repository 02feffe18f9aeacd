"""check: test an answer to an exercise and return a verdict.

An answer that raises, hangs, prints without end or belongs to another exercise gets a verdict, too,
and the notebook continues. The verdict is feedback, not a mark. Visited by lab 00.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vklab_course import seam, words
from vklab_course.children.kernel_answers import KernelAnswers
from vklab_course.children.run_limited import run_limited
from vklab_course.counting.observe import PINNED
from vklab_course.definition.case import Case
from vklab_course.definition.draw import public_cases
from vklab_course.definition.exercise import Exercise, exercises_of, find, home_of, number_of
from vklab_course.definition.judge import Answers, LocalAnswers, judge
from vklab_course.definition.verdict import Verdict
from vklab_course.features import missing_features
from vklab_course.places import unplaced
from vklab_course.student import keeping

__all__ = ["answers_for", "check", "check_answer", "judged_text", "refusal"]

JUDGE_S = 60.0

UNPLACED = (
    "checked in its first variant: no variants.json was found in this folder or above. If "
    "the notebook is from a release, move it back, or name its labs by VKLAB_LABS"
)


def check(identifier: str, answer: Any = None) -> Verdict:
    """Check the answer to an exercise.

    Args:
        identifier: the exercise, "03-1".
        answer: the function itself (not its result), the text of a kernel, or a value.

    Returns the verdict, which draws itself.
    """
    try:
        exercise = find(str(identifier))
    except LookupError as error:
        return Verdict(str(identifier), "", "incorrect", 0, 0, (), (str(error),))
    verdict = check_answer(exercise, answer)
    if verdict.status == "correct":
        keeping.begin(exercise, judged_text)
    if len(exercise.variants) > 1 and verdict.status in ("partial", "incorrect") and unplaced():
        return replace(verdict, messages=(*verdict.messages, UNPLACED))
    return verdict


def check_answer(
    exercise: Exercise,
    answer: Any,
    seconds: float | None = None,
    cases: Sequence[Case] | None = None,
    explain: bool = True,
) -> Verdict:
    """Return the verdict on an answer of this process, on the public cases.

    Args:
        exercise: the exercise with its definition.
        answer: as in `check`.
        seconds: time limit of the answers; None for the exercise's own.
        cases: the public cases, where they are drawn already.
        explain: whether a verdict is explained, as `Exercise.feedback` does.
    """
    refused = refusal(exercise, answer)
    if refused is not None:
        status, message = refused
        return Verdict(exercise.id, exercise.title, status, 0, exercise.points, (), (message,))
    drawn = public_cases(exercise) if cases is None else cases
    verdict = judge(exercise, answers_for(exercise, answer, seconds), drawn)
    return exercise.feedback(answer, drawn, verdict) if explain else verdict


def judged_text(identifier: str, name: str, text: str) -> str:
    """Judge an answer from its text alone, in a fresh process; return "" or why it is not correct.

    Args:
        identifier: the exercise.
        name: what the text calls the answer.
        text: the statements.
    """
    ran = run_limited(_verdict_on_text, identifier, name, text, seconds=JUDGE_S)
    return str(ran.value if ran.status == "returned" else ran.message)


def _verdict_on_text(identifier: str, name: str, text: str) -> str:
    space: dict[str, Any] = {"__name__": "mine"}
    exec(compile(text, f"mine/{identifier}.py", "exec"), space)
    verdict = check_answer(find(identifier), space[name])
    if verdict.status == "correct":
        return ""
    said = [part.message for part in verdict.parts if not part.passed and part.message]
    return "; ".join([verdict.headline, *said[:1], *verdict.messages[:1]])


def answers_for(exercise: Exercise, answer: Any, seconds: float | None = None) -> Answers:
    """Return how an answer of this process is reached: called here, or dispatched in a child.

    Args:
        exercise: the exercise.
        answer: as in `check`.
        seconds: as in `check_answer`.
    """
    if exercise.takes == "kernel":
        return KernelAnswers(answer, variables=PINNED)  # as the grader does
    return LocalAnswers(answer, seconds)


def refusal(exercise: Exercise, answer: Any) -> tuple[str, str] | None:
    """Return the status and message for an answer that need not be run, else None."""
    missing = missing_features(exercise.needs)
    if missing:
        return "skipped", missing
    takes = exercise.takes
    if answer is ... or (answer is None and takes in ("value", "text")):
        return "not_attempted", "replace the dots by your answer, then run both cells"
    if takes == "text":
        return _text_status(answer)
    if takes == "function" and not callable(answer):
        got = "nothing" if answer is None else words.short(answer)
        return "incorrect", (
            f"give the function itself, without calling it: "
            f"check({exercise.id!r}, {exercise.title}); got {got}"
        )
    if takes == "kernel" and not isinstance(answer, str):
        return "incorrect", f"give the kernel as text; got {words.short(answer)}"
    unsolved = rf"^(?:(?!//).)*#error Lab {number_of(exercise.id)}"  # not in a comment
    if takes == "kernel" and re.search(unsolved, answer, re.M):
        return "not_attempted", "the line that starts with #error is still in the kernel"
    other = _other(exercise, answer)
    if other:
        return "incorrect", (
            f"this is {other.title}, the answer to {other.id}; "
            f"{exercise.id} asks for {exercise.title}"
        )
    if seam.is_real(answer, exercise.seams):
        return "incorrect", seam.REFUSAL
    changed = seam.patched()
    if changed:
        return "incorrect", (
            f"the notebook has replaced {', '.join(changed)}, and the check would "
            "compare with the replacement. Restart the kernel; to try a function "
            "in the runtime use `with swap(...)`"
        )
    return None


def _text_status(answer: Any) -> tuple[str, str]:
    if not isinstance(answer, str):
        return "incorrect", f"give your text as a text, in quotes; got {words.short(answer)}"
    if not answer.strip():
        return "not_attempted", "your text is empty"
    return "recorded", "your text is handed in with the notebook, and marked by a person"


def _other(exercise: Exercise, answer: Any) -> Exercise | None:
    """Return another exercise of the same lab whose answer has this function's name, if any."""
    name = getattr(answer, "__name__", None)
    for other in exercises_of(home_of(exercise.id)).values():
        if name == other.title != exercise.title:
            return other
    return None
