"""Lab 18: intervals that hold, records with planted faults, lines, and designs below the bound."""

from __future__ import annotations

import json
import math
from statistics import median

import numpy as np
import pytest

from support.course.scored import drawn_cases
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.data import data
from vklab_course.definition.case import Case
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import find
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.definition.report import Differs, Report
from vklab_course.places import PROJECT
from vklab_labs.lab_18 import chains, designs, noise
from vklab_labs.lab_18 import measuring_pictures as figures
from vklab_labs.lab_18.records import EXAMPLE

LAB = find_lab("18", PROJECT / "labs")
intervals = drawn_cases("18-1", seconds=3.0)
records = drawn_cases("18-2", seconds=5.0)
lines = drawn_cases("18-3", seconds=3.0)
spent = drawn_cases("18-4", seconds=5.0)


def below_full(drawn):
    """Judge every wrong answer of an exercise on drawn cases; none may earn all points."""
    exercise, _, cases = drawn
    for identifier, answer, words, *_ in answers_of(LAB).wrong:
        if identifier == exercise.id:
            verdict = judge(exercise, LocalAnswers(answer), cases)
            print(exercise.id, verdict.points, words)
            assert verdict.points < exercise.points, words


def test_no_wrong_interval_earns_all_points(intervals):
    below_full(intervals)


def test_no_wrong_audit_earns_all_points(records):
    below_full(records)


def test_no_wrong_line_earns_all_points(lines):
    below_full(lines)


def test_no_wrong_design_earns_all_points(spent):
    below_full(spent)


@pytest.mark.parametrize("identifier", ["18-2", "18-3"])
def test_no_wrong_answer_earns_all_points_in_another_variant(identifier, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    kind = type(find(identifier))
    wrongs = [each for each in answers_of(LAB).wrong if each[0] == identifier]
    for variant in range(1, len(kind.variants)):
        exercise = kind(variant)
        cases = draw(exercise, "wrong")
        for _, answer, *_ in wrongs:
            assert judge(exercise, LocalAnswers(answer), cases).points < exercise.points


def test_the_least_number_of_samples_with_an_interval(intervals):
    _, module, _ = intervals
    least = {
        percent: next(n for n in range(1, 20) if module.interval(range(n), percent))
        for percent in (80, 90, 95, 99)
    }
    assert least == {80: 4, 90: 5, 95: 6, 99: 8}


def test_an_interval_of_the_median_holds_and_that_of_the_mean_does_not(intervals):
    _, module, _ = intervals
    for count in (6, 10, 30, 100):
        assert 93 <= noise.holds(lambda samples: module.interval(samples, 95), count) <= 99
    of_mean = [noise.holds(noise.mean_interval, count) for count in (10, 30, 100)]
    assert of_mean[0] > of_mean[1] > 5 * of_mean[2]  # the text: less often with more data


def test_records_have_the_planted_faults_and_every_fault_is_planted(records):
    exercise, module, cases = records
    for part, own in module.OF_PART.items():
        found = [case.expected for case in cases if case.part == part]
        assert [] in found  # an honest record
        for name in own:
            assert any(name in each for each in found) and not all(name in each for each in found)
    assert {len(case.expected) for case in cases} == {0, 1, 2}
    for case in cases:
        record = case.args[0]
        assert all(
            len(runner["times"]) == len(runner["begins"])
            and (len(runner["times"]) - record["warm_up"]) % 2 == 1
            and all(type(time) is int for time in runner["times"])
            for runner in record["runners"]
        )
    sides = [
        median(runner["times"][case.args[0]["warm_up"] :]) / math.gcd(*runner["times"])
        for case in cases
        if case.part == "clock"
        for runner in case.args[0]["runners"]
    ]
    ten = exercise.params["ten"]
    assert any(side < ten for side in sides) and any(ten <= side < 2 * ten for side in sides)


def test_the_example_is_what_its_docstring_says():
    assert trials.answer_of(LAB, "18-2")(EXAMPLE) == {"fastest_only", "not_waited"}


def test_the_least_times_estimate_a_slope_best():
    """With the stated noise: a = 24 us, b = 2.5 us, 15 runs of four lengths."""
    random = np.random.default_rng(18)
    nodes, errors = np.array([1, 10, 100, 1000]), {"least": [], "medians": [], "all": []}
    for _ in range(200):
        times = np.array(
            [(24 + 2.5 * n) * np.array(noise.draw_times(random, 15)) / noise.TYPICAL for n in nodes]
        )
        for name, x, y in (
            ("least", nodes, times.min(1)),
            ("medians", nodes, np.median(times, 1)),
            ("all", np.repeat(nodes, 15), times.ravel()),
        ):
            errors[name].append(abs(np.polyfit(x, y, 1)[0] / 2.5 - 1))
    found = {name: float(np.median(each)) for name, each in errors.items()}
    print(found)
    assert found["least"] < found["medians"] < found["all"]


def test_recorded_chains_are_those_of_the_page_and_two_are_no_line(lines):
    _, module, _ = lines
    for row, name in zip(chains.recorded(), ("h200_vkml", "lavapipe"), strict=True):
        page = json.loads((PROJECT / f"docs/speed/{name}.json").read_text("utf-8"))
        assert row["date"] == page["machine"]["started"][:10]
        for one in page["rows"]:
            if one["model"].startswith("chain_add") and one["runner"] in row["medians_us"]:
                place = chains.LENGTHS.index(int(one["model"].rpartition("_")[2]))
                assert row["medians_us"][one["runner"]][place] == one["median_us"]

    def fitted(machine, runner, most=0.5):
        times = [[us] for us in chains.medians(machine, runner)]
        return module.line(chains.LENGTHS, times, most)

    assert fitted("llvmpipe", "vklab-unfused") is None
    assert fitted("NVIDIA", "onnxruntime-cpu") is None
    steep, start = fitted("llvmpipe", "vklab-unfused", 1e9)
    first = chains.medians("llvmpipe", "vklab-unfused")[0]
    assert steep == pytest.approx(64.5, abs=0.05)
    assert (start + steep - first) / first == pytest.approx(78, abs=0.5)
    for runner in ("vklab", "vklab-unfused", "onnxruntime-cuda-graph"):
        steep, _ = fitted("NVIDIA", runner)
        assert chains.medians("NVIDIA", runner)[0] > 10 * steep


def test_no_simple_design_comes_near_the_bound(spent):
    exercise, module, cases = spent
    for case in (case for case in cases if case.part != "valid"):
        lengths, _, sd, _ = case.args
        simple = {
            name: designs.variance(lengths, sd, runs) / case.expected
            for name, runs in module.simple_designs(case.args).items()
        }
        print(case.part, {name: round(share, 2) for name, share in simple.items()})
        assert min(simple["equal counts"], simple["equal time"]) == case.facts["natural"]
        assert min(share for name, share in simple.items() if "all" not in name) > 1.5
        assert simple["all lengths, in proportion"] > 1.05
    best = judge(exercise, LocalAnswers(trials.answer_of(LAB, "18-4")), cases)
    assert [part.earned for part in best.parts] == [1, 2, 2]


def test_two_lengths_are_the_best_continuous_design(spent):
    """Multiplicative steps over all lengths find nothing below the best pair."""
    _, _, cases = spent
    for case in (case for case in cases if case.part != "valid"):
        lengths, cost, sd, budget = (np.array(each, float) for each in case.args)
        nodes, share = lengths, np.full(len(lengths), 1 / len(lengths))
        information = 1 / (cost * sd**2)  # of one unit of time, up to the design
        for _ in range(20_000):
            weights = share * information * budget
            centre = (weights * nodes).sum() / weights.sum()
            spread = (weights * (nodes - centre) ** 2).sum()
            gains = information * (nodes - centre) ** 2 / spread
            share = share * gains**0.5
            share /= share.sum()
        assert 1 / spread == pytest.approx(case.expected, rel=2e-3)
        assert 1 / spread > case.expected * (1 - 1e-9)


def test_designs_that_cannot_be_are_refused():
    for runs, words in (
        (None, "expected a list of 2"),
        ([1], "expected a list of 2"),
        ([1, -1], "no whole number"),
        ([1, True], "no whole number"),
        ([1, math.nan], "no whole number"),
        ([9, 0], "fewer than two lengths"),
        ([1, 10**9], "the budget is"),
    ):
        assert words in designs.flaw([1, 10], [20.0, 40.0], 100.0, runs)
    assert not designs.flaw([1, 10], [20.0, 40.0], 60.0, [1, 1])
    assert "the budget is" in designs.flaw([1, 10], [20.0, 40.0], 19.0, [1, 1])
    assert designs.variance([1, 10], [1.0, 1.0], [3, 0]) == math.inf
    with pytest.raises(ValueError, match="equally many"):
        designs.variance([1, 10], [1.0], [3, 3])


@pytest.mark.parametrize("times", [[math.nan, 1.0], [0, 5], [-1, 5], [7]])
def test_times_that_cannot_be_are_refused(times):
    with pytest.raises(ValueError, match="expected 2 positive times"):
        figures.draw_interval(times, (1, 2))


def test_pictures_take_equal_times_one_length_and_no_interval():
    assert "none" in figures.draw_interval([5, 5, 5], None).alt
    assert "no line" in figures.draw_fit([100], [[5.0]], None).alt
    assert "Your faults: none" in figures.draw_audit(EXAMPLE, set()).caption
    with pytest.raises(ValueError, match="fewer than two lengths"):
        figures.draw_spend(lambda lengths, cost, sd, budget: [0] * len(lengths))


@pytest.mark.parametrize("got", [None, 3, "cached", {"cached": 1}, [1], ["nothing"], {None}])
def test_answers_that_are_no_names_are_told_so(got, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    with pytest.raises(Differs, match="expected a set of names|there is no fault"):
        find("18-2").compare(
            Case("floor", (EXAMPLE,), expected=["not_waited"]), got, Report("floor")
        )


def test_the_planted_benchmark_measures_nothing():
    """A wait for a finished frame takes the same time for any model, far below a run."""
    feed = {"image": np.zeros((200, 1, 28, 28), np.float32)}
    model = data("digits_cnn.onnx")
    assert 0 < chains.waited_us(model, feed, runs=50) < 1_000


def test_a_benchmark_that_gives_no_row_says_so():
    row, why = chains.benched("no_such_model", seconds=60)
    assert not row and "gave no row" in why
