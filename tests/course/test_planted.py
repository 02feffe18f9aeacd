"""Each gate closes on a lab with one planted fault: the fixture lab, with one text replaced."""

from __future__ import annotations

import dataclasses
import shutil

import nbformat
import pytest

from vklab_course.author import build, gates, trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import LabError, read_lab
from vklab_course.author.layout import layout_problems, minutes_estimate

pytestmark = pytest.mark.full
SOURCE = "source/90_fixture.py"
CHECKS, ANSWERS = "checks/lab_90.py", "answers/lab_90.py"


@pytest.fixture
def planted(fixture_lab, tmp_path, monkeypatch):
    """Return a function that replaces a text in a copy of the lab and reads it again."""

    def plant(name, before, after, rebuild=False):
        root = tmp_path / "labs"
        shutil.copytree(fixture_lab.root, root)
        monkeypatch.setenv("VKLAB_LABS", str(root))
        text = (root / name).read_text()
        assert before in text
        (root / name).write_text(text.replace(before, after))
        lab = read_lab(root / SOURCE)
        if rebuild:
            build.write_student(lab)
        return dataclasses.replace(fixture_lab, lab=lab, root=root)

    return plant


@pytest.mark.parametrize(("name", "before", "after", "words"), [
    (SOURCE, '"role": "check", "id": "90-1"', '"role": "chek", "id": "90-1"', "role 'chek'"),
    (SOURCE, '"role": "check", "id": "90-1"', '"role": "demo"', "90-1: write one exercise cell"),
    (SOURCE, '"points": 4', '"points": 5', "90-1: 5 points in the source, 4 in the check"),
    (SOURCE, '"lines": 3', '"colour": 3', "metadata colour is not known"),
    (SOURCE, 'id="l90-show"', 'id="l90-show" tags=["fast"]', "tag 'fast' is not allowed"),
    (SOURCE, 'check("90-1", round_up)', 'check("90-2", round_up)', "does not call check('90-1'"),
    (SOURCE, "# # A lab for the tests", "# A lab for the tests", "does not start with a title"),
    (SOURCE, "# ## A value", "# ![](a.png)", "an image without alt text: ![](a.png)"),
    (SOURCE, "# ## A value", "# <img src='a.png'>", "an image without alt text: <img"),
    (SOURCE, "print([", "print((", "the solved code does not parse"),
    (SOURCE, "print([", "print([" + "0, " * 40 + "*[", "columns: "),
    (SOURCE, '"90-3", "points"', '"90-4", "points"', "90-4: not in checks/lab_90.py"),
    (SOURCE, "banner()", "banner( )", "is not what its source gives (cells l90-banner)"),
    (SOURCE, "print([", "raise NotImplementedError([", "is not what its source gives"),
    (CHECKS, '"Use //."', "'raise ValueError(f\"multiple={multiple} is not positive\")'",
     "a hint of 90-1 contains the line"),
    (SOURCE, "# Every element of `y`", "# return (count + multiple - 1) // multiple * multiple\n#",
     "cell l90-2t contains the line 'return"),
    (CHECKS, '"everything else grows", 2', '"everything else grows", 3',
     "90-1: 4 points in the source, 5 in the check"),
    (SOURCE, "minutes: 30", "minutes: 90", "90 minutes are stated; words, code and exercises make"),
    (SOURCE, "# 30 minutes.", "# An hour.", "does not say '30 minutes'"),
    (SOURCE, "minutes: 30", 'minutes: 30, before: ["89"]', "it needs lab 89 before it"),
    (SOURCE, "minutes: 30", 'minutes: 30, before: ["89"]', "the first cell does not name lab 89"),
    (SOURCE, "minutes: 30", 'minutes: 30, know: ["sets"]', "the first cell does not say 'sets'"),
    (SOURCE, "minutes: 30", 'minutes: 30, know: ["lab"]', "has another header than its source"),
    (SOURCE, "# ## A value", "# [next](91_nothing.ipynb)", "links to 91_nothing.ipynb, which"),
    (SOURCE, 'id="l90-show"', 'id="show"', "ids of this lab start with l90-"),
    (SOURCE, "# ## A value", "# #### A value", "follows a heading of level 2"),
    (SOURCE, "# ## A value", "# ## 3 · A value", "section 3 is the 1. one"),
    (SOURCE, "# ## A value", "# ### Exercise 90-3: a value", "write '### Exercise 1 · ...', not"),
    (SOURCE, "# ## A value", "# ### Exercise 1 · A value (extra)", "'extra)' ends the headings of"),
    (SOURCE, "# ## A value", "# ## A value\n# " + 2200 * "word ", " words, at most 2,200: say"),
    (SOURCE, ' vklab={"role": "own"}', "", "0 cells have the role 'own'"),
    (SOURCE, '# hint("90-1")', 'hint("90-1")', "comment the hint out"),
    (SOURCE, "# ## A value", "# **Predict:** how many?", "write a cell with predict(...)"),
    (SOURCE, 'id="l90-2t"', 'id="l90-2t" vklab={"says": ["4 of 4", " -> "]}',
     "cell l90-2t names ' -> ', which is not in the output"),
    (SOURCE, 'id="l90-banner"', 'id="l90-banner" vklab={"says": ["a"]}', "names of the output"),
])  # fmt: skip
def test_a_planted_fault_is_found(planted, name, before, after, words):
    case = planted(name, before, after, rebuild=words.startswith("cell"))
    problems = gates.static_problems(case.lab)
    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize(("before", "after", "words"), [
    ('id="l90-show"', 'title="no id"', "has no id"),
    ('id="l90-show"', 'id="l90-banner"', "two cells have the id 'l90-banner'"),
    ("    ### END SOLUTION\n\n\n# %% id=\"l90-1d\"", "# %% id=\"l90-1d\"", "### END SOLUTION"),
    ("    ### BEGIN SOLUTION\n    if multiple", "    ### END SOLUTION\n    if", "does not pair"),
    ("minutes: 30", "hours: 5", "names no title and minutes"),
    ("minutes: 30", "minutes: 30, before: [4]", "before is a list of texts in quotes"),
    ("minutes: 30", "minutes: 30, know: sets", "know is a list of texts in quotes"),
])  # fmt: skip
def test_a_source_that_cannot_be_read_says_where(planted, before, after, words):
    with pytest.raises(LabError, match=words):
        gates.static_problems(planted(SOURCE, before, after).lab)


@pytest.mark.parametrize(("name", "before", "after", "words"), [
    (SOURCE, "multiple - 1) //", "multiple) //", "the solution is incorrect, not correct"),
    (ANSWERS, "math.ceil(count", "math.floor(count", "second solution 'by_ceil' is incorrect"),
    (ANSWERS, "return count // multiple * multiple",
     "if multiple < 1: raise ValueError\n    return -(-count // multiple) * multiple",
     "wrong answer 'rounds_down' is correct"),
    (ANSWERS, "raised ZeroDivisionError", "raised TypeError", "does not say"),
    (ANSWERS, 'wrong("90-3"', 'wrong("90-1"', "90-3: no wrong answer"),
    (ANSWERS, '@alternative("90-1")', "", "90-1: no second, independent solution"),
])  # fmt: skip
def test_an_answer_that_is_not_as_listed_is_found(planted, name, before, after, words):
    case = planted(name, before, after)
    problems = trials.answer_problems(case.lab, answers_of(case.lab), ("function", "value"))
    assert any(words in problem for problem in problems), problems


def test_what_a_text_names_of_its_output_is_no_fault(planted):
    case = planted(SOURCE, 'id="l90-2t"', 'id="l90-2t" vklab={"says": ["4 of 4 points"]}')
    assert not any("names" in problem for problem in gates.static_problems(case.lab))


def test_an_extra_exercise_is_not_in_the_minutes(planted, fixture_lab):
    whole = minutes_estimate(fixture_lab.lab)
    case = planted(CHECKS, "    seconds=2,", "    seconds=2, extra=True,")
    cells = build.student_notebook(case.lab).cells
    assert {c.metadata.vklab.get("id") for c in cells if c.metadata.vklab.get("extra")} == {"90-1"}
    assert whole - minutes_estimate(case.lab) == pytest.approx(9 + 3 * 0.5)
    path = case.root / SOURCE
    path.write_text(path.read_text().replace('id="l90-1t"', 'id="l90-1t" vklab={"id": "90-1"}'))
    saved = whole - minutes_estimate(read_lab(path))
    assert saved == pytest.approx(9 + 3 * 0.5 + 14 / 110)  # a text of 14 words
    text = path.read_text().replace("# ## Rounding up", "# ### Exercise 1 · Rounding up (extra)")
    path.write_text(text)
    assert not [said for said in layout_problems(read_lab(path)) if "headings of extra" in said]
    path.write_text(text.replace(" (extra)", ""))
    assert [said for said in layout_problems(read_lab(path)) if "headings of extra" in said]


def test_an_optional_text_is_neither_in_the_words_nor_in_the_minutes(planted, fixture_lab):
    whole = minutes_estimate(fixture_lab.lab)
    marked = 'id="l90-1t" vklab={"extra": true}'
    case = planted(SOURCE, 'id="l90-1t"', marked)
    assert whole - minutes_estimate(case.lab) == pytest.approx(14 / 110)
    assert not [said for said in gates.source_problems(case.lab) if "not known" in said]
    path = case.root / SOURCE
    path.write_text(path.read_text().replace("# ## Rounding up", "# ## Up\n# " + 2200 * "word "))
    assert not [said for said in layout_problems(read_lab(path)) if "words, at most" in said]


def test_an_answer_may_use_what_cells_before_compute(planted, fixture_lab):
    case = planted(SOURCE, "banner()", "banner()\nSTEPS = [max(ONE, 0)]\nprint(1 / 0)")
    path = case.root / SOURCE
    path.write_text(
        path.read_text()
        .replace("show(vklab", "ONE = len('1')\n1 / 0\nshow(vklab", 1)
        .replace("multiple - 1) //", "multiple - STEPS[0]) //")
    )
    text = path.read_text()
    first, second = text.index("STEPS = "), text.index("ONE = ")
    assert first < second
    with pytest.raises(LabError, match="'ONE' is not defined"):
        trials.answer_of(read_lab(path), "90-1")
    path.write_text(
        text.replace("ONE = len('1')\n", "").replace("banner()\n", "ONE = len('1')\nbanner()\n", 1)
    )
    assert trials.answer_of(read_lab(path), "90-1")(257, 64) == 320


def test_a_lab_without_answers_says_so(planted, tmp_path):
    case = planted(SOURCE, "A value", "A value")
    (case.root / ANSWERS).unlink()
    with pytest.raises(LabError, match="answers/lab_90.py"):
        answers_of(case.lab)


def test_a_weak_check_lets_mutants_live(planted):
    case = planted(CHECKS, "(65, 64), (257, 256), (7, 3), (5, 1)", "(64, 64)")
    mended = [
        p
        for _, ps in trials.reject_mutants(case.lab, answers_of(case.lab), ("function",))
        for p in ps
    ]
    assert any("a mutant is accepted" in problem for problem in mended), mended
    listed = "equivalent('90-1', 'if multiple < 1:', 'if multiple <= 0:', because='whole numbers')"
    path = case.root / ANSWERS
    path.write_text(
        path.read_text().replace("alternative, wrong", "alternative, equivalent, wrong") + listed
    )
    problems = [
        p
        for _, ps in trials.reject_mutants(case.lab, answers_of(case.lab), ("function",))
        for p in ps
    ]
    assert any("is listed, and rejected or no mutant" in problem for problem in problems)


def test_outputs_that_are_not_fit_to_keep_are_found(fixture_lab, tmp_path):
    notebook = nbformat.read(fixture_lab.solution, as_version=4)
    cell = next(cell for cell in notebook.cells if cell.id == "l90-1d")
    output = nbformat.v4.new_output
    for bad, words in (
        (output("error", ename="ValueError", evalue="no", traceback=[]), "raises ValueError: no"),
        (output("display_data", {"image/png": "AA=="}), "give the figure to picture"),
        (output("display_data", {"text/html": "<img src='a'>"}), "without alt text"),
        (output("stream", name="stdout", text="<A object at 0x7f0000000000>"), "address"),
        (output("display_data", {gates.verdict.NOTE: {}, "text/plain": "not yet"}), "a note"),
    ):
        cell.outputs = [bad]
        nbformat.write(notebook, tmp_path / "a.ipynb")
        problems = gates.output_problems(fixture_lab.lab, tmp_path / "a.ipynb")
        assert any(words in problem for problem in problems), (words, problems)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "l90-3c"]
    nbformat.write(notebook, tmp_path / "a.ipynb")
    problems = gates.output_problems(fixture_lab.lab, tmp_path / "a.ipynb")
    assert any("90-3 of the solution is not shown" in problem for problem in problems)


def test_a_student_notebook_with_outputs_is_found(fixture_lab, tmp_path):
    assert not gates.format_problems(fixture_lab.lab, fixture_lab.student)
    problems = gates.format_problems(fixture_lab.lab, fixture_lab.solution)
    assert any("has outputs" in problem for problem in problems)


def test_solving_outside_of_the_regions_is_found(fixture_lab, tmp_path):
    notebook = nbformat.read(fixture_lab.solution, as_version=4)
    notebook.cells[1].source += "\nimport math"
    nbformat.write(notebook, tmp_path / "a.ipynb")
    found = gates.skeleton_problems(fixture_lab.lab, fixture_lab.student, tmp_path / "a.ipynb")
    assert found and "outside of the marked regions" in found[0]
