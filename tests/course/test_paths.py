"""Paths through the course: closed under what labs need, summed, drawn, and shown."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from support.course import paths_page
from vklab.apps import cli
from vklab_course.author.lab import all_labs, read_lab
from vklab_course.cli import jupyter
from vklab_course.cli.lab import start_page
from vklab_course.definition.verdict import MIME
from vklab_course.places import PROJECT
from vklab_course.student import copies, start
from vklab_course.student.paths import EVERYTHING, Course, PathError, hours
from vklab_labs.shared import course_map

LABS = PROJECT / "labs"
INSERT_WORDS = 150, 400
PAGE = "start.ipynb"
COURSE = Course(LABS)
PATHS = {path.name: path for path in COURSE.whole()}
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


# ------------------------------------------------------------------------- the project's own paths


def test_every_path_is_whole_and_closed_under_what_its_labs_need():
    assert list(PATHS) == COURSE.names and {"weekend", "ml", "gpu", EVERYTHING} <= set(PATHS)
    assert [gap for path in PATHS.values() for gap in path.gaps()] == []
    assert sorted(numbers(PATHS[EVERYTHING])) == sorted(read_lab(p).number for p in all_labs(LABS))
    assert not any(stop.inserts for stop in PATHS[EVERYTHING].stops)


@pytest.mark.parametrize(("insert", "gap"), [
    ("seven_steps", "the path 'gpu': lab 06 needs lab 04c"),
    ("banks", "the path 'weekend': lab 08 needs lab 07b"),
    ("rooflines", "the path 'gpu': lab 08 needs lab 01b"),
    ("submission", "the path 'ml': lab 09b needs lab 04"),
])  # fmt: skip
def test_a_path_without_its_insert_is_open(insert, gap, tmp_path):
    text = re.sub(rf"\[insert\.{insert}\]\n(?:.+\n)+", "", (LABS / "paths.toml").read_text("utf-8"))
    (tmp_path / "paths.toml").write_text(text)
    for path in LABS.glob("*.ipynb"):
        shutil.copy(path, tmp_path)
    found = [gap for path in Course(tmp_path).whole() for gap in path.gaps()]
    assert any(gap in sentence for sentence in found), found


def test_01_and_01b_come_after_04():
    order = numbers(PATHS[EVERYTHING])
    assert order.index("04") < min(order.index("01"), order.index("01b"))
    assert all("04" in COURSE.labs[number].before for number in ("01", "01b"))


def test_the_recap_of_each_lab_leads_to_the_next_lab_of_every_path():
    for path in PATHS.values():
        for stop, after in pairwise(path.stops):
            text = "\n".join(c.text for c in stop.lab.cells if c.kind == "markdown")
            (line,) = re.findall(r"^\*\*Next:?\*\*.*", text, re.M)
            assert re.search(rf"\b[Ll]ab {after.lab.number}\b", line), (path.name, line)


def test_the_notebooks_say_what_the_sources_say():
    for path in all_labs(LABS):
        lab = read_lab(path)
        built = COURSE.labs[lab.number]
        said = [(each.title, each.minutes, each.before, each.know) for each in (lab, built)]
        assert said[0] == said[1], lab.name


def test_pages_and_pictures_are_up_to_date():
    for file, text in paths_page.files().items():
        assert file.read_text("utf-8") == text, "python tests/support/course/paths_page.py"


def test_minutes_of_the_table_are_those_of_the_labs_and_add_up():
    text = (LABS / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d\d\w?) \| \[\w+\]\((\w+)\.ipynb\).* \| (\d+) \|", text, re.M)
    assert rows == [(n, lab.name, str(lab.minutes)) for n, lab in COURSE.labs.items()]
    total = hours(sum(int(minutes) for *_, minutes in rows))
    assert re.search(rf"`{EVERYTHING}`.*\| {total} \|$", text, re.M)
    assert f"Everything, {total}" in (LABS / "INSTRUCTORS.md").read_text("utf-8")


def test_no_hours_of_labs_are_written_by_hand():
    text = (LABS / "INSTRUCTORS.md").read_text("utf-8")
    by_hand = text.partition("## Courses of")[2].replace(paths_page.syllabus_block(COURSE), "")
    assert not re.search(r"\d+(\.\d)? (h|hours of labs)\b", by_hand)


def test_each_lab_has_three_questions_to_discuss():
    text = (LABS / "INSTRUCTORS.md").read_text("utf-8").partition("## Questions to discuss")[2]
    asked = dict(re.findall(r"^\* \*\*(\w+)\*\* · (.*)", text, re.M))
    assert list(asked) == numbers(PATHS[EVERYTHING])
    assert all(questions.count("?") == 3 for questions in asked.values()), asked


@pytest.mark.parametrize("page", sorted((LABS / "inserts").glob("*.md")), ids=lambda p: p.stem)
def test_an_insert_is_short_has_a_picture_and_says_where_it_belongs(page):
    text = page.read_text("utf-8")
    pictures = re.findall(r"!\[(.+?)\]\((.+?)\)", text)
    assert pictures and all(alt and (page.parent / name).is_file() for alt, name in pictures)
    words = len(re.findall(r"[\w']+", re.sub(r"!\[.*?\]\(.*?\)", "", text)))
    assert INSERT_WORDS[0] <= words <= INSERT_WORDS[1]
    (insert,) = (one for one in COURSE.inserts if one.page == f"inserts/{page.name}")
    assert text.startswith(f"# {insert.title}\n")
    assert all(re.search(rf"\b{number}\b", text) for number in insert.instead_of)
    for number in insert.for_labs:  # whoever opens the lab finds the page there
        assert any(insert.page in cell.text for cell in COURSE.labs[number].cells)


def test_every_file_of_an_insert_is_used():
    used = {LABS / insert.page for insert in COURSE.inserts}
    for page in list(used):
        used |= {page.parent / n for n in re.findall(r"\]\((.+?\.svg)\)", page.read_text("utf-8"))}
    assert used == set((LABS / "inserts").iterdir())


# ------------------------------------------------------------------------------------- small labs


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
    keys = "name solved exercises points of statuses minutes minutes_left"
    assert set(first["labs"][0]) == set(keys.split())
    solve(mine / "00_a.ipynb", "00-1")
    assert ask()["minutes_left"] == 150 and ask()["next"] == "00_a"
    two = ask("--path", "two")
    assert (two["next"], two["minutes_left"]) == ("02_c", 60)
    assert [lab["statuses"] for lab in two["labs"]][0] == {"00-1": "correct"}
    solve(mine / "02_c.ipynb", "02-1", "incorrect")
    solve(mine / "02_c.ipynb", "02-2", "partial")
    assert ask("--path", "two")["minutes_left"] == 30
    solve(mine / "02_c.ipynb", "02-1")
    assert ask("--path", "two")["next"] is None
    assert cli.main(["course", "progress", "--work", str(mine), "--path", "two"]) == 0
    assert "Two: 2 of 2 labs are done; about 0.0 h of" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("made", [False, True])
def test_progress_without_copies_says_how_to_make_them(small, tmp_path, capsys, made):
    if made:
        (tmp_path / "work").mkdir()
    assert cli.main(["course", "progress", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["next"] == "00_a"
    assert "has no copies of these labs yet; `vklab lab` makes them" in said.err


# --------------------------------------------------------------------------------- the start page


def links(page):
    text = "\n".join(cell.source for cell in nbformat.read(page, as_version=4).cells)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def test_the_start_page_leads_to_every_copy_and_page(tmp_path):
    copies.copy_labs(LABS, tmp_path)
    assert start.write_start(COURSE, tmp_path / PAGE)
    page = tmp_path / PAGE
    there = links(page)
    assert all((tmp_path / link).is_file() for link in there)
    assert {f"{lab.name}.ipynb" for lab in COURSE.labs.values()} <= set(there)
    assert {insert.page for insert in COURSE.inserts} <= set(there)
    text = page.read_text("utf-8")
    assert all(hours(path.minutes) in text for path in PATHS.values())
    assert '<img src=\\"data:image/svg+xml,' in text and "<svg" not in text
    nbformat.validate(nbformat.read(page, as_version=4))


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


def test_the_map_gives_each_lab_a_cell_and_leaves_out_what_a_longer_way_says(small):
    labs = COURSE.labs
    needs = {number: course_map.direct(number, labs) for number in labs}
    cells, ways = course_map.placed(needs)
    assert len(set(cells.values())) == len(cells) >= len(labs)
    assert needs["08"] == ["01b", "07b"] and needs["10"] == ["05", "09b"]
    assert all(cells[a][0] + 1 == cells[b][0] for way in ways for a, b in pairwise(way))
    drawn = course_map.draw_map(Course(small).labs, [Course(small).path("two")])
    assert drawn.alt == "Which lab needs which: 01 needs 00; 02 needs 01."
    assert course_map.draw_map({}, []).alt
