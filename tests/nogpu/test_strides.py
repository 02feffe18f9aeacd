"""Strides of broadcast operands, and merging of axes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from vklab.errors import ModelError
from vklab.ops import elementwise, registry

DIMS = st.lists(st.integers(1, 4), max_size=5).map(tuple)


@st.composite
def broadcasts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a shape and another that broadcasts to it."""
    target = draw(DIMS)
    kept = [draw(st.sampled_from([dim, 1])) for dim in target]
    return target, tuple(kept[draw(st.integers(0, len(kept))) :])


def read(data: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Read dense data by strides in elements, in row-major order of the shape."""
    walked = as_strided(data.ravel(), shape, [s * data.itemsize for s in strides])
    return walked.ravel().tolist()


@given(broadcasts(), broadcasts())
def test_merged_axes_read_the_same_elements(one, other):
    target, small = one
    data = np.arange(max(1, int(np.prod(small)))).reshape(small)
    expected = np.broadcast_to(data, target).ravel().tolist()
    strides = elementwise.broadcast_strides(small, target)
    dense = elementwise.dense_strides(target)
    assert read(data, target, strides) == expected
    merged, (ours, theirs) = elementwise.merge_axes(target, [strides, dense])
    assert read(data, merged, ours) == expected
    assert theirs == elementwise.dense_strides(merged)
    assert len(merged) <= len(target) and 1 not in merged


@given(DIMS)
def test_dense_operands_become_one_axis(shape):
    merged, (strides,) = elementwise.merge_axes(shape, [elementwise.dense_strides(shape)])
    assert merged == ((int(np.prod(shape)),) if np.prod(shape) > 1 else ())
    assert strides == ((1,) if merged else ())


@given(DIMS, DIMS)
def test_shapes_broadcast_as_in_numpy(a, b):
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ModelError, match="do not broadcast"):
            elementwise.broadcast_shape(a, b)
        return
    assert elementwise.broadcast_shape(a, b) == expected


@given(st.integers(1, 65535 * registry.GRID_WIDTH))
def test_grids_cover_their_workgroups_within_the_limits_of_every_device(count):
    x, y, z = registry.grid(count)
    assert x * y * z >= count > x * (y - 1) and max(x, y) <= 65535
    assert y == 1 or x == registry.GRID_WIDTH


def test_the_grid_width_of_the_shaders_is_the_same():
    from support.graphs.small_models import ROOT

    text = (ROOT / "shaders" / "lib" / "index.slang").read_text(encoding="utf-8")
    assert f"GRID_WIDTH = {registry.GRID_WIDTH};" in text
