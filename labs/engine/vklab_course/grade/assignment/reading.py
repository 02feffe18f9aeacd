"""Reading of submissions: each student's files in a process with limits of memory and time.

What comes back is an `Attempt` for each notebook, a short list of bounded fields. A file that ends
the process has that as its cause; the student's other files are read by another process. Nothing of
a submission is executed, extracted or trusted.
"""

from __future__ import annotations

import contextlib
import gc
import io
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
from pydantic import Field

from vklab_course.grade import bounds, own_process
from vklab_course.grade.assignment import rebuild as rebuilding
from vklab_course.grade.assignment import zips
from vklab_course.grade.assignment.intake import Entry, by_student
from vklab_course.grade.assignment.manifest import LabFacts, Release
from vklab_course.grade.assignment.submission import BadSubmission, Notebook, read_notebook, too_big
from vklab_course.grade.results.schema import Record

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = ["Attempt", "Task", "read_students"]

# Files of one student that may end their process, before the others are not read.
MAX_ENDED = 3
Cause = Annotated[str, Field(max_length=bounds.CAUSE)]
Name = Annotated[str, Field(max_length=bounds.NAME)]


class Attempt(Record):
    """Everything that is kept of one notebook that was handed in.

    Attributes:
        file: its path, with that inside of a zip.
        hash: of its bytes; "" if they were not read.
        lab: name of its lab in the release, or "".
        cause: why it cannot be graded, or "".
        text: the rebuilt notebook as JSON; "" if it is not to be graded.
        missing: why an exercise has no answer, by exercise.
        untouched: exercises whose cell is still the release's.
        notes: what else is to be said.
    """

    file: Annotated[str, Field(max_length=bounds.FILE)]
    hash: Annotated[str, Field(max_length=64)] = ""
    lab: Name = ""
    cause: Cause = ""
    text: Annotated[str, Field(max_length=bounds.REBUILT)] = ""
    missing: dict[Name, Cause] = {}
    untouched: frozenset[Name] = frozenset()
    notes: Annotated[tuple[Cause, ...], Field(max_length=bounds.NOTES)] = ()


@dataclass(frozen=True)
class Task:
    """Purpose of reading: a release, one of its labs or "", and every attempt or the last."""

    release: Release
    lab: str = ""
    every_attempt: bool = False

    @property
    def only(self) -> LabFacts | None:
        """Return the lab that every submission must be of, or None."""
        labs = self.release.manifest.labs
        if self.lab:
            return self.release.lab(self.lab)
        return labs[0] if len(labs) == 1 else None

    def lab_of(self, notebook: Notebook) -> LabFacts:
        """Return the lab of a notebook. Raises BadSubmission if it is none of the release's."""
        labs = self.release.manifest.labs
        lab = self.only or _matching(notebook, labs)
        if lab is None:
            listed = ", ".join(lab.name for lab in labs)
            raise BadSubmission(f"it is none of the labs of the release ({listed})")
        return lab


def _matching(notebook: Notebook, labs: Sequence[LabFacts]) -> LabFacts | None:
    ids = {cell.exercise for cell in notebook.cells if cell.role == "exercise"}
    named = [lab for lab in labs if lab.number == notebook.lab]
    return next(iter(named or [lab for lab in labs if ids & {e.id for e in lab.exercises}]), None)


def read_students(
    task: Task, entries: Iterable[Entry], processes: int = 1
) -> Iterator[list[tuple[Entry, Attempt]]]:
    """Yield what each student handed in, older attempts first.

    Args:
        task: what they are read for.
        entries: the files.
        processes: students at a time.
    """
    with ThreadPoolExecutor(max(1, processes)) as pool:
        for mine in pool.map(lambda mine: _student(task, mine), by_student(entries).values()):
            yield mine[::-1]


def _student(task: Task, entries: Sequence[Entry]) -> list[tuple[Entry, Attempt]]:
    """Return the attempts of one student, newest first."""
    done = [(one, _refused(task, one, one.cause)) for one in entries if one.cause]
    left, ended = [one for one in entries if not one.cause], 0
    while left and ended < MAX_ENDED:
        reading, said = left[0], ""
        talk = own_process.messages(_read, (task, left), bounds.READ_WALL_S, name="reading")
        with contextlib.closing(talk):
            try:
                for number, fields in talk:
                    if number is None:
                        left = []
                        break
                    reading = left[number]
                    if fields:
                        done.append((reading, Attempt.model_validate(fields)))
            except own_process.Ended as error:
                said = _ended(error)
            except Exception as error:  # one student must not end the batch
                said = f"what was read of it cannot be kept ({type(error).__name__})"
        if left:
            ended += 1
            done.append((reading, _refused(task, reading, said)))
            left = left[left.index(reading) + 1 :]
    done += [
        (
            one,
            _refused(
                task,
                one,
                "it was not read, because newer files of the same student "
                "ended the process that reads them",
            ),
        )
        for one in left
    ]
    return sorted(done, key=lambda pair: (pair[0].order[:2], pair[1].file), reverse=True)


def _refused(task: Task, entry: Entry, cause: str) -> Attempt:
    return Attempt(
        file=entry.submission.file,
        lab=task.only.name if task.only else "",
        cause=bounds.short(cause, bounds.CAUSE),
    )


def _ended(error: own_process.Ended) -> str:
    what = f"the process that reads it {error}"
    if error.code == -getattr(signal, "SIGXCPU", 0):
        what = f"reading it takes more than {bounds.READ_CPU_S} s of processor time"
    return f"{what}; clear its outputs, and hand in the notebook of the lab alone"


# ------------------------------------------------------------------- in the process that reads


def _read(pipe: Any, task: Task, entries: Sequence[Entry]) -> None:
    """Send (number, None) before each file, and (number, fields) for each of its notebooks."""
    _limit()
    gc.disable()  # it would look at every object of a large notebook again and again
    reader = _Reader(task)
    for number, entry in enumerate(entries):
        pipe.send((number, None))
        for attempt in reader.attempts(entry):
            pipe.send((number, attempt.model_dump()))
    pipe.send((None, None))


def _limit() -> None:
    """Bound the memory and processor time of this process, where the system can."""
    if resource is None:
        return
    used = psutil.Process().memory_info()
    most = bounds.READ_BYTES + getattr(used, "data", used.rss)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (bounds.READ_CPU_S, bounds.READ_CPU_S + 5))


class _Reader:
    """Reader of the files of one student, newest first."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.released: dict[str, Any] = {}
        self.good: dict[str, int] = {}  # attempts that can be graded, by lab

    def attempts(self, entry: Entry) -> Iterator[Attempt]:
        """Yield each notebook of a file as an attempt, or the cause why there is none."""
        file = entry.submission.file
        try:
            for inner, data in _contents(entry):
                name = bounds.short(f"{file}/{inner}" if inner else file, bounds.FILE)
                yield self._attempt(name, data)
        except BadSubmission as error:
            yield _refused(self.task, entry, str(error))
        except OSError as error:
            yield _refused(self.task, entry, f"it cannot be read: {error.strerror or error}")
        except MemoryError:
            yield _refused(self.task, entry, str(_too_much()))

    def _attempt(self, file: str, data: bytes | BadSubmission) -> Attempt:
        only = self.task.only
        fields: dict[str, Any] = {"file": file, "lab": only.name if only else ""}
        try:
            if isinstance(data, BadSubmission):
                raise data
            notebook = read_notebook(data)
            fields["hash"] = notebook.hash
            lab = self.task.lab_of(notebook)
            fields["lab"] = lab.name
            rebuilding.check_lab(notebook, lab)
            if not self.good.get(lab.name) or self.task.every_attempt:
                fields |= self._rebuilt(lab, notebook)
            self.good[lab.name] = self.good.get(lab.name, 0) + 1
            return Attempt.model_validate(fields)
        except BadSubmission as error:
            cause = str(error)
        except MemoryError:
            cause = str(_too_much())
        return Attempt(
            **{k: fields[k] for k in ("file", "lab", "hash") if k in fields},
            cause=bounds.short(cause, bounds.CAUSE),
        )

    def _rebuilt(self, lab: LabFacts, notebook: Notebook) -> dict[str, Any]:
        if self.good.get(lab.name, 0) >= bounds.MAX_ATTEMPTS:
            raise BadSubmission(f"only the last {bounds.MAX_ATTEMPTS} attempts are graded")
        if lab.name not in self.released:
            self.released[lab.name] = self.task.release.notebook(lab)
        rebuilt = rebuilding.rebuild(self.released[lab.name], notebook)
        text = rebuilt.text()
        if len(text) > bounds.REBUILT:
            raise BadSubmission(
                f"its answers have {len(text):,} characters, the limit is {bounds.REBUILT:,}"
            )
        return {
            "text": text,
            "missing": rebuilt.missing,
            "untouched": rebuilt.untouched,
            "notes": rebuilt.notes[: bounds.NOTES],
        }


def _too_much() -> BadSubmission:
    return BadSubmission(
        f"reading it takes more than {bounds.READ_BYTES >> 20} MiB of memory; "
        "clear its outputs and hand it in again"
    )


def _contents(entry: Entry) -> Iterator[tuple[str, bytes | BadSubmission]]:
    """Yield the bytes of a notebook, under the name "", or of those in a zip."""
    if entry.member is None:
        if entry.source.name.lower().endswith(".zip"):
            yield from zips.notebooks(entry.source)
        else:
            yield "", _whole(entry.source)
        return
    archive, every = zips.opened(entry.source)
    with archive:
        info = every[entry.member]
        if info.filename.lower().endswith(".zip"):
            inside = zips.member(archive, info, bounds.MAX_ZIP_BYTES)
            yield from zips.notebooks(io.BytesIO(inside))
        else:
            yield "", zips.member(archive, info, bounds.MAX_BYTES)


def _whole(path: Path) -> bytes:
    size = path.stat().st_size
    if size > bounds.MAX_BYTES:
        raise too_big(size)
    with path.open("rb") as file:
        return file.read(bounds.MAX_BYTES + 1)
