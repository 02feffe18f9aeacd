"""Releases: what a class gets, and what must not be in it."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

import vklab_course
from support.course import class_of_students as students
from vklab.apps import cli
from vklab_course.author import leaks, regions, strip
from vklab_course.author.lab import LabError, all_labs, find_lab, read_lab
from vklab_course.author.layout import LINK
from vklab_course.check import check
from vklab_course.definition.exercise import exercises_of, find
from vklab_course.grade.assignment.manifest import open_release
from vklab_course.grade.assignment.release import choose_variants, release, texts_of
from vklab_course.grade.results.schema import GradeError
from vklab_course.places import PROJECT, adopt_release, labs_folder
from vklab_course.student.paths import Course

pytestmark = pytest.mark.full


@pytest.fixture
def labs(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(students.LABS))
    return students.LABS


def files(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def test_a_release_has_notebooks_definitions_and_frozen_cases_only(labs, tmp_path):
    made = students.make_release(tmp_path / "out")
    names = {name for name in files(tmp_path / "out") if not name.startswith("data/")}
    assert names == {
        "README.md",
        "manifest.json",
        "labs/91_class.ipynb",
        "labs/variants.json",
        "labs/checks/lab_91.py",
        "labs/checks/frozen/91-1.bin",
        "labs/checks/frozen/91-2.bin",
    }
    text = (made.labs_folder / "checks" / "lab_91.py").read_text()
    for secret in ("expected(self", "cases(self", "math", "ceil", "draw_sizes", "SIZES", "#"):
        assert secret not in text.replace("case.expected", ""), secret
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "\n```\nvklab course submit 91\n```\n" in readme
    # What compare needs is still there.
    assert "def whole" in text and "report.equal(got, case.expected)" in text


def test_the_released_check_gives_the_same_feedback(labs, tmp_path, monkeypatch):
    made = students.make_release(tmp_path / "out", "class 0")
    assert made.manifest.variants["91-1"] != 0
    names: dict = {}
    exec(students.right(made), names)
    good, bad = names["padded"], lambda count, multiple=32: count
    before = [str(check("91-2", 15)), str(check("91-2", 16))]
    monkeypatch.setenv("VKLAB_LABS", str(made.labs_folder))
    assert check("91-1", good).status == "correct", str(check("91-1", good))
    assert check("91-1", bad).status == "incorrect"
    assert [str(check("91-2", 15)), str(check("91-2", 16))] == before
    with pytest.raises(NotImplementedError):
        exercises_of("91")["91-1"].expected(None)


def test_a_notebook_in_a_release_is_checked_in_its_variant(labs, tmp_path, monkeypatch):
    made = students.make_release(tmp_path / "out", "class 0")
    names: dict = {}
    exec(students.right(made), names)
    (tmp_path / "out" / "work").mkdir()
    monkeypatch.delenv("VKLAB_LABS")
    monkeypatch.setattr("IPython.get_ipython", InteractiveShell)  # a notebook's kernel
    for folder in (made.labs_folder, tmp_path / "out" / "work", tmp_path / "out"):
        monkeypatch.chdir(folder)
        monkeypatch.delenv("VKLAB_LABS", raising=False)
        importlib.reload(vklab_course)
        assert labs_folder() == made.labs_folder
        assert check("91-1", names["padded"]).status == "correct"
    monkeypatch.setenv("VKLAB_LABS", str(students.LABS))  # the switch comes first
    adopt_release()
    assert check("91-1", names["padded"]).status == "incorrect"
    monkeypatch.delenv("VKLAB_LABS")
    monkeypatch.chdir(PROJECT / "labs")
    adopt_release()
    assert labs_folder() == PROJECT / "labs"


def test_checks_among_submissions_are_never_executed(tmp_path, monkeypatch):
    (tmp_path / "checks").mkdir()
    (tmp_path / "variants.json").write_text("{}")
    planted = "from pathlib import Path\nPath('planted').touch()\n"
    (tmp_path / "checks" / "lab_00.py").write_text(planted)
    monkeypatch.delenv("VKLAB_LABS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert labs_folder() == PROJECT / "labs"
    assert cli.main(["course", "release", "out", "00"]) == 0
    assert find("00-1").cases
    assert not (tmp_path / "planted").exists()


def test_a_notebook_outside_of_a_release_is_told_that_its_variant_is_unknown(tmp_path, monkeypatch):
    def wrong(words):
        return 0

    said = "no variants.json was found"
    monkeypatch.delenv("VKLAB_LABS", raising=False)
    monkeypatch.chdir(PROJECT / "labs")
    assert said not in str(check("07b-2", wrong))
    monkeypatch.chdir(tmp_path)
    assert check("07b-2", wrong).status == "incorrect" and said in str(check("07b-2", wrong))


def test_one_class_has_one_variant_and_another_class_another(labs, tmp_path):
    lab = find_lab("91")
    drawn = {choose_variants([lab], f"class {n}")["91-1"] for n in range(20)}
    assert drawn == {0, 1, 2} and choose_variants([lab], "")["91-1"] == 0
    one = students.make_release(tmp_path / "one", "class 0")
    again = students.make_release(tmp_path / "again", "class 0")
    assert files(one.folder) == files(again.folder)
    usual = students.USUAL[one.manifest.variants["91-1"]]
    cells = {cell.id: cell.source for cell in one.notebook(one.manifest.labs[0]).cells}
    assert f"multiple={usual}" in cells["l91-1"] and "NotImplementedError" in cells["l91-1"]


def test_the_manifest_notices_a_changed_and_a_lost_file(labs, tmp_path):
    made = students.make_release(tmp_path / "out")
    path = made.labs_folder / "checks" / "lab_91.py"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(GradeError, match="was changed after"):
        open_release(made.folder)
    path.unlink()
    with pytest.raises(GradeError, match="lacks labs/checks/lab_91.py"):
        open_release(made.folder)
    with pytest.raises(GradeError, match="is no release"):
        open_release(tmp_path)


def test_a_release_is_never_mixed_with_an_older_one(labs, tmp_path):
    students.make_release(tmp_path / "out")
    with pytest.raises(GradeError, match="is not empty"):
        students.make_release(tmp_path / "out")


@pytest.mark.parametrize("where", ["hint", "text", "comment in code"])
def test_a_part_of_a_solution_stops_the_release(labs, tmp_path, monkeypatch, where):
    root = tmp_path / "labs"
    students.shutil.copytree(students.LABS, root)
    if where == "hint":
        path = root / "checks" / "lab_91.py"
        said = '"Return blocks*m+63*(SCALE-2) / 1."'
        path.write_text(path.read_text().replace('"Round up."', said))
    else:
        path = root / "source" / "91_class.py"
        mark, said = {
            "text": ("# It has no kernel", "# `b * k + 63 * (factor - 2)`\n# It has no kernel"),
            "comment in code": ("SCALE = 2", "SCALE = 2  # x*y  +  63*(z -2)"),
        }[where]
        path.write_text(path.read_text().replace(mark, said))
    monkeypatch.setenv("VKLAB_LABS", str(root))
    with pytest.raises(GradeError, match=r"blocks \* multiple \+ 63"):
        students.make_release(tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize(("text", "leaks_it"), [
    ("n = (count + 63) // 64", True),
    ("use (k+63)//64 here", True),
    ("(k + 63) // 65", False),
    ("(k + k) // 64", False),
    ("63 + count // 64", False),
    ("a sentence on 63 and 64, with counts", False),
])  # fmt: skip
def test_an_expression_is_found_with_other_names_and_spacing(text, leaks_it):
    assert leaks.weight(leaks.tokens("(count + 63) // 64")) >= leaks.WEIGHT
    assert leaks.Secret("91-1", "(count + 63) // 64").is_in(leaks.Words(text)) is leaks_it


def test_light_expressions_and_given_ones_are_no_leaks(labs):
    lab = find_lab("91")
    secrets = [secret.expression for secret in leaks._secrets(lab)]
    assert secrets == ["blocks * multiple + 63 * (SCALE - 2)"], secrets
    assert leaks.problems(lab, [("x", secrets[0])], allowed=["b * m + 63 * (s - 2)"]) == []


def test_stripping_refuses_a_comparison_that_asks_the_oracle():
    text = (
        '@exercise("91-1", hints=("a",))\nclass A(Function):\n    def expected(self, case):\n'
        "        return 1\n    def compare(self, case, got, report):\n"
        "        report.equal(got, self.expected(case))\n"
    )
    with pytest.raises(LabError, match="self.expected, which a release does not have"):
        strip.stripped(text, {})


def test_an_exercise_that_a_release_would_lose_is_refused():
    with pytest.raises(LabError, match="an exercise is made by a call"):
        strip.stripped('exercise("91-p1", hints=("a",))(type("P", (Predict,), {}))\n', {})


def test_the_release_of_all_labs_has_their_checks_and_no_line_of_a_solution(tmp_path):
    labs = [read_lab(path) for path in all_labs(PROJECT / "labs")]
    release(labs, tmp_path / "out", "s")
    for here, there in zip(
        Course(PROJECT / "labs").whole(), Course(tmp_path / "out/labs").whole(), strict=True
    ):
        assert (there.name, there.minutes, there.gaps()) == (here.name, here.minutes, [])
    assert (tmp_path / "out/labs/inserts/banks.svg").is_file()
    lines = {line.strip() for _, text in texts_of(tmp_path / "out") for line in text.splitlines()}
    for lab in labs:
        secret = {
            line
            for line in regions.solution_lines(lab)
            if len(line) > 25 and len(re.findall(r"\w+", line)) > 1
        }
        assert secret and not secret & lines, lab.name
        text = (tmp_path / f"out/labs/checks/lab_{lab.number}.py").read_text("utf-8")
        kept = {strip.is_exercise(node) for node in ast.parse(text).body}
        used = set(
            re.findall(
                r"""\b(?:check|predict|hint)\(["']([\w-]+)""",
                "\n".join(cell.text for cell in lab.cells),
            )
        )
        assert used and used <= kept, (lab.name, used - kept)


def test_no_link_of_a_release_leads_to_a_lab_that_is_not_in_it(tmp_path):
    labs = [find_lab(number, PROJECT / "labs") for number in ("09", "09b")]
    release(labs, tmp_path / "out", "s")
    lost = []
    for path in (tmp_path / "out/labs").glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        lost += [t for t in LINK.findall(text) if not (path.parent / t.partition("#")[0]).exists()]
        assert "**Next**: [lab 09b](09b_plans.ipynb)" in text or "**Next**: lab 10 rewr" in text
    assert lost == []
    assert [path.name for path in Course(tmp_path / "out/labs").whole()] == ["everything"]


def test_variants_are_written_as_data_and_those_of_other_classes_are_blanked():
    text = (
        'TRUTH = {"a": 1, "b": 2}\n'
        '@exercise("91-1", hints=("a",), variants=tuple({"n": n} for n in TRUTH))\n'
        "class A(Function):\n    parts = {}\n"
    )
    kept = strip.stripped(text, {"91-1": [{}, {"n": "b"}]})
    (node,) = (n for n in ast.parse(kept).body if isinstance(n, ast.ClassDef))
    assert ast.unparse(node.decorator_list[0].keywords[1].value) == "({}, {'n': 'b'})"
    assert "TRUTH" not in kept


def test_a_name_that_only_an_annotation_or_a_kept_helper_uses_stays():
    text = (
        "import json\nimport os\n\ndef used() -> 'Kind':\n    return os.sep\n\n"
        'class Kind: ...\n\n@exercise("91-1", hints=("a",))\nclass A(Function):\n'
        "    extra = used\n"
        "    def cases(self, random):\n        return json.loads('[]')\n"
    )
    kept = strip.stripped(text, {})
    assert "def used" in kept and "class Kind" in kept and "import os" in kept
    assert "json" not in kept


def test_the_fixture_lab_with_a_kernel_is_released(tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(students.LABS.parent / "labs"))
    release([find_lab("90")], tmp_path / "out", "s")
    opened = open_release(tmp_path / "out")
    assert [e.kind for e in opened.manifest.labs[0].exercises] == ["function", "kernel", "value"]


def test_the_command_prints_what_it_made(labs, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "vklab",
            "course",
            "release",
            str(tmp_path / "out"),
            "91",
            "--variant-seed",
            "x",
            "--json",
        ],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "VKLAB_LABS": str(labs)},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["release"] == open_release(tmp_path / "out").manifest.id
    notebook = nbformat.read(tmp_path / "out" / "labs" / "91_class.ipynb", as_version=4)
    assert notebook.metadata["vklab"]["version"] == said["labs"][0]["version"]
