"""Sliding windows against counting them one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops import window

SMALL = st.integers(1, 4)


def count_windows(size: int, reach: int, stride: int, begin: int, end: int, ceil: bool) -> int:
    """Count the places of a window, walking over the padded cells."""
    padded, count = size + begin + end, 0
    for start in itertools.count(0, stride):
        fits = start + reach <= padded
        if ceil:  # one more, cut short; and none that starts beyond the last cell
            fits = start + reach - stride < padded and start < size + begin
        if not fits:
            return count
        count += 1
    return count


@given(st.integers(1, 12), SMALL, SMALL, SMALL, st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_explicit_pads(size, kernel, stride, dilation, begin, end, ceil):
    reach = (kernel - 1) * dilation + 1
    if ceil:  # poolings, whose pads are smaller than the kernel
        begin, end = min(begin, kernel - 1), min(end, kernel - 1)
    if size + begin + end < reach:
        with pytest.raises(ModelError, match=f"a window of {reach} does not fit {size}"):
            window.resolve([size], [kernel], [stride], [dilation], [begin, end], "NOTSET", ceil)
        return
    view, space = window.resolve(
        [size], [kernel], [stride], [dilation], [begin, end], "NOTSET", ceil
    )
    assert space == (count_windows(size, reach, stride, begin, end, ceil),)
    assert (view.output, view.pads_begin, view.pads_end) == ((1, *space), (0, begin), (0, end))


@given(st.integers(1, 12), SMALL, SMALL, SMALL, st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
def test_same_pads_cover_the_input_and_no_more(size, kernel, stride, dilation, auto_pad):
    reach = (kernel - 1) * dilation + 1
    view, (length,) = window.resolve([size], [kernel], [stride], [dilation], None, auto_pad)
    begin, end = view.pads_begin[1], view.pads_end[1]
    assert length == len(range(0, size, stride))
    assert begin + end == max(0, (length - 1) * stride + reach - size)
    surplus = end - begin if auto_pad == "SAME_UPPER" else begin - end
    assert surplus in (0, 1)


def test_valid_ignores_pads():
    view, space = window.resolve([7, 8], [3, 2], None, None, [1] * 4, "VALID")
    assert space == (5, 7) and view.pads_begin == view.pads_end == (0, 0)


def test_height_comes_before_width():
    view, space = window.resolve([11, 13], [3, 2], [2, 3], [1, 2], [1, 2, 3, 4], "NOTSET")
    assert view.input == (11, 13) and view.kernel == (3, 2) and view.strides == (2, 3)
    assert view.pads_begin == (1, 2) and view.pads_end == (3, 4) and view.output == space


@pytest.mark.parametrize("rank", [0, 3])
def test_other_ranks_are_declined(rank):
    with pytest.raises(UnsupportedOperatorError, match=f"{rank} spatial axes"):
        window.resolve([5] * rank, [3] * rank, None, None, None, "NOTSET")
