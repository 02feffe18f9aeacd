"""Batch of submissions: its options, what is planned for each, and the job that grades it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vklab_course.definition.draw import fingerprint
from vklab_course.grade import bounds
from vklab_course.grade import jobs as running
from vklab_course.grade.assignment import reading
from vklab_course.grade.assignment.intake import Entry
from vklab_course.grade.assignment.manifest import LabFacts, Release
from vklab_course.grade.assignment.reading import Attempt, Task
from vklab_course.grade.jobs import Job, Judge
from vklab_course.grade.results.folder import Results, file_key, owner
from vklab_course.grade.results.schema import Submission, digest

__all__ = ["BY_HAND", "Batch", "Options", "Planned", "SelfTest", "job_hash", "make_job",
           "plan"]  # fmt: skip

BY_HAND = ("text",)
SelfTest = Callable[["Batch", Sequence[LabFacts]], Mapping[str, Any]]


@dataclass(frozen=True)
class Options:
    """Options of a batch.

    Attributes:
        lab: grade this lab only; every lab of the release if empty.
        attempts: last, or best.
        processes: jobs at a time on this machine.
        dask: address of a Dask scheduler, or "local".
        unsafe: run without a sandbox; the records say so, and give no CSV.
        image: image of a container that is the sandbox; bubblewrap if empty.
    """

    lab: str = ""
    attempts: str = "last"
    processes: int = 1
    dask: str | None = None
    unsafe: bool = False
    image: str = ""


@dataclass(frozen=True)
class Batch:
    """Everything that the jobs of a batch share."""

    release: Release
    results: Results
    labs: Path
    seed: str
    judge: Judge
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Planned:
    """One submission that is to be graded, or the cause why it cannot be."""

    key: str
    submission: Submission
    lab: LabFacts | None
    rebuilt: Attempt | None = None
    cause: str = ""
    notes: tuple[str, ...] = ()


def plan(batch: Batch, entries: Iterable[Entry]) -> list[Planned]:
    """Return what to grade: of each student and lab the last readable attempt, or all of them."""
    options = batch.options
    release = replace(batch.release, folder=batch.release.folder.absolute())
    task = Task(release, options.lab, options.attempts == "best")
    chosen: list[Planned] = []
    for mine in reading.read_students(task, entries, options.processes):
        by_lab: dict[str, list[Planned]] = {}
        for number, (entry, attempt) in enumerate(mine, 1):
            who = entry.submission.model_copy(
                update={"attempt": number, "file": attempt.file, "hash": attempt.hash}
            )
            lab = batch.release.lab(attempt.lab) if attempt.lab else None
            one = Planned(
                "",
                who,
                lab,
                None if attempt.cause else attempt,
                attempt.cause,
                (entry.note,) if entry.note else (),
            )
            by_lab.setdefault(attempt.lab, []).append(one)
        for attempts in by_lab.values():
            chosen += _chosen(attempts, options.attempts == "best")
    taken: dict[str, list[Planned]] = {}
    for one in chosen:
        taken.setdefault(_key(one, options.attempts == "best"), []).append(one)
    keyed = [
        replace(one, key=_own(batch, key, one, len(mine) > 1))
        for key, mine in taken.items()
        for one in mine
    ]
    # The newest attempt first: all of a student's share their time.
    return sorted(keyed, key=lambda one: (*owner(one.submission), -one.submission.attempt))


def _chosen(attempts: Sequence[Planned], best: bool) -> list[Planned]:
    """Return the attempts of one student at one lab that get a record."""
    good = [one for one in attempts if not one.cause]
    notes = [
        f"not graded: {one.submission.file}: {one.cause}" for one in attempts if one.cause and good
    ]
    if len(good) > 1 and not best:
        notes.append(f"{len(good)} attempts; the last one is graded: {good[-1].submission.file}")
    return [
        replace(
            one,
            notes=tuple(
                bounds.short(note, bounds.CAUSE) for note in [*one.notes, *notes][: bounds.NOTES]
            ),
        )
        for one in (good if best else good[-1:]) or attempts[-1:]
    ]


def _key(one: Planned, best: bool, whole: bool = False) -> str:
    who = one.submission
    lab = one.lab.name if one.lab else "unknown"
    return file_key(who.student, lab, who.attempt if best else 1, who.lms if whole else "")


def _own(batch: Batch, key: str, one: Planned, shared: bool) -> str:
    """Return the key of a student's record, with a whole hash if the key is another's too.

    Args:
        batch: the batch.
        key: the key with a short hash.
        one: the submission.
        shared: whether another submission of the batch has the same key.
    """
    before = batch.results.read(key)
    if before is not None:
        shared = owner(before.submission) != owner(one.submission)
    return _key(one, batch.options.attempts == "best", True) if shared else key


def make_job(batch: Batch, key: str, lab: LabFacts, notebook: str,
             exercises: Sequence[str] = (), student: str = "") -> Job:  # fmt: skip
    """Return the job of one submission.

    Args:
        batch: the batch.
        key: name of the record.
        lab: the lab.
        notebook: JSON text of the rebuilt notebook.
        exercises: the exercises to grade; default all that a check can mark.
        student: whose it is; the jobs of one student share their time.
    """
    chosen = exercises or [e.id for e in lab.exercises if e.kind not in BY_HAND]
    run = batch.results.run()
    times = dict(run.self_test.get("times", {})) if run else {}
    return Job(
        key,
        lab.name,
        notebook,
        tuple(chosen),
        batch.release.variant(lab),
        batch.seed,
        str(batch.labs),
        batch.options.unsafe,
        batch.options.image,
        {e: times[e] for e in chosen if e in times},
        f"{student} {lab.name}" if student else "",
    )


def job_hash(batch: Batch, submission: Submission, lab: LabFacts, notebook: str) -> str:
    """Return the hash of everything that decides the marks of a submission.

    Args:
        batch: the batch.
        submission: the submission.
        lab: the lab.
        notebook: JSON text of the rebuilt notebook.
    """
    path = batch.labs / "checks" / f"lab_{lab.number}.py"
    definitions = path.read_bytes() if path.is_file() else b""
    return digest(
        submission.hash,
        notebook,
        lab.version,
        batch.release.variant(lab),
        running.environment(),
        fingerprint(batch.seed),
        batch.options.unsafe,
        definitions,
    )
