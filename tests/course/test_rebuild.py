"""Rebuilt notebooks: the release's cells, with the answers of a submission in their places."""

from __future__ import annotations

import json

import nbformat
import pytest

from support.course import class_of_students as students
from vklab_course.grade.assignment.rebuild import answers_in, rebuild
from vklab_course.grade.assignment.submission import read_notebook


def rebuilt(release, change):
    content = students.edit(release, change)
    released = release.notebook(release.manifest.labs[0])
    return rebuild(released, read_notebook(json.dumps(content).encode()))


def sources(done):
    return {c.id: c.source for c in done.notebook.cells}


def test_answers_and_own_cells_are_taken_and_demos_are_not(release):
    def change(content):
        text = "def padded(count, multiple=256):\n    return SCALE"
        students.cell(content, "l91-1").update(source=text)
        students.cell(content, "l91-own")["source"] = "def helper(): ..."
        students.cell(content, "l91-setup")["source"] = "import os; os.abort()"
        students.cell(content, "l91-1c")["source"] = "check('91-1', print)"
        students.cell(content, "l91-1")["outputs"] = [{"output_type": "stream", "text": "PASSED"}]
        content["cells"].insert(0, {"id": "extra", "cell_type": "code", "source": "evil()"})

    kept = sources(rebuilt(release, change))
    assert kept["l91-1"].endswith("return SCALE") and kept["l91-own"] == "def helper(): ..."
    assert kept["l91-demo"] == "SCALE = 2" and "abort" not in kept["l91-setup"]
    assert kept["l91-1c"] == 'check("91-1", padded)' and not {"extra", "l91-1d"} & set(kept)
    cells = rebuilt(release, change).notebook.cells
    assert not any(c.get("outputs") for c in cells)
    assert [c.metadata["vklab"]["role"] for c in cells[:4]] == ["given", "own", "given", "exercise"]


def test_a_missing_a_doubled_and_a_turned_cell_cost_their_exercise_only(release):
    def lost(content):
        content["cells"].remove(students.cell(content, "l91-1"))

    def doubled(content):
        content["cells"].append({**students.cell(content, "l91-1"), "source": "padded = min"})

    def repeated(content):
        content["cells"].append(students.cell(content, "l91-1"))

    def turned(content):
        students.cell(content, "l91-1")["cell_type"] = "markdown"

    for change, said in (
        (lost, "was deleted"),
        (doubled, "2 different cells have the id l91-1"),
        (turned, "is a markdown cell"),
    ):
        done = rebuilt(release, change)
        assert said in done.missing["91-1"] and set(done.missing) == {"91-1"}
        assert set(answers_in(done.notebook)) == {"91-2", "91-3"}
    assert not rebuilt(release, repeated).missing


def test_swapped_cells_come_back_in_order_and_swapped_ids_are_swapped_answers(release):
    def order(content):
        content["cells"].reverse()

    def ids(content):
        one, two = students.cell(content, "l91-1"), students.cell(content, "l91-2")
        one["id"], two["id"] = "l91-2", "l91-1"

    assert sources(rebuilt(release, order)) == sources(rebuilt(release, lambda c: None))
    assert "workgroups" in answers_in(rebuilt(release, ids).notebook)["91-1"]


@pytest.mark.parametrize("text", [
    "<<<<<<< HEAD\nx = 1\n=======\n", "%matplotlib inline\n!rm -rf /", "def (", "x = '\\d'",
    "(" * 5000, "x = " + "-" * 50_000 + "1", "\0", "\ud800", "é = 1\nreturn",
    "lambda: " * 200 + "0", "x" + ".a" * 20_000,
])  # fmt: skip
def test_an_answer_that_is_no_python_is_still_an_answer(release, text):
    done = rebuilt(release, lambda c: students.cell(c, "l91-1").update(source=text))
    assert not done.missing and set(answers_in(done.notebook)) == {"91-1", "91-2", "91-3"}
    assert nbformat.reads(done.text(), as_version=4)
