"""Upper bounds of open dimensions: what may be said, under which names, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from vklab.errors import ModelError
from vklab.graph import bounds
from vklab.graph.graph import Graph
from vklab.runtime import feeds
from vklab.types import ANY_SHAPE, TensorInfo

INFOS = (
    TensorInfo("ids", "int64", ("batch", "sequence")),
    TensorInfo("mask", "float32", ("batch", 1, "mask.2")),
    TensorInfo("other", "float32", ANY_SHAPE),
    TensorInfo("items", "sequence", ANY_SHAPE),
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"batch": 4}, {"batch": 4}),
        ({"batch": 4, "sequence": 7}, {"batch": 4, "sequence": 7}),
        ({"mask.0": 3, "ids.1": 5}, {"batch": 3, "sequence": 5}),
        ({"mask.0": 3, "batch": 3}, {"batch": 3}),
        ({"mask.2": np.int32(9)}, {"mask.2": 9}),
    ],
)
def test_bounds_go_by_the_names_of_the_model_or_by_input_and_axis(given, expected):
    found = bounds.resolve(INFOS, given)
    assert found == expected and all(type(size) is int for size in found.values())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bacth": 4}, "bacth=4.*unknown dimension; the open ones are batch, mask.2, sequence"),
        ({"ids.2": 4}, "ids.2=4.*unknown dimension"),
        ({"other.0": 4}, "unknown dimension"),
        ({"mask.1": 4}, "mask.1=4: the model fixes this dimension at 1; omit the bound"),
        ({"batch": 0}, "batch=0: a bound is an integer of at least 1"),
        ({"batch": -3}, "an integer of at least 1"),
        ({"batch": 2.0}, "batch=2.0: a bound is an integer"),
        ({"batch": "8"}, "batch='8': a bound is an integer"),
        ({"batch": True}, "batch=True: a bound is an integer"),
        ({"batch": None}, "batch=None: a bound is an integer"),
        ({"ids.0": 2, "mask.0": 3}, "ids.0=2 and mask.0=3 contradict each other.*'batch'"),
        ({"batch": 2, "mask.0": 3}, "batch=2 and mask.0=3 contradict each other"),
    ],
)
def test_bad_bounds_are_named(given, says):
    with pytest.raises(ModelError, match=says):
        bounds.resolve(INFOS, given)


def test_a_model_without_open_dimensions_says_so():
    with pytest.raises(ModelError, match="open ones are none"):
        bounds.resolve((TensorInfo("x", "float32", (1, 3)),), {"batch": 1})


def test_inputs_at_their_bounds():
    shapes = [info.shape for info in bounds.at_bounds(INFOS, {"batch": 4, "mask.2": 7})]
    assert shapes == [(4, "sequence"), (4, 1, 7), ANY_SHAPE, ANY_SHAPE]


def test_arrays_up_to_their_bounds_are_taken_and_no_larger_ones():
    graph, most = Graph("g", 17, (), INFOS[:2], (), {}), {"batch": 2, "mask.2": 3}
    ids, mask = np.zeros((2, 99), np.int64), np.zeros((2, 1, 3), np.float32)
    assert len(feeds.arrays(graph, (ids, mask), most)) == 2
    assert len(feeds.arrays(graph, (ids[:0], mask[:0]), most)) == 2
    with pytest.raises(
        ModelError,
        match=r"mask.*'mask.2' = 4, above its upper bound 3; load the "
        r"model with upper_bounds=\{'batch': 2, 'mask.2': 4\}",
    ):
        feeds.arrays(graph, (ids, np.zeros((2, 1, 4), np.float32)), most)
    with pytest.raises(ModelError, match="ids.*'batch' = 3, above its upper bound 2"):
        feeds.arrays(graph, (np.zeros((3, 1), np.int64), np.zeros((3, 1, 3), np.float32)), most)
