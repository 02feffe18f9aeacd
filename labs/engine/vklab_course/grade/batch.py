"""Batch of submissions: its options, what is planned for each, and the job that grades it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vklab_course.definition.draw import fingerprint
from vklab_course.grade import jobs as running
from vklab_course.grade.assignment import rebuild as rebuilding
from vklab_course.grade.assignment.intake import Entry
from vklab_course.grade.assignment.manifest import LabFacts, Release
from vklab_course.grade.assignment.rebuild import Rebuilt
from vklab_course.grade.assignment.submission import BadSubmission, Notebook
from vklab_course.grade.jobs import Job, Judge
from vklab_course.grade.results.folder import Results, file_key
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
    rebuilt: Rebuilt | None = None
    cause: str = ""
    notes: tuple[str, ...] = ()


def plan(batch: Batch, entries: Iterable[Entry]) -> list[Planned]:
    """Return what to grade: of each student and lab the last readable attempt, or all of them."""
    grouped: dict[tuple[str, str], list[tuple[Entry, LabFacts | None, str]]] = {}
    for entry in entries:
        lab, cause = _lab_of(batch, entry)
        name = lab.name if lab else "unknown"
        grouped.setdefault((entry.submission.student, name), []).append((entry, lab, cause))
    planned = []
    released = {lab.name: batch.release.notebook(lab) for lab in batch.release.manifest.labs}
    for (student, name), attempts in sorted(grouped.items()):
        good = [one for one in attempts if not one[2]]
        chosen = good if batch.options.attempts == "best" else good[-1:]
        notes = tuple(f"not graded: {entry.submission.file}: {cause}"
                      for entry, _, cause in attempts if cause and good)  # fmt: skip
        if len(good) > 1 and batch.options.attempts == "last":
            notes += (f"{len(good)} attempts; the last one is graded: "
                      f"{good[-1][0].submission.file}",)  # fmt: skip
        for entry, lab, cause in chosen or attempts[-1:]:
            number = entry.submission.attempt if batch.options.attempts == "best" else 1
            key = file_key(student, name, number)
            rebuilt = None
            if not cause and lab and entry.notebook:
                rebuilt = rebuilding.rebuild(released[lab.name], entry.notebook)
            said = ((entry.note,) if entry.note else ()) + notes
            planned.append(Planned(key, entry.submission, lab, rebuilt, cause, said[:10]))
    return planned


def _lab_of(batch: Batch, entry: Entry) -> tuple[LabFacts | None, str]:
    """Return the lab of a submission, and the cause if it cannot be graded."""
    labs = batch.release.manifest.labs
    only = batch.release.lab(batch.options.lab) if batch.options.lab else (
        labs[0] if len(labs) == 1 else None
    )
    if entry.notebook is None:
        return only, entry.cause
    lab = only or _matching(entry.notebook, labs)
    if lab is None:
        names = ", ".join(lab.name for lab in labs)
        return None, f"it is none of the labs of the release ({names})"
    try:
        rebuilding.check_lab(entry.notebook, lab)
    except BadSubmission as error:
        return lab, str(error)
    return lab, ""


def _matching(notebook: Notebook, labs: Sequence[LabFacts]) -> LabFacts | None:
    ids = {str(cell.about.get("id")) for cell in notebook.cells
           if cell.about.get("role") == "exercise"}  # fmt: skip
    named = [lab for lab in labs if lab.number == notebook.lab]
    return next(iter(named or [lab for lab in labs if ids & {e.id for e in lab.exercises}]), None)


def make_job(batch: Batch, key: str, lab: LabFacts, notebook: str,
             exercises: Sequence[str] = ()) -> Job:  # fmt: skip
    """Return the job of one submission.

    Args:
        batch: the batch.
        key: name of the record.
        lab: the lab.
        notebook: JSON text of the rebuilt notebook.
        exercises: the exercises to grade; default all that a check can mark.
    """
    chosen = exercises or [e.id for e in lab.exercises if e.kind not in BY_HAND]
    run = batch.results.run()
    times = dict(run.self_test.get("times", {})) if run else {}
    return Job(key, lab.name, notebook, tuple(chosen), batch.release.variant(lab), batch.seed,
               str(batch.labs), batch.options.unsafe, batch.options.image,
               {e: times[e] for e in chosen if e in times})  # fmt: skip


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
    return digest(submission.hash, notebook, lab.version, batch.release.variant(lab),
                  running.environment(), fingerprint(batch.seed), batch.options.unsafe,
                  definitions)  # fmt: skip
