"""Return views: the same memory under another shape, without a dispatch.

Visited by labs 09 and 11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.inputs import affordable, known_array, known_integers, normal_axis
from vklab.ops.registry import Result, operator, output
from vklab.types import TensorInfo


def view(X: TensorInfo, shape: Sequence[int]) -> Result:
    """Return a view of X under another shape of as many elements."""
    if math.prod(shape) != X.count:
        raise ModelError(f"{X.count} elements of shape {X.shape} do not fill {tuple(shape)}")
    constant = None if X.constant is None else X.constant.reshape(shape)
    return Result((output(X.dtype, shape, constant),), views=((0, 0),))


@operator("Identity")
def identity(X: TensorInfo) -> Result:
    """Return X itself. Source: ONNX Identity-21."""
    return view(X, X.dims)


@operator("Dropout", since=12)
def dropout(
    data: TensorInfo,
    ratio: TensorInfo | None = None,
    training_mode: TensorInfo | None = None,
    *,
    seed: int = 0,
) -> Result:
    """Return the data itself: inference drops no elements. Source: ONNX Dropout-13."""
    training = training_mode is not None and known_array(training_mode, "training_mode").any()
    if training and (ratio is None or known_array(ratio, "ratio").any()):
        raise UnsupportedOperatorError("training_mode is true; kernels compute inference only")
    return _kept(data)


@operator("Dropout", since=7)
def dropout_by_attribute(data: TensorInfo, *, ratio: float = 0.5) -> Result:
    """Return the data itself: inference drops no elements. Source: ONNX Dropout-10."""
    return _kept(data)


def _kept(data: TensorInfo) -> Result:
    affordable(*data.dims, item_bytes=1)
    mask = output("bool", data.dims, np.ones(data.dims, bool))
    return Result((output(data.dtype, data.dims, data.constant), mask), views=((0, 0),))


@operator("Reshape", since=5)
def reshape(data: TensorInfo, shape: TensorInfo, *, allowzero: int = 0) -> Result:
    """Change the shape; 0 keeps a size, -1 is inferred. Source: ONNX Reshape-21."""
    wanted = list(known_integers(shape, "the shape"))
    if sum(dim == -1 for dim in wanted) > 1 or any(dim < -1 for dim in wanted):
        raise ModelError(f"shape {tuple(wanted)} has more than one -1, or a size below -1")
    for axis, dim in enumerate(wanted):
        if dim == 0 and not allowzero:
            if axis >= data.rank:
                raise ModelError(
                    f"shape {tuple(wanted)} keeps axis {axis} of {data.shape}, which "
                    f"has {data.rank} axes"
                )
            wanted[axis] = data.dims[axis]
    if -1 in wanted:
        known = math.prod(dim for dim in wanted if dim != -1)
        if known == 0 or data.count % known:
            raise ModelError(f"{data.count} elements do not divide into {tuple(wanted)}")
        wanted[wanted.index(-1)] = data.count // known
    return view(data, wanted)


@operator("Flatten")
def flatten(X: TensorInfo, *, axis: int = 1) -> Result:
    """Reshape to a matrix with the axes before `axis` as rows. Source: ONNX Flatten-21."""
    if not -X.rank <= axis <= X.rank:
        raise ModelError(f"axis={axis} is out of range for rank {X.rank}")
    axis = axis + X.rank if axis < 0 else axis
    return view(X, (math.prod(X.dims[:axis]), math.prod(X.dims[axis:])))


@operator("Squeeze", since=13)
def squeeze(data: TensorInfo, axes: TensorInfo | None = None) -> Result:
    """Drop axes of size one. Source: ONNX Squeeze-21."""
    return _squeeze(data, None if axes is None else known_integers(axes, "axes"))


@operator("Squeeze", since=1)
def squeeze_by_attribute(data: TensorInfo, *, axes: Sequence[int] | None = None) -> Result:
    """Drop axes of size one. Source: ONNX Squeeze-11."""
    return _squeeze(data, axes)


def _squeeze(data: TensorInfo, axes: Sequence[int] | None) -> Result:
    if axes is None:
        return view(data, [dim for dim in data.dims if dim != 1])
    dropped = {normal_axis(axis, data.rank) for axis in axes}
    for axis in dropped:
        if data.dims[axis] != 1:
            raise ModelError(f"axis {axis} of {data.shape} has size {data.dims[axis]}, not 1")
    return view(data, [dim for axis, dim in enumerate(data.dims) if axis not in dropped])


@operator("Unsqueeze", since=13)
def unsqueeze(data: TensorInfo, axes: TensorInfo) -> Result:
    """Insert axes of size one. Source: ONNX Unsqueeze-21."""
    return _unsqueeze(data, known_integers(axes, "axes"))


@operator("Unsqueeze", since=1)
def unsqueeze_by_attribute(data: TensorInfo, *, axes: Sequence[int]) -> Result:
    """Insert axes of size one. Source: ONNX Unsqueeze-11."""
    return _unsqueeze(data, axes)


def _unsqueeze(data: TensorInfo, axes: Sequence[int]) -> Result:
    rank = data.rank + len(axes)
    inserted = {normal_axis(axis, rank) for axis in axes}
    if len(inserted) < len(axes):
        raise ModelError(f"axes={tuple(axes)} names one axis twice")
    rest = iter(data.dims)
    return view(data, [1 if axis in inserted else next(rest) for axis in range(rank)])
