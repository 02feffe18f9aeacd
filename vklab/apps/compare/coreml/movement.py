"""MIL's operators that move elements: shapes, slices, gathers.

Source: operator definitions of MIL, iOS 15 to 18
"""

from __future__ import annotations

import math

import numpy as np

from vklab.apps.compare.coreml.emission import Emission, operator
from vklab.apps.compare.coreml.values import ONNX_CODES
from vklab.types import TensorInfo

Ints = tuple[int, ...]
Bools = tuple[bool, ...]
LAST = (1 << 63) - 1


def _int64(values: Ints | list[int]) -> np.ndarray:
    return np.asarray(values, np.int64).reshape(-1)


@operator("reshape")
def reshape(op: Emission, x: TensorInfo, shape: TensorInfo) -> None:
    """Give the elements another shape; 0 keeps a dimension, -1 is computed."""
    if shape.constant is None:
        op.result("Reshape", x, op.node("Cast", shape, to=ONNX_CODES["int64"]))
        return
    dims = [int(dim) for dim in np.asarray(shape.constant).reshape(-1)]
    if op.y.is_static and 0 not in op.y.shape:
        dims = [int(dim) for dim in op.y.shape] if _fits(op.y.dims, dims) else dims
    op.result("Reshape", x, _int64(dims))


def _fits(shape: Ints, wanted: list[int]) -> bool:
    """Return whether a shape is what a target shape with 0 and -1 stands for."""
    return len(shape) == len(wanted) and all(
        asked in (0, -1, dim) for dim, asked in zip(shape, wanted, strict=True)
    )


@operator("transpose")
def transpose(op: Emission, x: TensorInfo, *, perm: Ints) -> None:
    """Permute axes."""
    op.result("Transpose", x, perm=tuple(axis % len(perm) for axis in perm))


@operator("squeeze")
def squeeze(op: Emission, x: TensorInfo, *, axes: Ints | None = None) -> None:
    """Remove axes of size 1: those given, or all."""
    op.result("Squeeze", x, None if axes is None else _int64(axes))


@operator("expand_dims")
def expand_dims(op: Emission, x: TensorInfo, *, axes: Ints) -> None:
    """Insert axes of size 1, counted in the result."""
    op.result("Unsqueeze", x, _int64(axes))


@operator("concat")
def concat(
    op: Emission, values: tuple[TensorInfo, ...], *, axis: int, interleave: bool = False
) -> None:
    """Join tensors along an axis."""
    if interleave:
        raise op.refusal("interleave=True")
    op.result("Concat", *values, axis=axis)


@operator("stack")
def stack(op: Emission, values: tuple[TensorInfo, ...], *, axis: int) -> None:
    """Join tensors along a new axis."""
    parts = [op.node("Unsqueeze", value, _int64([axis])) for value in values]
    op.result("Concat", *parts, axis=axis)


@operator("split")
def split(
    op: Emission,
    x: TensorInfo,
    *,
    axis: int,
    num_splits: int | None = None,
    split_sizes: Ints | None = None,
) -> None:
    """Divide a tensor along an axis into equal parts, or into parts of given sizes."""
    if split_sizes is not None:
        op.result("Split", x, _int64(split_sizes), axis=axis)
    else:
        op.result("Split", x, axis=axis, num_outputs=num_splits or len(op.outputs))


@operator("tile")
def tile(op: Emission, x: TensorInfo, *, reps: Ints) -> None:
    """Repeat a tensor along its axes."""
    op.result("Tile", x, _int64(reps))


@operator("shape")
def shape_of(op: Emission, x: TensorInfo) -> None:
    """Return the shape as a tensor."""
    op.result("Cast", op.node("Shape", x), to=ONNX_CODES[op.y.dtype])


@operator("range_1d")
def range_1d(op: Emission, start: TensorInfo, end: TensorInfo, step: TensorInfo) -> None:
    """Return the numbers from start, a step apart, that lie before end."""
    op.result("Range", start, end, step)


@operator("gather")
def gather(
    op: Emission,
    x: TensorInfo,
    indices: TensorInfo,
    *,
    axis: int = 0,
    batch_dims: int = 0,
    validate_indices: bool = False,
) -> None:
    """Take slices by index along an axis.

    Unchecked indices out of bounds are undefined in MIL; vklab reads them as ONNX does.
    """
    if batch_dims:
        raise op.refusal(f"batch_dims={batch_dims}")
    wide = indices.dtype in ("int32", "int64")
    numbers = indices if wide else op.node("Cast", indices, to=ONNX_CODES["int32"])
    op.result("Gather", x, numbers, axis=axis)


@operator("slice_by_index")
def slice_by_index(
    op: Emission,
    x: TensorInfo,
    *,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Bools | None = None,
    end_mask: Bools | None = None,
    squeeze_mask: Bools | None = None,
) -> None:
    """Take x[begin:end:stride] of each axis; masks leave a bound out, or take one index."""
    none = (False,) * x.rank
    single = squeeze_mask or none
    starts, ends, steps = slice_ranges(
        begin, end, stride or (1,) * x.rank, begin_mask or none, end_mask or none, single
    )
    inputs = (x, _int64(starts), _int64(ends), _int64(tuple(range(x.rank))), _int64(steps))
    gone = [axis for axis, is_single in enumerate(single) if is_single]
    if gone:
        op.result("Squeeze", op.node("Slice", *inputs), _int64(gone))
    else:
        op.result("Slice", *inputs)


def slice_ranges(
    begin: Ints, end: Ints, stride: Ints, begin_mask: Bools, end_mask: Bools, single: Bools
) -> tuple[list[int], list[int], list[int]]:
    """Return begin, end and stride of ONNX's Slice for MIL's slice_by_index.

    Args:
        begin: the first index of each axis.
        end: the index after the last.
        stride: the step.
        begin_mask: where `begin` is left out.
        end_mask: where `end` is left out.
        single: where one index is taken.
    """
    starts, ends, steps = [], [], []
    for first, last, step, no_first, no_last, is_single in zip(
        begin, end, stride, begin_mask, end_mask, single, strict=True
    ):
        if is_single:
            first = 0 if no_first else first
            starts.append(first)
            ends.append(LAST if first == -1 else first + 1)
            steps.append(1)
            continue
        starts.append((0 if step > 0 else LAST) if no_first else first)
        ends.append((LAST if step > 0 else -LAST) if no_last else last)
        steps.append(step)
    return starts, ends, steps


@operator("slice_by_size")
def slice_by_size(op: Emission, x: TensorInfo, *, begin: Ints, size: Ints) -> None:
    """Take a number of elements from an index on, for each axis; -1 takes the rest."""
    ends = [LAST if n == -1 else first + n for first, n in zip(begin, size, strict=True)]
    ends = [LAST if first < 0 <= last else last for first, last in zip(begin, ends, strict=True)]
    op.result("Slice", x, _int64(begin), _int64(ends), _int64(tuple(range(len(begin)))))


@operator("flatten2d")
def flatten2d(op: Emission, x: TensorInfo, *, axis: int = 1) -> None:
    """Make a matrix: the axes before `axis` are rows, the others columns."""
    rows = math.prod(x.dims[:axis])
    op.result("Reshape", x, _int64([rows, -1]))
