"""The scored exercise of lab 02: its bound is exact, and no obvious answer reaches it."""

from __future__ import annotations

import itertools
import sys

import pytest

from vklab.course.author import trials
from vklab.course.author.lab import find_lab
from vklab.course.definition.draw import draw
from vklab.course.definition.exercise import find
from vklab.course.definition.judge import LocalAnswers, judge
from vklab.course.places import PROJECT

SEEDS = ("public", "one", "another", "a third")


@pytest.fixture(params=SEEDS)
def drawn(request, monkeypatch):
    """Return the exercise, its module, and the cases of one seed."""
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    exercise = find("02-5")
    return exercise, sys.modules[type(exercise).__module__], draw(exercise, request.param)


def all_choices(devices, programs):
    """Yield (price, choice) of every valid choice."""
    for names in itertools.product(*(suited for _, suited in programs.values())):
        load = dict.fromkeys(names, 0)
        for name, (mib, _) in zip(names, programs.values(), strict=True):
            load[name] += mib
        if all(mib <= devices[name][1] for name, mib in load.items()):
            yield sum(devices[name][0] for name in load), dict(zip(programs, names, strict=True))


def test_no_obvious_answer_reaches_the_exact_bound(drawn):
    _, module, cases = drawn
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        prices = module.obvious(*case.args)
        print("bound", case.expected, "obvious:", prices)
        assert case.expected == min(price for price, _ in all_choices(*case.args))
        assert prices and min(prices.values()) > case.expected
    assert len(scored) == 4


def test_the_score_lies_between_the_obvious_answer_and_the_bound(drawn):
    exercise, _, cases = drawn
    lab = find_lab("02", PROJECT / "labs")
    cheapest = judge(exercise, LocalAnswers(trials.answer_of(lab, "02-5")), cases)
    dearest = judge(exercise, LocalAnswers(lambda *case: max(
        all_choices(*case), key=lambda choice: choice[0])[1]), cases)  # fmt: skip
    print(cheapest, dearest, sep="\n")
    assert [part.earned for part in cheapest.parts] == [1, 1, 1, 1, 1]
    assert [part.earned for part in dearest.parts] == [1, 0, 0, 0, 0]
