"""Lab 12: the bound of its scored exercise is exact; fewest chunks are; frames are simulated."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import vklab
from support.course.scored import drawn_cases
from vklab.errors import PlanError
from vklab.settings import settings
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.data import data
from vklab_course.definition.exercise import find
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_12 import chunking, frames, list_scheduling, makespan

drawn = drawn_cases("12-4", seconds=5.0)
placed = drawn_cases("12-1", seconds=5.0)


def second(identifier):
    """Return the second answer to an exercise."""
    found = answers_of(find_lab("12", PROJECT / "labs")).alternative
    return next(each[1] for each in found if each[0] == identifier)


def length(tasks, lists):
    """Return the makespan of a schedule."""
    return max((end for _, _, end in makespan.timetable(tasks, lists).values()), default=0)


def test_no_natural_answer_reaches_the_exact_bound(drawn):
    _, _, cases = drawn
    answer = second("12-4")
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        tasks = case.args[0]
        found = list_scheduling.naturals(tasks, np.random.default_rng(0))
        simple = max(makespan.bounds(tasks, 2).values())
        print(case.part, "simple bound", simple, "best", case.expected, found)
        ahead = min(
            length(tasks, list_scheduling.looking_ahead(tasks, every)) for every in (True, False)
        )
        assert simple <= case.expected == length(tasks, answer(tasks)) < min(found.values())
        assert case.expected < ahead or case.part != "inception"
        assert case.facts["natural"] == found["one device"]
    assert len(scored) == 3


def test_list_scheduling_earns_a_share_and_the_reference_everything(drawn):
    exercise, _, cases = drawn
    lab = find_lab("12", PROJECT / "labs")
    best = judge(exercise, LocalAnswers(trials.answer_of(lab, "12-4")), cases)
    assert [part.earned for part in best.parts] == [1, 1, 2, 2]
    one = judge(exercise, LocalAnswers(list_scheduling.one_device), cases)
    assert [part.earned for part in one.parts] == [1, 0, 0, 0]
    listed = judge(exercise, LocalAnswers(list_scheduling.by_critical_path), cases)
    print("list scheduling by critical path:", listed.points)
    assert 1 < listed.points < best.points


def test_fewest_chunks_are_found_by_a_second_search(placed):
    _, module, cases = placed
    answer = second("12-1")
    for case in (case for case in cases if case.part in ("two", "three")):
        rules = module.obvious_cuts(case.args[0])
        print(case.part, "fewest", case.expected, rules)
        assert len(answer(case.args[0])) == case.expected
        if case.part == "three":
            assert case.expected < min(rules.values())


def test_the_planted_cutter_is_right_on_chains_and_two_branches_only():
    chain = [(f"n{n}", n // 2 % 2, (f"n{n - 1}",) if n else ()) for n in range(8)]
    branches = [("a", 0, ()), ("b", 0, ("a",)), ("c", 1, ("a",)), ("d", 1, ("b", "c"))]
    for nodes in (chain, branches):
        before = chunking.predecessors(nodes, chunking.join_inputs(nodes))
        assert not chunking.circles(before)
        assert sorted(chunking.real_completions(before)) == list(range(len(before)))
    detour = [("a", 0, ()), ("b", 1, ("a",)), ("c", 0, ("a", "b"))]
    before = chunking.predecessors(detour, chunking.join_inputs(detour))
    assert chunking.circles(before) == [[0, 1]]
    two = [
        ("a", 0, ()),
        ("b", 1, ("a",)),
        ("c", 0, ("a", "b")),
        ("d", 2, ("c",)),
        ("e", 1, ("d",)),
        ("f", 2, ("d", "e")),
    ]
    groups = chunking.join_inputs(two)
    assert chunking.circles(chunking.predecessors(two, groups)) == [[0, 1], [2, 3]]
    with pytest.raises(PlanError, match="in a circle"):
        chunking.real_completions(before)


def test_frames_in_flight_agree_with_the_formula(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    module = sys.modules[type(find("12-3")).__module__]
    for host, device, count in ((2, 5, 20), (3, 4, 30), (5, 2, 9), (4, 4, 12)):
        ends = [module.frames(host, device, count, n)[-1][1] for n in (1, 2, 3)]
        whole = host + device + (count - 1) * max(host, device)
        assert ends == [count * (host + device), whole, whole]


def test_the_record_shows_what_the_text_says():
    record = json.loads(data("recorded/schedules_h200.json").read_text("utf-8"))
    one, two = (frames.recorded_trace(record, flying).duration_ns for flying in (1, 2))
    assert 0.6 < two / one < 0.7
    times = frames.recorded_times(record)
    errors = {
        node: (a + b * 64) / times[64][node] - 1
        for node, (a, b) in frames.cost_lines(times).items()
    }
    assert sorted(errors, key=lambda node: abs(errors[node]))[-1] == "conv1"
    assert sum(abs(error) < 0.08 for error in errors.values()) == len(errors) - 1


def test_a_table_of_costs_has_every_step_and_the_sum():
    with np.load(data("digits.npz")) as file, settings(DISABLE_FUSION=1):
        images = file["images"][:64]
        with vklab.load(data("digits_cnn.onnx")) as session:
            text = frames.table_of(frames.least_us(session, "image", images, turns=1))
    assert text.count("predicted") == 9 and "their sum" in text.splitlines()[-1]


def test_a_wrong_cut_is_refused_before_the_runtime_sees_it():
    pins = {"mini_classifier.onnx": {"Relu": 1, "*": 0}}

    def late(graph, devices, early=frozenset()):
        nodes = chunking.node_facts(graph, devices)
        groups = [(device, [name]) for name, device, _ in reversed(nodes)]
        return chunking.as_chunks(graph, devices, groups)

    with pytest.raises(AssertionError, match="which comes later"):
        chunking.planned_on_two(pins, late)
    ((_, chunks, transfers, in_a_row),) = chunking.planned_on_two(pins)
    assert chunks == transfers + 1 and not in_a_row
