"""Kept answers inside the runtime: good ones run, and every faulty one is named and replaced."""

from __future__ import annotations

import json
import re

import pytest

from vklab.apps import cli
from vklab_course.check import judged_text
from vklab_course.definition.exercise import find
from vklab_course.places import PROJECT
from vklab_course.student import copies, keeping, kept, showcase, trying

SOLUTIONS = PROJECT / "labs" / "solutions"
BUILDERS = {exercise.id: exercise for exercise in trying.builders()}
QUICK = ("11-2", "06-2")  # the others run in the slow tier

FAULTS = {
    "returns nothing": "def {name}(*arguments, **named): return None",
    "raises": "def {name}(*arguments, **named): raise KeyError('x')",
    "never ends": "def {name}(*arguments, **named):\n    while True: pass",
}
# A kernel's text, so that it stores other numbers.
STORE = re.compile(r"(\by\[[^;=]*\] = )")
MAIN = re.compile(r"(void main\([^)]*\)\s*\{)")


def solution(identifier):
    exercise = BUILDERS[identifier]
    path = SOLUTIONS / kept.lab_path(identifier).name
    return keeping.answer_of(exercise, keeping.saved(path))


def rewritten(identifier, text):
    return kept.made(BUILDERS[identifier], solution(identifier).name, text)


def target_of(identifier):
    """Return a target that calls what the exercise builds."""
    piece = trying.piece_of(BUILDERS[identifier])
    listed = {target.name: target for target in showcase.targets()}
    if piece.devices > 1:
        found = next((each for each in listed.values() if each.devices > 1), None)
        return found or pytest.skip("no second device and no second driver on this machine")
    return listed["four operators" if piece.seam.endswith("OPERATORS") else "digits"]


def each(*identifiers):
    return [
        pytest.param(key, marks=() if key in QUICK else pytest.mark.slow) for key in identifiers
    ]


def is_kernel(identifier):
    return BUILDERS[identifier].takes == "kernel"


@pytest.mark.parametrize("identifier", each(*BUILDERS))
def test_a_solution_is_called_and_changes_no_output(identifier):
    target = target_of(identifier)
    ran, own = trying.run(target, [solution(identifier)]), trying.run(target)
    assert not ran.reason and ran.calls[identifier] > 0
    assert showcase.Shown(target, own, ran, own).same


@pytest.mark.parametrize("identifier", each(*(key for key in BUILDERS if not is_kernel(key))))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_function_is_named(identifier, fault):
    name = solution(identifier).name
    text = FAULTS[fault].format(name=name)
    ran = trying.run(target_of(identifier), [rewritten(identifier, text)])
    said = {"raises": f"{name} raised KeyError: 'x'", "never ends": f"{name} not finished within"}
    assert ran.reason and said.get(fault, "") in ran.reason, ran.reason
    assert ran.outputs is None and ran.calls[identifier] == 1


@pytest.mark.slow
@pytest.mark.parametrize("identifier", [key for key in BUILDERS if is_kernel(key)])
def test_a_faulty_kernel_is_named(identifier):
    """One that stores other numbers changes the outputs; one that never ends runs into a limit.

    Not a sum of one to each element: a softmax further on takes it away. lavapipe ends the loops of
    an invocation after 65,535 turns together; the outputs are wrong then.
    """
    good, target = solution(identifier), target_of(identifier)
    own = trying.run(target)
    wrong = trying.run(target, [rewritten(identifier, STORE.sub(r"\g<1>2 * ", good.text))])
    assert not showcase.Shown(target, own, wrong, own).same
    loop = MAIN.sub(r"\g<1> y[0] = 0; while (y[0] < 1.0) y[0] *= 0.5;", good.text)
    ran = trying.run(target, [rewritten(identifier, loop)])
    assert "did not end" in ran.reason or showcase.Shown(target, own, ran, own).same is False


@pytest.fixture
def work(tmp_path):
    copies.copy_labs(PROJECT / "labs", tmp_path / "work")
    return tmp_path / "work"


def shown(work, capsys, *words):
    code = cli.main(["course", "showcase", "--work", str(work), "--json", *words])
    out = capsys.readouterr().out
    return code, json.loads(out) if code == 0 else {}


@pytest.mark.slow
def test_the_page_names_what_is_mine_and_what_was_replaced(work, capsys):
    """Of five functions two are planted wrong."""
    for identifier in ("09-3", "06-2", "10-1", "11-2", "00-4"):
        kept.write(work, solution(identifier))
    loop = rewritten("11-2", FAULTS["never ends"].format(name="lowest_offset"))
    product = solution("10-1").text.replace("np.all(", "np.mean(")
    for wrong in (loop, rewritten("10-1", product)):
        kept.write(work, wrong)
    code, found = shown(work, capsys)
    functions = {each["id"]: each for each in found["functions"]}
    assert code == 0 and set(functions) == set(BUILDERS)
    assert functions["09-3"]["mine"] and functions["06-2"]["mine"]
    assert "not finished within" in functions["11-2"]["said"] and not functions["11-2"]["mine"]
    assert functions["00-4"]["said"] == "11-2 builds the same piece"
    assert functions["02-3"]["said"] == "no answer is kept"
    rows = {row[0]: row[1:] for row in found["models"]["Inception v1, planned"]}
    naive, mine, own = map(int, rows["barriers"])
    assert naive > mine == own
    page = (work / "showcase.html").read_text("utf-8")
    assert "<script" not in page and "The arena, naive" in page


@pytest.mark.slow
def test_a_model_of_the_student_is_shown(work, capsys):
    kept.write(work, solution("09-3"))
    model = str(PROJECT / "data" / "mini_classifier.onnx")
    code, found = shown(work, capsys, model)
    assert code == 0 and list(found["models"]) == ["mini_classifier.onnx"]
    assert [each["id"] for each in found["functions"] if each["mine"]] == ["09-3"]


def test_a_model_that_is_not_there_or_no_model_is_named(work, capsys):
    assert cli.main(["course", "showcase", "--work", str(work), str(work / "no.onnx")]) == 2
    assert "there is no file" in capsys.readouterr().err
    (work / "bad.onnx").write_bytes(b"no model")
    code, found = shown(work, capsys, str(work / "bad.onnx"))
    assert found == {} or not found["models"]


def test_a_text_that_changed_is_judged_before_it_is_tried(work):
    kept.write(work, solution("11-2"))
    path = kept.path_of(work, "11-2")
    path.write_text(path.read_text().replace("offset = 0", "offset = 1"))
    found, said = showcase._answers(work, judged_text, [find("11-2")])
    assert found == [] and "is not correct now: 11-2 lowest_offset" in said["11-2"]
