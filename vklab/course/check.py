"""check: test an answer to an exercise and return a verdict.

An answer that raises, hangs, prints without end or belongs to another exercise gets a verdict, too,
and the notebook continues. The verdict is feedback, not a mark. Visited by lab 00.
"""

from __future__ import annotations

from typing import Any

from vklab.course import seam, words
from vklab.course.definition.exercise import Exercise, exercises_of, find, number_of
from vklab.course.definition.report import NotAttempted, Report, Stopped
from vklab.course.definition.verdict import Verdict
from vklab.course.features import missing_features
from vklab.course.limits import LimitReached, limited

__all__ = ["check", "judge"]

# PRINTED exceeds the longest message of a check; of a student's own output SHOWN characters appear.
PRINTED, SHOWN = 100_000, 300


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
    return judge(exercise, answer)


def judge(exercise: Exercise, answer: Any, seconds: float | None = None) -> Verdict:
    """Return the verdict on an answer.

    Args:
        exercise: the exercise with its check.
        answer: as in `check`.
        seconds: time limit of the check; None for the exercise's own.
    """
    refusal = _refusal(exercise, answer)
    if refusal is not None:
        status, message = refusal
        return Verdict(exercise.id, exercise.title, status, 0, exercise.points, (), (message,))
    return _run(exercise, answer, exercise.seconds if seconds is None else seconds)


def _refusal(exercise: Exercise, answer: Any) -> tuple[str, str] | None:
    """Return the status and message for an answer that need not be run, else None."""
    missing = missing_features(exercise.needs)
    if missing:
        return "skipped", missing
    if answer is ... or (answer is None and exercise.takes == "value"):
        return "not_attempted", "replace the dots by your answer, then run both cells"
    if exercise.takes == "function" and not callable(answer):
        got = "nothing" if answer is None else words.short(answer)
        return "incorrect", (f"give the function itself, without calling it: "
                             f"check({exercise.id!r}, {exercise.title}); got {got}")  # fmt: skip
    if exercise.takes == "kernel" and not isinstance(answer, str):
        return "incorrect", f"give the kernel as text; got {words.short(answer)}"
    if exercise.takes == "kernel" and f"#error Lab {number_of(exercise.id)}" in answer:
        return "not_attempted", "the line that starts with #error is still in the kernel"
    other = _other(exercise, answer)
    if other:
        return "incorrect", (f"this is {other.title}, the answer to {other.id}; "
                             f"{exercise.id} asks for {exercise.title}")  # fmt: skip
    if seam.is_real(answer, exercise.seams):
        return "incorrect", seam.REFUSAL
    changed = seam.patched()
    if changed:
        return "incorrect", (f"the notebook has replaced {', '.join(changed)}, and the check would "
                             "compare with the replacement. Restart the kernel; to try a function "
                             "in the runtime use `with swap(...)`")  # fmt: skip
    return None


def _other(exercise: Exercise, answer: Any) -> Exercise | None:
    """Return another exercise of the same lab whose answer has this function's name, if any."""
    name = getattr(answer, "__name__", None)
    for other in exercises_of(number_of(exercise.id)).values():
        if name == other.title != exercise.title:
            return other
    return None


def _run(exercise: Exercise, answer: Any, seconds: float) -> Verdict:
    status, messages = "", []
    with seam.refusing(exercise.seams) as real:
        report = Report(real)
        printed = None
        try:
            with limited(seconds, PRINTED) as printed:
                exercise.check(answer, report)
        except NotAttempted as error:
            return _not_attempted(exercise, str(error))
        except NotImplementedError as error:
            if words.short_message(error).startswith("Lab "):
                return _not_attempted(exercise, words.short_message(error))
            status, messages = "incorrect", [f"raised {words.error_text(error)}"]
        except Stopped as stop:
            status, messages = "incorrect", [str(stop)] if str(stop) else []
            report.parts = [] if messages else report.parts
        except LimitReached as limit:
            status, messages = "incorrect", [f"the check was stopped: {limit}"]
        except (Exception, SystemExit) as error:
            status, messages = "incorrect", [f"the check was stopped: {words.error_text(error)}"]
    points = sum(part.points for part in report.parts if part.passed)
    full = bool(report.parts) and all(part.passed for part in report.parts)
    status = status or ("correct" if full else "incorrect")
    messages += report.notes + ([_printed(printed.text)] if printed and printed.text else [])
    return Verdict(exercise.id, exercise.title, status, points, exercise.points,
                   tuple(report.parts), tuple(messages))  # fmt: skip


def _not_attempted(exercise: Exercise, message: str) -> Verdict:
    return Verdict(
        exercise.id, exercise.title, "not_attempted", 0, exercise.points, (), (message,)
    )


def _printed(text: str) -> str:
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}\n... ({len(text)} characters)"
    return "your answer printed:\n" + cut.rstrip("\n")
