"""An exercise that moves to another lab: its answer goes with it, and is graded there."""

from __future__ import annotations

import shutil

import nbformat
import pytest

from support.course import class_of_students as students
from vklab.apps import cli
from vklab_course.author.gates import source_problems
from vklab_course.author.lab import all_labs, read_lab
from vklab_course.author.layout import layout_problems
from vklab_course.check import check
from vklab_course.definition.exercise import find, home_of
from vklab_course.definition.verdict import MIME
from vklab_course.grade.assignment.manifest import open_release
from vklab_course.grade.assignment.release import release
from vklab_course.student import moves, work
from vklab_course.student.paths import EVERYTHING, Course
from vklab_course.student.submit import submit

SECOND = """# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "A second lab", minutes: 5}
# ---

# %% [markdown] id="l92-title"
# # A second lab

# %% id="l92-setup"
import math

from vklab_course import attempt, check

# %% id="l92-own" vklab={"role": "own"}
# Your own helpers.

# %% id="l92-demo"
SCALE = 2

# %% id="l92-1" vklab={"role": "exercise", "id": "92-1", "points": 1, "lines": 1}
blocks = ...
### BEGIN SOLUTION
blocks = 7
### END SOLUTION

# %% id="l92-1c" vklab={"role": "check", "id": "92-1"}
check("92-1", blocks)
"""
CHECKS = '''"""The exercises of a second lab."""

import math

from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise


@exercise("92-1", hints=("Six and a bit.",))
class Blocks(Value):
    parts = {"count": ("enough", 1)}

    def expected(self, case):
        return 7


'''
MINE = "def padded(count, multiple=256):\n    return -(-count // multiple) * multiple"
HELPED = "def padded(count, multiple=256):\n    return helper(count, multiple)"
HELPER = "def helper(a, b):\n    return -(-a // b) * b"


@pytest.fixture
def labs(tmp_path, monkeypatch):
    """Name a copy of the class's lab with a second lab beside it."""
    folder = shutil.copytree(students.LABS, tmp_path / "labs")
    (folder / "source" / "92_more.py").write_text(SECOND)
    (folder / "checks" / "lab_92.py").write_text(CHECKS)
    (folder / "answers" / "lab_92.py").write_text('"""No wrong answers."""\n')
    monkeypatch.setattr(students, "LABS", folder)
    monkeypatch.setenv("VKLAB_LABS", str(folder))
    return folder


def move(labs, monkeypatch):
    """Name a copy of the labs in which 91-1, cells and definition, is in the second lab."""
    labs = shutil.copytree(labs, labs.with_name("labs of today"))
    monkeypatch.setattr(students, "LABS", labs)
    monkeypatch.setenv("VKLAB_LABS", str(labs))
    cells = cut(labs / "source" / "91_class.py", '# %% id="l91-1"', '# %% id="l91-2"')
    second = labs / "source" / "92_more.py"
    second.write_text(second.read_text() + "\n" + cells)
    first, second = labs / "checks" / "lab_91.py", labs / "checks" / "lab_92.py"
    definition = cut(first, "SIZES", '@exercise("91-2"')
    second.write_text(second.read_text() + definition)
    cut(labs / "answers" / "lab_91.py", '@wrong("91-1"', 'wrong("91-2"')
    return labs


def cut(path, start, stop):
    """Take a part out of a file, and return it."""
    text = path.read_text()
    part = text[text.index(start) : text.index(stop)]
    path.write_text(text.replace(part, ""))
    return part


def released(out):
    release([read_lab(path) for path in all_labs()], out)
    return open_release(out)


def texts(path):
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}


def edit(path, **changes):
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        cell.source = changes.get(cell.id.replace("-", "_"), cell.source)
    nbformat.write(book, path)


@pytest.fixture
def course(labs, tmp_path, monkeypatch):
    """Return a student's folder with copies of the first release, and a function that updates."""
    mine, old = tmp_path / "work", released(tmp_path / "old")
    work.update(old.labs_folder, mine)

    def update():
        move(labs, monkeypatch)
        new = released(tmp_path / "new")
        return new, {done.name: done for done in work.update(new.labs_folder, mine)}

    return mine, update


def test_the_answer_goes_to_the_lab_that_has_its_exercise(course, monkeypatch, tmp_path):
    mine, update = course
    edit(mine / "91_class.ipynb", l91_1=MINE, l91_2="workgroups = 16")
    book = nbformat.read(mine / "91_class.ipynb", as_version=4)
    shown = {MIME: {"id": "91-1", "status": "correct", "points": 4, "of": 4}}
    verdict = nbformat.v4.new_output("display_data", shown)
    next(cell for cell in book.cells if cell.id == "l91-1c").outputs = [verdict]
    nbformat.write(book, mine / "91_class.ipynb")
    before = (mine / "91_class.ipynb").read_bytes()
    new, done = update()
    first, second = texts(mine / "91_class.ipynb"), texts(mine / "92_more.ipynb")
    assert second["l91-1"] == MINE and "l91-1" not in first
    assert first["l91-2"] == "workgroups = 16" and "l91-own-moved" not in second
    assert "the answer to 91-1 is in 92_more.ipynb now" in done["91_class.ipynb"].detail
    assert "the answer to 91-1 came from 91_class.ipynb" in done["92_more.ipynb"].detail
    backup = done["91_class.ipynb"].detail.rpartition("backup: ")[2]
    assert (mine / backup).read_bytes() == before
    # Its verdict stands there; it is checked, handed in and graded there.
    whole = Course(new.labs_folder).path(EVERYTHING)
    progress = {each.name: each for each in work.progress(whole, mine)}
    assert progress["92_more"].statuses["91-1"] == "correct"
    assert home_of("91-1") == "92" and find("91-1").title == "padded"
    monkeypatch.setenv("VKLAB_LABS", str(new.labs_folder))
    space: dict = {}
    exec(MINE, space)
    assert check("91-1", space["padded"]).status == "correct"
    handed = submit("92", mine / "92_more.ipynb", tmp_path / "in")
    assert handed.exercises["91-1"].status == "passed" and handed.warnings == ()
    _, records = students.run(new, tmp_path / "in", tmp_path / "marks")
    (record,) = records.values()
    assert record.lab == "92_more" and record.exercises["91-1"].points == 4.0
    # A second update finds nothing to do.
    assert {each.status for each in work.update(new.labs_folder, mine)} == {"unchanged"}


def test_a_lab_that_was_not_there_yet_gets_the_answer(course):
    mine, update = course
    edit(mine / "91_class.ipynb", l91_1=MINE)
    (mine / "92_more.ipynb").unlink()
    (mine / ".lab" / "92_more.ipynb").unlink()
    _, done = update()
    assert done["92_more.ipynb"].status == "new" and "came from" in done["92_more.ipynb"].detail
    assert texts(mine / "92_more.ipynb")["l91-1"] == MINE


def test_the_own_cell_goes_with_it_as_a_text(course, monkeypatch, tmp_path):
    mine, update = course
    edit(mine / "91_class.ipynb", l91_1=HELPED, l91_own=HELPER)
    edit(mine / "92_more.ipynb", l92_own="import os")
    new, _ = update()
    second = texts(mine / "92_more.ipynb")
    assert HELPER in second["l91-own-moved"] and "from 91_class.ipynb" in second["l91-own-moved"]
    assert list(second).index("l91-own-moved") == list(second).index("l91-1") + 1
    assert second["l92-own"] == "import os"
    assert texts(mine / "91_class.ipynb")["l91-own"] == HELPER
    monkeypatch.setenv("VKLAB_LABS", str(new.labs_folder))
    handed = submit("92", mine / "92_more.ipynb", tmp_path / "in")
    assert "91-1 uses helper" in " ".join(handed.warnings)
    edit(mine / "92_more.ipynb", l92_own=HELPER)
    handed = submit("92", mine / "92_more.ipynb", tmp_path / "in")
    assert handed.exercises["91-1"].status == "passed" and handed.warnings == ()


def test_where_both_have_text_both_stay(course):
    mine, update = course
    edit(mine / "91_class.ipynb", l91_1=MINE)
    book = nbformat.read(mine / "92_more.ipynb", as_version=4)
    about = {"vklab": {"role": "exercise", "id": "91-1"}}
    by_hand = "def padded(count, multiple): return 0"
    book.cells.append(nbformat.v4.new_code_cell(by_hand, id="l91-1", metadata=about))
    nbformat.write(book, mine / "92_more.ipynb")
    update()
    second = texts(mine / "92_more.ipynb")
    assert second["l91-1"] == by_hand and MINE in second["l91-1-moved"]
    assert "before the exercise moved here" in second["l91-1-moved"]


def test_an_answer_stays_where_its_new_lab_cannot_be_read(course):
    mine, update = course
    edit(mine / "91_class.ipynb", l91_1=MINE)
    (mine / "92_more.ipynb").write_text("not JSON")
    _, done = update()
    assert texts(mine / "91_class.ipynb")["l91-1"] == MINE
    assert "stays here: 92_more.ipynb is not touched" in done["91_class.ipynb"].detail
    assert (mine / "92_more.ipynb").read_text() == "not JSON"


def test_a_lab_that_is_gone_gives_its_answers_away(labs, course, tmp_path, monkeypatch, capsys):
    mine, _ = course
    edit(mine / "91_class.ipynb", l91_1=MINE, l91_2="workgroups = 15")
    (move(labs, monkeypatch) / "source" / "91_class.py").unlink()
    new = released(tmp_path / "new")
    monkeypatch.setenv("VKLAB_LABS", str(new.labs_folder))
    assert cli.main(["course", "update", "--work", str(mine)]) == 0
    said = capsys.readouterr().out
    assert "92_more.ipynb: updated (the answer to 91-1 came from 91_class.ipynb; backup" in said
    assert "91_class.ipynb: updated (the answer to 91-1 is in 92_more.ipynb now; backup" in said
    first, second = texts(mine / "91_class.ipynb"), texts(mine / "92_more.ipynb")
    assert second["l91-1"] == MINE and first["l91-2"] == "workgroups = 15"
    assert {each.status for each in work.update(new.labs_folder, mine)} == {"unchanged"}


def test_the_gates_accept_a_lab_with_an_exercise_of_another_number(course, labs):
    _, update = course
    update()
    lab = read_lab(students.LABS / "source" / "92_more.py")
    problems = [*source_problems(lab), *layout_problems(lab)]
    assert not [said for said in problems if "91" in said], problems


def test_an_untouched_stub_is_not_carried(course):
    mine, update = course
    _, done = update()
    assert "91-1" not in done["92_more.ipynb"].detail
    assert "NotImplementedError" in texts(mine / "92_more.ipynb")["l91-1"]


def test_cells_that_a_student_copied_by_hand_stay(course):
    mine, _ = course
    book = nbformat.read(mine / "91_class.ipynb", as_version=4)
    one = moves.Copy("a", book, book, book, book)
    theirs = nbformat.v4.new_code_cell("x", id="l92-1", metadata={"vklab": {"role": "exercise"}})
    with_copy = nbformat.from_dict({**book, "cells": [*book.cells, theirs]})
    other = moves.Copy("b", book, book, with_copy, with_copy)
    lab = nbformat.read(mine / "92_more.ipynb", as_version=4)
    home = moves.Copy("c", lab, lab, lab, lab)
    moves.carry([one, other, home])
    assert not home.said and not other.said and other.merged.cells[-1].source == "x"
