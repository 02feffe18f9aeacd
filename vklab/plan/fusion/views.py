"""The algebra of walks: a walk along a tensor that is itself computed along walks.

With it a transposed, sliced or broadcast value need not exist: whoever reads it walks along what
it was made from. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.types import StridedView, dense_strides

__all__ = ["Split", "compose", "merge", "order", "split_axes", "split_view"]

Shape = tuple[int, ...]
# For each axis the axes into which it is cut, outermost first; their product is the axis.
Split = tuple[Shape, ...]


def compose(
    shape: Shape, view: StridedView, inner_shape: Shape, inner: Sequence[StridedView]
) -> tuple[Split, tuple[StridedView, ...]] | None:
    """Return how operands of a computed tensor are walked by who walks along that tensor.

    Args:
        shape: the indices of who reads.
        walk: along the computed tensor, over `shape`.
        inner_shape: the indices over which the tensor is computed, row-major and dense.
        inner: the walks of its operands, over `inner_shape`.

    Returns how the axes of `shape` must be cut for this, and one walk for each operand over the cut
    axes; None where an axis of the reader runs across several axes of the tensor unevenly.
    """
    strides = dense_strides(inner_shape)
    cut: list[Shape] = []
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


def _parts(
    dim: int, stride: int, shape: Shape, strides: Shape
) -> list[tuple[int, int, int]] | None:
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


def split_axes(shape: Shape, cut: Split) -> Shape:
    """Return the shape after its axes are cut."""
    return tuple(dim for axis in cut for dim in axis)


def split_view(view: StridedView, cut: Split) -> StridedView:
    """Return the same walk over the cut axes."""
    steps = [
        stride * inner
        for stride, axis in zip(view.strides, cut, strict=True)
        for inner in dense_strides(axis)
    ]
    return StridedView(tuple(steps), view.start)


def merge(shape: Shape, given: Sequence[StridedView]) -> tuple[Shape, tuple[StridedView, ...]]:
    """Join neighbouring axes that every walk takes evenly, and drop axes of one."""
    kept: list[tuple[int, tuple[int, ...]]] = []
    for axis, dim in enumerate(shape):
        if dim == 1:
            continue
        steps = tuple(view.strides[axis] for view in given)
        if kept and all(o == dim * s for o, s in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * dim, steps)
        else:
            kept.append((dim, steps))
    views = tuple(
        StridedView(tuple(steps[number] for _, steps in kept), view.start)
        for number, view in enumerate(given)
    )
    return tuple(dim for dim, _ in kept), views


def order(shape: Shape, view: StridedView) -> tuple[int, ...] | None:
    """Return the order of axes in which a walk visits a whole tensor row by row.

    None if it does not visit every element of a dense tensor exactly once.
    """
    axes = sorted((a for a, dim in enumerate(shape) if dim > 1), key=lambda a: -view.strides[a])
    rest = [a for a, dim in enumerate(shape) if dim == 1]
    dense = dense_strides(tuple(shape[a] for a in axes))
    if view.start or any(view.strides[a] != s for a, s in zip(axes, dense, strict=True)):
        return None
    return (*rest, *axes)
