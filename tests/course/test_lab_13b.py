"""Lab 13b: its bytes are those of replayed sends, its paths run, its traces hold one early read."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.course.scored import drawn_cases
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_13 import second_device, transfers
from vklab_labs.lab_13.parallelism import SLOTS, even_parts, events_of, pipeline, replay, step_times
from vklab_labs.shared import swapped

LAB = find_lab("13b", PROJECT / "labs")
paths = drawn_cases("13b-1", seconds=0.5)
shards = drawn_cases("13b-2", seconds=0.5)
ring = drawn_cases("13b-3", seconds=0.5)
traces = drawn_cases("13b-4", seconds=0.5)


def run_paths(choose_path, **switches):
    """Plan U-Net, and run models where there are two devices, with a student's function."""
    return swapped.run_swapped(
        "vklab.plan.place.transfer_paths.unseen",
        transfers.guarded(choose_path),
        planned=("unet",),
        **transfers.spread(**switches),
    )


def crossing(steps):
    """Return the elements that all sends together move."""
    return sum(end - first for sends in steps for _, _, first, end, _ in sends)


@pytest.mark.parametrize(("devices", "elements"), [(2, 8), (3, 7), (4, 12), (5, 3), (6, 0), (1, 4)])
def test_the_bytes_of_a_collective_are_those_of_its_sends(devices, elements):
    """An all-reduce is a reduce-scatter and an all-gather, each with (p - 1) V elements."""
    steps = trials.answer_of(LAB, "13b-3")(devices, elements)
    assert (replay(devices, elements, steps) == 1).all()
    half = devices - 1
    assert crossing(steps[:half]) == crossing(steps[half:]) == (devices - 1) * elements
    assert sum(step_times(steps)) == 2 * half * -(-elements // devices)


def test_sends_that_cannot_be_are_refused():
    for send, words in (
        ((0, 0, 0, 1, True), "devices are two of"),
        ((0, 2, 0, 1, True), "devices are two of"),
        ((0, 1, 1, 0, True), "elements are 0 to 3"),
        ((0, 1, 0, 5, True), "elements are 0 to 3"),
    ):
        with pytest.raises(ValueError, match=words):
            replay(2, 4, [[send]])
    with pytest.raises(ValueError, match="sends once and receives once"):
        replay(3, 4, [[(0, 2, 0, 1, True), (1, 2, 2, 3, True)]])


def test_natural_all_reduces_are_slower_than_the_ring(ring):
    exercise, _, cases = ring
    for wrong in (each for each in answers_of(LAB).wrong if each[0] == "13b-3"):
        verdict = judge(exercise, LocalAnswers(wrong[1]), cases)
        print(verdict.points, wrong[2])
        assert verdict.points < 5
    for case in cases:
        devices, elements = case.args
        to_one_and_back = 2 * (devices - 1) * elements
        print(case.args, "ring", case.expected, "one after the other", to_one_and_back)
        assert case.expected <= to_one_and_back


def test_every_path_decides_some_case(paths):
    _, module, cases = paths
    best = [case.expected[0] for case in cases]
    assert {
        "nothing",
        "opaque fd",
        "device group",
        "dma-buf",
        "shared host",
        "ring",
        "host copy",
    } == {*best}
    ties = [
        case
        for case in cases
        if case.args[2]
        and sum(size == case.expected[1] for _, size in module.all_paths(*case.args)) > 1
    ]
    assert len(ties) >= 2


def test_shards_cover_every_element_once(shards):
    _, _, cases = shards
    for case in cases:
        m, k, n, rows, columns = case.args
        if min(rows, columns) < 1:
            continue
        found, reduced, gathered = case.expected
        places = [(x, y) for (a, b), (c, d) in found for x in range(a, b) for y in range(c, d)]
        assert sorted(places) == list(itertools.product(range(k), range(n)))
        steps = trials.answer_of(LAB, "13b-3")
        parts = even_parts(n, columns)
        assert reduced == 4 * sum(crossing(steps(rows, m * (b - a))) for a, b in parts)
        gather = steps(columns, m * n)[columns - 1 :]
        assert gathered == 4 * rows * crossing(gather)


def test_each_trace_has_one_early_read_and_no_early_write(traces):
    exercise, module, _ = traces
    for params in exercise.variants:
        events = {event.name: event for event in events_of(params["trace"])}
        name, time = module.early_read(params["trace"])
        early = [
            (b.name, a.end)
            for a, b in itertools.permutations(events.values(), 2)
            if a.name[-1] == b.name[-1] and a.writes == b.reads and b.start < a.end
        ]
        assert early == [(name, time)]
        assert len(events) == 16
        for k in range(SLOTS, 4):  # a slot is read before it is written again
            assert events[f"out{k}"].start >= events[f"in{k - SLOTS}"].end
        for one, other in itertools.combinations(events.values(), 2):
            if one.lane == other.lane:
                assert one.end <= other.start or other.end <= one.start
    assert len({module.early_read(p["trace"])[0] for p in exercise.variants}) == 5


def test_a_pipeline_has_its_bubble():
    work = pipeline(4, 12)
    units = max(start for _, _, start in work) + 1
    assert units == 15 and 1 - 12 / units == pytest.approx(0.2)
    assert len({(stage, start) for stage, _, start in work}) == len(work) == 48


def test_a_students_paths_run_and_impossible_ones_do_not(monkeypatch):
    choose_path = trials.answer_of(LAB, "13b-1")
    rows, why = run_paths(choose_path, VKLAB_DISABLE_DIRECT_IO="1")
    assert not why and all(row.own == row.mine for row in rows)
    assert rows[-1].model == "unet" and rows[-1].own["transfers"] > 1
    assert all(row.same in (True, None) for row in rows)
    if len(rows) > 1:
        assert {row.mine["paths"] for row in rows[:-1]} == {"ring in shared host memory"}
    monkeypatch.setattr(transfers, "second_device", lambda: None)
    rows, why = run_paths(lambda *facts: ("host copy", 0))
    (row,) = rows
    assert not why and row.mine["host_bytes"] > row.own["host_bytes"]
    rows, why = run_paths(lambda *facts: [])
    assert not rows and why


def test_a_ring_between_devices_with_direct_access_is_refused():
    if second_device.second_device() is None:
        pytest.skip("there is no second device")
    rows, why = run_paths(lambda *facts: ("ring", 0))
    assert not rows and "a ring needs device memory at both ends" in why


def test_a_real_split_shows_its_transfers():
    if second_device.second_device() is None:
        pytest.skip("there is no second device")
    spans, why = transfers.traced_split(
        "digits_cnn.onnx", {"image": np.zeros((2, 1, 28, 28), np.float32)}
    )
    assert not why and len({lane for lane, *_ in spans}) == 3  # the host and two devices
    assert any(words.endswith("to 1") for _, words, *_ in spans)
