"""Compare the views that fusion composes with NumPy, which makes every tensor in between."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.runs import tiers
from vklab.plan.fusion import views
from vklab.types import StridedView, dense_strides

DIMS = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def positions(shape, view):
    """Return the buffer position of every element of a shape, in row-major order."""
    grid = np.indices(shape).reshape(len(shape), math.prod(shape))
    strides = np.array(view.strides, np.int64).reshape(-1, 1)
    return view.start + (grid * strides).sum(0)


@st.composite
def drawn_views(draw):
    """Draw a tensor's shape, and a view of it that NumPy makes without a copy: (shape, view)."""
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
    view = StridedView(tuple(s // 8 for s in array.strides), int(array.reshape(-1)[0]))
    return inner, array.shape, view


@given(drawn_views(), st.data())
@settings(max_examples=tiers.examples(400), deadline=None)
def test_a_composed_view_visits_the_elements_of_two_views(drawn, data):
    inner_shape, shape, view = drawn
    steps = [data.draw(st.integers(-3, 7)) for _ in inner_shape]
    inner = StridedView(tuple(steps), 40)
    composition = views.compose(shape, view, inner_shape, [inner])
    if composition is None:
        return
    cut, (composed,) = composition
    assert math.prod(views.split_axes(shape, cut)) == math.prod(shape)
    expected = positions(inner_shape, inner)[positions(shape, view)]
    np.testing.assert_array_equal(positions(views.split_axes(shape, cut), composed), expected)
    np.testing.assert_array_equal(
        positions(views.split_axes(shape, cut), views.split_view(view, cut)), positions(shape, view)
    )


@given(drawn_views())
@settings(max_examples=tiers.examples(200), deadline=None)
def test_merged_axes_visit_the_same_positions(drawn):
    _, shape, view = drawn
    target = StridedView.dense(shape)
    merged, (one, other) = views.merge(shape, [view, target])
    np.testing.assert_array_equal(positions(merged, one), positions(shape, view))
    np.testing.assert_array_equal(positions(merged, other), positions(shape, target))


@given(drawn_views())
@settings(max_examples=tiers.examples(200), deadline=None)
def test_the_order_of_axes_makes_a_whole_view_dense(drawn):
    inner_shape, shape, view = drawn
    visited = positions(shape, view)
    axes = views.order(shape, view)
    whole = sorted(visited) == list(range(math.prod(shape)))
    if axes is None:
        assert not whole or any(s < 0 for s in view.strides)
        return
    assert whole
    turned = StridedView(tuple(view.strides[a] for a in axes))
    assert turned.is_dense(tuple(shape[a] for a in axes))


@pytest.mark.parametrize(
    "shape, view, inner_shape",
    [
        # a reshape across axes that do not divide each other
        ((4, 3), StridedView((3, 1)), (3, 4)),
        ((5,), StridedView((5,)), (5, 4)),  # diagonal: two axes at once
    ],
)
def test_a_composition_that_is_no_single_view_is_refused(shape, view, inner_shape):
    assert views.compose(shape, view, inner_shape, [StridedView((1, 10))]) is None


def test_a_transpose_a_slice_and_a_broadcast_compose():
    # y[i, j] = x.T[j + 2, i] of x (6, 4) that is itself bias[4] repeated along rows
    cut, (bias,) = views.compose((4, 3), StridedView((1, 4), 8), (6, 4), [StridedView((0, 1))])
    assert views.split_axes((4, 3), cut) == (4, 3)
    assert bias == StridedView((1, 0))


def test_a_reshape_that_splits_an_axis_is_followed():
    inner = [StridedView((12, 1, 3))]
    cut, (turned,) = views.compose((2, 12), StridedView((12, 1)), (2, 3, 4), inner)
    assert views.split_axes((2, 12), cut) == (2, 3, 4)
    assert turned == StridedView((12, 1, 3))
    assert dense_strides((2, 3, 4)) == (12, 4, 1)
