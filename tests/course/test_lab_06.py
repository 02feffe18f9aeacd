"""Lab 06: the bound of its scored exercise is exact; its device is lazy; its faults are found."""

from __future__ import annotations

import random

import pytest

from support.course.scored import drawn_cases
from vklab_course import run_limited
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.shared.grouping import kept_bytes, ready
from vklab_labs.shared.synchronization import FAULTS, ask_layer, stream

drawn = drawn_cases("06-5", seconds=0.5)


def schedule(work, cap, key):
    """Return how many groups list scheduling needs; infinity if it gets stuck."""
    done, count = [], 0
    while len(done) < len(work):
        left, before = cap - kept_bytes(work, done), [*done]
        for n in sorted(ready(work, before), key=key):
            if work[n][0] <= left:
                left, done = left - work[n][0], [*done, n]
        if done == before:
            return float("inf")
        count += 1
    return count


def natural(module, work, cap):
    """Return how many groups each natural answer needs, by its name."""
    height = {}
    for n in reversed(work):
        height[n] = 1 + max((height[m] for m in height if n in work[m][1]), default=0)
    frees = {
        n: sum(work[m][0] for m in work[n][1] if sum(m in r for _, r in work.values()) == 1)
        for n in work
    }
    chance = random.Random(0)
    keys = {
        "as given": lambda n: 0,
        "smallest first": lambda n: work[n][0],
        "largest first": lambda n: -work[n][0],
        "longest chain": lambda n: -height[n],
        "frees most": lambda n: work[n][0] - frees[n],
    }
    found = {name: schedule(work, cap, key) for name, key in keys.items()}
    shuffled = (schedule(work, cap, lambda n: chance.random()) for _ in range(200))
    return found | {"in order": module.in_order(work, cap), "best of 200 random": min(shuffled)}


def test_no_natural_answer_reaches_the_exact_bound(drawn):
    _, module, cases = drawn
    second = next(
        each[1]
        for each in answers_of(find_lab("06", PROJECT / "labs")).alternative
        if each[0] == "06-5"
    )
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        found = natural(module, *case.args)
        print(case.part, "bound", case.expected, found)
        assert case.expected == len(second(*case.args))
        assert case.facts["natural"] == found["in order"] > min(found.values()) > case.expected
    assert len(scored) == 4


def test_half_way_answers_earn_a_share(drawn):
    exercise, _, cases = drawn
    lab = find_lab("06", PROJECT / "labs")
    best = judge(exercise, LocalAnswers(trials.answer_of(lab, "06-5")), cases)
    one_each = judge(exercise, LocalAnswers(lambda work, cap: [[name] for name in work]), cases)
    assert [part.earned for part in best.parts] == [1, 1, 1, 1, 1]
    assert [part.earned for part in one_each.parts] == [1, 0, 0, 0, 0]
    for wrong in (each for each in answers_of(lab).wrong if each[0] == "06-5"):
        verdict = judge(exercise, LocalAnswers(wrong[1]), cases)
        print(verdict.points, wrong[2])
        assert verdict.points < 4


def test_a_lazy_device_shows_every_refill_that_comes_too_early():
    sizes = [64] * 5
    too_early = run_limited(stream, sizes, 128, [(n % 2 * 64, 0) for n in range(5)], seconds=30)
    assert too_early.value == [[4], [3], [4], [3], [4]]
    in_time = run_limited(
        stream, sizes, 128, [(n % 2 * 64, 3 * max(0, n - 1)) for n in range(5)], 3, seconds=30
    )
    assert in_time.value == [[0], [1], [2], [3], [4]]


def test_the_layer_reports_both_planted_faults():
    found = {fault: run_limited(ask_layer, fault, seconds=60).value for fault in FAULTS}
    if "not installed" in found["no barrier"]:
        pytest.skip("the validation layer is not installed")
    assert found["the runtime as it is"] == "no hazard"
    assert "READ-AFTER-WRITE" in found["no barrier"] and "WRITE-AFTER-READ" in found["no barrier"]
    assert "WRITE-AFTER-READ" not in found["wrong access masks"]
    assert "READ-AFTER-WRITE" in found["wrong access masks"]
