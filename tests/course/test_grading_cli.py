"""Commands of instructors, one after the other, as the guide tells them."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from support.course import class_of_students as students
from support.course.sandboxes import needs_bubblewrap
from vklab_course.cli import handing
from vklab_course.cli.course import course
from vklab_course.cli.handing import HandingError
from vklab_course.grade import judging
from vklab_course.grade.results.csvs import read_csv, write_csv
from vklab_course.grade.results.folder import Results
from vklab_course.grade.results.schema import GradeError
from vklab_course.grade.selftest import self_test

pytestmark = pytest.mark.usefixtures("class_labs")


def call(*words, fails=None):
    done = CliRunner().invoke(course, [str(word) for word in words])
    if fails:
        assert isinstance(done.exception, GradeError) and fails in str(done.exception)
        return ""
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_from_a_release_to_feedback(tmp_path, monkeypatch):
    out, results = tmp_path / "release", tmp_path / "results"
    assert "no part of a solution" in call("release", out, "91", "--variant-seed", "a")
    opened = students.open_release(out)
    folder = students.many(opened, tmp_path / "in", 2)
    students.hand_in(folder / "bad.ipynb", b"{")
    common = ("--release", out, "--out", results)
    unsafe = (*common, "--unsafe-no-sandbox")
    said = json.loads(call("grade", folder, *unsafe, "--json"))
    assert (said["records"], said["new"], said["unsafe"]) == (3, 3, True)
    assert "not JSON" in said["broken"]["bad.ipynb"]
    assert "3 submissions, 0 graded now" in call("grade", folder, *unsafe)
    assert "0 marks differ" in call("replay", "student 000", *unsafe)
    assert "0 marks differ" in call("regrade", "--exercise", "91-1", *unsafe)
    call("rubric", "--out", results)
    rows = read_csv((results / "rubric.csv").read_text())
    (results / "rubric.csv").write_text(
        write_csv([rows[0], *([*row[:4], "3", "fine", row[6]] for row in rows[1:])])
    )
    assert "2 marks by hand" in call("rubric", "--out", results, "--marks", results / "rubric.csv")
    assert "report.html" in call("report", *common)
    call("marks", *common, fails="without a sandbox")
    call("feedback", *common, "--hold-until", "2999-01-01", fails="held back until 2999-01-01")
    assert "91_class-plain.zip" in call("feedback", *common, "--hold-until", "2000-01-01")
    assert "files deleted; the marks stay" in call("expire", "--out", results, "--days", "0")
    monkeypatch.setenv("VKLAB_LABS", str(out / "labs"))
    mine = students.hand_in(tmp_path / "mine.ipynb", students.notebook(opened))
    said = call("submit", "91", mine, "--to", tmp_path / "handed", "--untouched")
    assert "not_attempted" in said and "hand in this file" in said


def hand_in(folder, release, answers=None):
    mine = students.hand_in(folder / "work/91_class.ipynb", students.notebook(release, answers))
    return CliRunner().invoke(course, ["submit", "91", str(mine)]), folder / "handed_in"


def test_a_lab_without_an_answer_is_handed_in_after_a_question(tmp_path, monkeypatch):
    call("release", tmp_path / "release", "91", "--variant-seed", "a")
    release = students.open_release(tmp_path / "release")
    monkeypatch.setenv("VKLAB_LABS", str(release.labs_folder))
    done, folder = hand_in(release.folder, release)
    assert isinstance(done.exception, HandingError) and not folder.exists()
    assert "no answer of yours is in it. Save the notebook first" in str(done.exception)
    asked = []
    monkeypatch.setattr(handing.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(handing.typer, "confirm", lambda text: asked.append(text))
    with pytest.raises(HandingError, match="nothing was handed in"):
        handing._confirm("91_class.ipynb has no answer.")
    assert asked == ["91_class.ipynb has no answer. Hand it in all the same?"]


def test_an_answer_is_handed_in_beside_the_students_copies(tmp_path, monkeypatch):
    call("release", tmp_path / "release", "91", "--variant-seed", "a")
    release = students.open_release(tmp_path / "release")
    monkeypatch.setenv("VKLAB_LABS", str(release.labs_folder))
    monkeypatch.chdir(tmp_path)
    done, folder = hand_in(release.folder, release, {"l91-1": students.right(release)})
    assert done.exit_code == 0, (done.output, done.exception)
    assert (folder / "91_class.ipynb").is_file() and not (tmp_path / "handed_in").exists()


FORGED = "x\n7: eve, 91_class: 9 of 9\x1b[1A\x1b]0;t\x07\r\u202e\x9b2J"


def test_a_name_forges_no_line_of_the_terminal(release, tmp_path):
    folder, coding = tmp_path / "in", sys.getfilesystemencoding()
    name = FORGED.encode(coding, "ignore").decode(coding)  # what a file can be called here
    students.hand_in(folder / f"{name}.ipynb", students.notebook(release))
    students.hand_in(folder / f"{name}b.ipynb", b"{")
    lab = students.edit(release, lambda c: c["metadata"]["vklab"].update(lab=FORGED))
    students.hand_in(folder / "c.ipynb", lab)
    words = [
        "grade",
        folder,
        "--release",
        release.folder,
        "--out",
        tmp_path / "out",
        "--unsafe-no-sandbox",
    ]
    done = CliRunner().invoke(course, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    assert not any(char in done.output for char in "\x1b\x07\r\u202e\x9b")
    assert not [line for line in done.output.splitlines() if line.startswith("7: eve")]
    assert "x\u240a7: eve" in done.output and "\u241b[1A" in done.output
    with pytest.raises(GradeError) as caught:
        Results(tmp_path / "out").find("x")
    assert FORGED not in str(caught.value)


@pytest.mark.slow
@needs_bubblewrap
def test_a_batch_in_the_sandbox_gives_the_marks_of_the_rehearsal(release, tmp_path):
    folder = students.many(release, tmp_path / "in", 3)
    _, here = students.run(release, folder, tmp_path / "here")
    _, boxed = students.run(release, folder, tmp_path / "boxed", judging.judge_one, self_test)
    assert {
        k: {e: (r.status, r.points) for e, r in one.exercises.items()} for k, one in boxed.items()
    } == {k: {e: (r.status, r.points) for e, r in one.exercises.items()} for k, one in here.items()}
    assert {record.sandbox["kind"] for record in boxed.values()} == {"bubblewrap"}
