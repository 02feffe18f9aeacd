"""Compose strided views: replace a view of a computed tensor by views of its operands.

A transposed, sliced or broadcast value then need not exist in memory: its reader addresses the
operands directly. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.types import StridedView, dense_strides

Dims = tuple[int, ...]
# For each axis the sizes into which it is cut, outermost first; their product is its size.
Split = tuple[Dims, ...]


def compose(
    shape: Dims, view: StridedView, inner_shape: Dims, inner: Sequence[StridedView]
) -> tuple[Split, tuple[StridedView, ...]] | None:
    """Return views of a computed tensor's operands that replace a view of the tensor.

    Args:
        shape: the index space of the reader.
        view: the reader's view of the computed tensor, over `shape`.
        inner_shape: the index space over which the tensor is computed, row-major and dense.
        inner: the views of its operands, over `inner_shape`.

    Returns the cut of the axes of `shape` that this needs, and one view for each operand over the
    cut axes; None where an axis of the reader runs across several axes of the tensor unevenly.
    """
    strides = dense_strides(inner_shape)
    cut: list[Dims] = []
    steps: list[tuple[int, int]] = []  # for each axis after the cut: (axis of the tensor, step)
    for dim, stride in zip(shape, view.strides, strict=True):
        parts = _parts(dim, stride, inner_shape, strides)
        if parts is None:
            return None
        cut.append(tuple(part[0] for part in parts))
        steps += [part[1:] for part in parts]
    dims = [dim for axis in cut for dim in axis]
    starts = [view.start // s % d for s, d in zip(strides, inner_shape, strict=True)]
    for axis, size in enumerate(inner_shape):
        moves = [step * (d - 1) for d, (a, step) in zip(dims, steps, strict=True) if a == axis]
        lowest = starts[axis] + sum(move for move in moves if move < 0)
        if lowest < 0 or starts[axis] + sum(move for move in moves if move > 0) >= size:
            return None
    return tuple(cut), tuple(
        StridedView(
            tuple(step * each.strides[axis] if step else 0 for axis, step in steps),
            each.start + sum(n * s for n, s in zip(starts, each.strides, strict=True)),
        )
        for each in inner
    )


def _parts(dim: int, stride: int, shape: Dims, strides: Dims) -> list[tuple[int, int, int]] | None:
    """Cut an axis of `dim` steps of `stride` along a dense tensor into parts within its axes.

    Returns (size, axis of the tensor, step along it) of each part, outermost first.
    """
    if dim == 1 or stride == 0:
        return [(dim, 0, 0)]
    size, sign = abs(stride), 1 if stride > 0 else -1
    axes = [a for a, s in enumerate(strides) if s <= size and shape[a] > 1]
    if not axes:
        return None
    axis = min(axes)
    step, rest = divmod(size, strides[axis])
    if rest:
        return None
    if step * (dim - 1) < shape[axis]:
        return [(dim, axis, sign * step)]
    inside, rest = divmod(shape[axis], step)
    if rest or dim % inside:
        return None
    outer = _parts(dim // inside, stride * inside, shape, strides)
    return None if outer is None else [*outer, (inside, axis, sign * step)]


def split_axes(shape: Dims, cut: Split) -> Dims:
    """Return the shape after its axes are cut."""
    return tuple(dim for axis in cut for dim in axis)


def split_view(view: StridedView, cut: Split) -> StridedView:
    """Return the same view over the cut axes."""
    steps = [
        stride * inner
        for stride, axis in zip(view.strides, cut, strict=True)
        for inner in dense_strides(axis)
    ]
    return StridedView(tuple(steps), view.start)


def merge(shape: Dims, views: Sequence[StridedView]) -> tuple[Dims, tuple[StridedView, ...]]:
    """Join neighbouring axes over which every view has one common step; drop axes of size 1.

    Source: PyTorch TensorIterator, coalesce_dimensions.
    """
    kept: list[tuple[int, tuple[int, ...]]] = []
    for axis, dim in enumerate(shape):
        if dim == 1:
            continue
        steps = tuple(view.strides[axis] for view in views)
        if kept and all(o == dim * s for o, s in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * dim, steps)
        else:
            kept.append((dim, steps))
    merged = tuple(
        StridedView(tuple(steps[number] for _, steps in kept), view.start)
        for number, view in enumerate(views)
    )
    return tuple(dim for dim, _ in kept), merged


def order(shape: Dims, view: StridedView) -> tuple[int, ...] | None:
    """Return the order of axes in which a view covers a dense tensor row by row.

    Returns None if the view does not reach every element exactly once.
    """
    axes = sorted((a for a, dim in enumerate(shape) if dim > 1), key=lambda a: -view.strides[a])
    rest = [a for a, dim in enumerate(shape) if dim == 1]
    dense = dense_strides(tuple(shape[a] for a in axes))
    if view.start or any(view.strides[a] != s for a, s in zip(axes, dense, strict=True)):
        return None
    return (*rest, *axes)
