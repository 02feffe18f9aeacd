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
    view = window.resolve([size], [kernel], [stride], [dilation], [begin, end], "NOTSET", ceil)
    assert view.output == (count_windows(size, reach, stride, begin, end, ceil),)
    assert (view.pads_begin, view.pads_end) == ((begin,), (end,))


@given(st.integers(1, 12), SMALL, SMALL, SMALL, st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
def test_same_pads_cover_the_input_and_no_more(size, kernel, stride, dilation, auto_pad):
    reach = (kernel - 1) * dilation + 1
    view = window.resolve([size], [kernel], [stride], [dilation], None, auto_pad)
    (length,), (begin,), (end,) = view.output, view.pads_begin, view.pads_end
    assert length == len(range(0, size, stride))
    assert begin + end == max(0, (length - 1) * stride + reach - size)
    surplus = end - begin if auto_pad == "SAME_UPPER" else begin - end
    assert surplus in (0, 1)


def test_valid_ignores_pads():
    view = window.resolve([7, 8], [3, 2], None, None, [1] * 4, "VALID")
    assert view.output == (5, 7) and view.pads_begin == view.pads_end == (0, 0)


def test_height_comes_before_width():
    view = window.resolve([11, 13], [3, 2], [2, 3], [1, 2], [1, 2, 3, 4], "NOTSET")
    assert view.input == (11, 13) and view.kernel == (3, 2) and view.strides == (2, 3)
    assert view.pads_begin == (1, 2) and view.pads_end == (3, 4) and view.output == (7, 6)


def test_axes_in_front_have_size_one():
    view = window.resolve([11, 13], [3, 2], [2, 3], [1, 2], [1, 2, 3, 4], "NOTSET").lifted(3)
    assert view.input == (1, 11, 13) and view.output == (1, 7, 6) and view.kernel == (1, 3, 2)
    assert view.strides == (1, 2, 3) and view.dilations == (1, 1, 2)
    assert view.pads_begin == (0, 1, 2) and view.pads_end == (0, 3, 4)


@given(st.integers(1, 12), SMALL, SMALL, SMALL, st.integers(0, 2), st.integers(0, 2))
def test_a_transposed_window_undoes_one(size, kernel, stride, dilation, begin, end):
    reach = (kernel - 1) * dilation + 1
    pads = [min(begin, reach - 1), min(end, reach - 1)]
    if size + sum(pads) < reach:
        return
    (length,) = window.resolve([size], [kernel], [stride], [dilation], pads, "NOTSET").output
    rest = (size + sum(pads) - reach) % stride
    back = window.resolve_transposed(
        [length], [kernel], [stride], [dilation], pads, "NOTSET", [rest], None
    )
    assert back.output == (size,)


def test_the_shape_that_a_transposed_window_is_asked_for():
    for auto_pad, begin in (("SAME_UPPER", 1), ("SAME_LOWER", 2), ("NOTSET", 2)):
        view = window.resolve_transposed([5], [4], [3], None, None, auto_pad, None, [13])
        assert view.output == (13,) and (view.pads_begin, view.pads_end) == ((begin,), (3 - begin,))


@pytest.mark.parametrize("rank", [0, 4])
def test_other_ranks_are_declined(rank):
    with pytest.raises(UnsupportedOperatorError, match=f"{rank} spatial axes"):
        window.resolve([5] * rank, [3] * rank, None, None, None, "NOTSET")
