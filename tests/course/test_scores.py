"""Scores of answers between the obvious one and a good one; `pytest -s` prints them."""

from __future__ import annotations

import pytest

from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.children.kernel_answers import KernelAnswers
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import exercises_of
from vklab_course.definition.judge import judge

pytestmark = pytest.mark.full


@pytest.mark.parametrize("secret", ["one", "two"])
def test_box_sums_are_scored_by_their_loads_and_the_obvious_one_earns_nothing(secret):
    exercise = exercises_of("04b")["04b-3"]
    answers, cases = answers_of(find_lab("04b")), draw(exercise, secret)
    listed = [each[1] for each in answers.wrong if each[0] == "04b-3" and "loads" in each[2]]
    right = [each[1] for each in answers.alternative if each[0] == "04b-3"]
    points = []
    for text in listed + right:
        verdict = judge(exercise, KernelAnswers(text), cases)
        print(verdict.points, verdict.parts[0].message)
        points.append(verdict.points)
    some, full = points[: len(listed)], points[len(listed) :]
    assert some[0] == 0 and some == sorted(set(some)) and some[-1] < 4
    assert full and set(full) == {4}
