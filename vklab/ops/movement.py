"""Dispatch strided copies: slices, concatenations, tiles, permutations of axes.

A result in the order of its input is a view and costs no dispatch. Visited by labs 09 and 11.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from vklab.errors import ModelError
from vklab.ops.elementwise import broadcast_shape, broadcast_strides, move
from vklab.ops.inputs import known_integers, normal_axes, normal_axis, same
from vklab.ops.registry import Result, operator, output
from vklab.ops.shape import view
from vklab.types import Dispatch, TensorInfo, dense_strides


def rearrange(
    X: TensorInfo, split: Sequence[int], order: Sequence[int], shape: Sequence[int]
) -> Result:
    """Reshape X to `split`, permute the axes, and reshape the result to `shape`.

    Args:
        X: the tensor that is read.
        split: the shape before the permutation, with as many elements as X.
        order: the permutation of the axes of `split`.
        shape: the shape of the result.
    """
    kept = [axis for axis in order if split[axis] != 1]
    if kept == sorted(kept) or X.count == 0:
        return view(X, shape)
    result = output(X.dtype, shape)
    dense, extent = dense_strides(split), [split[axis] for axis in order]
    place = None if list(shape) == extent else (extent, dense_strides(extent), 0)
    return Result((result,), move(X, [dense[axis] for axis in order], result, 0, place))


@operator("Transpose")
def transpose(data: TensorInfo, *, perm: Sequence[int] | None = None) -> Result:
    """Permute the axes. Source: ONNX Transpose-21."""
    order = tuple(perm) if perm is not None else tuple(reversed(range(data.rank)))
    if sorted(order) != list(range(data.rank)):
        raise ModelError(f"perm={order} is not a permutation of {data.rank} axes")
    shape = [data.dims[axis] for axis in order]
    if data.constant is not None:
        constant = np.ascontiguousarray(np.transpose(data.constant, order))
        return Result((output(data.dtype, shape, constant),))
    return rearrange(data, data.dims, order, shape)


@operator("DepthToSpace")
def depth_to_space(input: TensorInfo, *, blocksize: int, mode: str = "DCR") -> Result:
    """Rearrange channels of [N,C,H,W] into blocks of pixels. Source: ONNX DepthToSpace-13."""
    batch, depth, height, width = _blocks(input, blocksize, mode)
    channels = depth // blocksize**2
    if channels * blocksize**2 != depth:
        raise ModelError(f"{depth} channels are not a multiple of blocksize**2 = {blocksize**2}")
    block = (blocksize, blocksize)
    split = (batch, *block, channels) if mode == "DCR" else (batch, channels, *block)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    shape = (batch, channels, height * blocksize, width * blocksize)
    return rearrange(input, (*split, height, width), order, shape)


@operator("SpaceToDepth")
def space_to_depth(input: TensorInfo, *, blocksize: int, mode: str = "DCR") -> Result:
    """Rearrange blocks of pixels of [N,C,H,W] into channels. Source: ONNX SpaceToDepth-13."""
    batch, channels, height, width = _blocks(input, blocksize, mode)
    if height % blocksize or width % blocksize:
        raise ModelError(f"{height} x {width} pixels do not divide into blocks of {blocksize}")
    rows, columns = height // blocksize, width // blocksize
    split = (batch, channels, rows, blocksize, columns, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return rearrange(input, split, order, (batch, channels * blocksize**2, rows, columns))


def _blocks(X: TensorInfo, blocksize: int, mode: str) -> tuple[int, ...]:
    if X.rank != 4 or blocksize < 1 or mode not in ("DCR", "CRD"):
        raise ModelError(
            f"blocksize={blocksize}, mode={mode!r} on {X.shape}: the input must have "
            "4 axes, blocksize be 1 or more, mode DCR or CRD"
        )
    return X.dims


@operator("Slice", since=10)
def slice_(
    data: TensorInfo,
    starts: TensorInfo,
    ends: TensorInfo,
    axes: TensorInfo | None = None,
    steps: TensorInfo | None = None,
) -> Result:
    """Select every step-th element from start to end along axes. Source: ONNX Slice-13."""
    return _slice(
        data,
        known_integers(starts, "starts"),
        known_integers(ends, "ends"),
        None if axes is None else known_integers(axes, "axes"),
        None if steps is None else known_integers(steps, "steps"),
    )


@operator("Slice", since=1)
def slice_by_attribute(
    data: TensorInfo,
    *,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
) -> Result:
    """Select the elements from start to end along axes. Source: ONNX Slice-1."""
    return _slice(data, starts, ends, axes, None)


def _slice(
    data: TensorInfo,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Result:
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError(
            f"starts={tuple(starts)}, ends={tuple(ends)}, axes={tuple(axes)} and "
            f"steps={tuple(steps)}: lengths must be equal, steps not 0"
        )
    parts = [(0, 1, dim) for dim in data.dims]  # (first, step, size) of each axis
    places = zip(normal_axes(tuple(axes), data.rank), starts, ends, steps, strict=True)
    for axis, start, end, step in places:
        size = data.dims[axis]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first, stop = (min(max(at + size if at < 0 else at, low), high) for at in (start, end))
        parts[axis] = first, step, max(0, -((first - stop) // step))
    result = output(data.dtype, [size for _, _, size in parts])
    if result.count == 0:
        return Result((result,))
    if all(part == (0, 1, dim) for part, dim in zip(parts, data.dims, strict=True)):
        return view(data, data.dims)
    dense = dense_strides(data.dims)
    start = sum(stride * part[0] for stride, part in zip(dense, parts, strict=True))
    strides = [stride * part[1] for stride, part in zip(dense, parts, strict=True)]
    return Result((result,), move(data, strides, result, start))


@operator("Concat", since=4)
def concat(*inputs: TensorInfo, axis: int) -> Result:
    """Concatenate tensors along an axis. Source: ONNX Concat-13."""
    if not inputs:
        raise ModelError("no input is given; one or more are needed")
    dtype = same(*inputs)
    axis = normal_axis(axis, inputs[0].rank)
    rests = [(*info.dims[:axis], *info.dims[axis + 1 :]) for info in inputs]
    if any(rest != rests[0] for rest in rests):
        shapes = ", ".join(str(info.shape) for info in inputs)
        raise ModelError(f"shapes {shapes} differ outside axis {axis}")
    sizes = [info.dims[axis] for info in inputs]
    shape = (*inputs[0].dims[:axis], sum(sizes), *inputs[0].dims[axis + 1 :])
    result = output(dtype, shape)
    full = [number for number, info in enumerate(inputs) if info.count]
    if len(full) == 1:
        return Result((result,), views=((0, full[0]),))
    strides, starts = dense_strides(shape), itertools.accumulate(sizes, initial=0)
    dispatches = [
        move(info, dense_strides(info.dims), result, 0, (info.dims, strides, start * strides[axis]))
        for info, start in zip(inputs, starts, strict=False)
    ]
    return Result((result,), tuple(itertools.chain(*dispatches)))


@operator("Split", since=18)
def split_evenly(
    input: TensorInfo,
    split: TensorInfo | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    output_count: int = 0,
) -> Result:
    """Split a tensor along an axis; the last part may be smaller. Source: ONNX Split-18."""
    if (split is None) == (num_outputs is None):
        raise ModelError("give either the input `split` or the attribute num_outputs")
    if num_outputs not in (None, output_count):
        raise ModelError(f"num_outputs={num_outputs}, and the node has {output_count} outputs")
    sizes = None if split is None else known_integers(split, "split")
    return _split(input, axis, sizes, output_count)


@operator("Split", since=13)
def split_(
    input: TensorInfo,
    split: TensorInfo | None = None,
    *,
    axis: int = 0,
    output_count: int = 0,
) -> Result:
    """Split a tensor along an axis. Source: ONNX Split-13."""
    sizes = None if split is None else known_integers(split, "split")
    return _split(input, axis, sizes, output_count)


@operator("Split", since=1)
def split_by_attribute(
    input: TensorInfo,
    *,
    axis: int = 0,
    split: Sequence[int] | None = None,
    output_count: int = 0,
) -> Result:
    """Split a tensor along an axis. Source: ONNX Split-11."""
    return _split(input, axis, split, output_count)


def _split(X: TensorInfo, axis: int, sizes: Sequence[int] | None, parts: int) -> Result:
    axis = normal_axis(axis, X.rank)
    if sizes is None:
        if parts < 1:
            raise ModelError(f"cannot split {X.shape} into {parts} parts")
        step = -(-X.dims[axis] // parts)
        sizes = [max(0, min(step, X.dims[axis] - i * step)) for i in range(parts)]
    if sum(sizes) != X.dims[axis] or min(sizes, default=0) < 0:
        raise ModelError(f"parts of sizes {tuple(sizes)} do not fill axis {axis} of {X.shape}")
    if list(sizes) == [X.dims[axis]]:
        return view(X, X.dims)
    outputs: list[TensorInfo] = []
    dispatches: list[Dispatch] = []
    strides = dense_strides(X.dims)
    for size, end in zip(sizes, itertools.accumulate(sizes), strict=True):
        part = output(X.dtype, (*X.dims[:axis], size, *X.dims[axis + 1 :]))
        outputs.append(part)
        dispatches += move(X, strides, part, (end - size) * strides[axis])
    return Result(tuple(outputs), tuple(dispatches))


@operator("Expand")
def expand(input: TensorInfo, shape: TensorInfo) -> Result:
    """Broadcast a tensor to a shape. Source: ONNX Expand-13."""
    wanted = known_integers(shape, "the shape")
    if min(wanted, default=0) < 0:
        raise ModelError(f"shape {wanted} has a negative size")
    target = broadcast_shape(input.dims, wanted)
    if math.prod(target) == input.count:
        return view(input, target)
    result = output(input.dtype, target)
    return Result((result,), move(input, broadcast_strides(input.dims, target), result))


@operator("Tile", since=6)
def tile(input: TensorInfo, repeats: TensorInfo) -> Result:
    """Repeat the whole tensor along each axis. Source: ONNX Tile-13."""
    times = known_integers(repeats, "repeats")
    if len(times) != input.rank or min(times, default=0) < 0:
        raise ModelError(f"repeats={times} does not fit {input.shape}")
    shape = [time * dim for time, dim in zip(times, input.dims, strict=True)]
    if shape == list(input.dims):
        return view(input, shape)
    result = output(input.dtype, shape)
    extent = [*itertools.chain(*zip(times, input.dims, strict=True))]
    strides = [*itertools.chain(*((0, step) for step in dense_strides(input.dims)))]
    return Result((result,), move(input, strides, result, 0, (extent, dense_strides(extent), 0)))
