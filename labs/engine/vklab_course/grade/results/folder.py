"""Results folder: one JSON file a submission, written whole or not at all, by one grader at a time.

RESULTS/run.json holds the facts of the batch, marks/ the records, work/ the rebuilt notebooks (for
regrade and replay), lock the lock. The seed is in RESULTS/seed unless --seed-file names another
file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock
import nbformat

from vklab_course import words
from vklab_course.grade.assignment import rebuild
from vklab_course.grade.results import schema
from vklab_course.grade.results.schema import GradeError, Run, Submission, SubmissionResult

__all__ = ["Results", "file_key", "new_seed", "owner", "read_seed",
           "write_atomic"]  # fmt: skip

DAY_S = 86_400


def owner(submission: Submission) -> tuple[str, str]:
    """Return what tells the students of a class apart."""
    return submission.lms, submission.student


def file_key(student: str, lab: str, attempt: int = 1, lms: str = "") -> str:
    """Return the name of a record's files: readable, and safe on every system.

    Its 40 bits of a hash are short enough that somebody can find two names with the same ones; then
    `lms` gives a key of 256 bits.

    Args:
        student: the student's key, any text.
        lab: the lab's name.
        attempt: number of the attempt.
        lms: the LMS, or plain, for a key with the whole hash.
    """
    plain = unicodedata.normalize("NFKD", student).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-").lower()[:40] or "student"
    whole = f"{lms}/{student}" if lms else student
    exact = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[: 64 if lms else 10]
    return f"{words}-{exact}.{lab}" + (f".{attempt}" if attempt > 1 else "")


def write_atomic(path: Path, text: str | bytes) -> None:
    """Write a file so that a reader, a full disk or a killed process never leaves half of it."""
    data = text.encode("utf-8") if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise GradeError(
            f"{path} cannot be written ({error.strerror or error}); the results that "
            "were written are complete: make room, and start the same command "
            "again"
        ) from error


def new_seed() -> str:
    """Return a fresh secret seed, 64 hexadecimal digits."""
    return secrets.token_hex(32)


def read_seed(path: Path, create: bool = False) -> str:
    """Return the secret seed of a file; with `create`, make the file if there is none."""
    if not path.exists() and create:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(new_seed() + "\n")
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise GradeError(f"the seed file {path} cannot be read: {error}") from error
    if len(text) < 16:
        raise GradeError(
            f"the seed file {path} has {len(text)} characters; give at least 16 "
            "random ones, or delete it and let vklab make one"
        )
    return text


@dataclass(frozen=True)
class Results:
    """A results folder."""

    folder: Path

    @property
    def marks(self) -> Path:
        """Return the folder of the records."""
        return self.folder / "marks"

    @property
    def work(self) -> Path:
        """Return the folder of the rebuilt notebooks."""
        return self.folder / "work"

    @contextlib.contextmanager
    def locked(self) -> Iterator[Results]:
        """Hold the folder alone; raise GradeError at once if another grader has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self.folder / "lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise GradeError(
                f"another vklab is writing to {self.folder}; wait until it has ended, "
                "or give another --out"
            ) from None
        try:
            self._clean()
            yield self
        finally:
            lock.release()

    def _clean(self) -> None:
        """Remove what a killed grader left half written."""
        for path in self.folder.rglob(".*.partial"):
            path.unlink(missing_ok=True)

    def run(self) -> Run | None:
        """Return the facts of the batch, or None before the first."""
        path = self.folder / "run.json"
        if not path.is_file():
            return None
        run: Run = schema.parse(Run, path.read_bytes(), str(path))
        return run

    def write_run(self, run: Run) -> None:
        """Write the facts of the batch."""
        write_atomic(self.folder / "run.json", run.model_dump_json(indent=1) + "\n")

    def read(self, key: str) -> SubmissionResult | None:
        """Return one record, or None. Raises GradeError if its file is damaged."""
        path = self.marks / f"{key}.json"
        if not path.is_file():
            return None
        record: SubmissionResult = schema.parse(SubmissionResult, path.read_bytes(), str(path))
        return record

    def write(self, key: str, record: SubmissionResult, notebook: str = "") -> None:
        """Write one record.

        Args:
            key: name of its files, from `file_key`.
            record: the record.
            notebook: the rebuilt notebook; nothing is written if empty.

        Raises GradeError if the record there is another student's.
        """
        before = self.read(key)
        if before is not None and owner(before.submission) != owner(record.submission):
            raise GradeError(
                f"{self.marks / key}.json is the record of "
                f"{before.submission.student!r}, so that of "
                f"{record.submission.student!r} was not written"
            )
        if notebook:
            write_atomic(self.work / f"{key}.ipynb", notebook)
        write_atomic(self.marks / f"{key}.json", record.model_dump_json(indent=1) + "\n")

    def all(self) -> dict[str, SubmissionResult]:
        """Return every record by key, in order of the keys."""
        keys = sorted(path.stem for path in self.marks.glob("*.json"))
        read = {key: self.read(key) for key in keys}
        return {key: record for key, record in read.items() if record is not None}

    def has_notebook(self, key: str) -> bool:
        """Tell whether a rebuilt notebook is there."""
        return (self.work / f"{key}.ipynb").is_file()

    def notebook(self, key: str) -> str:
        """Return a rebuilt notebook. Raises GradeError if it was deleted."""
        path = self.work / f"{key}.ipynb"
        if not self.has_notebook(key):
            raise GradeError(f"{path} is gone (retention?); grade the submissions again")
        return path.read_text("utf-8")

    def answers(self, key: str) -> dict[str, str]:
        """Return the text of each answer of a submission, by exercise; none if it was deleted."""
        if not self.has_notebook(key):
            return {}
        return rebuild.answers_in(nbformat.reads(self.notebook(key), as_version=4))

    def find(self, text: str) -> str:
        """Return the key of the one record that a student's name, key or file name describes."""
        records = self.all()
        if text in records:  # whatever name another student has chosen
            return text
        wanted = text.casefold()
        exact = [
            k
            for k, r in records.items()
            if wanted
            in (
                k.casefold(),
                r.submission.student.casefold(),
                r.submission.name.casefold(),
                r.submission.lms_id,
            )
        ]
        near = exact or [k for k in records if wanted in k.casefold()]
        if len(near) != 1:
            what = "no record" if not near else f"{len(near)} records"
            known = [
                name for r in records.values() for name in (r.submission.student, r.submission.name)
            ]
            like = "" if near else words.near(text, known)
            raise GradeError(
                f"{what} in {self.marks} for {text!r}; give one of the names "
                f"{', '.join((near or list(records))[:8])}.{like}"
            )
        return near[0]

    def expire(self, days: float, now: float | None = None) -> list[Path]:
        """Delete personal work older than some days: notebooks and feedback; marks stay.

        Args:
            days: age in days.
            now: the time of today in seconds; None for the clock.
        """
        limit = (time.time() if now is None else now) - days * DAY_S
        gone = []
        for folder in (self.work, self.folder / "feedback"):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.stat().st_mtime < limit:
                    path.unlink()
                    gone.append(path)
        return gone
