"""Paths through the course: closed under what labs need, summed, drawn, and shown."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise

import nbformat
import pytest

from support.course import paths_page
from vklab_course.author.lab import all_labs, read_lab
from vklab_course.places import PROJECT
from vklab_course.student import copies, start
from vklab_course.student.paths import EVERYTHING, Course, hours
from vklab_labs.shared import course_map

LABS = PROJECT / "labs"
INSERT_WORDS = 150, 400
PAGE = "start.ipynb"
COURSE = Course(LABS)
PATHS = {path.name: path for path in COURSE.whole()}


def numbers(path):
    return [stop.lab.number for stop in path.stops]


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


def test_the_map_gives_each_lab_a_cell_and_leaves_out_what_a_longer_way_says():
    labs = COURSE.labs
    needs = {number: course_map.direct(number, labs) for number in labs}
    cells, ways = course_map.placed(needs)
    assert len(set(cells.values())) == len(cells) >= len(labs)
    assert needs["08"] == ["01b", "07b"] and needs["10"] == ["05", "09b"]
    assert all(cells[a][0] + 1 == cells[b][0] for way in ways for a, b in pairwise(way))
