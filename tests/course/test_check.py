"""check, hint, show and swap, with answers as students and vandals give them."""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter

import numpy as np
import pytest

from support.course.student_functions import hangs, hangs_and_catches, right
from support.runs.waits import LIMIT_S
from vklab.errors import ShaderError
from vklab.plan import memory
from vklab_course import check, hint, show, swap
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise, exercises_of
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.definition.report import Differs, Report
from vklab_course.definition.verdict import MIME, STATUSES, Part, Verdict
from vklab_course.limits import OutOfTime, limited

pytestmark = pytest.mark.usefixtures("fixture_lab")


def prints_without_end(count, multiple=256):
    while True:
        print("x" * 1000)


def calls_itself(count, multiple=256):
    return calls_itself(count, multiple)


def leaves(count, multiple=256):
    sys.exit(0)


def scale(count, multiple=256):
    return 0


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no")

    def __eq__(self, other):
        raise RuntimeError("not even equal")


class LooksRight(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


def answers(value):
    return lambda count, multiple=256: value


@pytest.mark.parametrize(("answer", "status", "words"), [
    (right, "correct", "4 of 4 points"),
    (functools.partial(right, multiple=64), "incorrect", "raised TypeError"),
    (hangs, "incorrect",
     "round_up(0, 64)\n      your function did not end in time (not finished within 2 s)"),
    (hangs_and_catches, "incorrect", "your function did not end"),
    (prints_without_end, "incorrect", "more than 100000 characters were printed"),
    (calls_itself, "incorrect", "RecursionError"),
    (leaves, "incorrect", "raised SystemExit: 0"),
    (answers(None), "incorrect", "expected 0, got None (is a return missing?)"),
    (answers(float("nan")), "incorrect", "expected 0, got nan"),
    (answers("x" * 10**6), "incorrect", "expected 0, got 'xxx"),
    (answers(np.zeros(3)), "incorrect", "expected 0, got float64[3] [0, 0, 0]"),
    (answers(False), "incorrect", "expected 0, got False"),
    (answers(Unprintable()), "incorrect", "got <Unprintable instance>"),
    (answers(object()), "incorrect", "expected 0, got <object object>"),
    (lambda: 3, "incorrect", "raised TypeError"),
    (scale, "incorrect", "this is scale, the answer to 90-2; 90-1 asks for round_up"),
    (None, "incorrect", "got nothing"),
    (7, "incorrect", "check('90-1', round_up); got 7"),
    (..., "not_attempted", "replace the dots"),
    (memory.round_up, "incorrect", "the runtime's own function is asked to answer"),
    (functools.partial(memory.round_up), "incorrect", "the runtime's own function is asked"),
    (lambda c, m=256: memory.round_up(c, m), "incorrect", "the runtime's own function is asked"),
])  # fmt: skip
def test_a_verdict_whatever_the_answer_does(answer, status, words):
    verdict = check("90-1", answer)
    assert (verdict.status, words in str(verdict)) == (status, True), str(verdict)
    assert verdict.points == (4 if status == "correct" else verdict.points) <= verdict.of
    assert memory.round_up(257) == 512, "the runtime's function works again"
    assert len(str(verdict)) < 4000


def test_a_stub_is_not_attempted_and_any_other_not_implemented_is_wrong():
    def stub(count, multiple=256):
        raise NotImplementedError("Lab 90, exercise 1: replace this line by your own")

    def unfinished(count, multiple=256):
        raise NotImplementedError("later")

    assert check("90-1", stub).status == "not_attempted"
    verdict = check("90-1", unfinished)
    assert verdict.status == "incorrect" and "raised NotImplementedError: later" in str(verdict)


def test_an_answer_cannot_spoil_the_cases():
    def empties(count, multiple=256):
        seen.append(count)
        return right(count, multiple)

    seen = []
    assert check("90-1", empties).status == "correct"
    assert check("90-1", empties).status == "correct" and len(seen) % 2 == 0


def test_a_replaced_function_of_the_runtime_is_named(monkeypatch):
    def mine(count, multiple=256):
        return 0

    mine.__module__ = "__main__"  # as a notebook's functions are
    monkeypatch.setattr(memory, "round_up", mine)
    verdict = check("90-1", right)
    assert "has replaced vklab.plan.memory.round_up" in str(verdict)
    assert verdict.status == "incorrect"


def test_an_unknown_exercise_names_those_there_are():
    assert "there is 90-1, 90-2, 90-3" in str(check("90-7", right))
    assert "no lab '89'" in str(check("89-1", right)) and "no lab 'x'" in str(check("x", right))
    assert "no lab" in str(hint("89-1"))


@pytest.mark.parametrize(
    "typo", ["90-01", "90_1", "90.1", " 90-1", "90 1", "Lab 90, exercise 1", "090-1"]
)
def test_a_typo_is_offered_the_id_that_it_means(typo):
    for said in (str(check(typo, right)), str(hint(typo))):
        assert said.rstrip().endswith("Did you mean '90-1'?"), said
    assert "Did you mean" not in str(check("90-7", right)) + str(hint("x-1")) + str(hint("²-³"))


def test_the_check_works_without_signals():
    results = []
    worker = threading.Thread(target=lambda: results.append(check("90-1", hangs)))
    worker.start()
    worker.join(LIMIT_S)
    assert "did not end" in str(results[0])


def test_limits_are_taken_away_again():
    with pytest.raises(OutOfTime), limited(0.1):
        hangs(1)
    with limited(5) as printed:
        print("kept")
    assert printed.text == "kept\n"


# ----------------------------------------------------------------------------------- appearance


def test_a_verdict_draws_itself_the_same_everywhere():
    second = Part("second <b>", 2, False, "on <x>: expected 1, got 2")
    verdict = Verdict("03-1", "f", "incorrect", 1, 3, (Part("first", 1, True), second))
    assert str(verdict).splitlines() == [
        "03-1 f: incorrect, 1 of 3 points",
        "  ok  first (1)",
        "  no  second <b> (2)",
        "      on <x>: expected 1, got 2",
    ]
    bundle = verdict._repr_mimebundle_()
    assert bundle["text/plain"] == str(verdict)
    html = bundle["text/html"]
    assert "<b>" not in html and "&lt;x&gt;" in html
    assert "✘" in html and "incorrect" in html, "no colour is needed"
    assert "background" not in html and "color:#000" not in html, "themes keep their colours"
    assert bundle[MIME]["points"] == 1 and bundle[MIME]["parts"][1]["message"]


@pytest.mark.parametrize(("valid", "cost", "status", "lines"), [
    (True, 10, "correct", ["  ok  valid (1)", "  ok  cost (4)"]),
    (True, 15, "partial", ["  ok  valid (1)", "  part  cost (2 of 4)"]),
    (True, 20, "partial", ["  ok  valid (1)", "  no  cost (4)"]),
    (False, 15, "incorrect", ["  no  valid (1)", "  part  cost (2 of 4)"]),
])  # fmt: skip
def test_a_valid_answer_that_could_be_better_is_partly_correct(valid, cost, status, lines):
    class Scored(Function):
        id, parts = "98-1", {"valid": ("valid", 1), "cost": ("cost", 4)}

        def compare(self, case, got, report):
            report.expect(valid or report.part == "cost", "not valid")
            if report.part == "cost":
                report.score(got, 10, 20, "units")

    verdict = judge(Scored(), LocalAnswers(lambda: cost), [Case()])
    assert verdict.status == status and set(lines) <= set(str(verdict).splitlines()), verdict
    mark, _, words = STATUSES[status]
    html = verdict._repr_html_()
    assert f": {words}, {verdict.points:g} of 5 points" in html and mark in html
    assert ('aria-label="part">◐' in html) == (cost == 15)


def test_the_student_sees_what_the_answer_printed():
    verdict = check("90-1", lambda count, multiple=256: print("count is", count))
    assert "your answer printed:\n  count is 0" in str(verdict)


# --------------------------------------------------------------------------------------- report


@pytest.mark.parametrize(("got", "expected", "words"), [
    (np.zeros((2, 3)), np.zeros((3, 2)), "expected shape (3, 2), got (2, 3)"),
    (np.zeros(2), np.zeros(2, np.float32), "expected dtype float32, got float64"),
    ([0.0, 0.0], np.zeros(2, np.float32),
     "expected an array, float32 of shape (2,): [0, 0], got [0, 0]"),
    (None, np.float32([[0.5, 1], [2, 3]]), "expected an array, float32 of shape (2, 2): "
     "[[0.5, 1], [2, 3]], got None (is a return missing?)"),
    (None, np.zeros((3, 28), np.uint8), "expected an array, uint8 of shape (3, 28), got None"),
    (np.array([1, np.nan], np.float32), np.ones(2, np.float32),
     "1 of 2 elements differ, 1 of them NaN; element 1: expected 1, got nan"),
    (None, 1.0, "got None"),
    ("1", 1.0, "got '1'"),
    (1.5, 1.0, "expected 1, got 1.5"),
])  # fmt: skip
def test_close_says_what_differs(got, expected, words):
    report = Report()
    report.on("x=3")
    with pytest.raises(Differs) as difference:
        report.close(got, expected)
    assert words in str(difference.value)
    assert str(difference.value).startswith("on x=3: ")


@pytest.mark.parametrize(("got", "expected", "words"), [
    (-0.46211716, -0.46211719, "expected -0.46211719, got -0.46211716"),
    (np.float32([0.1]), np.nextafter(np.float32([0.1]), np.float32(1)),
     "element 0: expected 0.10000001, got 0.1"),
])  # fmt: skip
def test_numbers_that_look_alike_are_shown_with_all_digits(got, expected, words):
    with pytest.raises(Differs, match=words):
        Report().close(got, expected, 0, 0)


@pytest.mark.parametrize(("got", "expected", "same"), [
    ((1, 2), [1, 2], True), ([1, (2,)], [1, [2]], True), ([1, 2], [1, 3], False),
    (np.int64(3), 3, True), (3.0, 3, True), (True, 1, False), (1, True, True), (True, True, True),
    (0, True, False), (np.int64(0), False, True), (2, True, False), (0.0, False, False),
    ({"a": 1}, {"a": 1}, True), ({"a": 1}, {"a": 2}, False), ("a", "a", True), (None, None, True),
    ({1, 2}, {2, 1}, True), ("ab", ("a", "b"), False), (LooksRight(3), 4, False),
])  # fmt: skip
def test_equal_is_strict_about_values_and_lenient_about_kinds(got, expected, same):
    if same:
        Report().equal(got, expected)
        return
    with pytest.raises(Differs):
        Report().equal(got, expected)


@pytest.mark.parametrize(("unit", "word"), [
    ("bytes moved", "less"), ("cents an hour", "less"), ("binds", "fewer"),
    ("loads an element", "fewer"),
])  # fmt: skip
def test_a_score_says_less_of_a_measure_and_fewer_of_a_count(unit, word):
    report = Report()
    report.score(7, 5, 9, unit, full=6)
    least = f"no answer needs {word} than 5, the obvious answer needs 9"
    assert report.scored == f"7 {unit}; {least}; full points for 6 or {word}"


def test_an_error_that_is_asked_for_is_that_very_error():
    def key_error(count, multiple=256):
        if multiple < 1:
            raise KeyError
        return right(count, multiple)

    def unicode_error(count, multiple=256):  # a subclass of what is asked for
        if multiple < 1:
            raise UnicodeError
        return right(count, multiple)

    assert "on multiple=0: raised KeyError" in str(check("90-1", key_error))
    verdict = check("90-1", lambda count, multiple=256: -(-count // max(multiple, 1)) * multiple)
    assert "on multiple=0: expected ValueError to be raised, got 0" in str(verdict)
    assert check("90-1", unicode_error).status == "correct"


@pytest.mark.parametrize(
    "bad",
    [
        {"identifier": "3-1"},
        {"hints": ()},
        {"identifier": "03-0"},
        {"variants": ()},
    ],
)
def test_an_exercise_is_registered_rightly_or_not_at_all(bad):
    given = {"identifier": "98-1", "hints": ("a",), **bad}
    with pytest.raises(ValueError, match="write an id such as 03-1"):
        exercise(given.pop("identifier"), **given)


# ---------------------------------------------------------------------- hint, show, swap


def test_hints_come_one_after_the_other(monkeypatch):
    monkeypatch.setattr(sys.modules["vklab_course.hint"], "_given", Counter())
    seen = [hint("90-1") for _ in range(5)]
    assert [each.number for each in seen] == [1, 2, 3, 3, 3]
    said = ["no more hints" in str(each) for each in seen]
    assert said == ["no more hints" in each._repr_html_() for each in seen]
    assert said == [False, False, False, True, True]
    assert str(hint("90-1", 1)) == "90-1, hint 1 of 3: Which multiple comes after 257?"
    assert "Which multiple" in hint("90-1", 0)._repr_html_()


def test_show_reads_what_runs():
    for thing in (memory.round_up, "vklab.plan.memory.round_up"):
        listing = show(thing)
        assert str(listing).startswith(f"vklab/plan/memory.py:{listing.first_line}\n")
        assert "def round_up(count: int" in str(listing)
    assert "class Lifetime" in str(show(memory.Lifetime))
    assert str(show("softmax")).startswith("shaders/ops/softmax.slang:1\n")
    part = show("vklab.plan.memory.pack", at="return", lines=1)
    assert part.text.startswith("return") and part.text in show("vklab.plan.memory").text
    assert part.first_line > show("vklab.plan.memory.pack").first_line
    with pytest.raises(LookupError, match="no line with 'nowhere'"):
        show("vklab.plan.memory.pack", at="nowhere")
    html = show("softmax")._repr_html_()
    assert ",monospace;" in html  # an exported page has no style sheet that says so
    assert "var(--jp-mirror-editor" in html and "overflow-x:auto" in html
    assert "softmax.slang:1" in html
    assert show(right).place == "tests/support/course/student_functions.py"


@pytest.mark.parametrize(("thing", "kind"), [
    ("no_such_kernel", ShaderError), (3, TypeError), (len, TypeError),
    ("vklab.plan.memory.rownd_up", LookupError), ("vklab.nix.f", LookupError),
])  # fmt: skip
def test_show_says_what_it_cannot_show(thing, kind):
    with pytest.raises(kind):
        show(thing)


def test_swap_replaces_and_always_restores():
    real = memory.round_up
    with swap("vklab.plan.memory.round_up", right) as original:
        assert memory.round_up is right and original is real
        with swap("vklab.plan.memory.round_up", abs):
            assert memory.round_up is abs
        assert memory.round_up is right
    with pytest.raises(ZeroDivisionError), swap("vklab.plan.memory.round_up", right):
        raise ZeroDivisionError
    assert memory.round_up is real


def test_swap_takes_methods_and_checks_the_path():
    with swap("vklab.plan.memory.Slot.overlaps", lambda self, other: "mine"):
        assert memory.Slot("a", 0, 1).overlaps(None) == "mine"
    slot = memory.Slot("a", 0, 1)
    assert slot.overlaps(slot) is True
    for path, words in (
        ("vklab.plan.memory.rownd_up", "has no 'rownd_up'; it has round_up"),
        ("vklab.plan.memori.round_up", "vklab.plan has no 'memori'; it has memory"),
        ("vklab.plan.memory.Slotts", "has no 'Slotts'; it has assign_offsets"),
        ("nix.nix", "no module"),
        ("nix", "no module"),
    ):
        with pytest.raises(LookupError, match=words), swap(path, right):
            pass
    with pytest.raises(TypeError, match="cannot be called"), swap("vklab.plan.memory.pack", 3):
        pass


def test_show_names_what_is_like_an_unknown_name():
    for name, error, words in (
        ("vklab.plan.memory.Slotts", LookupError, "it has Slot"),
        ("softmx", ShaderError, "Did you mean 'softmax'"),
    ):
        with pytest.raises(error, match=words):
            show(name)


def test_exercises_are_found_by_lab_in_order():
    assert list(exercises_of("90")) == ["90-1", "90-2", "90-3"]
    assert exercises_of("88") == {}
