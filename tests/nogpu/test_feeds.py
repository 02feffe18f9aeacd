"""Inputs of a run that are like those of the last run: not checked again, and never wrong."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from support.graphs.small_models import model, value
from vklab.errors import ModelError
from vklab.graph import onnx_import
from vklab.runtime import feeds

node = helper.make_node
INPUTS = [value("a", ("n", 3)), value("b", (1, 3))]
GRAPH = onnx_import.load_graph(model([node("Add", ["a", "b"], ["y"])], INPUTS, ["y"]))
A, B = np.zeros((2, 3), np.float32), np.ones((1, 3), np.float32)


@pytest.fixture
def checks(monkeypatch):
    made = []
    check = feeds._check_array
    monkeypatch.setattr(feeds, "_check_array", lambda *given: made.append(1) or check(*given))
    return made


def test_equal_shapes_are_checked_once(checks):
    last = []
    for _ in range(3):
        given = {"a": A.copy(), "b": B.copy()}
        found = feeds.arrays(GRAPH, (given,), None, last)
        assert found == {} | found and found is not given
        assert [*found] == ["a", "b"] and all(found[name] is given[name] for name in given)
    assert len(checks) == 2


@pytest.mark.parametrize("wrong", [
    {"a": A.astype(np.float64), "b": B}, {"a": A[:, :2], "b": B}, {"a": A}, {"a": A, "c": B},
    {"a": A, "b": B, "c": B}, {"a": A, "b": B[0]}, {},
])  # fmt: skip
def test_what_differs_is_checked(checks, wrong):
    last = []
    feeds.arrays(GRAPH, ({"a": A, "b": B},), None, last)
    for _ in range(2):
        with pytest.raises(ModelError):
            feeds.arrays(GRAPH, (wrong,), None, last)
    assert feeds.arrays(GRAPH, ({"a": A, "b": B},), None, last)["b"] is B


def test_the_first_run_is_checked():
    for wrong in ({}, {"a": A}):
        with pytest.raises(ModelError, match="missing"):
            feeds.arrays(GRAPH, (wrong,), None, [])


def test_values_that_are_converted_are_always_checked(checks):
    last = []
    for given in ({"a": A.tolist(), "b": B}, {"a": A, "b": B.tolist()}):
        for _ in range(2):
            found = feeds.arrays(GRAPH, (given,), None, last)
            assert all(isinstance(array, np.ndarray) for array in found.values()) and not last
    assert len(checks) == 8
    for _ in range(2):
        found = feeds.arrays(GRAPH, (A, B), None, last)
        assert [*found] == ["a", "b"] and not last


def test_bounds_hold_for_every_new_size():
    last = []
    feeds.arrays(GRAPH, ({"a": A, "b": B},), {"n": 2}, last)
    with pytest.raises(ModelError, match="above its upper bound 2"):
        feeds.arrays(GRAPH, ({"a": np.zeros((3, 3), np.float32), "b": B},), {"n": 2}, last)
