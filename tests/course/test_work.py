"""The student's copies: made once, never overwritten, updated by cell id without a loss."""

from __future__ import annotations

import json

import hypothesis
import hypothesis.strategies as st
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from vklab.apps import cli
from vklab_course.definition.verdict import MIME
from vklab_course.student import copies, merge, paths, work


def cell(identifier, source, role="demo"):
    make = new_markdown_cell if role == "text" else new_code_cell
    about = {"role": role, **({"id": "01-1", "points": 4} if role == "exercise" else {})}
    return make(source, id=identifier, metadata={"vklab": about})


def notebook(*cells):
    made = new_notebook(metadata={"vklab": {"lab": "01"}})
    made.cells = list(cells)  # new_notebook would give cells with a taken id another one
    return made


OLD = (cell("title", "# One", "text"), cell("setup", "import a"),
       cell("task", "def f(): ...", "exercise"), cell("check", "check(f)", "check"))  # fmt: skip


def merged(mine, lab, base=OLD):
    return [
        (c.id, c.source)
        for c in merge.merge(notebook(*base), notebook(*mine), notebook(*lab)).cells
    ]


def changed(cells, **texts):
    return [cell(c.id, texts.get(c.id, c.source), c.metadata["vklab"]["role"]) for c in cells]


def test_an_untouched_copy_becomes_the_new_lab():
    lab = [*changed(OLD, setup="import b"), cell("more", "print(1)")]
    assert merged(OLD, lab) == [(c.id, c.source) for c in lab]


def test_an_answer_stays_and_the_rest_follows():
    mine = changed(OLD, task="def f(): return 1")
    lab = changed(OLD, setup="import b", title="# Uno")
    assert merged(mine, lab) == [
        ("title", "# Uno"),
        ("setup", "import b"),
        ("task", "def f(): return 1"),
        ("check", "check(f)"),
    ]


def test_an_answer_stays_with_the_new_text_behind_it():
    mine, lab = changed(OLD, task="def f(): return 1"), changed(OLD, task="def f(x): ...")
    cells = dict(merged(mine, lab))
    assert cells["task"] == "def f(): return 1"
    assert "def f(x): ..." in cells["task-new"] and "Your answer above is kept" in cells["task-new"]


def test_other_edited_cells_follow_with_the_students_text_behind():
    mine, lab = (
        changed(OLD, setup="import mine", title="# Mine"),
        changed(OLD, setup="import b", title="# New"),
    )
    cells = dict(merged(mine, lab))
    assert cells["setup"] == "import b" and "import mine" in cells["setup-mine"]
    assert cells["title"] == "# New" and "# Mine" in cells["title-mine"]


def test_edits_stay_where_the_lab_has_not_changed():
    mine = changed(OLD, setup="import mine")
    assert dict(merged(mine, [*OLD, cell("end", "")]))["setup"] == "import mine"


def test_extra_cells_keep_their_places():
    mine = [
        cell("x0", "first"),
        OLD[0],
        OLD[1],
        cell("x1", "mine"),
        cell("x2", "mine too"),
        OLD[2],
        OLD[3],
        cell("x3", "last"),
    ]
    lab = [*OLD[:2], cell("new", "new"), *OLD[2:]]
    assert [name for name, _ in merged(mine, lab)] == [
        "x0",
        "title",
        "setup",
        "x1",
        "x2",
        "new",
        "task",
        "check",
        "x3",
    ]


def test_what_the_lab_takes_back_goes_unless_it_was_edited():
    lab = [OLD[0], OLD[2], OLD[3]]
    assert "setup" not in dict(merged(OLD, lab))
    assert dict(merged(changed(OLD, setup="import mine"), lab))["setup"] == "import mine"


def test_what_the_student_took_out_stays_out_but_exercises_come_back():
    assert [name for name, _ in merged([OLD[0]], OLD)] == ["title", "task", "check"]


def test_outputs_stay_where_the_code_stays():
    mine = changed(OLD, task="def f(): return 1")
    mine[1].outputs = [new_output("stream", text="1")]
    mine[2].outputs = [new_output("stream", text="2")]
    done = merge.merge(notebook(*OLD), notebook(*mine), notebook(*changed(OLD, setup="import b")))
    outputs = {c.id: c.outputs for c in done.cells if c.cell_type == "code"}
    assert not outputs["setup"] and outputs["task"][0].text == "2"


def test_ids_that_were_copied_are_made_unique():
    mine = [*OLD, cell("task", "def f(): return 'a copy'", "exercise")]
    cells = merged(mine, changed(OLD, setup="import b"))
    assert ("task-2", "def f(): return 'a copy'") in cells


names = st.sampled_from(["title", "setup", "task", "check", "new1", "x1", "x2"])
books = st.lists(st.tuples(names, st.sampled_from(["", "a", "b", "c\nd"])), max_size=7)


@hypothesis.given(books, books, books)
def test_no_text_of_the_student_is_ever_lost(base, mine, lab):
    def make(entries, unique=True):
        role = {"title": "text", "task": "exercise", "check": "check"}
        entries = dict(entries).items() if unique else entries
        return [cell(name, text, role.get(name, "demo")) for name, text in entries]

    old = {c.id: c.source for c in make(base)}
    done = merge.merge(notebook(*make(base)), notebook(*make(mine, False)), notebook(*make(lab)))
    everything = "\n".join(c.source for c in done.cells)
    for c in make(mine, False):
        assert c.source == old.get(c.id) or c.source in everything
    ids = [c.id for c in done.cells]
    assert len(set(ids)) == len(ids)
    nbformat.validate(done)


# ------------------------------------------------------------------------------------ on disk


@pytest.fixture
def folders(tmp_path):
    labs, mine = tmp_path / "labs", tmp_path / "work"
    labs.mkdir()
    nbformat.write(notebook(*OLD), labs / "01_a.ipynb")
    return labs, mine


def edit(path, **texts):
    book = nbformat.read(path, as_version=4)
    for one in book.cells:
        one.source = texts.get(one.id, one.source)
    nbformat.write(book, path)


def test_labs_are_copied_once_and_never_overwritten(folders):
    labs, mine = folders
    assert copies.copy_labs(labs, mine) == ["01_a.ipynb"]
    (mine / "01_a.ipynb").write_text("the student's")
    (labs / "02_b.ipynb").write_text("fresh")
    assert copies.copy_labs(labs, mine) == ["02_b.ipynb"]
    assert (mine / "01_a.ipynb").read_text() == "the student's"


def test_an_update_keeps_work_and_a_copy_of_before(folders):
    labs, mine = folders
    path = mine / "01_a.ipynb"
    assert [u.status for u in work.update(labs, mine)] == ["new"]
    edit(path, task="def f(): return 1")
    before = path.read_bytes()
    assert [u.status for u in work.update(labs, mine)] == ["unchanged"]
    assert path.read_bytes() == before
    edit(labs / "01_a.ipynb", setup="import b")
    (done,) = work.update(labs, mine)
    assert done.status == "updated"
    assert (mine / done.detail.removeprefix("backup: ")).read_bytes() == before
    sources = {c.id: c.source for c in nbformat.read(path, as_version=4).cells}
    assert sources["task"] == "def f(): return 1" and sources["setup"] == "import b"
    assert [u.status for u in work.update(labs, mine)] == ["unchanged"]


@pytest.mark.parametrize("text", ["", "not JSON", '{"cells": 3}', '{"nbformat": 4}'])
def test_a_copy_that_cannot_be_read_is_not_touched(folders, text):
    labs, mine = folders
    copies.copy_labs(labs, mine)
    edit(labs / "01_a.ipynb", setup="import b")
    (mine / "01_a.ipynb").write_text(text)
    (done,) = work.update(labs, mine)
    assert done.status == "not touched" and done.detail
    assert (mine / "01_a.ipynb").read_text() == text


def test_a_copy_without_ids_is_not_touched(folders):
    labs, mine = folders
    copies.copy_labs(labs, mine)
    edit(labs / "01_a.ipynb", setup="import b")
    book = json.loads((mine / "01_a.ipynb").read_text())
    for one in book["cells"]:
        del one["id"]
    (mine / "01_a.ipynb").write_text(json.dumps({**book, "nbformat_minor": 4}))
    (done,) = work.update(labs, mine)
    assert done.status == "not touched" and "lost their ids" in done.detail


def test_a_lost_base_costs_nothing_but_notes(folders):
    labs, mine = folders
    copies.copy_labs(labs, mine)
    edit(mine / "01_a.ipynb", setup="import mine")
    (mine / copies.HIDDEN / "01_a.ipynb").unlink()
    edit(labs / "01_a.ipynb", setup="import b")
    work.update(labs, mine)
    text = (mine / "01_a.ipynb").read_text()
    assert "import b" in text and "import mine" in text


def test_progress_reads_saved_verdicts(folders, monkeypatch, capsys):
    labs, mine = folders
    copies.copy_labs(labs, mine)
    monkeypatch.setenv("VKLAB_LABS", str(labs))
    shown = {"id": "01-1", "status": "correct", "points": 4, "of": 4}
    for verdict, solved, points in (
        (None, 0, 0),
        (shown, 1, 4),
        ({**shown, "points": 99}, 1, 4),
        ({**shown, "id": "09-9"}, 0, 0),
        ("text", 0, 0),
    ):
        book = nbformat.read(mine / "01_a.ipynb", as_version=4)
        book.cells[3].outputs = [new_output("display_data", {MIME: verdict})] if verdict else []
        nbformat.write(book, mine / "01_a.ipynb")
        (found,) = work.progress(paths.Course(labs).path(paths.EVERYTHING), mine)
        assert (found.solved, found.exercises, found.points, found.of) == (solved, 1, points, 4)
    assert cli.main(["course", "progress", "--work", str(mine), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labs"][0]["statuses"] == {"01-1": "not_attempted"}
    assert cli.main(["course", "progress", "--work", str(mine)]) == 0
    assert "○ 01-1" in capsys.readouterr().out


def test_pages_that_notebooks_link_to_are_copied_every_time(tmp_path):
    labs, mine = tmp_path / "labs", tmp_path / "work"
    labs.mkdir()
    (labs / "GLOSSARY.md").write_text("old")
    assert copies.copy_labs(labs, mine) == []
    (labs / "GLOSSARY.md").write_text("new")
    copies.copy_labs(labs, mine)
    assert (mine / "GLOSSARY.md").read_text() == "new"
    assert not (mine / "SLANG.md").exists()


@pytest.mark.parametrize("command", ["update", "progress"])
def test_a_folder_that_is_misspelt_is_refused_and_not_made(folders, monkeypatch, capsys, command):
    labs, mine = folders
    monkeypatch.setenv("VKLAB_LABS", str(labs))
    work.update(labs, mine)
    wrong = mine.with_name("wrok")
    assert cli.main(["course", command, "--work", str(wrong)]) == 2
    said = capsys.readouterr().err
    assert f"there is no folder {wrong}. Did you mean '{mine.name}'?" in said and not wrong.exists()
    assert cli.main(["course", command, "--work", str(labs / "x.ipynb")]) == 2
    before = sorted(mine.parent.rglob("*"))
    assert cli.main(["course", command, "--work", str(mine.parent)]) == 2
    said = capsys.readouterr().err
    assert f"nothing in the folder {mine.parent} is a copy of a lab" in said and str(mine) in said
    assert sorted(mine.parent.rglob("*")) == before


def test_an_empty_folder_that_was_named_is_filled(folders, monkeypatch, tmp_path):
    labs, _ = folders
    monkeypatch.setenv("VKLAB_LABS", str(labs))
    (tmp_path / "mine").mkdir()
    assert cli.main(["course", "progress", "--work", str(tmp_path / "mine")]) == 2
    assert cli.main(["course", "update", "--work", str(tmp_path / "mine")]) == 0
    assert list((tmp_path / "mine").glob("*.ipynb"))


def test_the_command_update_names_what_changed_only(folders, monkeypatch, capsys):
    labs, mine = folders
    monkeypatch.setenv("VKLAB_LABS", str(labs))
    mine.mkdir(exist_ok=True)
    assert cli.main(["course", "update", "--work", str(mine)]) == 0
    first = capsys.readouterr().out
    count = len(list(labs.glob("*.ipynb")))
    assert first.count(": new") == count and f"0 of {count} copies were up to date" in first
    assert cli.main(["course", "update", "--work", str(mine)]) == 0
    assert capsys.readouterr().out.split("\n") == [f"{count} of {count} copies were up to date", ""]
