"""Walks composed by fusion, beside NumPy, which makes every tensor in between."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vklab.plan.fusion import walks
from vklab.types import StridedView, dense_strides

DIMS = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def places(shape, walk):
    """Return the place of every element of a shape, in row-major order."""
    grid = np.indices(shape).reshape(len(shape), math.prod(shape))
    strides = np.array(walk.strides, np.int64).reshape(-1, 1)
    return walk.start + (grid * strides).sum(0)


@st.composite
def views(draw):
    """Draw a tensor's shape, and a view of it that NumPy makes without a copy: (shape, walk)."""
    inner = draw(DIMS)
    array = np.arange(math.prod(inner), dtype=np.int64).reshape(inner)
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["turn", "slice", "repeat", "join", "cut"]))
        if kind == "turn":
            array = array.transpose(draw(st.permutations(range(array.ndim))))
        elif kind == "slice" and array.ndim:
            axis = draw(st.integers(0, array.ndim - 1))
            step = draw(st.sampled_from([1, 2, -1, -2, 3]))
            start = draw(st.integers(0, array.shape[axis] - 1))
            part = np.moveaxis(array, axis, 0)[start::step]
            array = np.moveaxis(part, 0, axis)
        elif kind == "repeat" and array.ndim < 5:
            array = np.broadcast_to(array, (draw(st.integers(1, 3)), *array.shape))
        elif kind == "join" and array.flags.c_contiguous:
            array = array.reshape(-1)
        elif kind == "cut" and array.flags.c_contiguous and array.ndim < 4:
            array = array.reshape(*array.shape[:-1], 1, array.shape[-1])
    walk = StridedView(tuple(s // 8 for s in array.strides), int(array.reshape(-1)[0]))
    return inner, array.shape, walk


@given(views(), st.data())
@settings(max_examples=400, deadline=None)
def test_a_composed_walk_visits_what_two_walks_visit(view, data):
    inner_shape, shape, walk = view
    steps = [data.draw(st.integers(-3, 7)) for _ in inner_shape]
    inner = StridedView(tuple(steps), 40)
    found = walks.compose(shape, walk, inner_shape, [inner])
    if found is None:
        return
    cut, (composed,) = found
    assert math.prod(walks.split_axes(shape, cut)) == math.prod(shape)
    expected = places(inner_shape, inner)[places(shape, walk)]
    np.testing.assert_array_equal(places(walks.split_axes(shape, cut), composed), expected)
    np.testing.assert_array_equal(
        places(walks.split_axes(shape, cut), walks.split_walk(walk, cut)), places(shape, walk)
    )


@given(views())
@settings(max_examples=200, deadline=None)
def test_merged_axes_visit_the_same_places(view):
    _, shape, walk = view
    target = StridedView.dense(shape)
    merged, (one, other) = walks.merge(shape, [walk, target])
    np.testing.assert_array_equal(places(merged, one), places(shape, walk))
    np.testing.assert_array_equal(places(merged, other), places(shape, target))


@given(views())
@settings(max_examples=200, deadline=None)
def test_the_order_of_axes_makes_a_whole_walk_dense(view):
    inner_shape, shape, walk = view
    visited = places(shape, walk)
    axes = walks.order(shape, walk)
    whole = sorted(visited) == list(range(math.prod(shape)))
    if axes is None:
        assert not whole or any(s < 0 for s in walk.strides)
        return
    assert whole
    turned = StridedView(tuple(walk.strides[a] for a in axes))
    assert turned.is_dense(tuple(shape[a] for a in axes))


@pytest.mark.parametrize(
    "shape, walk, inner_shape",
    [
        # a reshape across axes that do not divide each other
        ((4, 3), StridedView((3, 1)), (3, 4)),
        ((5,), StridedView((5,)), (5, 4)),  # diagonal: two axes at once
    ],
)
def test_what_cannot_be_said_as_one_walk_is_refused(shape, walk, inner_shape):
    assert walks.compose(shape, walk, inner_shape, [StridedView((1, 10))]) is None


def test_a_transpose_a_slice_and_a_broadcast_compose():
    # y[i, j] = x.T[j + 2, i] of x (6, 4) that is itself bias[4] repeated along rows
    cut, (bias,) = walks.compose((4, 3), StridedView((1, 4), 8), (6, 4), [StridedView((0, 1))])
    assert walks.split_axes((4, 3), cut) == (4, 3)
    assert bias == StridedView((1, 0))


def test_a_reshape_that_splits_an_axis_is_followed():
    inner = [StridedView((12, 1, 3))]
    cut, (turned,) = walks.compose((2, 12), StridedView((12, 1)), (2, 3, 4), inner)
    assert walks.split_axes((2, 12), cut) == (2, 3, 4)
    assert turned == StridedView((12, 1, 3))
    assert dense_strides((2, 3, 4)) == (12, 4, 1)
