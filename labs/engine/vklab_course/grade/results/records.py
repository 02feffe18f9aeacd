"""Record of a submission, made from what its judge returned, or from the cause why nothing ran.

What a judge returns is validated: a result that cannot be true is an error without points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nbformat
from pydantic import ValidationError

from vklab_course.definition.draw import fingerprint
from vklab_course.grade import jobs as running
from vklab_course.grade.assignment import rebuild as rebuilding
from vklab_course.grade.batch import BY_HAND, Batch, Planned
from vklab_course.grade.jobs import Outcome
from vklab_course.grade.results.schema import ExerciseResult, PartResult, SubmissionResult

__all__ = ["broken_record", "complete", "results_of", "validated"]


# How a session may end before its last exercise.
ENDED = ("error", "timeout", "out_of_memory")


def broken_record(batch: Batch, one: Planned) -> SubmissionResult:
    """Return the record of a submission that cannot be graded."""
    exercises = {
        e.id: ExerciseResult(status="missing", of=e.points)
        for e in (one.lab.exercises if one.lab else ())
    }
    return SubmissionResult(
        submission=one.submission,
        lab=one.lab.name if one.lab else "unknown",
        lab_version=one.lab.version if one.lab else "",
        broken=one.cause,
        exercises=exercises,
        seed_fingerprint=fingerprint(batch.seed),
        environment=running.environment(),
        notes=one.notes,
    )


def complete(batch: Batch, one: Planned, outcome: Outcome, hashed: str) -> SubmissionResult:
    """Return the record of a submission from the outcome of its job.

    Args:
        batch: the batch.
        one: the submission.
        outcome: what the judge returned; validated here.
        hashed: the hash of the job.
    """
    assert one.lab is not None and one.rebuilt is not None
    given = results_of(outcome, {facts.id: facts.points for facts in one.lab.exercises})
    unsafe = {"unsafe": True} if batch.options.unsafe else {}
    exercises = {}
    for facts in one.lab.exercises:
        if facts.id in one.rebuilt.missing:
            said = one.rebuilt.missing[facts.id]
            exercises[facts.id] = ExerciseResult(
                status="missing", of=facts.points, messages=(said,)
            )
        elif facts.kind in BY_HAND:
            exercises[facts.id] = _by_hand(batch, one, facts.id, facts.points)
        else:
            exercises[facts.id] = given[facts.id]
    return SubmissionResult(
        submission=one.submission,
        lab=one.lab.name,
        lab_version=one.lab.version,
        variant=batch.release.variant(one.lab),
        seed_fingerprint=fingerprint(batch.seed),
        environment={**running.environment(), **outcome.get("environment", {})},
        sandbox={**outcome.get("sandbox", {}), **unsafe},
        exercises=exercises,
        notes=one.notes + one.rebuilt.notes,
        broken=str(outcome.get("broken", ""))[:20_000],
        interrupted=str(outcome.get("interrupted", ""))[:20_000],
        seconds=max(0.0, float(outcome.get("seconds", 0.0))),
        job=hashed,
    )


def results_of(outcome: Outcome, points: Mapping[str, float]) -> dict[str, ExerciseResult]:
    """Return the result of each exercise: the judge's, or how the session ended before it.

    Args:
        outcome: what the judge returned.
        points: the points of each wanted exercise in the release.
    """
    given = outcome.get("exercises", {})
    why = str(outcome.get("broken", "")) or "the grader returned no result for this exercise"
    ended = "error"
    if outcome.get("interrupted"):
        ended = outcome["ended"] if outcome.get("ended") in ENDED else "error"
        why = f"not judged, because the session was interrupted: {outcome['interrupted']}"
    absent = {"status": ended, "messages": [why[:500]]}
    return {
        key: validated(given.get(key) or {**absent, "of": of}, of) for key, of in points.items()
    }


def validated(given: Any, points: float) -> ExerciseResult:
    """Return the judge's result of an exercise, or an error without points if it is not valid.

    Args:
        given: what the judge returned.
        points: the points of the exercise in the release.
    """
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
    parts = [
        {k: v for k, v in part.items() if k in PartResult.model_fields}
        if isinstance(part, dict)
        else part
        for part in given.get("parts", ())
    ]
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
    new = rebuilding.answers_in(nbformat.reads(one.rebuilt.text, as_version=4))
    return marked if old.get(exercise) == new.get(exercise) else empty
