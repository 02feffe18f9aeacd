"""A Choice teaches: no count while it is wrong, then facts, then the reason of every row."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pytest

from vklab_course import rows
from vklab_course.check import check_answer
from vklab_course.definition.codec import decode
from vklab_course.definition.draw import draw, freeze
from vklab_course.definition.exercise import exercises_of, find
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.definition.kinds import Choice, Question
from vklab_course.places import PROJECT

CHOICES = [
    "00-5",
    "01-4",
    "01b-2",
    "02-1",
    "03-2",
    "05-4",
    "06-3",
    "07-2",
    "08-4",
    "09-5",
    "11-4",
    "12b-3",
    "13-2",
    "13b-5",
    "15-4",
]
RIGHT = {"A": "red", "B": "blue", "C": 2}


class Colours(Choice):
    """Three questions of different kinds."""

    id = "90-9"
    parts = {"all": ("every row", 3)}

    def questions(self):
        return {
            "A": Question("red", ("red", "blue"), "It is blood.", "Iron makes it red."),
            "B": Question("blue", ("red", "blue"), "It is noon.", "Air scatters blue most."),
            "C": Question(2, (1, 2, 3), "Count them.", "There are two."),
        }


@pytest.fixture(autouse=True)
def _nothing_tried(monkeypatch):
    monkeypatch.setattr(rows, "_wrong", defaultdict(dict))


def checked(**changed):
    """Return the verdict of the notebook on the right answer with some rows changed."""
    return check_answer(Colours(), {**RIGHT, **changed}, cases=draw(Colours(), "s"))


def graded(answer):
    return judge(Colours(), LocalAnswers(answer), draw(Colours(), "s"))


# ------------------------------------------------------------------------------------ messages


def test_two_wrong_answers_get_no_count_and_the_third_a_fact():
    tries = [checked(A="blue"), checked(C=1), checked(A="blue", C=1), checked(B="red")]
    said = [verdict.parts[0].message for verdict in tries]
    assert said == [
        "not all right",
        "not all right",
        "not all right. Row A: It is blood.",
        "not all right. Row B: It is noon.",
    ]
    for verdict in tries:
        assert (verdict.status, verdict.points, verdict.messages) == ("incorrect", 0, ())
        assert not re.search(r"\bof 3 are\b|2 of|Iron|scatters", str(verdict))


def test_the_same_answer_again_is_no_further_try():
    for _ in range(5):
        assert "Row" not in str(checked(A="blue"))
    assert "Row" not in str(checked(A="blue", C=np.int64(2)))
    assert "Row" not in str(checked(C=1))
    assert "Row A" in str(checked(A="blue", B="red")) and "Row A" in str(checked(A="blue"))


def test_a_row_without_an_option_is_named_and_is_no_try():
    for option in ("green", None, True, [], {}):
        verdict = checked(A=option)
        assert (verdict.status, verdict.points) == ("incorrect", 0)
        assert "'A': got" in str(verdict) and "choose one of 'red', 'blue'" in str(verdict)
    assert "'C': got 2.0; choose one of 1, 2, 3" in str(checked(C=2.0))
    missing = check_answer(Colours(), {"A": "red"}, cases=draw(Colours(), "s"))
    assert "'B' has no answer" in str(missing) and missing.points == 0
    assert "no question 'D'" in str(checked(D="red"))
    assert "expected a dictionary" in str(check_answer(Colours(), 7, cases=draw(Colours(), "s")))
    assert not rows._wrong


def test_a_right_answer_gets_the_reason_of_every_row():
    verdict = checked()
    assert (verdict.status, verdict.points) == ("correct", 3)
    assert verdict.messages == (
        "A: Iron makes it red.",
        "B: Air scatters blue most.",
        "C: There are two.",
    )
    assert "It is noon." not in str(verdict)


def test_exercises_and_variants_are_remembered_apart():
    other = Colours(0)
    other.id = "90-8"
    for answer in ({**RIGHT, "A": "blue"}, {**RIGHT, "B": "red"}):
        check_answer(Colours(), answer, cases=draw(Colours(), "s"))
    assert "Row" not in str(check_answer(other, {**RIGHT, "C": 1}, cases=draw(other, "s")))
    assert "Row C" in str(checked(C=1))


# -------------------------------------------------------------------------------------- grading


@pytest.mark.parametrize(("changed", "points", "status"), [
    ({}, 3, "correct"),
    ({"A": "blue"}, 2, "partial"),
    ({"A": "blue", "C": 1}, 1, "partial"),
    ({"A": "green"}, 2, "partial"),
    ({"A": "blue", "B": "red", "C": 1}, 0, "incorrect"),
])  # fmt: skip
def test_grading_gives_points_by_row(changed, points, status):
    verdict = graded({**RIGHT, **changed})
    assert (verdict.points, verdict.status) == (points, status), str(verdict)
    assert not verdict.messages and not rows._wrong


def test_grading_gives_nothing_for_what_is_no_answer():
    for answer in ({}, [], None, "red", {"D": "red"}, {**RIGHT, "D": "red"}):
        assert graded(answer).points == 0


# ---------------------------------------------------------------------------------- definitions


def every_question():
    for identifier in CHOICES:
        kind = type(find(identifier))
        for variant in range(len(kind.variants)):
            for name, asked in kind(variant).questions().items():
                yield f"{identifier}, variant {variant}, {name}", asked


def test_the_list_of_choices_is_complete(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    numbers = (path.stem.removeprefix("lab_") for path in (PROJECT / "labs/checks").glob("*.py"))
    found = {
        key
        for number in numbers
        for key, exercise in exercises_of(number).items()
        if isinstance(exercise, Choice)
    }
    assert found == set(CHOICES)


def test_every_row_has_a_fact_that_hides_the_option_and_a_reason(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    for where, asked in every_question():
        assert asked.right in asked.options, where
        for text in (asked.fact, asked.reason):
            assert 10 < len(text) < 260 and text[-1] in ".?", f"{where}: {text}"
            assert "[[" not in text, f"{where}: {text}"
        option = rf"(?<!\w){re.escape(str(asked.right))}(?!\w)"
        assert not re.search(option, asked.fact, re.I), f"{where}: {asked.fact}"


def test_a_release_keeps_facts_and_reasons_in_its_frozen_cases():
    frozen = list(decode(freeze(Colours(), draw(Colours(), "s"))))
    for wrong in ({"A": "blue"}, {"B": "red"}, {"C": 1}):
        verdict = check_answer(Colours(), {**RIGHT, **wrong}, cases=frozen)
    assert "Row C: Count them." in str(verdict)
    assert "C: There are two." in check_answer(Colours(), RIGHT, cases=frozen).messages
    assert not re.search(b"noon|scatters", frozen[0].question)


def test_cases_of_an_older_release_have_no_facts():
    cases = draw(Colours(), "s")
    for case in cases:
        del case.facts["facts"], case.facts["reasons"]
    wrong = ({"A": "blue"}, {"B": "red"}, {"C": 1})
    said = [check_answer(Colours(), {**RIGHT, **each}, cases=cases) for each in wrong]
    assert [verdict.parts[0].message for verdict in said] == [rows.WRONG] * 3
    assert check_answer(Colours(), RIGHT, cases=cases).status == "correct"
