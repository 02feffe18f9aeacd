"""From a source to notebooks: regions, stubs, ids, and building again."""

from __future__ import annotations

import dataclasses

import nbformat
import pytest

from support.runs import tiers
from vklab.apps import cli
from vklab_course.author import build, gates
from vklab_course.author.lab import Cell, LabError, all_labs, find_lab, read_lab
from vklab_course.author.layout import LINK
from vklab_course.author.new import new_lab
from vklab_course.grade.assignment.release import release
from vklab_course.places import labs_folder

pytestmark = pytest.mark.full


def source(notebook, identifier):
    return next(cell.source for cell in notebook.cells if cell.id == identifier)


def test_students_get_stubs_and_no_secrets(fixture_lab):
    notebook = build.student_notebook(fixture_lab.lab)
    function, kernel, value, check = (
        source(notebook, name) for name in ("l90-1", "l90-2", "l90-3", "l90-1c")
    )
    assert function.endswith(
        '    raise NotImplementedError("Lab 90, exercise 1: replace this line by your own")'
    )
    assert "    #error Lab 90, exercise 2: replace this line by your own\n}" in kernel
    assert value == "workgroups = ...\n# Lab 90, exercise 3: your answer goes here"
    assert check == 'check("90-1", round_up)'
    text = nbformat.writes(notebook)
    assert "SOLUTION" not in text and "if multiple < 1" not in text and "[[" not in function
    names = {}
    exec(function, names)
    with pytest.raises(NotImplementedError, match="Lab 90, exercise 1"):
        names["round_up"](1)


def test_solutions_have_no_marks(fixture_lab):
    text = nbformat.writes(build.solution_notebook(fixture_lab.lab))
    assert "if multiple < 1:" in text and "y[i] = factor * x[i];" in text
    assert "SOLUTION" not in text and "assert" not in text


@pytest.mark.parametrize(("about", "text"), [
    ({}, "Round up to [[usual]]."), ({"id": "90-1"}, "Round up to [[unusual]]."),
])  # fmt: skip
def test_no_notebook_and_no_release_has_an_empty_place_of_a_parameter(
    fixture_lab, tmp_path, about, text
):
    cell = Cell("l90-empty", "markdown", text, about)
    lab = dataclasses.replace(fixture_lab.lab, cells=(*fixture_lab.lab.cells, cell))
    for make in (
        build.student_notebook,
        build.solution_notebook,
        gates.source_problems,
        lambda lab: release([lab], tmp_path / "out"),
    ):
        with pytest.raises(LabError, match=r"cell l90-empty: \[\[u.*\]\] is not filled"):
            make(lab)
    assert not (tmp_path / "out").exists()
    other = dataclasses.replace(cell, text="[[thread_position]] is Metal's", meta={})
    assert lab.rendered(other) == other.text


def test_links_of_a_solution_go_up_one_folder_and_lead_to_files():
    text = "[a](GLOSSARY.md#b), [c](https://d.e), [f](#g), ![h](pictures/i.svg)"
    assert build.deeper("code", text) == text
    assert build.deeper("markdown", text) == (
        "[a](../GLOSSARY.md#b), [c](https://d.e), [f](#g), ![h](../pictures/i.svg)"
    )
    solutions = labs_folder() / "solutions"
    links = [
        target
        for path in all_labs()
        for cell in build.solution_notebook(read_lab(path)).cells
        if cell.cell_type == "markdown"
        for target in LINK.findall(cell.source)
    ]
    assert links and all((solutions / link.partition("#")[0]).exists() for link in links), links


def test_cells_keep_ids_metadata_and_what_varies_is_not_compared(fixture_lab):
    notebook = nbformat.read(fixture_lab.student, as_version=4)
    assert [cell.id for cell in notebook.cells] == [cell.id for cell in fixture_lab.lab.cells]
    by_id = {cell.id: cell for cell in notebook.cells}
    assert by_id["l90-1"].metadata == {
        "vklab": {"role": "exercise", "id": "90-1", "points": 4, "lines": 3},
        "deletable": False,
    }
    for name in ("l90-show", "l90-banner"):
        assert by_id[name].metadata.tags == [build.IGNORE]
    assert "tags" not in by_id["l90-1c"].metadata
    assert notebook.metadata.vklab == {"lab": "90", "title": "A lab for the tests", "minutes": 30}


def test_building_again_changes_nothing(fixture_lab):
    before = fixture_lab.student.stat().st_mtime_ns, fixture_lab.student.read_bytes()
    build.write_student(fixture_lab.lab)
    assert (fixture_lab.student.stat().st_mtime_ns, fixture_lab.student.read_bytes()) == before


def test_a_cell_that_raises_stops_the_build(tmp_path):
    with pytest.raises(Exception, match="ZeroDivisionError"):
        cell = nbformat.v4.new_code_cell("1 / 0")
        build.execute(nbformat.v4.new_notebook(cells=[cell]), tmp_path)


def test_labs_are_found_by_number_and_name(fixture_lab):
    for name in ("90", "90_fixture"):
        assert find_lab(name).title == "A lab for the tests"
    with pytest.raises(LabError, match="there is no lab '91' .* there is 90_fixture"):
        find_lab("91")
    (fixture_lab.root / "source" / "Notes.py").write_text("")
    assert [path.stem for path in all_labs()] == ["90_fixture"]
    with pytest.raises(LabError, match="rename the source to NN_slug"):
        read_lab(fixture_lab.root / "source" / "Notes.py")


@pytest.fixture
def labs(tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(tmp_path / "labs"))
    return tmp_path / "labs"


@pytest.mark.parametrize("number", tiers.seeds("7b", "7"))
def test_a_new_lab_passes_every_gate(labs, capsys, number):
    assert cli.main(["course", "new", number, "some_thing"]) == 0
    assert f"0{number}_some_thing.py" in capsys.readouterr().out
    assert cli.main(["course", "lint"]) == 1
    assert f"vklab course build 0{number}" in capsys.readouterr().out
    assert cli.main(["course", "build", f"0{number}"]) == 0
    assert cli.main(["course", "lint", number]) == 0
    shown = capsys.readouterr().out
    assert f"0{number}_some_thing: fine" in shown and "mutants rejected" in shown


@pytest.mark.parametrize(("number", "slug", "words"), [
    ("07", "other", "lab 07 exists already: 07_some_thing"), ("x", "a", "a lab is a number"),
    ("8", "Bad slug", "small letters"), ("123", "a", "a lab is a number"),
    ("7A", "a", "a lab is a number"),
])  # fmt: skip
def test_a_new_lab_overwrites_nothing(labs, number, slug, words):
    new_lab("7", "some_thing")
    with pytest.raises(LabError, match=words):
        new_lab(number, slug)


@pytest.mark.parametrize("line", ["lint 55", "build 55", "new 1 A"])
def test_usage_is_one_message(labs, capsys, line):
    assert cli.main(["course", *line.split()]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("vklab: ") and "Traceback" not in captured.err


def test_without_labs_there_is_nothing_to_do(labs, capsys):
    mine = labs.parent / "mine"
    mine.mkdir(exist_ok=True)  # a folder that is not there is refused
    for name in ("lint", "build", "update"):
        work = ["--work", str(mine)] if name == "update" else []
        assert cli.main(["course", name, *work]) == 0, capsys.readouterr().err
