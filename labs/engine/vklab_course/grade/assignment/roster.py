"""Roster of a class: who is in it, under which ids, and in which group."""

from __future__ import annotations

import codecs
import csv
import io
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vklab_course.grade import bounds
from vklab_course.grade.results.schema import GradeError, Submission, SubmissionResult

__all__ = ["Roster", "Student", "marks_by_student", "read_roster"]

# Column of the file -> field. Canvas's and Moodle's own exports can be used as they are.
COLUMNS = {
    "student": "key", "username": "login", "sis login id": "login", "login": "login",
    "name": "name", "full name": "name", "id": "id", "identifier": "id", "canvas id": "id",
    "sis user id": "sis", "sis": "sis", "email": "email", "email address": "email",
    "section": "section", "group": "group",
}  # fmt: skip
# Of the cells of a line: those of spreadsheets in other languages than English, too.
SEPARATORS = (",", ";", "\t")


@dataclass(frozen=True)
class Student:
    """One student of a roster."""

    key: str
    name: str = ""
    id: str = ""
    sis: str = ""
    login: str = ""
    email: str = ""
    section: str = ""
    group: str = ""

    def names(self) -> set[str]:
        """Return everything that a submission may call this student."""
        login = self.email.partition("@")[0]
        said = {self.key, self.name, self.login, self.email, login, self.sis}
        return {_plain(word) for word in said if word} | {_squeezed(self.name)} - {""}


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold().strip()


def _squeezed(name: str) -> str:
    """Return a name as Canvas writes it into file names: last name first, letters only."""
    last, comma, first = name.partition(",")
    words = name.split()
    ordered = last + first if comma else "".join(words[-1:] + words[:-1])
    return "".join(c for c in _plain(ordered) if c.isalnum())


@dataclass(frozen=True)
class Roster:
    """All students of a class, in the order of the file."""

    students: tuple[Student, ...]

    def find(self, submission: Submission) -> Student | None:
        """Return whose submission it is, by the LMS's id or else by name; None if nobody's."""
        if submission.lms_id:
            for student in self.students:
                if student.id == submission.lms_id:
                    return student
        wanted = {_plain(submission.student), _plain(submission.name)} - {""}
        matching = [s for s in self.students if wanted & s.names()]
        return matching[0] if len(matching) == 1 else None


def read_roster(path: Path) -> Roster:
    """Read a roster, CSV with a header. Raises GradeError with the line of a mistake."""
    students: dict[str, Student] = {}
    numbers: dict[str, int] = {}
    for number, row in _rows(path):
        fields = {COLUMNS[k]: v for k, v in row.items() if k in COLUMNS}
        if "student" in row and not fields.get("name"):
            fields["name"] = fields.get("key", "")
        fields["id"] = fields.get("id", "").removeprefix("Participant ").strip()
        if fields.get("key", "").lower() == "points possible":
            continue  # the second line of a Canvas export
        key = (
            fields.get("key")
            or fields.get("login")
            or fields.get("email")
            or fields["id"]
            or fields.get("name", "")
        )
        if not key:
            raise GradeError(f"{path}, line {number}: no student, login, email, id or name")
        if key in students:
            raise GradeError(f"{path}, line {number}: {key!r} is there twice")
        if fields["id"] and numbers.setdefault(fields["id"], number) != number:
            raise GradeError(
                f"{path}, line {number}: the id {fields['id']!r} is that of line "
                f"{numbers[fields['id']]}, too; whose submissions are its?"
            )
        students[key] = Student(**{**fields, "key": key})
    if not students:
        raise GradeError(
            f"the roster {path} lists nobody; its first line names columns: {', '.join(COLUMNS)}"
        )
    return Roster(tuple(students.values()))


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of each line and its cells by column, whatever separates them."""
    text = _text(path)
    first = text.partition("\n")[0]
    separator = max(SEPARATORS, key=lambda one: len(COLUMNS.keys() & {*_columns(first, one)}))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns: list[str] = []
    number = 1  # of the line where a row begins
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any("\n" in cell or "\r" in cell for cell in cells):
                raise GradeError(
                    f"{path}, line {number}: a cell goes on in the next line; is "
                    'there a single quotation mark (") in it?'
                )
            if not columns:
                columns = [cell.lower() for cell in cells]
            elif any(cells[len(columns) :]):
                raise GradeError(
                    f"{path}, line {number}: {len(cells)} cells, and the "
                    f"first line has {len(columns)}; put quotation marks around a "
                    f"cell with {separator!r}"
                )
            elif any(cells):
                yield number, dict(zip(columns, cells, strict=False))
            number = reader.line_num + 1
    except csv.Error as error:
        raise GradeError(
            f'{path}, line {number}: {error}; is there a single quotation mark (") in it?'
        ) from error


def _columns(line: str, separator: str) -> list[str]:
    return [cell.strip(' "\r').lower() for cell in line.split(separator)]


def _text(path: Path) -> str:
    """Return a roster's text: UTF-8, or UTF-16 with the mark that spreadsheets write."""
    try:
        with path.open("rb") as file:
            data = file.read(bounds.ROSTER_BYTES + 1)
    except OSError as error:
        raise GradeError(f"the roster {path} cannot be read: {error}") from error
    if len(data) > bounds.ROSTER_BYTES:
        raise GradeError(
            f"the roster {path} has more than {bounds.ROSTER_BYTES >> 20} MiB; is it "
            "the right file?"
        )
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise GradeError(
            f"the roster {path} cannot be read: line {line} is no "
            f"{'UTF-16' if wide else 'UTF-8'} text; save it as CSV in UTF-8"
        ) from error
    if "\0" in text:
        raise GradeError(
            f"the roster {path} cannot be read: it has zero bytes, as UTF-16 without "
            "its mark; save it as CSV in UTF-8"
        )
    return text


def marks_by_student(
    records: Mapping[str, SubmissionResult], roster: Roster | None, lab: str
) -> tuple[list[tuple[Student, SubmissionResult | None]], list[SubmissionResult]]:
    """Return each student with the record that counts, and the records of nobody in the roster.

    Of several attempts the one with the most points counts, and of a group's those of all of it.

    Args:
        records: the records by key.
        roster: the class; None for those who handed in.
        lab: the lab's name.
    """
    mine = [r for r in records.values() if r.lab == lab]
    if roster is None:
        by_key: dict[str, list[SubmissionResult]] = {}
        for record in mine:
            by_key.setdefault(record.submission.student, []).append(record)
        return [(_stranger(some[0].submission), _best(some)) for some in by_key.values()], []
    own: dict[str, list[SubmissionResult]] = {}
    unknown = []
    for record in mine:
        student = roster.find(record.submission)
        if student is None:
            unknown.append(record)
        else:
            own.setdefault(student.key, []).append(record)
    groups: dict[str, list[SubmissionResult]] = {}
    for student in roster.students:
        if student.group:
            groups.setdefault(student.group, []).extend(own.get(student.key, ()))
    return [
        (s, _best([*own.get(s.key, ()), *groups.get(s.group, ())])) for s in roster.students
    ], unknown


def _best(records: Iterable[SubmissionResult]) -> SubmissionResult | None:
    return max(records, key=lambda r: (not r.broken, r.points, r.submission.attempt), default=None)


def _stranger(submission: Submission) -> Student:
    lms = submission.lms_id if submission.lms_id.isdigit() else ""
    return Student(submission.student, submission.name or submission.student, lms)
