"""Second looks at a graded batch: re-mark exercises for everybody, or replay one submission.

A submission whose session was interrupted is re-marked whole.

Both use the rebuilt notebooks of the results folder, the same seed and today's definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vklab_course.definition.draw import fingerprint
from vklab_course.grade import jobs as running
from vklab_course.grade.assignment.manifest import LabFacts
from vklab_course.grade.batch import BY_HAND, Batch, job_hash, make_job
from vklab_course.grade.results.folder import owner
from vklab_course.grade.results.records import results_of
from vklab_course.grade.results.schema import ExerciseResult, GradeError, SubmissionResult

__all__ = ["Change", "regrade", "replay"]


@dataclass(frozen=True)
class Change:
    """Marks of one exercise of one student before and after."""

    key: str
    student: str
    exercise: str
    before: ExerciseResult
    after: ExerciseResult

    @property
    def difference(self) -> float:
        """Return the points that were gained; lost ones are negative."""
        return self.after.points - self.before.points


def _facts(batch: Batch, record: SubmissionResult) -> LabFacts:
    lab = batch.release.lab(record.lab)
    if record.lab_version != lab.version or record.seed_fingerprint != fingerprint(batch.seed):
        raise GradeError(
            f"the marks of {record.submission.student!r} are of lab version {record.lab_version} "
            f"with seed {record.seed_fingerprint}; this release has {lab.version}, the seed file "
            f"{fingerprint(batch.seed)}: give the release and the seed file of that batch"
        )
    return lab


def regrade(
    batch: Batch, exercises: Sequence[str], tell: Callable[[Change], None] = lambda change: None
) -> list[Change]:
    """Mark some exercises of every submission again; return what changed.

    Raises GradeError at the end, if a submission could not be marked; the others are written.

    Args:
        batch: the batch; its options decide how jobs run.
        exercises: the exercises, ("04-2",).
        tell: called with each change.
    """
    run = batch.results.run()
    if run is not None and run.unsafe != batch.options.unsafe:
        raise GradeError(
            f"{batch.results.folder} holds marks of runs "
            f"{'without' if run.unsafe else 'in'} the sandbox; regrade them so, too"
        )
    with batch.results.locked():
        jobs, records = [], {}
        failed: list[str] = []
        for key, record in batch.results.all().items():
            if record.broken or not set(exercises) & set(record.exercises):
                continue
            lab = _facts(batch, record)
            mine = _to_mark(record, lab)
            if not record.interrupted:
                mine = [e for e in mine if e in exercises]
            if mine and not batch.results.has_notebook(key):
                failed.append(f"{key}: its notebook is gone (retention?); grade it again")
            elif mine:
                records[key] = record
                jobs.append(
                    make_job(
                        batch,
                        key,
                        lab,
                        batch.results.notebook(key),
                        mine,
                        "/".join(owner(record.submission)),
                    )
                )
        if not jobs and not failed:
            raise GradeError(
                f"no submission in {batch.results.folder} has an answer to "
                f"{', '.join(exercises)} that a check marks"
            )
        changes, marked = [], 0
        for job, outcome in running.run_jobs(
            jobs, batch.judge, batch.options.processes, batch.options.dask
        ):
            if outcome.get("broken"):
                failed.append(f"{job.key}: {outcome['broken']}")
                continue
            marked += 1
            new, changed = _remarked(batch, records[job.key], job.key, job.exercises, outcome)
            batch.results.write(job.key, new)
            changes += changed
            for change in changed:
                tell(change)
    if failed:
        listed = "\n".join(f"  {one}" for one in sorted(failed)[:20])
        raise GradeError(
            f"{marked} submissions were marked again, and "
            f"{len(changes)} marks differ; the marks of {len(failed)} were left as "
            f"they are:\n{listed}"
        )
    return sorted(changes, key=lambda c: (c.student, c.exercise))


def _to_mark(record: SubmissionResult, lab: LabFacts) -> list[str]:
    """Return the exercises of a record that a check marks."""
    return [
        e.id
        for e in lab.exercises
        if e.kind not in BY_HAND
        and e.id in record.exercises
        and record.exercises[e.id].status != "missing"
    ]


def _remarked(
    batch: Batch, record: SubmissionResult, key: str, exercises: Sequence[str],
    outcome: running.Outcome,
) -> tuple[SubmissionResult, list[Change]]:  # fmt: skip
    given = results_of(outcome, {e: record.exercises[e].of for e in exercises})
    results = {**record.exercises, **given}
    changes = [
        Change(key, record.submission.student, e, record.exercises[e], results[e])
        for e in exercises
        if (record.exercises[e].points, record.exercises[e].status)
        != (results[e].points, results[e].status)
    ]
    lab = batch.release.lab(record.lab)
    hashed = job_hash(batch, record.submission, lab, batch.results.notebook(key))
    new = record.model_copy(
        update={
            "exercises": results,
            "job": hashed,
            "interrupted": str(outcome.get("interrupted", ""))[:20_000],
        }
    )
    return new, changes


def replay(batch: Batch, student: str) -> tuple[SubmissionResult, list[Change]]:
    """Grade one submission again under the same seed; return the new record and the differences.

    Nothing is written.

    Args:
        batch: the batch.
        student: name, key or file name of the submission.
    """
    key = batch.results.find(student)
    record = batch.results.all()[key]
    if record.broken and not record.job:
        raise GradeError(f"{key} could not be graded: {record.broken}")
    lab = _facts(batch, record)
    job = make_job(batch, key, lab, batch.results.notebook(key))
    mine = _to_mark(record, lab)
    ((_, outcome),) = running.run_jobs([job], batch.judge)
    return _remarked(batch, record, key, mine, outcome)
