"""Lab 13: its bounds are exact, no natural rule reaches them, and the published split is there."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from support.course.scored import drawn_cases
from vklab import settings
from vklab.plan.options import Options, PlacementOptions
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.exercise import find
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_13 import placing_cases, schedules, spreading
from vklab_labs.lab_13 import placing_rules as rules
from vklab_labs.shared import swapped

drawn = drawn_cases("13-4", seconds=3)
cuts = drawn_cases("13-3", seconds=1)
lists = drawn_cases("13-1", seconds=1)
MIB = 1 << 20


def test_no_natural_rule_reaches_the_exact_bound(drawn):
    _, _, cases = drawn
    second = next(
        each[1]
        for each in answers_of(find_lab("13", PROJECT / "labs")).alternative
        if each[0] == "13-4"
    )
    for case in (case for case in cases if case.part != "valid"):
        found = rules.naturals(*case.args)
        print(case.part, "bound", case.expected, found)
        assert case.expected == rules.span(case.args[0], second(*case.args))
        assert case.facts["natural"] == found["first fit"]
        assert min(found.values()) > case.expected


def test_a_maker_stands_before_its_readers(cuts):
    for case in cuts[2]:
        times, moves = case.args
        places = {name: place for place, name in enumerate(times)}
        assert all(places[maker] < places[reader] for maker, reader in moves)


def test_half_way_schedules_earn_a_share(drawn):
    exercise, _, cases = drawn
    lab = find_lab("13", PROJECT / "labs")
    best = judge(exercise, LocalAnswers(trials.answer_of(lab, "13-4")), cases)
    heft = judge(
        exercise,
        LocalAnswers(lambda work, caps: rules.earliest_end(work, caps, rules.ranks(work))),
        cases,
    )
    first = judge(exercise, LocalAnswers(rules.first_fit), cases)
    print("HEFT", heft.points, "first fit", first.points)
    assert [part.earned for part in best.parts] == [1, 1, 1, 1, 1]
    assert [part.earned for part in first.parts] == [1, 0, 0, 0, 0]
    assert all(part.earned < 1 for part in heft.parts[1:])


@pytest.mark.parametrize("seed", range(4))
def test_the_least_makespan_is_that_of_all_schedules(monkeypatch, seed):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    module = sys.modules[type(find("13-4")).__module__]
    work, caps = placing_cases.draw_work(np.random.default_rng(seed), 5)
    plans = (
        list(zip(order, devices, strict=True))
        for order in itertools.permutations(work)
        for devices in itertools.product(range(3), repeat=len(work))
    )
    valid = (plan for plan in plans if not schedules.problem(work, caps, plan))
    assert module.shortest(work, caps) == min(rules.span(work, plan) for plan in valid)


def test_the_largest_flow_is_the_cheapest_of_all_placements(cuts):
    exercise, _, cases = cuts
    price = exercise.params["price"]
    for case in (case for case in cases if 0 < len(case.args[0]) <= 8):
        times, moves = case.args
        every = (
            dict(zip(times, devices, strict=True))
            for devices in itertools.product((0, 1), repeat=len(times))
        )
        assert case.expected == min(rules.total(times, moves, price, placed) for placed in every)
        fast = {
            name: int(one is None or (other is not None and other < one))
            for name, (one, other) in times.items()
        }
        print(
            case.expected,
            "fastest",
            rules.total(times, moves, price, fast),
            "one by one",
            rules.one_by_one(times, moves, price),
        )


def test_fewest_changes_are_those_of_all_placements(lists):
    _, _, cases = lists
    for case in (case for case in cases if len(case.args[0]) <= 10):
        rows, caps = case.args
        every = map(list, itertools.product((0, 1), repeat=len(rows)))
        valid = (placed for placed in every if not spreading.wrong_rows(rows, caps, placed))
        assert case.expected == min(map(rules.changes, valid), default=None)


def test_first_fit_gives_the_published_split():
    graph = spreading.conv_many()
    gpus = spreading.simulated_gpus(2)
    for fusion in (True, False):
        with settings.settings(DISABLE_FUSION=not fusion):
            placed = spreading.place(graph, gpus, {0: 128 * MIB}, "greedy").devices
        assert [*placed.values()] == [0] * 8 + [1] + [0] * 6
    mixed = spreading.simulated_gpus(2, name="CPU", type="cpu")
    greedy, cost = (
        spreading.place(graph, mixed, {0: 128 * MIB}, policy).devices
        for policy in ("greedy", "cost")
    )
    assert spreading.predicted(graph, mixed, greedy) < spreading.predicted(graph, mixed, cost)


def test_a_swapped_placement_is_verified_first():
    options = Options(placement=PlacementOptions(policy="greedy", caps={0: 40 * MIB, 1: 200 * MIB}))

    def swap(place):
        return swapped.run_swapped(
            "vklab.plan.place.search.first_fit",
            spreading.guarded(place),
            models=(),
            infos=spreading.simulated_gpus(2),
            options=options,
        )

    def all_on_one(rows, caps):
        return [1] * len(rows)

    def too_short(rows, caps):
        return [0]

    lab = find_lab("13", PROJECT / "labs")
    rows, why = swap(trials.answer_of(lab, "13-1"))
    assert not why and rows[0].mine["transfers"] < rows[0].own["transfers"]
    assert "transfers 12 -> " in str(rows[0])
    assert "has room for" in swap(all_on_one)[1]
    assert "expected a list of" in swap(too_short)[1]
