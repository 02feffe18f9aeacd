"""Interrupted sessions: what was judged counts, the rest has the cause, and every place says so."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from support.course import class_of_students as students
from vklab_course.cli import grading
from vklab_course.cli.course import course
from vklab_course.grade.assignment.intake import read_submissions
from vklab_course.grade.grade import grade
from vklab_course.grade.regrade import regrade, replay
from vklab_course.grade.results.csvs import read_csv, write_marks
from vklab_course.grade.results.feedback import feedback_page
from vklab_course.grade.results.records import results_of
from vklab_course.grade.results.report import report_page
from vklab_course.grade.results.schema import GradeError
from vklab_course.student import submit as submitting

pytestmark = [pytest.mark.usefixtures("class_labs"), pytest.mark.full]
MOODLE = "Ada_7_assignsubmission_file_"


@pytest.fixture
def interrupted(release, tmp_path):
    """Grade a notebook whose session ends behind its first exercise; the batch and the record."""
    answers = {"l91-1": students.right(release), "l91-2": "workgroups = 16  # cut here"}
    students.hand_in(tmp_path / "in" / MOODLE / "91.ipynb", students.notebook(release, answers))
    students.hand_in(tmp_path / "in" / "Bo_8_assignsubmission_file_" / "91.ipynb", b"{")
    batch, records = students.run(release, tmp_path / "in", tmp_path / "out", students.cut_short)
    return batch, next(key for key, record in records.items() if record.interrupted)


def test_what_was_judged_counts_and_the_rest_has_the_cause(interrupted):
    batch, key = interrupted
    record = batch.results.all()[key]
    assert record.points == 4 and record.broken == "" and record.interrupted == students.CUT
    assert record.exercises["91-1"].status == "passed"
    assert record.exercises["91-2"].status == "out_of_memory"
    assert students.CUT in record.exercises["91-2"].messages[0]
    assert record.exercises["91-3"].status == "not_attempted" and record.seconds == 2.5
    assert {r.state for r in batch.results.all().values()} == {"interrupted", "not graded"}
    again = grade(batch, read_submissions(batch.results.folder.parent / "in"))
    assert again[key] == record, "a restart keeps the marks of an interrupted session"


@pytest.mark.parametrize(("ended", "status"), [
    ("timeout", "timeout"), ("out_of_memory", "out_of_memory"), ("error", "error"),
    ("passed", "error"), (None, "error"),
])  # fmt: skip
def test_an_exercise_behind_the_end_has_its_status_and_no_points(ended, status):
    given = {"1-1": {"status": "passed", "points": 2.0, "of": 2.0}}
    done = results_of(
        {"exercises": given, "interrupted": "the reason", "ended": ended}, {"1-1": 2.0, "1-2": 3.0}
    )
    assert (done["1-1"].status, done["1-1"].points) == ("passed", 2.0)
    assert (done["1-2"].status, done["1-2"].points, done["1-2"].of) == (status, 0.0, 3.0)
    assert "the session was interrupted: the reason" in done["1-2"].messages[0]


def test_the_csv_holds_the_sum_and_names_the_cause(interrupted):
    batch, _ = interrupted
    lab, records = batch.release.manifest.labs[0], batch.results.all()
    rows = read_csv(write_marks(records, lab))
    mine = dict(zip(rows[0], next(row for row in rows if row[0] == "moodle-7"), strict=True))
    assert (mine["points"], mine["state"]) == ("4", "interrupted")
    assert (mine["91-1"], mine["91-2 status"]) == ("4", "out_of_memory")
    assert students.CUT in mine["note"]
    canvas = read_csv(write_marks(records, lab, "canvas"))
    assert [(row[1], row[5]) for row in canvas[2:]] == [("7", "4")]
    (moodle,) = read_csv(write_marks(records, lab, "moodle"))[1:]
    assert moodle[0] == "Participant 7" and moodle[3] == "4" and students.CUT in moodle[6]


def test_the_pages_name_the_cause_beside_the_marks(interrupted):
    batch, key = interrupted
    lab = batch.release.manifest.labs[0]
    page = feedback_page(batch.results.all()[key], lab)
    assert "Stopped before its end" in page and students.CUT in page and "4 of " in page
    assert "used too much memory" in page and "Not graded" not in page
    report = report_page(batch.results, batch.release)
    assert "1 graded (1 interrupted), 1 not gradable" in report
    assert "Interrupted: what was judged before counts" in report and students.CUT in report


def test_regrade_and_replay_run_it_again_whole(interrupted, monkeypatch):
    batch, key = interrupted
    assert regrade(batch, ["91-1"]) == []
    assert batch.results.all()[key].interrupted == students.CUT
    monkeypatch.setenv("VKLAB_TEST_MENDED", "1")
    new, changes = replay(batch, key)
    assert new.interrupted == "" and [c.exercise for c in changes] == ["91-2"]
    assert batch.results.all()[key].interrupted == students.CUT
    (change,) = regrade(batch, ["91-1"])
    assert (change.exercise, change.before.status, change.after.status) == (
        "91-2",
        "out_of_memory",
        "passed",
    )
    after = batch.results.all()[key]
    assert after.interrupted == "" and after.state == "graded" and after.points == 5


def test_the_console_names_the_cause(interrupted, monkeypatch, tmp_path):
    batch, _ = interrupted
    monkeypatch.setattr(grading, "judge", lambda unsafe: students.cut_short)
    words = [
        "grade",
        str(tmp_path / "in"),
        "--release",
        str(batch.release.folder),
        "--out",
        str(tmp_path / "new"),
        "--unsafe-no-sandbox",
    ]
    done = CliRunner().invoke(course, words)
    assert done.exit_code == 0, (done.output, done.exception)
    said = " ".join(done.output.split())
    assert "was interrupted; what was judged counts: " + students.CUT in said
    assert "2 submissions, 2 graded now, 1 not gradable" in said
    told = CliRunner().invoke(course, [*words, "--json"]).stdout
    assert list(json.loads(told)["interrupted"].values()) == [students.CUT]


@pytest.mark.parametrize(("answer", "said", "status"), [
    ("import os; os._exit(3)", "ended with exit code 3", "error"),
    pytest.param("while True: pass", "did not end within 8 s", "timeout", marks=pytest.mark.slow),
])  # fmt: skip
def test_submit_shows_what_was_judged_and_why_it_stopped(
    release, tmp_path, monkeypatch, answer, said, status
):
    monkeypatch.setenv("VKLAB_LABS", str(release.labs_folder))
    monkeypatch.setattr(submitting, "REHEARSAL_S", 8.0)
    answers = {"l91-1": students.right(release), "l91-2": answer}
    mine = students.hand_in(tmp_path / "mine.ipynb", students.notebook(release, answers))
    done = submitting.submit("91", mine, tmp_path / "out")
    assert said in done.interrupted and done.points == 4 and done.path.is_file()
    assert done.exercises["91-1"].status == "passed"
    assert done.exercises["91-2"].status == status and said in done.exercises["91-2"].messages[0]


def test_the_command_submit_says_why_it_stopped(release, tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(release.labs_folder))
    answers = {"l91-1": students.right(release), "l91-2": "import os; os._exit(3)"}
    mine = students.hand_in(tmp_path / "mine.ipynb", students.notebook(release, answers))
    done = CliRunner().invoke(course, ["submit", "91", str(mine), "--to", str(tmp_path / "out")])
    assert done.exit_code == 0, (done.output, done.exception)
    said = " ".join(done.output.split())
    assert "your notebook was stopped before its end: its process ended with exit code 3" in said
    assert "91-3 hand – of 3 a person marks this answer" in said
    assert "4 points on the public cases, up to 3 more" in said and "hand in this file" in said


def test_a_judge_that_fails_before_the_notebook_is_the_graders_failure(release, tmp_path):
    answers = {"l91-1": students.right(release)}
    folder = tmp_path / "in"
    students.hand_in(folder / "ada.ipynb", students.notebook(release, answers))
    _, records = students.run(release, folder, tmp_path / "out", students.crashing_always)
    (record,) = records.values()
    assert record.state == "not graded" and "exit code 7" in record.cause
    rows = read_csv(write_marks(records, release.manifest.labs[0]))
    assert rows[1][6] == "" and rows[1][9] == "not graded"
    with pytest.raises(GradeError, match="has an answer to 91-1"):
        regrade(students.batch(release, tmp_path / "out"), ["91-1"])
