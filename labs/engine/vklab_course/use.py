"""use: the student's own answer to an exercise of an earlier lab, or the runtime's own function."""

from __future__ import annotations

from typing import Any

from vklab_course import seam
from vklab_course.check import judged_text
from vklab_course.definition.exercise import Exercise, find, home_of
from vklab_course.student import keeping, kept
from vklab_course.student.kept import KeptError

__all__ = ["use"]


def use(identifier: str) -> Any:
    """Return the kept answer to an exercise, else the runtime's own behind the same signature.

    One printed line says which. The runtime's own is not the exercise's solution: `check` refuses
    it.

    Args:
        identifier: the exercise of an earlier lab, "09-3".

    Raises LookupError for an exercise that builds nothing, and RuntimeError within its own lab.
    """
    exercise = find(str(identifier))
    if exercise.builds is None:
        raise LookupError(
            f"exercise {exercise.id} builds no piece of the runtime, so nothing of it is kept"
        )
    if keeping.running_lab() == home_of(exercise.id):
        raise RuntimeError(
            f"{exercise.id} is an exercise of this lab: call {exercise.title} itself"
        )
    try:
        value = _mine(exercise)
        print(f"{exercise.id}: your {exercise.title}")
    except KeptError as error:
        print(f"{exercise.id}: the runtime's own in place of {exercise.title} ({error})")
        value = exercise.builds.own[exercise.id](exercise.params)
        seam.given.append(value)
    return value


def _mine(exercise: Exercise) -> Any:
    work = kept.work_folder()
    if work is None:
        raise KeptError("no answer is kept")
    keeping.wait(exercise.id)
    return kept.current(work, exercise, judged_text).value()
