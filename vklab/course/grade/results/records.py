"""Record of a submission, made from what its judge returned, or from the cause why nothing ran.

What a judge returns is validated: a result that cannot be true is an error without points.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from vklab.course.definition.draw import fingerprint
from vklab.course.grade import jobs as running
from vklab.course.grade.assignment import rebuild as rebuilding
from vklab.course.grade.batch import BY_HAND, Batch, Planned
from vklab.course.grade.jobs import Outcome
from vklab.course.grade.results.schema import ExerciseResult, PartResult, SubmissionResult

__all__ = ["broken_record", "complete", "validated"]


def broken_record(batch: Batch, one: Planned) -> SubmissionResult:
    """Return the record of a submission that cannot be graded."""
    exercises = {e.id: ExerciseResult(status="missing", of=e.points)
                 for e in (one.lab.exercises if one.lab else ())}
    return SubmissionResult(
        submission=one.submission, lab=one.lab.name if one.lab else "unknown",
        lab_version=one.lab.version if one.lab else "", broken=one.cause, exercises=exercises,
        seed_fingerprint=fingerprint(batch.seed), environment=running.environment(),
        notes=one.notes,
    )  # fmt: skip


def complete(batch: Batch, one: Planned, outcome: Outcome, hashed: str) -> SubmissionResult:
    """Return the record of a submission from the outcome of its job.

    Args:
        batch: the batch.
        one: the submission.
        outcome: what the judge returned; validated here.
        hashed: the hash of the job.
    """
    assert one.lab is not None and one.rebuilt is not None
    broken = str(outcome.get("broken", ""))[:20_000]
    given = outcome.get("exercises", {})
    unsafe = {"unsafe": True} if batch.options.unsafe else {}
    exercises = {}
    for facts in one.lab.exercises:
        if facts.id in one.rebuilt.missing:
            said = one.rebuilt.missing[facts.id]
            exercises[facts.id] = ExerciseResult(status="missing", of=facts.points,
                                                 messages=(said,))  # fmt: skip
        elif facts.kind in BY_HAND:
            exercises[facts.id] = _by_hand(batch, one, facts.id, facts.points)
        else:
            exercises[facts.id] = validated(given.get(facts.id), facts.points, broken)
    return SubmissionResult(
        submission=one.submission, lab=one.lab.name, lab_version=one.lab.version,
        variant=batch.release.variant(one.lab), seed_fingerprint=fingerprint(batch.seed),
        environment={**running.environment(), **outcome.get("environment", {})},
        sandbox={**outcome.get("sandbox", {}), **unsafe},
        exercises=exercises, notes=one.notes + one.rebuilt.notes, broken=broken,
        seconds=max(0.0, float(outcome.get("seconds", 0.0))), job=hashed,
    )  # fmt: skip


def validated(given: Any, points: float, broken: str) -> ExerciseResult:
    """Return the judge's result of an exercise, or an error without points if it is not valid.

    Args:
        given: what the judge returned, or None.
        points: the points of the exercise in the release.
        broken: why the session ended, or "".
    """
    if given is None:
        said = broken or "the grader returned no result for this exercise"
        return ExerciseResult(status="error", of=points, messages=(said[:500],))
    try:
        result = ExerciseResult.model_validate(_known(given))
    except ValidationError as error:
        said = f"the grader's result is not valid: {error.errors(include_url=False)[0]['msg']}"
        return ExerciseResult(status="error", of=points, messages=(said,))
    if result.of != points:
        said = f"the grader gives {result.of:g} points, the release {points:g}"
        return ExerciseResult(status="error", of=points, messages=(said,))
    return result


def _known(given: Any) -> Any:
    """Return a judge's result without fields that a record does not keep."""
    if not isinstance(given, dict) or not isinstance(given.get("parts", ()), list | tuple):
        return given
    parts = [{k: v for k, v in part.items() if k in PartResult.model_fields}
             if isinstance(part, dict) else part for part in given.get("parts", ())]  # fmt: skip
    return {**{k: v for k, v in given.items() if k in ExerciseResult.model_fields}, "parts": parts}


def _by_hand(batch: Batch, one: Planned, exercise: str, points: float) -> ExerciseResult:
    """Return the mark that a person gave to the same text before, or a place for it."""
    if one.rebuilt is not None and exercise in one.rebuilt.untouched:
        return ExerciseResult(status="not_attempted", of=points)
    empty = ExerciseResult(status="needs_hand_marking", of=points)
    before = batch.results.read(one.key)
    marked = before.exercises.get(exercise) if before else None
    if marked is None or marked.marked_by != "hand" or one.rebuilt is None:
        return empty
    old = batch.results.answers(one.key)
    new = rebuilding.answers_in(one.rebuilt.notebook)
    return marked if old.get(exercise) == new.get(exercise) else empty
