"""Extra exercises in grading: only if the release says so, and then everywhere."""

from __future__ import annotations

import shutil

import pytest
from typer.testing import CliRunner

from support.course import class_of_students as students
from vklab_course.author.lab import find_lab
from vklab_course.cli.course import course
from vklab_course.grade.assignment.manifest import open_release
from vklab_course.grade.assignment.release import release
from vklab_course.grade.results.csvs import read_csv, write_marks
from vklab_course.grade.results.feedback import feedback_page
from vklab_course.grade.results.report import report_page
from vklab_course.grade.selftest import self_test
from vklab_course.student.submit import submit

ALL = {"91-1": 4.0, "91-2": 1.0, "91-3": 3.0}
REQUIRED = {"91-1": 4.0, "91-3": 3.0}


@pytest.fixture
def labs(tmp_path, monkeypatch):
    """Name a copy of the class's lab whose second exercise is extra."""
    folder = shutil.copytree(students.LABS, tmp_path / "labs")
    path = folder / "checks" / "lab_91.py"
    hint = 'hints=("15 workgroups of 64 cover 960 elements.",)'
    path.write_text(path.read_text().replace(hint, f"{hint}, extra=True"))
    monkeypatch.setattr(students, "LABS", folder)
    monkeypatch.setenv("VKLAB_LABS", str(folder))
    return folder


@pytest.mark.parametrize("extra", [False, True])
def test_marks_csv_report_and_self_test_agree(labs, tmp_path, extra):
    release([find_lab("91")], tmp_path / "out", extra=extra)
    made = open_release(tmp_path / "out")
    (lab,) = made.manifest.labs
    wanted = ALL if extra else REQUIRED
    assert {e.id: e.points for e in lab.exercises} == wanted and lab.points == sum(wanted.values())
    assert lab.not_graded == (() if extra else ("91-2",))
    assert set(made.variant(lab)) == set(ALL)
    words = "extra, not graded: 91-2"
    assert (words in (made.folder / "README.md").read_text()) != extra
    students.many(made, tmp_path / "in", 3)
    batch, records = students.run(made, tmp_path / "in", tmp_path / "marks", test=self_test)
    for record in records.values():
        assert {key: r.of for key, r in record.exercises.items()} == wanted
        assert record.of == lab.points
    assert max(r.points for r in records.values()) == 4.0
    assert set(batch.results.run().self_test["times"]) == set(wanted) - {"91-3"}
    header, *rows = read_csv(write_marks(records, lab))
    assert ("91-2" in header) == extra and {row[7] for row in rows} == {f"{lab.points:g}"}
    page = report_page(batch.results, made)
    assert (words in page) != extra and f"of {lab.points:g} points" in page
    assert ("91-2" in feedback_page(next(iter(records.values())), lab)) == extra


@pytest.mark.parametrize("extra", [False, True])
def test_submit_says_what_the_release_says(labs, tmp_path, monkeypatch, extra):
    release([find_lab("91")], tmp_path / "out", extra=extra)
    made = open_release(tmp_path / "out")
    own = {"l91-1": students.right(made), "l91-2": "workgroups = 16"}
    path = students.hand_in(tmp_path / "mine.ipynb", students.notebook(made, own))
    monkeypatch.setenv("VKLAB_LABS", str(made.labs_folder))
    done = submit("91", path, tmp_path / "handed")
    assert set(done.exercises) == set(ALL if extra else REQUIRED)
    assert done.points == (5 if extra else 4)
    assert done.not_graded == (() if extra else ("91-2",))


def test_the_command_writes_it_into_the_record(labs, tmp_path):
    for name, flags in (("plain", []), ("whole", ["--grade-extra"])):
        ran = CliRunner().invoke(course, ["release", str(tmp_path / name), "91", *flags])
        assert ran.exit_code == 0, ran.output
    plain, whole = (open_release(tmp_path / name).manifest for name in ("plain", "whole"))
    assert plain.labs[0].not_graded == ("91-2",) and whole.labs[0].not_graded == ()
    assert plain.id != whole.id  # one results folder never holds marks of both
    assert plain.labs[0].version == whole.labs[0].version
