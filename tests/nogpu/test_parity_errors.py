"""Statistics of arrays against the truth, and verdicts on a backend's outputs."""

import json
import math

import numpy as np
import pytest

from vklab.apps.compare.judging import errors, judge
from vklab.runtime import tolerances
from vklab.runtime.observe import compare

RANDOM = np.random.default_rng(3)
SINGLE = tolerances.model("float32")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_one_rounding_is_at_most_half_an_ulp(dtype):
    truth = RANDOM.standard_normal(1009) * 10.0 ** RANDOM.integers(-7, 4, 1009)
    found = errors.measure(truth.astype(dtype), truth, dtype)
    assert found.max_ulp <= 0.5 and sum(found.ulps[:2]) == 1009 and not any(found.ulps[2:])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_ulp_is_the_distance_to_the_next_number(dtype):
    values = (RANDOM.standard_normal(101) * 100).astype(dtype)
    values = np.concatenate([values, np.asarray([1, 2, 0.5, 1e-7], dtype)])
    sizes = errors.ulp_size(values.astype(np.float64), dtype)
    np.testing.assert_array_equal(sizes, np.spacing(np.abs(values)).astype(np.float64))


def test_ulps_fall_into_the_bin_of_their_limit():
    truth = np.full(4, 1.0)
    got = truth + np.array([0, 1, 3, 2**14]) * 2.0**-23
    found = errors.measure(got, truth, "float32")
    limits = {limit: n for limit, n in zip(errors.ULP_LIMITS, found.ulps, strict=False) if n}
    assert limits == {0.0: 1, 1.0: 1, 4.0: 1} and found.ulps[-1] == 1


def test_noise_and_angle_are_those_of_their_formulas():
    truth = np.array([3.0, 4.0])
    found = errors.measure(np.array([3.0, 4.5]), truth)
    assert found.sqnr_db == pytest.approx(10 * math.log10(25 / 0.25))
    assert found.cosine == pytest.approx((9 + 18) / (5 * math.hypot(3, 4.5)))
    assert errors.measure(truth * 1e-200, truth * 1e-200).cosine == 1
    assert errors.measure(truth, truth).sqnr_db == math.inf
    assert errors.measure(-truth, truth).cosine == pytest.approx(-1)
    assert errors.measure(np.zeros(2), np.zeros(2)).cosine == 1


def test_the_same_class_is_counted_by_rows():
    truth = np.array([[1.0, 2, 3], [3, 2, 1], [0, 1, 0], [5, 0, 0]])
    got = truth.copy()
    got[1] = [0, 9, 0]
    assert errors.measure(got, truth).top1 == 0.75
    assert errors.measure(np.ones(1), np.ones(1)).top1 is None


def test_a_lost_value_is_counted_and_fails():
    truth = np.array([1.0, np.inf, 3, 4])
    got = np.array([np.nan, np.inf, 3, np.inf])
    found = errors.measure(got, truth)
    assert found.lost == 2 and found.max_abs == 0
    assert errors.share(got, truth, SINGLE) == math.inf
    assert errors.share(truth, truth, SINGLE) == 0


def test_a_share_is_that_of_check():
    truth = RANDOM.standard_normal((7, 5))
    got = truth + RANDOM.standard_normal((7, 5)) * 1e-4
    theirs = dict(compare.compare({"y": got}, {"y": truth}).shares)["y"]
    assert errors.share(got, truth, SINGLE) == pytest.approx(theirs, rel=1e-12)


def test_integers_must_be_equal():
    truth = np.arange(5)
    assert errors.share(truth.copy(), truth, SINGLE) == 0
    assert errors.share(truth + (truth == 2), truth, SINGLE) == math.inf


def test_repeated_runs_are_compared_bit_by_bit():
    first = {"y": np.array([0.0, 1.0], np.float32)}
    assert errors.repeats([first, first]) == errors.Repeats(2, True, 0.0)
    again = {"y": np.array([-0.0, 1.0], np.float32)}
    assert errors.repeats([first, again]) == errors.Repeats(2, False, 0.0)
    moved = {"y": np.array([0.0, 1.5], np.float32)}
    assert errors.repeats([first, first, moved]) == errors.Repeats(3, False, 0.5)


def test_statistics_are_json():
    found = errors.measure(np.ones(3), np.ones(3)).summary()
    assert json.loads(json.dumps(found, allow_nan=False))["sqnr_db"] is None


# ------------------------------------------------------------------------------------- verdicts


TRUTH = {"logits": RANDOM.standard_normal((2, 5)), "hidden": RANDOM.standard_normal((2, 7))}


def test_right_outputs_pass():
    made = {name: array.astype(np.float32) for name, array in TRUTH.items()}
    verdict = judge.outputs(made, TRUTH, SINGLE)
    assert verdict.passed and not verdict.notes and 0 < verdict.max_abs_error < 1e-6


def test_another_order_and_a_narrow_dtype_are_notes():
    made = {"hidden": TRUTH["hidden"].astype(np.float32), "logits": TRUTH["logits"].astype("f2")}
    verdict = judge.outputs(made, TRUTH, tolerances.model("float16"))
    assert verdict.passed
    assert verdict.notes == ("outputs in the order hidden, logits", "output 'logits' is float16")


def test_an_output_of_another_name_is_known_by_its_shape():
    made = {"var_9": TRUTH["logits"], "hidden": TRUTH["hidden"]}
    verdict = judge.outputs(made, TRUTH, SINGLE)
    assert verdict.passed and verdict.notes == ("output 'logits' is named 'var_9'",)


def test_a_name_is_not_guessed_between_two():
    truth = {"a": np.ones(3), "b": np.ones(3)}
    verdict = judge.outputs({"x": np.ones(3), "y": np.ones(3)}, truth, SINGLE)
    assert not verdict.passed and "no output 'a', 'b'; there is 'x', 'y'" in verdict.notes[0]


@pytest.mark.parametrize(("spoil", "words"), [
    (lambda a: np.where(a == a.max(), np.nan, a), "1 of 10 values are lost, 1 are NaN"),
    (lambda a: a[:1], r"has shape [1, 5], [2, 5] expected"),
])  # fmt: skip
def test_a_spoilt_output_fails_and_says_why(spoil, words):
    verdict = judge.outputs({**TRUTH, "logits": spoil(TRUTH["logits"])}, TRUTH, SINGLE)
    assert not verdict.passed and any(words in note for note in verdict.notes), verdict.notes


def test_a_wrong_number_fails():
    verdict = judge.outputs({**TRUTH, "logits": TRUTH["logits"] + 1e-3}, TRUTH, SINGLE)
    assert not verdict.passed and verdict.max_abs_error == pytest.approx(1e-3)
    assert verdict.shares["hidden"] == 0 and verdict.shares["logits"] > 1


def test_nothing_to_compare_is_no_success():
    assert not judge.outputs({}, {}, SINGLE).passed
