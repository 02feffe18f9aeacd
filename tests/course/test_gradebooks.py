"""Marks for a gradebook, read as Canvas and Moodle read them: each grade reaches its own student.

The two readers here follow the importers' rules, whatever the names of students are.

Sources: Canvas, lib/gradebook_importer.rb of github.com/instructure/canvas-lms, and the columns
that a guide of its users asks for (teaching.resources.osu.edu, "Import a CSV file to Carmen
grades"); Moodle, mod/assign/feedback/offline/importgradeslib.php, importgradesform.php and
lib/csvlib.class.php of github.com/moodle/moodle; PHP, fgetcsv (php.net/fgetcsv); RFC 4180.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.runs import tiers
from vklab_course.grade.assignment.manifest import ExerciseFacts, LabFacts
from vklab_course.grade.assignment.roster import Roster, Student
from vklab_course.grade.results.csvs import write_marks
from vklab_course.grade.results.schema import (
    ExerciseResult,
    GradeError,
    Submission,
    SubmissionResult,
)

pytestmark = pytest.mark.full
LAB = LabFacts(name="91_class", title="A lab", minutes=5, version="v",
               exercises=(ExerciseFacts(id="91-1", points=7),))  # fmt: skip
SCORES = r"(Unposted )?(Current|Final|Override) (Score|Points|Grade|Status)"
NAMES = [
    "Doe, Jane", 'Jane "J" Doe', "new\nline", "\nfirst", "a\r\nb", "\u202eenaJ \u200f", "=1+1",
    "@SUM(A1)", "-2", "a;b;c;d;e;f", "    Points Possible", "x Points Possible", "Muted", "12,5",
    "Doe\\", 'a\\"', 'Doe, J\\', '\\",,,', "'=1", "é🦀", ",;,", '"', '""', " ",
]  # fmt: skip
# Closes its cell, if a backslash guards a quote, and goes on as the cells of a better grade.
FORGED = 'x\\",m@x,7,7,-,"good"\r\nParticipant 99,"y'


def record(number, points=2.5, name="x"):
    who = Submission(student=f"canvas-{number}", name=name, lms_id=str(number))
    status = "passed" if points == 7 else "partial"
    done = {"91-1": ExerciseResult(status=status, points=points, of=7)}
    return SubmissionResult(submission=who, lab="91_class", exercises=done)


def batch(names):
    """Return a record a name, with numbers from 7 on and points of their own, and these points."""
    given = {7 + n: (1 + n) / 8 for n in range(len(names))}
    records = {str(n): record(n, points, names[n - 7]) for n, points in given.items()}
    return records, {str(number): points for number, points in given.items()}


# ------------------------------------------------------------------------------------ Canvas


def ruby_rows(text, separator):
    """Return rows by the rules of Ruby's CSV: RFC 4180, and whatever is not RFC 4180 is refused."""
    cell = rf'"(?:[^"]|"")*"|[^"{separator}\r\n]*'
    rows, row, at = [], [], 0
    while at < len(text):
        found = re.compile(rf"({cell})({separator}|\r\n|\Z)").match(text, at)
        if found is None:
            raise ValueError(f"malformed at {text[at : at + 30]!r}")
        quoted = found[1].startswith('"')
        row.append(found[1][1:-1].replace('""', '"') if quoted else found[1])
        at = found.end()
        if found[2] != separator:
            rows.append(row)
            row = []
    return rows


def canvas_separator(text):
    """Return the separator that Canvas guesses from the first three lines."""
    count = {}
    for separator in (";", ","):
        try:
            sizes = {
                len(ruby_rows(line.removesuffix("\r\n"), separator)[0])
                for line in text.splitlines(keepends=True)[:3]
            }
        except ValueError:
            sizes = set()
        count[separator] = sizes.pop() if len(sizes) == 1 else 0
    return ";" if count[";"] > count[","] else ","


def import_canvas(text):
    """Return the assignment's title and number, its points, and each student's points by number."""
    title, possible, points = None, None, {}
    for row in ruby_rows(text, canvas_separator(text)):
        if title is None:
            assert len(row) > 3 and "Student" in row[0] and "ID" in row[1], "Invalid header row"
            columns = 3
            if re.search(r"SIS\s+Login\s+ID", row[2]):
                columns = 4
            elif re.search(r"SIS\s+User\s+ID", row[2]) and re.search(r"SIS\s+Login\s+ID", row[3]):
                columns = 5
            assert "Section" in row[columns - 1], "Invalid header row"
            (title,) = [cell for cell in row[columns:] if not re.search(SCORES, cell)]
            place = row.index(title)
        elif "Points Possible" in row[0]:
            assert possible is None, "a student's line was taken for the line of possible points"
            possible = float(row[place])
        elif not all(re.fullmatch(r"(?i)\s*(Muted|Manual Posting.*)?\s*", cell) for cell in row):
            assert row[1] and row[1] not in points, "a student without a number, or twice"
            assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", row[place]), row[place]
            points[row[1]] = float(row[place])
    match = re.fullmatch(r"(.*)\s\((\d+)\)", title)
    return (match.groups() if match else (title, None)), possible, points


@pytest.mark.parametrize("name", [*NAMES, FORGED])
def test_canvas_reads_each_student_s_points(name):
    """The header is Student, ID, SIS User ID, SIS Login ID, Section; then Points Possible."""
    records, expected = batch([name, "between", name])
    title, possible, points = import_canvas(
        write_marks(records, LAB, "canvas", assignment="Lab 91 (4711)")
    )
    assert (title, possible, points) == (("Lab 91", "4711"), 7.0, expected)


@given(
    st.lists(
        st.text(st.sampled_from("\",;\\\r\n=+-@ \t'ab\u200f7.")) | st.sampled_from(NAMES),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=tiers.examples(200), deadline=None)
def test_no_names_change_what_a_gradebook_reads(names):
    records, expected = batch(names)
    assert import_canvas(write_marks(records, LAB, "canvas"))[2] == expected
    assert import_moodle(write_marks(records, LAB, "moodle"), LAB.points) == expected


def test_canvas_gets_nobody_without_a_mark():
    """A blank cell would be imported as a change: such a line may not be there."""
    records, expected = batch(["a", "b", "c"])
    records["8"] = records["8"].model_copy(update={"broken": "the file is empty"})
    waiting = {"91-1": ExerciseResult(status="needs_hand_marking", of=7)}
    records["9"] = records["9"].model_copy(update={"exercises": waiting})
    assert import_canvas(write_marks(records, LAB, "canvas"))[2] == {"7": expected["7"]}


@pytest.mark.parametrize("title", ["Final Grade of the labs", "Unposted Current Score", "Section"])
def test_a_title_that_canvas_does_not_take_for_an_assignment_is_refused(title):
    with pytest.raises(GradeError, match="does not import a column named"):
        write_marks(batch(["a"])[0], LAB, "canvas", assignment=title)


def test_canvas_finds_nobody_by_name():
    """Without ID, SIS User ID and SIS Login ID, Canvas takes the first student of the same name."""
    nobody = SubmissionResult(
        submission=Submission(student="Jane Doe"), lab="91_class", exercises=record(7).exercises
    )
    with pytest.raises(GradeError, match="which two students may share"):
        write_marks({"a": nobody}, LAB, "canvas")
    known = Roster((Student("jdoe", "Jane Doe", login="jdoe"),))
    assert ",jdoe," in write_marks({"a": nobody}, LAB, "canvas", known)


# ------------------------------------------------------------------------------------ Moodle


def php_rows(text):
    """Return rows as PHP's fgetcsv: within quotes, a backslash keeps the next quote from ending."""
    rows, row, at = [], [], 0
    while at < len(text):
        found = re.compile(r'[^\S\n,]*"').match(text, at)
        cell = ""
        if found:
            at = found.end()
            while at < len(text):
                if text[at] == "\\" and at + 1 < len(text):
                    cell, at = cell + text[at : at + 2], at + 2
                elif text[at : at + 2] == '""':
                    cell, at = cell + '"', at + 2
                elif text[at] == '"':
                    at += 1
                    break
                else:
                    cell, at = cell + text[at], at + 1
        rest = re.compile(r"[^,\n]*").match(text, at)
        row.append(cell + rest[0])
        at = rest.end() + 1
        if text[rest.end() : at] != ",":
            rows.append(row)
            row = []
    return rows


def import_moodle(text, most):
    """Return grades by participant; a file with lines of different lengths is refused whole."""
    text = re.sub(r"\r\n?", "\n", text.removeprefix("\ufeff")).strip(" \t\n\0\x0b")
    header, *rows = php_rows(text)
    assert all(len(row) == len(header) for row in rows), "csvweirdcolumns"
    place = {name: header.index(name) for name in ("Identifier", "Grade", "Last modified (grade)")}
    grades = {}
    for row in rows:
        assert row[place["Identifier"]].startswith("Participant ")
        number = row[place["Identifier"]].removeprefix("Participant ")
        assert number not in grades
        grade = row[place["Grade"]]
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", grade) and float(grade) <= most, grade
        grades[number] = float(grade)
    return grades


@pytest.mark.parametrize("name", [*NAMES, FORGED])
def test_moodle_reads_each_student_s_grade(name):
    """The columns Identifier, Grade and Last modified (grade) decide; names are for people."""
    records, expected = batch([name, "between", name])
    assert import_moodle(write_marks(records, LAB, "moodle"), LAB.points) == expected


def test_the_reader_of_moodle_is_deceived_where_backslashes_stay():
    """A name with a backslash and a quote is a line of its own to PHP, whatever RFC 4180 says."""
    header = "Identifier,Full name,Email address,Grade,Maximum Grade,Last modified (grade),x\r\n"
    quoted = FORGED.replace('"', '""')
    line = f'Participant 7,"{quoted}",m@x,1,7,-,bad\r\n'
    assert import_moodle(header + line, 7)["7"] == 7.0
    assert write_marks(batch([FORGED])[0], LAB, "moodle").count("\\") == 0


def test_moodle_knows_a_student_by_the_participant_s_number():
    nobody = SubmissionResult(
        submission=Submission(student="Jane Doe"), lab="91_class", exercises=record(7).exercises
    )
    with pytest.raises(GradeError, match="the column Identifier"):
        write_marks({"a": nobody}, LAB, "moodle")


@pytest.mark.parametrize(("points", "cell"), [
    (7.0, "7"), (0.0, "0"), (1 / 3, "0.3333333333"), (0.00001, "0.00001"), (2.5, "2.5"),
])  # fmt: skip
def test_points_have_no_exponent_and_no_comma(points, cell):
    text = write_marks({"a": record(7, points)}, LAB, "canvas")
    assert text.splitlines()[2].rpartition(",")[2] == cell
