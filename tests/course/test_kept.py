"""Kept answers: which text is kept, what is said when none is, and what `use` gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from support.course import notebooks
from support.runs import waits
from vklab.apps import cli
from vklab_course import seam
from vklab_course.check import check, judged_text
from vklab_course.definition.exercise import find
from vklab_course.places import PROJECT
from vklab_course.student import copies, keeping, kept
from vklab_course.student.kept import KeptError
from vklab_course.use import use

SOLUTIONS = PROJECT / "labs" / "solutions"
CELL, OWN = "l09-e3", "l09-own"


@pytest.fixture
def texts():
    return keeping.saved(SOLUTIONS / "09_onnx_graphs.ipynb")


@pytest.fixture
def exercise():
    return find("09-3")


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    (folder / copies.HIDDEN).mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_the_text_of_a_solution_is_all_that_it_needs(exercise, texts):
    answer = keeping.answer_of(exercise, texts)
    lines = answer.text.splitlines()
    assert [line for line in lines if "import" in line] == ["from collections import Counter"]
    assert answer.name == "order_nodes" and 'FIRST = "' in answer.text
    assert callable(answer.value()) and "### BEGIN" not in answer.text.split("def")[0]
    assert judged_text(answer.id, answer.name, answer.text) == ""


WRITTEN = {
    "as it is": ("", "{}"),
    "an import in the cell": ("", "import itertools\n{}"),
    "decorated": ("from functools import cache", "{}\n\norder_nodes = cache(order_nodes)"),
    "a helper in the own cell": ("def fails(): return 0", "{}\n\ndef unused(): return fails()"),
    "prints and another check": ("", "print(1)\n{}\nprint(order_nodes([], []))"),
    "timed": ("", "%%time\n{}"),
    "with a line of magic": ("", "%load_ext autoreload\n{}"),
}  # fmt: skip


@pytest.mark.parametrize("how", WRITTEN)
def test_however_it_is_written_it_is_kept(how, exercise, texts):
    own, cell = WRITTEN[how]
    pytest.importorskip("IPython")
    texts |= {OWN: own, CELL: cell.format(texts[CELL])}
    answer = keeping.answer_of(exercise, texts)
    assert answer.value()((), ()) == ("order", [])
    assert "print" not in answer.text and "unused" not in answer.text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"x1": "def fails(): return 0"}, "`fails`, which stands in a cell that is not collected: "
                                          "move it to the cell `l09-own`"),
        ({}, "it uses `fails`, which no cell defines"),
    ],
)  # fmt: skip
def test_a_name_of_another_cell_is_named(more, said, exercise, texts):
    wrong = texts[CELL].replace("makers = Counter", "fails()\n    makers = Counter")
    with pytest.raises(KeptError, match=said):
        keeping.answer_of(exercise, {**texts, **more, CELL: wrong})


def test_a_cell_that_has_not_run_or_is_no_python_is_named(exercise, texts):
    with pytest.raises(KeptError, match="the cell l09-e3 has not run, or has lost its id"):
        keeping.answer_of(exercise, {OWN: ""})
    with pytest.raises(KeptError, match="the cell l09-e3 is no Python"):
        keeping.answer_of(exercise, {**texts, CELL: "def order_nodes(:"})


# ------------------------------------------------------------------------------------- the store


def test_a_kept_answer_comes_back(work, exercise, texts):
    answer = keeping.answer_of(exercise, texts)
    kept.write(work, answer)
    assert kept.stored(work) == ["09-3"]
    assert kept.read(work, exercise) == (answer, True)
    assert kept.current(work, exercise, judge=None).value()([], []) == ("order", [])


WRONG, NO_LINE = "not correct now", "does not begin with the line that vklab writes"
DAMAGE = {
    "edited into a wrong one": (lambda text: text.replace("return", "return None and"), WRONG),
    "a syntax error": (lambda text: text + "def", WRONG + ": SyntaxError"),
    "a name of the course": (lambda text: text + "\ncheck = None\norder_nodes = None", WRONG),
    "without its first line": (lambda text: text.partition("\n")[2], NO_LINE),
    "a first line that is no object": (lambda text: "# vklab: [1]\n", NO_LINE),
    "empty": (lambda text: "", "is empty"),
    "too long": (lambda text: text + "#" * kept.MOST_BYTES, "or has more than"),
}  # fmt: skip


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_named_and_not_used(how, work, exercise, texts):
    damage, said = DAMAGE[how]
    kept.write(work, keeping.answer_of(exercise, texts))
    path = kept.path_of(work, "09-3")
    path.write_text(damage(path.read_text()))
    with pytest.raises(KeptError, match=said):
        kept.current(work, exercise, judged_text)


def test_one_that_was_improved_by_hand_is_judged_and_kept_again(work, exercise, texts):
    kept.write(work, keeping.answer_of(exercise, texts))
    path = kept.path_of(work, "09-3")
    path.write_text(path.read_text() + "\n# a comment\n")
    assert not kept.read(work, exercise)[1]
    kept.current(work, exercise, judged_text)
    assert kept.read(work, exercise)[1]


def test_one_of_another_variant_is_judged_again(work, exercise, texts):
    kept.write(work, keeping.answer_of(exercise, texts))
    other = type(exercise)(1)
    seen = []
    with pytest.raises(KeptError, match="not correct now: why"):
        kept.current(work, other, lambda *asked: seen.append(asked) or "why")
    assert seen[0][:2] == ("09-3", "order_nodes")


# --------------------------------------------------------------------------------------------- use


def test_use_gives_the_kept_answer_or_the_runtimes_own(work, exercise, texts, capsys):
    own = use("09-3")
    said = "09-3: the runtime's own in place of order_nodes (no answer is kept)\n"
    assert capsys.readouterr().out == said
    assert not check("09-3", own).points and seam.REFUSAL in str(check("09-3", own))
    kept.write(work, keeping.answer_of(exercise, texts))
    mine = use("09-3")
    assert capsys.readouterr().out == "09-3: your order_nodes\n"
    nodes = [("b", "Relu", ("q",), ("r",)), ("a", "Relu", ("x",), ("q",))]
    assert mine(nodes, ["x"]) == own(nodes, ["x"]) == ("order", ["a", "b"])


def test_outside_of_work_use_gives_the_runtimes_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    use("09-3")
    assert "the runtime's own" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("identifier", "error", "said"),
    [
        ("09-9", LookupError, "there is no exercise '09-9'"),
        ("9-3", LookupError, "Did you mean '09-3'"),
        ("01-1", LookupError, "builds no piece of the runtime"),
    ],
)
def test_use_of_what_cannot_be_used(identifier, error, said):
    with pytest.raises(error, match=said):
        use(identifier)


def test_use_is_refused_in_the_exercises_own_lab(monkeypatch):
    monkeypatch.setattr(keeping, "running_lab", lambda: "09")
    with pytest.raises(RuntimeError, match="09-3 is an exercise of this lab: call order_nodes"):
        use("09-3")


SESSION = """
    import json, sys, time
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    cells = json.load(open(sys.argv[1]))
    first = True
    for cell_id, text in cells:
        shell.run_cell(text, cell_id=cell_id).raise_error()
    from vklab_course.student import keeping
    keeping.wait("09-3")
"""


def test_a_correct_answer_of_a_notebook_in_work_is_kept(work, texts):
    """The cells run in IPython, as in a notebook; elsewhere the same cells keep nothing."""
    names = ("l09-setup", OWN, CELL, "l09-e3c")
    setup = "from collections import Counter\nfrom vklab_course import check"
    cells = [(name, {**texts, names[0]: setup}[name]) for name in names]
    (work / "cells.json").write_text(json.dumps(cells))
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(notebooks.PATHS)}
    for folder in (work.parent, work):
        command = [sys.executable, "-c", textwrap.dedent(SESSION), str(work / "cells.json")]
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=waits.LIMIT_S,
        )
        assert done.returncode == 0, done.stderr
        assert kept.stored(work) == (["09-3"] if folder == work else []), done.stdout
    assert "is judged from its text" in done.stdout
    assert "is kept in work/mine/09-3.py" in done.stdout


# ---------------------------------------------------------------------------------- the command


def test_the_commands_list_show_compare_and_remove(work, exercise, texts, capsys):
    where = ["--work", str(work)]
    labs = PROJECT / "labs"
    copies.copy_labs(labs, work)

    def course(*words):
        code = cli.main(["course", "mine", *where, *words])
        return code, capsys.readouterr().out

    assert "no answer is kept yet" in course()[1]
    answer = keeping.answer_of(exercise, texts)
    kept.write(work, answer)
    listed = json.loads(course("--json")[1])["kept"]
    assert [(row["exercise"], row["state"]) for row in listed] == [("09-3", "as it was judged")]
    assert course("show", "09-3") == (0, answer.text)
    code, text = course("diff", "09-3")
    assert code == 1 and "raise NotImplementedError" in text
    (work / answer.lab).write_bytes((SOLUTIONS / answer.lab).read_bytes())
    assert course("diff", "09-3") == (0, "the kept answer is the one in the notebook\n")
    assert course("remove", "09-3")[0] == 0 and kept.stored(work) == []
    assert cli.main(["course", "mine", *where, "show", "09-3"]) == 2
