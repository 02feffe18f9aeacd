"""Comparing outputs with the truth: what passes, what does not, and what is shown."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vklab.runtime.observe import compare


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def compared(got: np.ndarray, truth: np.ndarray) -> compare.Comparison:
    return compare.compare({"y": got}, {"y": truth})


SPECIAL = floats(np.nan, np.inf, -np.inf, 1, -1, 0)


def test_equal_values_pass():
    for truth in (SPECIAL, floats(), np.float32(3), np.int64([1, 2]), np.array([True])):
        comparison = compared(np.array(truth), np.array(truth))
        assert comparison.passed and comparison.max_abs_error == 0 and not comparison.worst


@pytest.mark.parametrize(("got", "truth"), [
    (floats(1, 2), floats(1, 3)), (floats(np.nan), floats(1)), (floats(1), floats(np.nan)),
    (floats(np.inf), floats(-np.inf)), (floats(np.inf), floats(3e38)), (floats(np.nan),
    floats(np.inf)), (floats(0), floats(1e-3)), (floats(1, 1.001), floats(1, 1)),
    (np.int64([1]), np.int64([2])), (np.array([True]), np.array([False])),
    (floats(1e-20), floats(0)), (np.float32(2), np.float32(3)),
])  # fmt: skip
def test_wrong_values_fail_and_are_shown(got, truth):
    comparison = compared(got, truth)
    assert not comparison.passed
    (first, *_) = comparison.worst
    index = tuple(first["index"])
    for side, array in (("got", got), ("expected", truth)):
        np.testing.assert_equal(first[side], array[index].item())


def test_rounding_passes_and_is_measured():
    truth = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    comparison = compared(truth * np.float32(1.00001), truth)
    assert comparison.passed
    assert comparison.max_abs_error == pytest.approx(1e-5 * np.abs(truth).max(), rel=0.1)
    assert comparison.max_rel_error == pytest.approx(1e-5, rel=0.1)


def test_a_small_element_may_be_off_by_the_rounding_of_the_largest():
    assert compared(floats(1000, 1e-3), floats(1000, 0)).passed
    assert not compared(floats(1, 1e-3), floats(1, 0)).passed


def test_an_infinity_does_not_make_everything_else_right():
    assert not compared(floats(np.inf, 1), floats(np.inf, 2)).passed


def test_each_output_has_its_own_scale():
    truth = {"large": floats(1e6), "small": floats(1.0)}
    assert not compare.compare({**truth, "small": floats(1.5)}, truth).passed


@pytest.mark.parametrize(("got", "shown"), [
    (np.zeros((1, 2), np.float32), "float32[1, 2]"), (np.zeros(2), "float64[2]"), (None, None),
])  # fmt: skip
def test_another_shape_or_dtype_and_a_missing_output_fail(got, shown):
    actual = {} if got is None else {"y": got}
    comparison = compare.compare(actual, {"y": np.zeros(2, np.float32)})
    assert not comparison.passed
    assert comparison.worst == (
        {"output": "y", "index": [], "got": shown, "expected": "float32[2]"},
    )


def test_one_output_too_many_fails():
    assert not compare.compare({"y": floats(1), "z": floats(1)}, {"y": floats(1)}).passed


def test_the_first_ten_differences_are_shown_in_order():
    truth = np.zeros((4, 5), np.float32)
    got = truth.copy()
    got.ravel()[3:] = 1
    comparison = compared(got, truth)
    assert [item["index"] for item in comparison.worst][:3] == [[0, 3], [0, 4], [1, 0]]
    assert len(comparison.worst) == 10 and comparison.max_abs_error == 1
    assert "DIFFERS" in str(comparison) and "y[0, 3]: 1.0, expected 0.0" in str(comparison)


def test_the_summary_is_json():
    summary = json.loads(json.dumps(compared(floats(1, 2), floats(1, 3)).summary()))
    assert summary == {
        "passed": False,
        "max_abs_error": 1.0,
        "max_rel_error": pytest.approx(1 / 3),
        "worst": [{"output": "y", "index": [1], "got": 2.0, "expected": 3.0}],
    }


@pytest.mark.parametrize("truth", [floats(np.nan, np.nan), floats(np.inf, np.nan)])
def test_values_that_are_all_lost_are_no_measured_agreement(truth):
    comparison = compared(np.array(truth), np.array(truth))
    assert "no element is finite: no error was measured" in str(comparison)
    assert "no element" not in str(compared(SPECIAL, SPECIAL))
