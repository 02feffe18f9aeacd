"""Paths of small labs: what is left out, what is next, and a start page that loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from vklab.apps import cli
from vklab_course.cli import jupyter
from vklab_course.cli.lab import start_page
from vklab_course.definition.verdict import MIME
from vklab_course.student import copies, start, work
from vklab_course.student.paths import EVERYTHING, Course, PathError
from vklab_labs.shared import course_map

PAGE = "start.ipynb"
# Three small labs, a path of two of them, and a page in the place of the one that is left out.
TWO = """order = ["00", "02", "01"]
[path.two]
title = "Two"
for_whom = "a test"
labs = ["00", "02"]
leave_out = ["l00-2"]
[insert.page]
page = "inserts/page.md"
title = "A page"
instead_of = ["01"]
for_labs = ["02"]
"""


def numbers(path):
    return [stop.lab.number for stop in path.stops]


def small_lab(folder, name, before=()):
    """Write a lab with two sections of equal length and an exercise in each."""
    lab = name.partition("_")[0]
    cells = [new_markdown_cell(f"# Lab {lab}", id=f"l{lab}-title")]
    for n in (1, 2):
        about = {"role": "exercise", "id": f"{lab}-{n}", "points": 4, "lines": 2}
        cells.append(new_markdown_cell(f"## {n} · Part {n}", id=f"l{lab}-{n}"))
        cells.append(new_code_cell("f", id=f"l{lab}-e{n}", metadata={"vklab": about}))
    facts = {"lab": lab, "title": f"Lab {lab}", "minutes": 60, "before": list(before)}
    nbformat.write(new_notebook(cells=cells, metadata={"vklab": facts}), folder / f"{name}.ipynb")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return a folder of labs with paths, which the commands use."""
    folder = tmp_path / "labs"
    (folder / "inserts").mkdir(parents=True)
    (folder / "inserts" / "page.md").write_text("# A page\n")
    small_lab(folder, "00_a")
    small_lab(folder, "01_b", ["00"])
    small_lab(folder, "02_c", ["00", "01"])
    (folder / "paths.toml").write_text(TWO)
    monkeypatch.setenv("VKLAB_LABS", str(folder))
    return folder


def solve(copy, exercise, status="correct"):
    book = nbformat.read(copy, as_version=4)
    verdict = {"id": exercise, "status": status, "points": 4, "of": 4}
    cell = next(c for c in book.cells if c.metadata.get("vklab", {}).get("id") == exercise)
    cell.outputs = [new_output("display_data", {MIME: verdict})]
    nbformat.write(book, copy)


def test_a_path_leaves_out_sections_with_their_minutes_and_exercises(small):
    two, all_of_it = Course(small).path("two"), Course(small).path(EVERYTHING)
    assert numbers(two) == ["00", "02"] and numbers(all_of_it) == ["00", "02", "01"]
    assert 25 <= two.stops[0].minutes <= 35 and two.stops[1].minutes == 60
    assert two.minutes == sum(stop.minutes for stop in two.stops) and all_of_it.minutes == 180
    assert list(two.stops[0].exercises) == ["00-1"]
    assert [page.title for page in two.stops[1].inserts] == ["A page"] and two.gaps() == []
    assert all_of_it.gaps() == []  # 01 comes too late for 02, and the page stands for it


@pytest.mark.parametrize(("before", "after", "words"), [
    ('labs = ["00", "02"]', 'labs = ["00", "05", "02"]', "the path 'two' has lab 05, which is not"),
    ('["l00-2"]', '["l00-9"]', "the path 'Two' leaves out the section 'l00-9', and none"),
    ('for_whom = "a test"', 'whom = "a test"', "two: got an unexpected keyword argument 'whom'"),
    ('title = "Two"\n', "", "two: missing 1 required positional argument: 'title'"),
    ("[path.two]", "[path.two", "paths.toml cannot be read: "),
    (TWO, "path = 3", "write a table [path.NAME]"),
    (TWO, "[path]\ntwo = 3", "two: argument after ** must be a mapping"),
])  # fmt: skip
def test_a_path_that_cannot_be_used_says_why(small, capsys, before, after, words):
    assert before in TWO
    (small / "paths.toml").write_text(TWO.replace(before, after))
    assert cli.main(["course", "progress", "--path", "two"]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_lint_finds_a_path_that_is_not_closed(small, capsys):
    for folder in ("source", "checks", "answers"):
        (small / folder).mkdir()
    assert cli.main(["course", "lint"]) == 0
    (small / "paths.toml").write_text(TWO.replace('instead_of = ["01"]', 'instead_of = ["00"]'))
    assert cli.main(["course", "lint"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "the path 'two': lab 02 needs lab 01, which is not before it" in said
    (small / "02_c.ipynb").unlink()
    assert cli.main(["course", "lint"]) == 1


def test_a_path_that_lost_its_lab_is_not_shown_and_everything_is(small, capsys):
    (small / "02_c.ipynb").unlink()
    assert [path.name for path in Course(small).whole()] == [EVERYTHING]
    assert numbers(Course(small).path(EVERYTHING)) == ["00", "01"]
    assert cli.main(["course", "progress", "--path", "two"]) == 2
    assert "the path 'two' has lab 02, which is not in" in " ".join(capsys.readouterr().err.split())


def test_an_unknown_path_is_told_near_names(small, capsys):
    assert cli.main(["course", "progress", "--path", "tow"]) == 2
    said = capsys.readouterr().err
    assert "there is two, everything. Did you mean 'two'?" in said


def test_labs_without_paths_have_one_path_with_all_of_them(small):
    (small / "paths.toml").unlink()
    assert Course(small).names == [EVERYTHING]
    assert numbers(Course(small).path(EVERYTHING)) == ["00", "01", "02"]


def test_progress_says_what_is_next_and_how_long_the_rest_is(small, tmp_path, capsys):
    mine = tmp_path / "work"
    copies.copy_labs(small, mine)

    def ask(*more):
        assert cli.main(["course", "progress", "--json", "--work", str(mine), *more]) == 0
        return json.loads(capsys.readouterr().out)

    first = ask()
    assert [lab["name"] for lab in first["labs"]] == ["00_a", "01_b", "02_c"]
    assert (first["path"], first["minutes"], first["minutes_left"]) == (EVERYTHING, 180, 180)
    assert first["next"] == "00_a"
    keys = "name solved exercises points of statuses extra minutes minutes_left"
    assert set(first["labs"][0]) == set(keys.split())
    solve(mine / "00_a.ipynb", "00-1")
    assert ask()["minutes_left"] == 150 and ask()["next"] == "00_a"
    two = ask("--path", "two")
    assert (two["next"], two["minutes_left"], two["done"]) == ("02_c", 60, 1)
    assert [lab["statuses"] for lab in two["labs"]][0] == {"00-1": "correct"}
    solve(mine / "02_c.ipynb", "02-1", "incorrect")
    solve(mine / "02_c.ipynb", "02-2", "partial")
    assert ask("--path", "two")["minutes_left"] == 30
    solve(mine / "02_c.ipynb", "02-1")
    assert ask("--path", "two")["next"] is None
    assert cli.main(["course", "progress", "--work", str(mine), "--path", "two"]) == 0
    assert "Two: 2 of 2 labs are done; about 0.0 h of" in " ".join(capsys.readouterr().out.split())


def test_an_extra_exercise_holds_nobody_up(small, tmp_path):
    book = nbformat.read(small / "00_a.ipynb", as_version=4)
    book.cells[4].metadata["vklab"]["extra"] = True
    nbformat.write(book, small / "00_a.ipynb")
    copies.copy_labs(small, tmp_path)
    solve(tmp_path / "00_a.ipynb", "00-1")
    first, *_ = work.progress(Course(small).path(EVERYTHING), tmp_path)
    assert first.extra == ["00-2"] and first.statuses["00-2"] == "not_attempted"
    assert first.is_done and first.minutes_left == 0 and (first.solved, first.exercises) == (1, 2)
    # What is left out of the path is extra: only its heading counts.
    assert 55 <= Course(small).path("two").stops[0].minutes <= 60


@pytest.mark.parametrize("made", [False, True])
def test_progress_without_copies_says_how_to_make_them(small, tmp_path, capsys, made):
    if made:
        (tmp_path / "work").mkdir()
    assert cli.main(["course", "progress", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["next"] == "00_a"
    assert "has no copies of these labs yet; `vklab lab` makes them" in said.err


def test_the_start_page_is_written_anew_and_shows_what_is_solved(small, tmp_path):
    mine = tmp_path / "work"
    copies.copy_labs(small, mine)
    assert start.write_start(Course(small), mine / PAGE)
    before = (mine / PAGE).read_text("utf-8")
    solve(mine / "00_a.ipynb", "00-1")
    assert start.write_start(Course(small), mine / PAGE)
    after = (mine / PAGE).read_text("utf-8")
    assert "1 of 1" in after and "1 of 1" not in before
    assert "next is [02 · Lab 02](02_c.ipynb)" in after
    assert start.write_start(Course(small), mine / PAGE)  # JupyterLab's own changes are no edits
    book = nbformat.read(mine / PAGE, as_version=4)
    book.metadata["language_info"] = {"name": "python"}
    nbformat.write(book, mine / PAGE)
    assert start.write_start(Course(small), mine / PAGE)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cells": 3}', "my notes", None])
def test_a_page_that_a_student_has_written_is_never_lost(small, tmp_path, capsys, text):
    mine = tmp_path / "work"
    copies.copy_labs(small, mine)
    if text is None:  # a page of ours, with a note
        start.write_start(Course(small), mine / PAGE)
        book = nbformat.read(mine / PAGE, as_version=4)
        book.cells.append(new_markdown_cell("my note"))
        nbformat.write(book, mine / PAGE)
    else:
        (mine / PAGE).write_text(text)
    kept = (mine / PAGE).read_bytes()
    assert start_page(small, mine) == PAGE
    assert "start.ipynb is yours and stays" in capsys.readouterr().out
    assert (mine / PAGE).read_bytes() == kept


def test_labs_that_cannot_be_read_cost_the_start_page_only(small, tmp_path, capsys):
    (small / "01_b.ipynb").write_text("{}")
    mine = tmp_path / "work"
    copies.copy_labs(small, mine)
    assert start_page(small, mine) == ""
    said = " ".join(capsys.readouterr().err.split())
    assert "there is no start page" in said and "01_b.ipynb cannot be read as a notebook" in said
    with pytest.raises(PathError, match="get the folder of the labs again"):
        Course(small).path(EVERYTHING)


def test_a_folder_without_labs_has_an_empty_start_page(tmp_path):
    (tmp_path / "labs").mkdir()
    (tmp_path / "work").mkdir()
    assert start.write_start(Course(tmp_path / "labs"), tmp_path / "work" / PAGE)


def test_jupyterlab_opens_the_start_page_if_there_is_one():
    assert "--LabApp.default_url=/lab/tree/start.ipynb" in jupyter.command(Path(), 1, True, PAGE)
    assert "--LabApp.default_url=/lab" in jupyter.command(Path(), 1, True, "")


def test_pages_and_inserts_are_copied_beside_the_labs(small, tmp_path):
    copies.copy_labs(small, tmp_path / "work")
    (small / "inserts" / "page.md").write_text("new")
    copies.copy_labs(small, tmp_path / "work")
    assert (tmp_path / "work" / "inserts" / "page.md").read_text() == "new"


def test_the_map_says_in_words_what_it_draws(small):
    drawn = course_map.draw_map(Course(small).labs, [Course(small).path("two")])
    assert drawn.alt == "Which lab needs which: 01 needs 00; 02 needs 01."
    assert course_map.draw_map({}, []).alt
