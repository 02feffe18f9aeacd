"""Lab 15: its packages are what they were made as, its bound is exact, its record holds."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections import defaultdict

import numpy as np
import pytest

from support.course.scored import drawn_cases
from vklab.apps.compare.judging import flips
from vklab_course import rows
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.check import check_answer
from vklab_course.data import data
from vklab_course.definition.draw import draw
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_15 import packages, shapes

LAB = find_lab("15", PROJECT / "labs")
RECORD = json.loads((PROJECT / "data/recorded/coreml_linux.json").read_text("utf-8"))
counts = drawn_cases("15-1", seconds=2)
pooling = drawn_cases("15-2", seconds=2)
margins = drawn_cases("15-3", seconds=2)
contents = drawn_cases("15-4", seconds=2)
lengths = drawn_cases("15-5", seconds=5)
POINTS = {"15-1": 4, "15-2": 4, "15-3": 4, "15-4": 3, "15-5": 5}


def wrong_answers(identifier):
    return [each[1] for each in answers_of(LAB).wrong if each[0] == identifier]


def assert_wrong_answers_lose(drawn):
    exercise, _, cases = drawn
    right = judge(exercise, LocalAnswers(trials.answer_of(LAB, exercise.id)), cases)
    assert right.points == exercise.points == POINTS[exercise.id]
    for answer in wrong_answers(exercise.id):
        verdict = judge(exercise, LocalAnswers(answer), cases)
        print(exercise.id, verdict.points, getattr(answer, "__name__", answer))
        assert verdict.points < exercise.points


def test_wrong_counts_lose(counts):
    assert_wrong_answers_lose(counts)


def test_wrong_bins_lose(pooling):
    assert_wrong_answers_lose(pooling)


def test_wrong_margins_lose(margins):
    assert_wrong_answers_lose(margins)


def test_wrong_packages_lose(contents):
    assert_wrong_answers_lose(contents)


def test_wrong_lengths_lose(lengths):
    assert_wrong_answers_lose(lengths)


def test_searches_are_scored_in_two_halves(lengths):
    exercise, module, cases = lengths
    scored = [case for case in cases if not case.part]
    assert len(scored) == len(shapes.KINDS)
    for case in scored:
        found = shapes.naturals(*case.args)
        shares = {name: round(padded / case.expected, 2) for name, padded in found.items()}
        print(case.on, "least", case.expected, shares)
        assert min(found.values()) >= 1.01 * case.expected
        assert 60 <= len(case.args[0]) <= 200 and 4 <= case.args[1] <= 6
        second = next(each[1] for each in answers_of(LAB).alternative if each[0] == "15-5")
        assert shapes.padding(case.args[0], second(*case.args)) == case.expected
    for rule in (shapes.equal_steps, shapes.halves, shapes.quantiles):
        assert judge(exercise, LocalAnswers(rule), cases).points == 0
    for rule in (shapes.greedy, shapes.exchanges):
        verdict = judge(exercise, LocalAnswers(rule), cases)
        print(rule.__name__, verdict.points)
        assert 0 < verdict.points <= 2 and verdict.parts[1].earned == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_least_padding_is_that_of_all_lists(seed, lengths):
    _, module, _ = lengths
    random = np.random.default_rng(seed)
    sizes, most = random.integers(1, 12, 15).tolist(), int(random.integers(1, 5))
    every = (
        shapes.padding(sizes, [*lower, max(sizes)])
        for count in range(most)
        for lower in itertools.combinations(sorted(set(sizes) - {max(sizes)}), count)
    )
    assert module.least_padding(sizes, most) == min(every)


def test_what_is_no_list_of_lengths_has_its_reason():
    for answer, words in (
        ([], "holds the longest"),
        ([4], "holds the longest"),
        ([9, 5], "not sorted"),
        ([1, 2, 9], "at most 2"),
        ([9.0], "no whole number"),
        ([True, 9], "no whole number"),
        (9, "a list"),
    ):
        assert words in shapes.fault_of([5, 9], 2, answer)
    assert not shapes.fault_of([5, 9], 2, [5, 12])  # longer than any input: allowed, and wasteful


def test_bins_are_those_of_torch():
    torch = pytest.importorskip("torch")
    mine = trials.answer_of(LAB, "15-2")
    for size, bins in itertools.product((1, 2, 5, 7, 12, 29), (1, 2, 3, 4, 7, 11)):
        (wanted,) = torch.nn.functional.adaptive_avg_pool1d(torch.eye(size)[None], bins).numpy()
        np.testing.assert_allclose(mine(size, bins), wanted.T, atol=1e-6)


def test_a_row_that_can_flip_does_so_for_some_errors(margins):
    """Moving the two highest scores towards each other changes the class, or it cannot change."""
    _, _, cases = margins
    for case in cases:
        scores, error = np.float64(case.args[0]), case.args[1]
        if not len(scores):
            continue
        best = scores.argmax(axis=1)
        moved = scores + error
        moved[np.arange(len(scores)), best] -= 2 * error
        assert (moved.argmax(axis=1) != best)[case.expected].all()
        strict = np.sort(moved, axis=1)[:, -1] > moved[np.arange(len(scores)), best]
        assert np.array_equal(strict, case.expected)


def test_packages_are_told_apart_by_their_facts(contents):
    exercise, module, _ = contents
    for name, files in packages.SETS.items():
        facts = packages.set_facts(name)
        assert len({module.MADE[file] for file in files}) == 3
        for letter, file in zip("PQR", files, strict=True):
            kind, target, precision, weights = module.MADE[file]
            found = facts[letter]
            shortened = [each for each in found.operators if each.startswith("constexpr_")]
            assert found.layers == (kind == "neuralNetwork")
            assert found.specification == module.SPECIFICATION[target]
            assert (found.outputs == ("float16",)) == (precision == "float16")
            narrow = "fp16" in found.casts
            assert not narrow or precision == "float16"
            assert narrow or "image" not in found.inputs or precision != "float16"
            assert ("constexpr_lut_to_dense" in shortened) == (weights == "palette")
            assert ("constexpr_affine_dequantize" in shortened) == (weights == "int8")
    files = {file for files in packages.SETS.values() for file in files}
    assert files == {*module.MADE}


def test_two_rules_of_thumb_fail_in_every_set(contents):
    exercise, module, _ = contents
    for number, files in enumerate(packages.SETS.values()):
        one = type(exercise)(number)
        cases = draw(one, "rules")
        right = {letter: module.MADE[file] for letter, file in zip("PQR", files, strict=True)}
        assert judge(one, LocalAnswers(right), cases).points == 3
        # relu and conv are of iOS 15, shortened weights of iOS 16
        newest = {
            letter: (row[0], "iOS15" if row[3] == "as computed" else "iOS16", *row[2:])
            for letter, row in right.items()
        }
        by_input = {letter: (*row[:2], "float32", row[3]) for letter, row in right.items()}
        for answer in (newest, by_input):
            assert judge(one, LocalAnswers(answer), cases).points < 3
        for answer in ({}, {"P": 3}, {"P": right["P"]}, dict.fromkeys("PQR", right["P"])):
            assert judge(one, LocalAnswers(answer), cases).points <= 1


def test_the_third_wrong_answer_gets_the_fact_of_its_first_wrong_word(contents, monkeypatch):
    monkeypatch.setattr(rows, "_wrong", defaultdict(dict))
    exercise, module, cases = contents
    files = packages.SETS[exercise.params["set"]]
    right = {letter: module.MADE[file] for letter, file in zip("PQR", files, strict=True)}
    kind, target, precision, weights = right["Q"]
    tries = [
        {**right, "Q": (kind, target, precision, "int8")},
        {**right, "Q": (kind, target, "float32", weights)},
        {**right, "Q": (kind, "iOS15", precision, weights)},
    ]
    said = [check_answer(exercise, each, cases=cases).parts[0].message for each in tries]
    assert said == ["not all right"] * 2 + [
        "not all right. Row Q target: Its specification has version 7."
    ]
    assert check_answer(exercise, {"Q": "iOS16"}, cases=cases).points == 0
    told = check_answer(exercise, right, cases=cases).messages
    assert len(told) == 12 and told[0].startswith("P kind: ")


def test_the_record_shows_what_the_text_says():
    assert all(RECORD["equal_bits"].values()) and len(RECORD["equal_bits"]) == 4
    table = RECORD["table"]
    assert set(table) == {"mini_classifier", "text_classifier", "resnet18"}
    for forms in table.values():
        wide, half, newer = forms["float32"], forms["float16"], forms["float16, iOS16"]
        assert half["specification"] == 6 and newer["specification"] == 7
        assert half["casts"] == newer["casts"] + 1
        assert half["result"] == "float32" and newer["result"] == "float16"
        assert forms["NeuralNetwork"]["error"] == wide["error"]
        assert 1.9 < wide["bytes"] / half["bytes"] < 2.1
        assert half["error"] < forms["int8"]["error"] < forms["palette"]["error"]
    assert table["resnet18"]["palette"]["error"] > 0.9 * table["resnet18"]["palette"]["largest"]
    mixed = RECORD["mixed"]
    assert mixed["table in float32"]["error"] == mixed["all float16"]["error"]
    assert mixed["table in float32"]["bytes"] > 1.9 * mixed["all float16"]["bytes"]
    epsilons = RECORD["epsilons"]
    assert epsilons["1e-12"]["stored"] == epsilons["1e-08"]["stored"] == 2.0**-24
    assert all(each["ordinary"] < 2e-3 for each in epsilons.values())
    assert epsilons["1e-12, float32"]["flat"] < 1e-4
    assert epsilons["1e-12"]["flat"] > 0.1
    open_sizes = RECORD["flexible"]
    assert all("Error" in words for words in open_sizes["refused"].values())
    assert all(error < 0.02 for kind in open_sizes["errors"].values() for error in kind.values())
    assert all(len(each) == 2 for each in open_sizes["outside"].values())


def test_few_texts_can_flip_and_none_does():
    texts = packages.held_out_texts(data("novels.txt.xz"), data("text_classifier.npz"))
    truth = packages.text_scores(texts, data("text_classifier.npz"))
    flags = trials.answer_of(LAB, "15-3")(truth.astype(np.float32), RECORD["held_out"]["error"])
    assert len(texts) == RECORD["held_out"]["texts"] == 2900
    assert flags.sum() == 16 and RECORD["held_out"]["flips"] == 0
    found = packages.run_package(data("packages") / "text_classifier.mlpackage", texts[flags])
    judged = flips.judge(truth[flags], found)
    assert not judged.flipped and judged.error <= RECORD["held_out"]["error"]


MISSING = [name for name in ("coremltools", "torch") if not importlib.util.find_spec(name)]


@pytest.mark.full
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_conversions_give_what_is_recorded(tmp_path):
    from vklab_labs.lab_15 import conversions

    for name in ("mini_classifier", "text_classifier"):
        found = conversions.table(name, tmp_path)
        for form, row in found.items():
            wanted = RECORD["table"][name][form]
            assert row["bytes"] == pytest.approx(wanted["bytes"], rel=0.01)
            assert row["error"] == pytest.approx(wanted["error"], rel=0.5)
            exact = ("specification", "casts", "result", "operators", "with_constants")
            assert all(row[each] == wanted[each] for each in exact)
        assert conversions.equal_bits(name, tmp_path)
    stored = {name: row["stored"] for name, row in conversions.epsilons(tmp_path).items()}
    assert stored == {name: row["stored"] for name, row in RECORD["epsilons"].items()}
    assert conversions.flexible(tmp_path)["refused"] == RECORD["flexible"]["refused"]
    for name, row in conversions.mixed(tmp_path).items():
        assert row["bytes"] == pytest.approx(RECORD["mixed"][name]["bytes"], rel=0.01)
