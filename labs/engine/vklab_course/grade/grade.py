"""Grading of a batch: test the grader itself, run one job a submission, write one record each.

A restart continues: a record whose job (submission, lab, definitions, variant, environment, seed)
is the same is kept. Records are written under the folder's lock.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence

from vklab_course.definition.draw import fingerprint
from vklab_course.grade import jobs as running
from vklab_course.grade.assignment.intake import Entry
from vklab_course.grade.assignment.manifest import LabFacts
from vklab_course.grade.batch import Batch, Planned, SelfTest, job_hash, make_job, plan
from vklab_course.grade.jobs import Job
from vklab_course.grade.results.folder import owner
from vklab_course.grade.results.records import broken_record, complete
from vklab_course.grade.results.schema import GradeError, Run, SubmissionResult, digest

__all__ = ["grade"]


def grade(
    batch: Batch, entries: Iterable[Entry], self_test: SelfTest | None = None,
    tell: Callable[[str, SubmissionResult], None] = lambda key, record: None,
) -> dict[str, SubmissionResult]:  # fmt: skip
    """Grade a batch and return its records by key.

    Args:
        batch: the release, the results folder, the seed and the judge.
        entries: the submissions.
        self_test: returns facts of a grader that works, or raises GradeError.
        tell: called with each new record.
    """
    with batch.results.locked():
        planned = plan(batch, entries)
        labs = {p.lab.name: p.lab for p in planned if p.lab}
        _begin(batch, list(labs.values()), self_test)
        records: dict[str, SubmissionResult] = {}
        waiting: dict[str, tuple[Planned, Job, str]] = {}
        for one in planned:
            record = _kept(batch, one)
            if record is None and one.rebuilt is not None and one.lab is not None:
                text = one.rebuilt.text
                who = "/".join(owner(one.submission))
                waiting[one.key] = (
                    one,
                    make_job(batch, one.key, one.lab, text, (), who),
                    job_hash(batch, one.submission, one.lab, text),
                )
                continue
            if record is None:
                record = broken_record(batch, one)
                batch.results.write(one.key, record)
                tell(one.key, record)
            records[one.key] = record
        options = batch.options
        for job, outcome in running.run_jobs(
            [job for _, job, _ in waiting.values()], batch.judge, options.processes, options.dask
        ):
            one, _, hashed = waiting[job.key]
            record = complete(batch, one, outcome, hashed)
            batch.results.write(job.key, record, job.notebook)
            records[job.key] = record
            tell(job.key, record)
    return dict(sorted(records.items()))


def _begin(batch: Batch, labs: Sequence[LabFacts], self_test: SelfTest | None) -> None:
    """Write the facts of the batch, or compare them with those of the batch that is continued."""
    run, seed = batch.results.run(), fingerprint(batch.seed)
    release = batch.release.manifest.id
    if run is not None and (run.release, run.seed_fingerprint) != (release, seed):
        raise GradeError(
            f"{batch.results.folder} holds marks of release {run.release} with seed "
            f"{run.seed_fingerprint}; this batch has release {release} with seed "
            f"{seed}. Give another --out, or the same release and seed file"
        )
    if run is not None and run.unsafe != batch.options.unsafe:
        raise GradeError(
            f"{batch.results.folder} holds marks of runs "
            f"{'without' if run.unsafe else 'in'} the sandbox; give another --out"
        )
    versions = {lab.name: lab.version for lab in labs}
    state = digest(
        versions,
        running.environment(),
        [
            (batch.labs / "checks" / f"lab_{lab.number}.py").read_text("utf-8")
            for lab in labs
            if (batch.labs / "checks" / f"lab_{lab.number}.py").is_file()
        ],
    )
    done = dict(run.self_test) if run is not None else {}
    if self_test is not None and done.get("state") != state:
        done = {**self_test(batch, labs), "state": state}
    started = run.started if run else datetime.datetime.now(datetime.UTC).isoformat("T", "seconds")
    batch.results.write_run(
        Run(
            release=release,
            labs={**(run.labs if run else {}), **versions},
            seed_fingerprint=seed,
            unsafe=batch.options.unsafe,
            self_test=done,
            started=started,
        )
    )


def _kept(batch: Batch, one: Planned) -> SubmissionResult | None:
    """Return the record of an earlier run, if nothing that decides the marks has changed."""
    record = batch.results.read(one.key)
    if record is None or record.submission != one.submission:
        return None
    if one.cause or one.rebuilt is None or one.lab is None:
        return record if record.broken == one.cause else None
    wanted = job_hash(batch, one.submission, one.lab, one.rebuilt.text)
    return record if record.job == wanted and not record.broken else None
