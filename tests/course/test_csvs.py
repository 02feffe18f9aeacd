"""Marks as CSV: names come back, formulae do not run, a roster names the class."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.runs import tiers
from vklab_course.grade import bounds
from vklab_course.grade.assignment.manifest import ExerciseFacts, LabFacts
from vklab_course.grade.assignment.roster import marks_by_student, read_roster
from vklab_course.grade.results.csvs import neutral, plain, read_csv, write_csv, write_marks
from vklab_course.grade.results.folder import Results
from vklab_course.grade.results.rubric import apply_rubric, rubric_csv
from vklab_course.grade.results.schema import (
    ExerciseResult,
    GradeError,
    Submission,
    SubmissionResult,
)

pytestmark = pytest.mark.full
LAB = LabFacts(
    name="91_class",
    title="A lab",
    minutes=5,
    version="v",
    exercises=(ExerciseFacts(id="91-1", points=4), ExerciseFacts(id="91-3", points=3, kind="text")),
)
FORMULAE = ["=1+1", "+1", "-2", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "'=1", "''@", "＝1",
            "=cmd|' /C'!A0", "x;=1+1", "x\t@SUM(A1)", "x\n-2", 'x;"=1"', "x; '+1", ";\t=1",
            "x;'=1"]  # fmt: skip
NAMES = ["'t Hooft", "O'Neil", "Doe, Jane", 'Jane "J" Doe', "new\nline", "\u202eenaJ", "é",
         "e\u0301", "", " ", "''", "a;b", "\x1f", "🦀"]  # fmt: skip


def record(student, points=2.0, **fields):
    lms_id = fields.pop("lms_id", "")
    status = "partial" if points < 4 else "passed"
    return SubmissionResult(
        **{
            "submission": Submission(
                student=student,
                name=fields.pop("name", student),
                lms_id=lms_id,
                attempt=fields.pop("attempt", 1),
            ),
            "lab": "91_class",
            "exercises": {"91-1": ExerciseResult(status=status, points=points, of=4)},
            **fields,
        }
    )


def spreadsheet(text):
    """Return the cells as a spreadsheet reads them: RFC 4180, and nothing undone."""
    return list(csv.reader(io.StringIO(text, newline="")))


@given(st.text(tiers.CHARACTERS) | st.sampled_from(FORMULAE + NAMES))
@example("'=1")
@example("\t")
@settings(max_examples=tiers.examples(100), deadline=None)
def test_a_name_comes_back_and_is_no_formula(name):
    kept = name.replace("\0", "")
    assert plain(neutral(kept)) == kept
    text = write_csv([["name", name], [name, 1.5]])
    assert read_csv(text) == [["name", kept], [kept, "1.5"]]
    for cell in (cell for row in spreadsheet(text) for cell in row):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


@given(st.text("=-;\t\r\n,\"' x") | st.sampled_from(FORMULAE + NAMES))
@settings(max_examples=tiers.examples(200), deadline=None)
def test_no_separator_makes_a_formula(name):
    kept = name.replace("\0", "")
    text = write_csv([["student", name, "note"], [name, 1.5, name]])
    assert read_csv(text) == [["student", kept, "note"], [kept, "1.5", kept]]
    for separator in ",;\t":
        for is_quoted in (True, False):
            rows = csv.reader(
                io.StringIO(text, newline=""),
                delimiter=separator,
                quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
            )
            # Without quotes a comma would end a cell within a name; no spreadsheet reads so.
            for cell in (cell for row in rows for cell in row if is_quoted or separator != ","):
                assert not cell.lstrip(" ").startswith(("=", "+", "-", "@")), (separator, text)


@pytest.mark.parametrize("name", FORMULAE + NAMES)
def test_every_form_holds_a_strange_name(name):
    records = {"a": record("k", name=name, lms_id="7")}
    rows = read_csv(write_marks(records, LAB))
    assert rows[1][1] == (name or "k") and rows[1][6:8] == ["2", "4"]
    canvas = read_csv(write_marks(records, LAB, "canvas"))
    assert canvas[2][0] == (name or "k") and canvas[2][1] == "7"
    assert read_csv(write_marks(records, LAB, "moodle"))[1][1] == (name or "k")


def test_generic_marks():
    records = {
        "a": record("ada", 4.0),
        "b": record("bob", broken="the file is empty"),
        "c": record("cy", notes=("2 attempts",)),
    }
    rows = read_csv(write_marks(records, LAB))
    assert rows[0][:10] == [
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
    ]
    said = {row[0]: (row[6], row[9], row[-1]) for row in rows[1:]}
    assert said == {
        "ada": ("4", "graded", ""),
        "bob": ("", "not graded", "the file is empty"),
        "cy": ("2", "graded", "2 attempts"),
    }


def test_marks_without_a_sandbox_give_no_csv():
    records = {"a": record("ada"), "b": record("bob", sandbox={"unsafe": True})}
    for form in ("generic", "canvas", "moodle"):
        with pytest.raises(GradeError, match="without a sandbox"):
            write_marks(records, LAB, form)
    with pytest.raises(GradeError, match="unknown form"):
        write_marks({}, LAB, "excel")


ROSTER = """\ufeffstudent,name,id,group\r
ada,"Love, Ada",7,red\r
bob,Bob =1,8,red\r
cy,Cy,9,\r
"""


def test_a_group_shares_the_marks_of_its_best_submission(tmp_path):
    path = tmp_path / "roster.csv"
    path.write_bytes(ROSTER.encode())
    roster = read_roster(path)
    records = {
        "a": record("canvas-7", 1.0, lms_id="7"),
        "x": record("mallory"),
        "c": record("Cy", 3.0, attempt=1),
        "d": record("cy", 2.0, attempt=2),
    }
    marks, unknown = marks_by_student(records, roster, "91_class")
    assert {s.key: r.points if r else None for s, r in marks} == {"ada": 1, "bob": 1, "cy": 3}
    for more in ({"broken": "it is not JSON"}, {"points": 0.0}):  # bob's own, and worse
        given = {**records, "b": record("bob", **more)}
        marks, _ = marks_by_student(given, roster, "91_class")
        assert {s.key: r.points for s, r in marks} == {"ada": 1, "bob": 1, "cy": 3}
    assert [r.submission.student for r in unknown] == ["mallory"]
    rows = read_csv(write_marks({}, LAB, roster=roster))
    assert [(r[0], r[9]) for r in rows[1:]] == [(k, "not handed in") for k in ("ada", "bob", "cy")]


@pytest.mark.parametrize(("text", "said"), [
    ("", "lists nobody"), ("a,b\n1,2\n", "line 2: no student"),
    ("student\nada\nada\n", "line 3: 'ada' is there twice"),
    ("student,id\nada,7\nbob,8\neve,7\n", "line 4: the id '7' is that of line 2, too"),
    ('student,name\nada,"A\nbob,B\n', 'line 2: unexpected end of data; .*single quotation'),
    ('student,name\nada,"A\nbob,B"\n', "line 2: a cell goes on in the next line"),
    ('student,name\nada,"A" b\n', "line 2: .* single quotation mark"),
    ("name,id\nDoe, Jane,7\n", "line 2: 3 cells, and the first line has 2"),
    ("student\nada\nZo\udcff\n", "line 3 is no UTF-8 text"),
    ("student\0\nada", "zero bytes"), ("student\n" + "a" * 140_000 + "\n", "line 2: field larger"),
])  # fmt: skip
def test_a_bad_roster_names_its_line(tmp_path, text, said):
    path = tmp_path / "roster.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(GradeError, match=said):
        read_roster(path)
    with pytest.raises(GradeError, match="cannot be read"):
        read_roster(tmp_path)


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_roster_may_be_written_by_any_spreadsheet(tmp_path, code, separator):
    path = tmp_path / "roster.csv"
    text = ROSTER.lstrip("\ufeff").replace('"Love, Ada"', "Zoë Love").replace(",", separator)
    path.write_bytes(text.encode(code))
    ada, bob, cy = read_roster(path).students
    assert (ada.name, bob.id, bob.group, cy.group) == ("Zoë Love", "8", "red", "")


def test_a_roster_has_a_limit_of_size(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "ROSTER_BYTES", 1 << 20)
    path = tmp_path / "roster.csv"
    path.write_bytes(b"student\n" + b"a\n" * (1 << 20))
    with pytest.raises(GradeError, match="more than 1 MiB"):
        read_roster(path)


def test_canvas_and_moodle_exports_are_rosters(tmp_path):
    path = tmp_path / "roster.csv"
    path.write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section,Lab\n    Points Possible,,,,,7\n"
        '"Doe, Jane",7,s1,jdoe,A,\n'
    )
    (jane,) = read_roster(path).students
    assert (jane.name, jane.id, jane.login, jane.section) == ("Doe, Jane", "7", "jdoe", "A")
    assert read_roster(path).find(Submission(student="x", name="doejane", lms="canvas")) == jane
    path.write_text("Identifier,Full name,Email address\nParticipant 12,Jane Doe,j@x.org\n")
    assert read_roster(path).find(Submission(student="moodle-12", lms_id="12")).name == "Jane Doe"


def test_marks_by_hand_come_back_from_a_csv(tmp_path):
    results = Results(tmp_path)
    waiting = ExerciseResult(status="needs_hand_marking", of=3)
    one = record("ada")
    results.write("ada", one.model_copy(update={"exercises": {**one.exercises, "91-3": waiting}}))
    assert results.all()["ada"].unmarked == ["91-3"]
    rows = read_csv(rubric_csv(results))
    assert rows[1][:5] == ["ada", "ada", "91-3", "3", ""]
    path = tmp_path / "marked.csv"
    for points, said in (("4", "0 to 3"), ("x", "is no number"), ("-1", "0 to 3")):
        path.write_text(write_csv([rows[0], [*rows[1][:4], points, "good", ""]]))
        with pytest.raises(GradeError, match=f"line 2: .*{said}"):
            apply_rubric(results, path)
    path.write_text(write_csv([rows[0], [*rows[1][:4], "2,5", "good", ""]]))
    assert apply_rubric(results, path) == 1
    marked = results.all()["ada"].exercises["91-3"]
    assert (marked.points, marked.status, marked.messages) == (2.5, "partial", ("good",))
    assert marked.marked_by == "hand" and not results.all()["ada"].unmarked
    path.write_text(write_csv([rows[0], ["ada", "ada", "91-1", "4", "4", "", ""]]))
    with pytest.raises(GradeError, match="marked by its check"):
        apply_rubric(results, path)
