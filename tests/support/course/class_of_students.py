"""A class for the tests of grading: a lab without kernels, its release, what students hand in."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import time
from dataclasses import replace as dataclasses_replace
from pathlib import Path
from typing import Any

import nbformat

from support.runs.waits import hang, work
from vklab_course.author.lab import find_lab
from vklab_course.grade import bounds
from vklab_course.grade.assignment import reading
from vklab_course.grade.assignment.intake import read_submissions
from vklab_course.grade.assignment.manifest import Release, open_release
from vklab_course.grade.assignment.reading import Attempt
from vklab_course.grade.assignment.release import release
from vklab_course.grade.batch import Batch, Options
from vklab_course.grade.grade import grade
from vklab_course.grade.jobs import Job, Outcome
from vklab_course.grade.results.folder import Results
from vklab_course.grade.results.schema import SubmissionResult
from vklab_course.student.rehearsal import rehearse

__all__ = ["dataclasses_replace"]

LABS = Path(__file__).resolve().parents[2] / "course" / "class_labs"
SMALL = 12
SEED = "a secret that only the tests know"
RIGHT = "def padded(count, multiple={usual}):\n    return -(-count // multiple) * multiple"
WRONG = (
    "def padded(count, multiple=256):\n"
    "    return count if count % multiple == 0 else 256 if count == 1 else 0"
)
USUAL = (256, 64, 32)


def make_release(folder: Path, seed: str = "") -> Release:
    """Release the class's lab; VKLAB_LABS must name `LABS`."""
    release([find_lab("91")], folder, seed)
    return open_release(folder)


def right(opened: Release) -> str:
    """Return a right answer to 91-1 in the variant of a release."""
    return RIGHT.format(usual=USUAL[opened.manifest.variants["91-1"]])


def notebook(opened: Release, answers: dict[str, str] | None = None) -> Any:
    """Return a released notebook with some cells, by id, replaced."""
    made = copy.deepcopy(opened.notebook(opened.manifest.labs[0]))
    for cell in made.cells:
        cell.source = (answers or {}).get(cell.id, cell.source)
    return made


def hand_in(path: Path, content: Any) -> Path:
    """Write a notebook, JSON or bytes as a submission."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, nbformat.NotebookNode):
        path.write_text(nbformat.writes(content, version=4), "utf-8")
    else:
        path.write_text(json.dumps(content), "utf-8")
    return path


def plain(opened: Release, answers: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a notebook as plain JSON data, to be damaged."""
    return json.loads(nbformat.writes(notebook(opened, answers), version=4))


def batch(opened: Release, out: Path, judge: Any = rehearse, **options: Any) -> Batch:
    """Return a batch whose judge is the rehearsal, in processes of its own."""
    return Batch(opened, Results(out), LABS, SEED, judge, Options(**options))


def many(opened: Release, folder: Path, count: int) -> Path:
    """Write submissions of a class: right, wrong, raising, unreadable and unsolved ones in turn."""
    texts = (
        right(opened),
        WRONG,
        "def padded(count, multiple=64):\n    raise KeyError(count)",
        "def padded(count",
        None,
    )
    for number in range(count):
        text = texts[number % len(texts)]
        answers = {"l91-2": f"workgroups = {14 + number % 4}", "l91-3": 'why = "aligned"'}
        answers |= {"l91-1": text} if text else {}
        hand_in(folder / f"student {number:03}.ipynb", notebook(opened, answers))
    return folder


def edit(opened: Release, change: Any) -> dict[str, Any]:
    """Return a notebook as plain JSON data after a change."""
    content = plain(opened)
    change(content)
    return content


def cell(content: dict[str, Any], identifier: str) -> dict[str, Any]:
    """Return a cell of plain JSON data by its id."""
    return next(c for c in content["cells"] if c["id"] == identifier)


def run(
    opened: Release, folder: Path, out: Path, judge: Any = rehearse, test: Any = None,
    **options: Any,
) -> tuple[Batch, dict[str, SubmissionResult]]:  # fmt: skip
    """Grade a folder; return the batch and its records."""
    made = batch(opened, out, judge, **options)
    return made, grade(made, read_submissions(folder), test)


# ------------------------------------------------------- judges, importable in other processes


def killed_once(job: Job) -> Outcome:
    """Kill this process at the first job that asks for it, then grade as usual."""
    mark = Path(os.environ["VKLAB_TEST_KILL"])
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return rehearse(job)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def crashing(job: Job) -> Outcome:
    """End the process where an answer asks for it."""
    if "crash" in job.notebook:
        os._exit(7)
    return rehearse(job)


def late_in_company(job: Job) -> Outcome:
    """Time out at the first run of a job, as beside others on a slow machine."""
    mark = Path(os.environ["VKLAB_TEST_LATE"]) / job.key.replace(" ", "-")
    first = not mark.exists()
    mark.touch()
    if not first:
        return rehearse(job)
    slow = {e: {"status": "timeout", "points": 0.0, "of": 0.0} for e in job.exercises}
    return {"exercises": slow, "broken": ""}


def slow(job: Job) -> Outcome:
    """Take a second; note when it begins and ends, and what time it was given."""
    began = time.time()
    work(1.0)
    place = Path(os.environ["VKLAB_TEST_SLOW"])
    first = not list(place.glob(f"{job.key}-*"))
    (place / f"{job.key}-{began}").write_text(json.dumps([began, time.time(), job.seconds]))
    outcome = {
        "exercises": {
            e: {"status": "passed", "points": 4.0, "of": 4.0} for e in job.exercises if e == "91-1"
        },
        "broken": "",
    }
    if "late" in job.notebook and first:
        outcome["exercises"]["91-2"] = {"status": "timeout", "of": 1.0}
    elif "late" in job.notebook:
        outcome = {"exercises": {}, "interrupted": "cut", "ended": "timeout"}
    return outcome


def hanging(job: Job) -> Outcome:
    """Never return where an answer asks for it."""
    while "hang" in job.notebook:
        hang()
    return rehearse(job)


CUT = "it was ended at 600 MiB of memory, more than 500"


def cut_short(job: Job) -> Outcome:
    """Interrupt the session behind its first exercise where an answer asks for it."""
    outcome = rehearse(job)
    if "cut here" not in job.notebook or "VKLAB_TEST_MENDED" in os.environ:
        return outcome
    first = {key: outcome["exercises"][key] for key in ("91-1",) if key in outcome["exercises"]}
    return {
        "exercises": first,
        "broken": "",
        "interrupted": CUT,
        "ended": "out_of_memory",
        "seconds": 2.5,
        "sandbox": {"kind": "bubblewrap"},
    }


def lying(job: Job) -> Outcome:
    """Return marks that cannot be true."""
    outcome = rehearse(job)
    outcome["exercises"]["91-1"] = {"status": "passed", "points": 99.0, "of": 99.0}
    outcome["exercises"]["91-2"] = {"status": "excellent"}
    return outcome


def generous(job: Job) -> Outcome:
    """Give every point to everything: no self-test may accept it."""
    outcome = rehearse(job)
    for result in outcome["exercises"].values():
        result.update(status="passed", points=result["of"])
    return outcome


def strict(job: Job) -> Outcome:
    """Give no point to anything."""
    outcome = rehearse(job)
    for result in outcome["exercises"].values():
        result.update(status="failed", points=0.0)
    return outcome


def crashing_always(job: Job) -> Outcome:
    """End the process at once."""
    os._exit(7)


def reading_until_asked(pipe: Any, task: Any, entries: Any) -> None:
    """Read as always, but never end at a notebook that asks for it, or end the process."""
    for number, entry in enumerate(entries):
        text = entry.source.read_text()
        pipe.send((number, None))
        while "loop" in text:
            hang()
        if "crash" in text:
            os._exit(9)
        pipe.send((number, Attempt(file=entry.submission.file, cause="fine").model_dump()))
    pipe.send((None, None))


def reading_without_end(pipe: Any, task: Any, entries: Any) -> None:
    """Spend a second of processor time and more under the reader's own limits."""
    bounds.READ_CPU_S = 1
    reading._limit()
    pipe.send((0, None))
    while True:
        pass


def grade_and_die(opened: Release, folder: Path, out: Path, count: int) -> None:
    """Grade a folder, and die by SIGKILL after some records."""
    seen = []

    def tell(key: str, record: SubmissionResult) -> None:
        seen.append(key)
        if len(seen) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    grade(batch(opened, out), read_submissions(folder), None, tell)


def fresh(folder: Path) -> Path:
    """Return a new, empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
