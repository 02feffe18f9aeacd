"""Lab 14: wrong answers stay below full marks, its figures come out again, its parts teach."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from support.course import eight_bits_record
from support.course.scored import drawn_cases
from support.runs import tiers
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.check import check_answer
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import find
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_14 import codes_networks, int8_pairs, small_floats

LAB = find_lab("14", PROJECT / "labs")
scales = drawn_cases("14-1", seconds=0.5)
small = drawn_cases("14-2", seconds=0.5)
layers = drawn_cases("14-3", seconds=0.5)


def wrong_answers(identifier):
    return [each for each in answers_of(LAB).wrong if each[0] == identifier]


def points(exercise, answer, cases):
    return judge(exercise, LocalAnswers(answer), cases).points


def by_part(exercise, answer, cases):
    verdict = judge(exercise, LocalAnswers(answer), cases)
    return dict(zip(exercise.parts, (part.passed for part in verdict.parts), strict=True))


@pytest.fixture(autouse=True)
def _labs(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))


@pytest.mark.parametrize("identifier", ["14-1", "14-2", "14-3"])
@pytest.mark.parametrize("seed", tiers.seeds("public", "one", "another", "a third", "a fourth"))
def test_no_wrong_answer_has_full_marks(identifier, seed):
    exercise = find(identifier)
    cases = draw(exercise, seed)
    for _, answer, says, _ in wrong_answers(identifier):
        earned = points(exercise, answer, cases)
        print(identifier, earned, says)
        assert earned < exercise.points


# ------------------------------------------------------------------------------------------- 14-1


def test_the_plain_formulas_give_the_exact_scale(scales):
    """Rounding in floats never moves a code: students may divide before or after."""
    _, module, cases = scales
    random = np.random.default_rng(0)
    asked = [case.args for case in cases]
    for bits in range(2, 9):
        for low, high in random.lognormal(0, 2, (200, 2)):
            asked.append((-low, high, bits, bool(random.integers(2))))
    for low, high, bits, signed in [*asked, (-1.0, 1.0, 8, True), (-1.0, 1.0, 3, False)]:
        step, zero = module.exact_scale(low, high, bits, signed)
        first = -(2 ** (bits - 1)) if signed else 0
        low, high = min(low, 0.0), max(high, 0.0)
        assert first <= zero <= first + 2**bits - 1
        if low < high:
            plain = (high - low) / (2**bits - 1)
            assert plain == pytest.approx(step, rel=1e-14)
            assert first + round(-low / plain) == zero
            assert first + round(-low * (2**bits - 1) / (high - low)) == zero


def test_some_codes_of_zero_lie_in_the_middle_of_two(scales):
    _, _, cases = scales
    middles = 0
    for low, high, bits, _ in (case.args for case in cases if case.part == "around"):
        place = -Fraction(low) * (2**bits - 1) / (Fraction(high) - Fraction(low))
        middles += place % 1 == Fraction(1, 2)
    assert middles == 12


# ------------------------------------------------------------------------------------------- 14-2


def test_every_part_uses_every_format(small):
    exercise, _, cases = small
    for part in exercise.parts:
        assert {case.args[1:] for case in cases if case.part == part} == set(exercise.FORMATS)


@pytest.mark.parametrize("variant", range(4))
def test_a_second_rounding_and_flushed_subnormals_lose_their_part(variant):
    exercise = type(find("14-2"))(variant)
    cases, shift = draw(exercise, "public"), exercise.params["shift"]
    make = answers_of(LAB).alternative[1][1].__globals__["_floater"]
    assert all(by_part(exercise, make(shift=shift), cases).values())
    for name, changed, lost in (
        ("nearest entry", {"even": False}, {"ties", "small"}),
        ("float16", {"before": lambda x: x.astype(np.float16)}, {"double"}),
        ("no subnormals", {"flush": True}, {"small"}),
        ("another bias", {"shift": 1 if shift != 1 else 2}, set(exercise.parts)),
    ):
        parts = by_part(exercise, make(**{"shift": shift, **changed}), cases)
        missed = {part for part, right in parts.items() if not right}
        print(variant, name, missed)
        assert lost <= missed


def test_ml_dtypes_is_no_answer_of_any_part_but_the_formats_that_it_shares(small):
    pytest.importorskip("ml_dtypes")
    exercise, _, cases = small
    (answer,) = (a for _, a, _, _ in wrong_answers("14-2") if a.__name__ == "by_ml_dtypes")
    assert not any(by_part(exercise, answer, cases).values())
    for case in cases:
        if case.args[1:] == (3, 2):
            assert (answer(*case.args) == case.expected).all()


def test_the_helper_reads_what_the_oracle_writes(small):
    _, module, _ = small
    for shift in (0, 1, 4):
        for bits in ((5, 2), (4, 3), (3, 4), (2, 5), (3, 2)):
            numbers = module.positive_numbers(*bits, 2 ** (bits[0] - 1) - 1 + shift)
            codes = np.arange(2 * len(numbers)).astype(np.uint8)
            read = small_floats.numbers_of(codes, *bits, shift)
            assert (read == np.concatenate([numbers, -numbers])).all()
            assert (np.diff(numbers) > 0).all()
            assert (module.nearest_codes(read.astype(np.float32), numbers) == codes).all()


# ------------------------------------------------------------------------------------------- 14-3


def test_one_sum_is_odd_and_beyond_float32(layers):
    _, _, cases = layers
    (case,) = (case for case in cases if case.on.startswith("depth 521"))
    assert case.expected[0][0, 0] == 16_872_585 > 2**24
    assert np.float32(case.expected[0][0, 0]) == 16_872_584


def test_no_code_is_near_a_tie_but_where_steps_are_powers_of_two(layers):
    _, module, cases = layers
    ties = 0
    for case in cases:
        places = module.exact_layer(*case.args)[2]
        near = np.abs(places - np.floor(places) - 0.5) < 1e-6
        ties += near.sum()
        steps = np.append(case.args[4][1], [case.args[4][0], case.args[5][0]])
        assert not near.any() or (np.frexp(steps)[0] == 0.5).all(), case.on
    assert ties > 50


def test_every_wrong_sum_loses_the_sums(layers):
    exercise, _, cases = layers
    make = answers_of(LAB).alternative[2][1].__globals__["_layer"]
    for changed in (
        {"wide": np.float32},
        {"a_zero": lambda z: 0},
        {"b_zeros": lambda z: z * 0},
        {"a_zero": lambda z: 0, "b_zeros": lambda z: z * 0},
        {"constant": False},
    ):
        assert not by_part(exercise, make(**changed), cases)["sums"]


# ------------------------------------------------------------------------------------------- 14-4


@pytest.mark.parametrize("variant", range(4))
def test_no_rule_of_thumb_chooses_all_kinds(variant):
    exercise = type(find("14-4"))(variant)
    asked = exercise.questions()
    right = {name: row.right for name, row in asked.items()}
    assert len(set(right.values())) > 1
    by_name = {
        letter.upper(): "static" if "Relu" in network else right[letter.upper()]
        for letter, network in exercise.params.items()
    }
    assert by_name != right
    for other in range(4):
        if other != variant:
            assert {n: q.right for n, q in type(exercise)(other).questions().items()} != right


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(("identifier", "made"), [
    ("14-1", (np.nan, 0)), ("14-1", (np.inf, 0)), ("14-1", (1.0, np.nan)), ("14-1", (1.0, np.inf)),
    ("14-1", ("one", "two")), ("14-1", (1.0, 0, 0)), ("14-1", 7), ("14-1", (True, False)),
    ("14-1", (np.ones(3), np.zeros(3))),
    ("14-2", [1, 2]), ("14-2", np.zeros(0, np.uint8)), ("14-2", np.zeros((2, 2), np.uint8)),
    ("14-2", np.full(60, np.nan)), ("14-2", np.float32(np.inf)), ("14-2", "codes"),
    ("14-3", ([[1]], [[2]])), ("14-3", (np.zeros((0, 0), np.int32), np.zeros((0, 0), np.uint8))),
    ("14-3", (np.full((2, 2), np.nan), np.full((2, 2), np.inf))), ("14-3", np.zeros(2)),
    ("14-3", (None, None)), ("14-3", ()),
])  # fmt: skip
def test_results_of_a_wrong_kind_get_a_sentence(identifier, made):
    exercise = find(identifier)
    verdict = check_answer(exercise, lambda *asked: made, cases=draw(exercise, "public"))
    assert (verdict.status, verdict.points) == ("incorrect", 0), str(verdict)
    assert "expected" in str(verdict) and "Traceback" not in str(verdict)


@pytest.mark.parametrize("made", [{}, [], "static", {"A": None}, {"A": "int8"}, {"E": "static"}])
def test_rows_of_a_wrong_kind_get_a_sentence(made):
    exercise = find("14-4")
    verdict = check_answer(exercise, made, cases=draw(exercise, "public"))
    assert (verdict.status, verdict.points) == ("incorrect", 0)


# ----------------------------------------------------------------------------------------- figures


@pytest.fixture(scope="module")
def record():
    return json.loads(eight_bits_record.RECORD.read_text("utf-8"))


def test_the_network_in_numpy_is_the_trained_one():
    torch = pytest.importorskip("torch")
    from vklab.apps.compare import models

    module, (image,) = models.mobilenet_v2_half(16)
    with torch.no_grad():
        wanted = module(image).numpy()
    ours = codes_networks.forward(codes_networks.digits(True)[0][:16])
    assert np.abs(ours - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_the_shares_of_wrong_sums_come_out_again(record):
    assert eight_bits_record.wrong_shares() == pytest.approx(record["share_of_wrong_sums"],
                                                             abs=2e-3)  # fmt: skip
    assert int8_pairs.share_wrong(*int8_pairs.full_range_codes(256, 7)) == 0


def test_the_decibels_come_out_again(record):
    found = eight_bits_record.decibels()
    recorded = record["decibels_of_int8_by_filter_int8_e4m3_e5m2_e4m3_scaled"]
    assert found.keys() == recorded.keys()
    for name, row in found.items():
        assert row == pytest.approx(recorded[name], abs=0.2)


@pytest.mark.slow
def test_the_changed_classes_come_out_again(record):
    """A processor may add in another order, and so round a few numbers to another code."""
    found = eight_bits_record.changed_classes()
    for bits, row in record["changed_classes_of_359"].items():
        assert found[bits] == pytest.approx(row, abs=2 if bits == "8" else 6)
    assert max(found["8"]) < min(found["5"]) and max(found["5"]) < min(found["4"])


@pytest.mark.slow
@pytest.mark.gpu
def test_the_methods_of_choosing_ranges_come_out_again(record):
    for method, row in eight_bits_record.sqnr().items():
        assert row == pytest.approx(record["sqnr_db_of_digits_cnn"][method], abs=1)


def test_a_students_scale_makes_the_same_codes():
    """The codes of the demos are those of the runtime, for a range that a Relu leaves."""
    from vklab.apps.quantization import codes

    x = np.linspace(0, 3, 50).astype(np.float32)
    step, zero = trials.answer_of(LAB, "14-1")(0.0, 3.0, 8, False)
    mine = codes_networks.codes_of(x, step, zero, 8, False)
    assert (mine == codes.quantized(x, codes.of_range(0.0, 3.0))).mean() > 0.95
