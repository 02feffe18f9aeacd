"""Feedback: one page a student, and zips of pages named as the LMS wants them back.

Nothing of a student's is ever HTML here: every text is escaped, and a policy in the page forbids
scripts. Messages quote secret cases, so pages are held back until a date.

Source: Canvas AbstractAssignment#generate_comments_from_files; Moodle mod/assign/feedback/file
"""

from __future__ import annotations

import datetime
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from vklab_course.grade.assignment import names
from vklab_course.grade.assignment.manifest import LabFacts, Release
from vklab_course.grade.results.folder import Results, write_atomic
from vklab_course.grade.results.schema import GradeError, SubmissionResult
from vklab_course.page import page

__all__ = ["WORDS", "feedback_page", "write_feedback"]

# status -> (mark, words)
WORDS = {
    "passed": ("✔", "passed"), "partial": ("◐", "partly passed"), "failed": ("✘", "not passed"),
    "error": ("✘", "stopped with an error"), "timeout": ("✘", "took too long"),
    "out_of_memory": ("✘", "used too much memory"), "tampered": ("✘", "changed the grader"),
    "missing": ("○", "missing"), "not_attempted": ("○", "not attempted"),
    "skipped": ("–", "skipped, counts for nobody"), "needs_hand_marking": ("…", "marked by hand"),
}  # fmt: skip


def feedback_page(record: SubmissionResult, lab: LabFacts) -> str:
    """Return the page of one student."""
    titles = {exercise.id: exercise.title for exercise in lab.exercises}
    return page("feedback.html.j2", record=record, lab=lab, titles=titles, words=WORDS)


def write_feedback(
    results: Results, release: Release, lab: LabFacts, hold_until: datetime.date | None = None,
    today: datetime.date | None = None,
) -> list[Path]:  # fmt: skip
    """Write the pages of a lab, and one zip for each LMS that they came from.

    Args:
        results: the results folder.
        release: the release that was graded.
        lab: the lab.
        hold_until: first day on which pages may be written; kept for later calls.
        today: the day; None for the clock.

    Returns the zips. Raises GradeError before that day.
    """
    day = today or datetime.date.today()
    held = _held(results, lab, hold_until)
    if held is not None and day < held:
        raise GradeError(
            f"the feedback on {lab.name} is held back until {held} (today is {day}): "
            "its messages quote secret cases; give --hold-until with another day to "
            "change that"
        )
    records = {k: r for k, r in results.all().items() if r.lab == lab.name}
    if not records:
        raise GradeError(f"there are no marks of {lab.name} in {results.folder}")
    zips: dict[str, dict[str, str]] = {}
    best: dict[tuple[str, str], float] = {}
    folder = results.folder / "feedback" / lab.name
    for key, record in records.items():
        text = feedback_page(record, lab)
        write_atomic(folder / f"{key}.html", text)
        place = record.submission.lms, _name(key, record)
        if record.points >= best.get(place, -1.0):  # of several attempts the one that counts
            best[place] = record.points
            zips.setdefault(place[0], {})[place[1]] = text
    made = []
    for lms, pages in sorted(zips.items()):
        path = results.folder / "feedback" / f"{lab.name}-{lms}.zip"
        write_atomic(path, _zip(pages))
        made.append(path)
    return made


def _held(results: Results, lab: LabFacts, wanted: datetime.date | None) -> datetime.date | None:
    path = results.folder / "feedback" / f"{lab.name}.hold"
    if wanted is not None:
        write_atomic(path, wanted.isoformat() + "\n")
        return wanted
    return datetime.date.fromisoformat(path.read_text().strip()) if path.is_file() else None


def _name(key: str, record: SubmissionResult) -> str:
    """Return the page's name in a zip, so that the LMS finds the student."""
    parts = record.submission.file.split("/")
    if record.submission.lms == "canvas":
        stem = parts[0].rsplit(".", 1)[0]  # Canvas reads the two numbers behind the name
        return f"{stem}.html"
    if record.submission.lms == "moodle":
        return f"{names.moodle_folder(record.submission)}/feedback.html"
    return f"{key}.html"


def _zip(pages: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(pages.items()):
            # A fixed time: the same marks give the same zip.
            archive.writestr(
                zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED
            )
    return out.getvalue()
