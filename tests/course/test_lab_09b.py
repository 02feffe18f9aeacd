"""Lab 09b: the bound of its scored exercise is exact, and no natural order reaches it."""

from __future__ import annotations

import dataclasses
import itertools
import sys

import numpy as np
import pytest

import vklab
from support.course.scored import drawn_cases
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.exercise import find
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_09 import drawn_orders, growing_plans, live_bytes
from vklab_labs.shared.recorded_graphs import NAMES, recorded

drawn = drawn_cases("09b-4", seconds=3)


def scored(cases):
    return [case for case in cases if case.part != "valid"]


def test_no_natural_order_reaches_the_exact_bound(drawn):
    _, _, cases = drawn
    second = next(
        each[1]
        for each in answers_of(find_lab("09b", PROJECT / "labs")).alternative
        if each[0] == "09b-4"
    )
    for case in scored(cases):
        (work,) = case.args
        found = drawn_orders.natural_orders(work)
        given = found["as given"]
        shares = {
            name: round((given - peak) / (given - case.expected), 2) for name, peak in found.items()
        }
        print(case.part, len(work), "nodes, bound", case.expected, "given", given, shares)
        assert case.facts["natural"] == given
        assert max(shares.values()) <= 0.85
        assert case.expected == max(live_bytes.live_bytes(work, second(work)))
        assert case.expected >= max(live_bytes.must_be_live(work).values())
    assert len(scored(cases)) == 4


def test_half_way_answers_earn_a_share(drawn):
    exercise, _, cases = drawn
    lab = find_lab("09b", PROJECT / "labs")
    best = judge(exercise, LocalAnswers(trials.answer_of(lab, "09b-4")), cases)
    given = judge(exercise, LocalAnswers(list), cases)
    assert [part.earned for part in best.parts] == [1, 1, 1, 1, 1]
    assert [part.earned for part in given.parts] == [1, 0, 0, 0, 0]


def every_order(work, done=()):
    if len(done) == len(work):
        yield done
    for name, (_, reads) in work.items():
        if name not in done and set(reads) <= set(done):
            yield from every_order(work, (*done, name))


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_that_of_all_orders(seed, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    module = sys.modules[type(find("09b-4")).__module__]
    work = drawn_orders.wiring(np.random.default_rng(seed), 8)
    peaks = [max(live_bytes.live_bytes(work, order)) for order in every_order(work)]
    assert module.least_peak(work) == min(peaks)
    steps = {
        name: min(
            live_bytes.live_bytes(work, order)[order.index(name)] for order in every_order(work)
        )
        for name in work
    }
    below = live_bytes.must_be_live(work)
    assert all(below[name] <= steps[name] for name in work)


@pytest.mark.parametrize("name", NAMES)
def test_in_whole_networks_the_file_reaches_the_bound(name):
    work = live_bytes.as_work(recorded(name))
    bound = max(live_bytes.must_be_live(work).values())
    assert max(live_bytes.live_bytes(work, list(work))) == bound
    chance = np.random.default_rng(0)
    for _ in range(5):
        order = drawn_orders.random_order(work, chance)
        assert not live_bytes.broken(work, order)
        assert max(live_bytes.live_bytes(work, order)) == bound


def test_an_order_that_is_not_valid_stops_before_the_runtime():
    for order, words in ((lambda work: [*work][::-1], "before"), (lambda work: [], "are missing")):
        replacement = live_bytes.in_runtime(order, [])
        graph = growing_plans.onnx_import.load_graph
        original = growing_plans.onnx_import.topological_order
        growing_plans.onnx_import.topological_order = replacement
        try:
            with pytest.raises(AssertionError, match=words):
                graph(growing_plans.as_model("top"))
        finally:
            growing_plans.onnx_import.topological_order = original


@pytest.mark.parametrize("name", growing_plans.MODELS)
def test_plans_are_alike_on_a_device_without_integers_of_64_bits(name):
    info = vklab.devices()[0]
    plans = [
        growing_plans.start(name, {"x": (3, 4), "to": (2,)}, each)
        for each in (info, dataclasses.replace(info, features=info.features - {"shaderInt64"}))
    ]
    names = [[[node.name for node in chunk.graph.nodes] for chunk in plan.chunks] for plan in plans]
    assert names[0] == names[1]
    assert plans[0].live == plans[1].live


def test_the_rule_for_entries_is_that_of_the_runtime():
    answer = trials.answer_of(find_lab("09b", PROJECT / "labs"), "09b-2")
    chance = np.random.default_rng(5)
    feeds = [
        {"x": np.full((8 * int(rows), 4), int(top), np.float32)}
        for rows, top in chance.integers(1, 4, (8, 2))
    ]
    requests = [[feed, {**feed, "k": np.array([int(feed["x"].max())])}] for feed in feeds]
    counted = answer(requests, [(), ("k",)])
    assert counted == growing_plans.entries(growing_plans.as_model("top"), feeds)
    assert len(set(itertools.chain(counted))) > 1


def test_an_entry_that_takes_the_place_of_the_oldest_one_is_new():
    feeds = [{"x": np.ones((rows, 4), np.float32)} for rows in (*range(1, 11), 10)]
    assert growing_plans.entries(growing_plans.as_model("select"), feeds) == [2] * 10 + [0]
