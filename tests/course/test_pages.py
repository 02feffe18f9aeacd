"""Feedback and report: what they hold, when they are given, and no HTML of a student."""

from __future__ import annotations

import datetime
import re
import zipfile
from html.parser import HTMLParser

import pytest

from support.course import class_of_students as students
from vklab_course.grade.results.feedback import feedback_page, write_feedback
from vklab_course.grade.results.report import report_page
from vklab_course.grade.results.schema import ExerciseResult, GradeError, PartResult

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("class_labs")]


class Tags(HTMLParser):
    """Collect the tags and attributes of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def tags_of(text):
    parser = Tags()
    parser.feed(text)
    return parser


EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">{{7*7}}\u202e</pre>'


def test_no_html_of_a_student_is_in_any_page(release, tmp_path):
    folder = tmp_path / "in"
    answer = (
        f"def padded(count, multiple=256):\n    print({EVIL!r})\n    raise ValueError({EVIL!r})"
    )
    students.hand_in(folder / "<b>ada</b>.ipynb", students.notebook(release, {"l91-1": answer}))
    students.hand_in(
        folder / "<i>bob.ipynb",
        {"cells": [], "metadata": {"kernelspec": {"language": "R", "display_name": EVIL}}},
    )
    batch, records = students.run(release, folder, tmp_path / "out")
    lab = release.manifest.labs[0]
    write_feedback(batch.results, release, lab)
    pages = [p.read_text("utf-8") for p in batch.results.folder.rglob("*.html")]
    pages.append(report_page(batch.results, release))
    assert len(pages) == 3 and any("alert(1)" in text for text in pages)
    for text in pages:
        seen = tags_of(text)
        assert not seen.tags & {"script", "img", "b", "i", "iframe", "a", "link", "form"}
        assert (
            not {name for name in seen.attributes if name.startswith("on")}
            | {"src", "href"} & seen.attributes
        )
        assert "{{7*7}}" in text or "49" not in text
        assert "\u202e" not in text


def test_pages_hold_what_happened_and_no_colour_alone(graded):
    batch, records, _ = graded
    text = report_page(batch.results, batch.release)
    assert "91-1 padded" in text and "Common messages" in text and "1 not gradable" in text
    assert text.count('<svg role="img" aria-label=') == 4
    assert re.search(
        r"passed: \d+, partly passed: \d+, not passed: \d+, no answer: \d+, "
        r"to be marked: \d+",
        text,
    )
    assert "prefers-color-scheme: dark" in text and "http" not in text.replace("http-equiv", "")


def test_a_part_of_a_score_is_partly_passed(graded):
    batch, records, _ = graded
    record = next(iter(records.values()))
    result = ExerciseResult(
        status="partial",
        points=2.5,
        of=4,
        parts=(PartResult(name="cost", points=4, passed=False, earned=2.5),),
    )
    lab = batch.release.manifest.labs[0]
    changed = record.model_copy(update={"exercises": {"91-1": result}, "broken": ""})
    page = feedback_page(changed, lab)
    assert '<section class="card partial">' in page and "✘" not in page
    assert re.search(
        r"◐</span>\s*<span class=\"quiet\">partly passed:</span> cost .*\(2.5 of 4\)", page
    ), page


def test_feedback_is_held_back_and_named_as_the_lms_wants(release, tmp_path):
    for lms, name in (
        ("canvas", "doejane_4711_99_04_first_dispatch.ipynb"),
        ("plain", "bob.ipynb"),
        ("moodle", "Jane_12_assignsubmission_file_/a.ipynb"),
    ):
        students.hand_in(tmp_path / lms / name, students.notebook(release))
        batch, _ = students.run(release, tmp_path / lms, tmp_path / "out")
    lab, day = release.manifest.labs[0], datetime.date(2030, 5, 1)
    with pytest.raises(GradeError, match="held back until 2030-05-01"):
        write_feedback(batch.results, release, lab, day, datetime.date(2030, 4, 30))
    with pytest.raises(GradeError, match="held back until 2030-05-01"):
        write_feedback(batch.results, release, lab, None, datetime.date(2030, 4, 30))
    assert not list(batch.results.folder.rglob("*.html"))
    paths = write_feedback(batch.results, release, lab, None, day)
    names = {p.name: zipfile.ZipFile(p).namelist() for p in paths}
    assert names["91_class-canvas.zip"] == ["doejane_4711_99_04_first_dispatch.html"]
    assert names["91_class-moodle.zip"] == ["Jane_12_assignsubmission_file_/feedback.html"]
    assert len(names["91_class-plain.zip"]) == 1
