"""Lab 12b: the bound of its scored exercise is exact; its sketches and its wrapper are right."""

from __future__ import annotations

import ast
import random

import numpy as np
import pytest

from support.course.scored import drawn_cases
from vklab_course import run_limited
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import exercises_of
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_12 import races, stepping
from vklab_labs.lab_12.races import Queues, Workers
from vklab_labs.lab_12.two_queues import ordered_copies

drawn = drawn_cases("12b-1", seconds=1)
stepped = drawn_cases("12b-4", seconds=1)


def overlapping(jobs):
    """Submit and begin whatever may, and end only what somebody waits for."""
    trace, machine = [], Queues(jobs)
    while events := machine.next_events():
        event = min(events, key=lambda e: ("begin", "submit", "end").index(e[0]))
        trace.append(event)
        if machine.take(event):
            return trace
    return []


def best_of_random(jobs, chance, walks=200):
    """Return the shortest of some random walks that read too early."""
    found = []
    for _ in range(walks):
        trace, machine = [], Queues(jobs)
        while events := machine.next_events():
            trace.append(chance.choice(events))
            if machine.take(trace[-1]):
                found.append(trace)
                break
    return min(found, key=len)


def test_no_natural_answer_reaches_the_exact_bound(drawn):
    _, module, cases = drawn
    lab = find_lab("12b", PROJECT / "labs")
    pairs = [
        each[1]
        for each in answers_of(lab).wrong
        if each[:1] == ("12b-1",) and "no answer needs fewer" in each[2]
    ]
    scored = [case for case in cases if case.part == "short"]
    for case in scored:
        (jobs,) = case.args
        found = {
            "in order": module.in_order(jobs),
            "overlapping": overlapping(jobs),
            "best pair": pairs[0](jobs),
            "first pair": pairs[1](jobs),
            "best of 200 random": best_of_random(jobs, random.Random(0)),
        }
        assert all(races.replay(Queues(jobs), trace) for trace in found.values())
        lengths = {name: len(trace) for name, trace in found.items()}
        print("bound", case.expected, lengths)
        assert case.facts["natural"] == lengths["in order"]
        assert min(lengths.values()) > case.expected
    assert len(scored) == len(module.PICKS)
    for pair in pairs[2:]:  # right but for the choice of the chunk
        assert any(len(pair(*case.args)) > case.expected for case in scored)
    search = next(each[1] for each in answers_of(lab).alternative if each[0] == "12b-1")
    for case in cases:
        assert case.expected == len(search(*case.args))


@pytest.mark.parametrize("variant", range(5))
def test_a_stale_read_needs_eight_events_in_every_variant(variant):
    exercise = exercises_of("12b", {"12b-2": variant})["12b-2"]
    reads = ast.literal_eval(exercise.params["reads"])
    todo = [(Workers({name: ("", each) for name, each in reads.items()}), 0)]
    seen = set()
    for machine, length in todo:
        assert length < 8
        for _, after, stale in races.following(machine):
            if stale:
                assert length == 7 == draw(exercise, "any")[0].expected - 1
                return
            if races.state_key(after) not in seen:
                seen.add(races.state_key(after))
                todo.append((after, length + 1))


def test_half_way_answers_earn_a_share(drawn):
    exercise, module, cases = drawn
    lab = find_lab("12b", PROJECT / "labs")
    for answer, least, most in (
        (trials.answer_of(lab, "12b-1"), 5, 5),
        (module.in_order, 0, 3),
        (overlapping, 1, 4.9),
    ):
        verdict = judge(exercise, LocalAnswers(answer), cases)
        print(verdict.points, [part.message for part in verdict.parts])
        assert least <= verdict.points <= most


def test_the_repaired_sketches_never_read_too_early(drawn):
    module = drawn[1]
    chance = np.random.default_rng(3)
    for _ in range(12):
        jobs = module.draw_jobs(chance, 4, 2)
        assert races.count_states(Queues(jobs, waits=True))[1] == 0
        assert races.count_states(Workers(jobs, 2, acquire=True))[1] == 0
        assert races.count_states(Workers(jobs, 2, views=False))[1] == 0
        is_stale = any(len(reads) > 1 for _, reads in jobs.values())
        assert bool(races.count_states(Workers(jobs, 2))[1]) == is_stale


def test_exploring_finds_what_the_check_finds(stepped):
    lab = find_lab("12b", PROJECT / "labs")
    jobs = {
        "a": ("X", ()),
        "b": ("X", ("a",)),
        "c": ("Y", ("a",)),
        "d": ("X", ("b", "c")),
        "e": ("Y", ("a", "b")),
        "f": ("Z", ("a",)),
    }
    right = trials.answer_of(lab, "12b-4")
    assert not [f for f in ("", *jobs) if stepping.explore(jobs, right, f).problem]

    def changes(jobs, state, event):
        state.update(right(jobs, state, event))
        return state

    assert "changes the state" in stepping.explore(jobs, changes).problem
    found, unfound = set(), []
    for wrong in (each for each in answers_of(lab).wrong if each[0] == "12b-4"):
        explored = [stepping.explore(jobs, wrong[1], failing) for failing in ("", *jobs)]
        problems = [each.problem for each in explored if each.problem]
        unfound += [wrong[2]] * (not problems)
        found |= {problem.partition(" ")[2] for problem in problems}
    print(found)
    assert {"is started twice"} < found
    # Only the check asks for an early start, with a job before it that will fail, too; tells events
    # of jobs that are not in flight; and lets two jobs fail.
    assert len(unfound) == 5 and sum("may start now" in says for says in unfound) == 2
    assert sum("; then ended" in says for says in unfound) == 2


def test_the_runtime_refuses_a_wrong_step_and_runs_a_right_one():
    lab = find_lab("12b", PROJECT / "labs")
    right = trials.answer_of(lab, "12b-4")
    assert stepping.run_inside(right, runs=1).startswith("1 runs of 139 jobs")

    def forgets(jobs, state, event):
        after = right(jobs, state, event)
        return {**after, "in_flight": after["in_flight"][:3]}

    with pytest.raises(AssertionError, match=r"expected to start \[.*, your step starts \["):
        stepping.run_inside(forgets)


def test_a_timeline_orders_two_queues_or_two_submissions():
    seen = {
        (first, value): run_limited(ordered_copies, first, value, seconds=60).value
        for first in ("writer first", "reader first")
        for value in (0, 1)
    }
    one = seen["writer first", 1].endswith("(1 queue)")
    assert seen["writer first", 1].startswith("new bytes")
    assert seen["reader first", 1].startswith("never ends" if one else "new bytes")
    if one:
        assert seen["reader first", 0].startswith("old bytes")
