"""CSV files of marks: generic, for Canvas's gradebook, for Moodle's grading worksheet.

What a spreadsheet would take for a formula gets an apostrophe before it, and loses it again when we
read the file; also within a cell, since where `;` or a tab separates, `x;=1` is two cells. Students
without marks, or whose submission could not be graded, are left out of what an LMS imports, so that
nothing is overwritten there. An interrupted session has the sum of what was judged.

Source: Canvas lib/gradebook_importer.rb; Moodle mod/assign/feedback/offline/importgradeslib.php and
lib/csvlib.class.php
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from vklab_course.grade.assignment.manifest import LabFacts
from vklab_course.grade.assignment.roster import Roster, Student, marks_by_student
from vklab_course.grade.results.schema import GradeError, SubmissionResult

__all__ = ["FORMATS", "neutral", "plain", "read_csv", "write_csv", "write_marks"]

FORMATS = ("generic", "canvas", "moodle")
# Names of columns that Canvas does not take for an assignment: whole, or in any part.
CANVAS_COLUMNS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Integration ID",
                  "Root Account")  # fmt: skip
CANVAS_SCORES = tuple(
    f"{when} {what}"
    for when in ("Current", "Final", "Override")
    for what in ("Score", "Points", "Grade", "Status")
)
# Where a cell starts for a spreadsheet that separates by `;` or tabs: there, quotes hold no line
# together that a comma came before. A formula may come after quotes and spaces.
START = r"(?<![^;\t\r\n])"
DANGEROUS = r"""(?=["' ]*[=+\-@\t\r\n＝＋－＠])"""
FORMULA = re.compile(START + DANGEROUS)
NEUTRAL = re.compile(START + "'" + DANGEROUS)


def neutral(text: str) -> str:
    """Return text that no spreadsheet runs as a formula, whichever character separates cells."""
    return FORMULA.sub("'", text)


def plain(text: str) -> str:
    """Return what `neutral` was given."""
    return NEUTRAL.sub("", text)


def write_csv(rows: Iterable[Sequence[str | float]]) -> str:
    """Return rows as CSV; texts are neutralised, numbers are not."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    for row in rows:
        writer.writerow(
            [neutral(_whole(cell)) if isinstance(cell, str) else _decimal(cell) for cell in row]
        )
    return out.getvalue()


def _decimal(number: float) -> str:
    """Return a number without an exponent, which not every gradebook reads."""
    text = f"{number:.10f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def read_csv(text: str) -> list[list[str]]:
    """Return the rows of a file that `write_csv` made."""
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    return [[plain(cell) for cell in row] for row in rows]


def write_marks(
    records: Mapping[str, SubmissionResult], lab: LabFacts, form: str = "generic",
    roster: Roster | None = None, assignment: str = "",
) -> str:  # fmt: skip
    """Return the marks of a lab as CSV.

    Args:
        records: the records by key.
        lab: the lab.
        form: generic, canvas or moodle.
        roster: the class; None for those who handed in.
        assignment: the assignment's name in the LMS, with its id if it exists: `Lab 04 (4711)`.

    Raises GradeError for marks given without a sandbox.
    """
    unsafe = [r.submission.student for r in records.values() if r.lab == lab.name and r.unsafe]
    if unsafe:
        raise GradeError(
            f"{len(unsafe)} of these marks were given without a sandbox (the first: "
            f"{unsafe[0]}), so there is no CSV: grade again in the sandbox"
        )
    marks, _ = marks_by_student(records, roster, lab.name)
    if form == "generic":
        return write_csv(_generic(marks, lab))
    graded = [(s, r) for s, r in marks if r is not None and not r.broken and not r.unmarked]
    if form == "canvas":
        return write_csv(_canvas(graded, lab, assignment or lab.title))
    if form == "moodle":
        return write_csv(_moodle(graded, lab))
    raise GradeError(f"unknown form {form!r}; choose {', '.join(FORMATS)}")


def _generic(
    marks: Iterable[tuple[Student, SubmissionResult | None]], lab: LabFacts
) -> Iterable[Sequence[str | float]]:
    ids = [e.id for e in lab.exercises]
    yield [
        "student",
        "name",
        "id",
        "email",
        "group",
        "lab",
        "points",
        "of",
        "attempt",
        "state",
        *ids,
        *(f"{key} status" for key in ids),
        "note",
    ]
    for student, record in marks:
        who = [student.key, student.name, student.id, student.email, student.group, lab.name]
        if record is None:
            yield [*who, "", lab.points, "", "not handed in", *[""] * (2 * len(ids) + 1)]
            continue
        results = [record.exercises.get(key) for key in ids]
        yield [
            *who,
            "" if record.broken else record.points,
            record.of,
            record.submission.attempt,
            record.state,
            *("" if r is None or record.broken else r.points for r in results),
            *("" if r is None else r.status for r in results),
            "; ".join(filter(None, (record.cause, *record.notes))),
        ]


def _canvas(
    marks: Iterable[tuple[Student, SubmissionResult]], lab: LabFacts, assignment: str
) -> Iterable[Sequence[str | float]]:
    """Yield Canvas's header, its line of possible points, and a line a student.

    Canvas takes each line whose first cell has the words Points Possible for that line.
    """
    if assignment in CANVAS_COLUMNS or any(word in assignment for word in CANVAS_SCORES):
        raise GradeError(
            f"Canvas does not import a column named {assignment!r}; give the "
            "assignment's own name by --assignment"
        )
    yield ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment]
    yield ["    Points Possible", "", "", "", "", lab.points]
    for student, record in marks:
        if not (student.id or student.sis or student.login):
            raise GradeError(
                f"Canvas would look for {student.key} by name, which two students may "
                "share; give a roster with the column ID or SIS Login ID of its "
                "gradebook"
            )
        name = (student.name or student.key).replace("Points Possible", "Points possible")
        yield [name, student.id, student.sis, student.login, student.section, record.points]


def _moodle(
    marks: Iterable[tuple[Student, SubmissionResult]], lab: LabFacts
) -> Iterable[Sequence[str | float]]:
    """Yield the columns of Moodle's worksheet; it needs the id, the grade and a time.

    Texts have no backslash: to Moodle the quote after it does not end a cell.
    """
    yield [
        "Identifier",
        "Full name",
        "Email address",
        "Grade",
        "Maximum Grade",
        "Last modified (grade)",
        "Feedback comments",
    ]
    for student, record in marks:
        if not student.id:
            raise GradeError(
                f"Moodle knows {student.key} by the number of a participant only; add "
                "the column Identifier of its grading worksheet to the roster"
            )
        marks_of = [f"{key}: {r.points:g} of {r.of:g}" for key, r in record.exercises.items()]
        said = "; ".join(filter(None, (*marks_of, record.cause)))
        who, name, email, said = (
            text.replace("\\", "/")
            for text in (f"Participant {student.id}", student.name, student.email, said)
        )
        yield [who, name, email, record.points, lab.points, "-", said]
