"""Handing in: answers run as in grading, and what would be lost is named."""

from __future__ import annotations

import pytest

from support.course import class_of_students as students
from vklab_course.grade.results.schema import GradeError
from vklab_course.student.submit import submit

pytestmark = pytest.mark.usefixtures("class_labs")


def test_submit_names_what_would_be_lost_and_writes_the_file(release, tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(release.labs_folder))
    mine = students.notebook(
        release,
        {
            "l91-1": "def padded(count, multiple=256):\n"
            "    return helper(count, multiple) + SCALE * nowhere",
            "l91-2": "workgroups = 16",
            "l91-3": 'why = open("/home/student/notes.txt").name',
            "l91-demo": "SCALE = 3",
        },
    )
    extra = students.nbformat.v4.new_code_cell("def helper(a, b):\n    return -(-a // b) * b")
    mine.cells.insert(3, extra)
    path = students.hand_in(tmp_path / "mine.ipynb", mine)
    done = submit("91", path, tmp_path / "out")
    said = "\n".join(done.warnings)
    assert "91-1 uses helper, defined by a cell that is not collected" in said
    assert "91-1 uses nowhere, which nothing defines" in said
    assert "you changed the cell l91-demo of the lab, which your answers need" in said
    assert "/home/student/notes.txt" in said
    statuses = {k: r.status for k, r in done.exercises.items()}
    assert statuses == {"91-1": "failed", "91-2": "passed", "91-3": "needs_hand_marking"}
    assert "NameError" in str(done.exercises["91-1"])
    _, records = students.run(release, done.path.parent, tmp_path / "results")
    (record,) = records.values()
    assert record.exercises["91-2"].status == "passed"


def test_submit_of_a_good_answer_warns_of_nothing(release, tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(release.labs_folder))
    own = {
        "l91-own": "def helper(a, b):\n    return -(-a // b) * b",
        "l91-1": "def padded(count, multiple=256):\n    return helper(count, multiple)",
    }
    path = students.hand_in(tmp_path / "mine.ipynb", students.notebook(release, own))
    done = submit("91", path, tmp_path / "out")
    assert done.warnings == () and done.exercises["91-1"].status == "passed"
    with pytest.raises(GradeError, match="it is not JSON"):
        submit("91", students.hand_in(tmp_path / "bad.ipynb", b"{"), tmp_path / "out")
    with pytest.raises(GradeError, match="there is no lab '17'"):
        submit("17", path, tmp_path / "out")
    with pytest.raises(GradeError, match="Did you mean '91_class'"):
        submit("91_clas", path, tmp_path / "out")
    with pytest.raises(GradeError, match="No such file.* Did you mean 'mine.ipynb'"):
        submit("91", tmp_path / "mnie.ipynb", tmp_path / "out")


def test_submit_lets_students_edit_demos_that_no_answer_needs(release, tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(release.labs_folder))
    edited = {
        "l91-1": students.right(release),
        "l91-1d": "print(padded(7, 3))  # my own try",
        "l91-demo": "SCALE = 2\nUNUSED = 3  # mended\ndef tried(): return SCALE",
    }
    path = students.hand_in(tmp_path / "mine.ipynb", students.notebook(release, edited))
    assert submit("91", path, tmp_path / "out").warnings == ()
    edited["l91-1"] = students.right(release) + "\nprint(UNUSED)"
    students.hand_in(path, students.notebook(release, edited))
    (warning,) = submit("91", path, tmp_path / "out").warnings
    assert "you changed the cell l91-demo of the lab" in warning
