"""Pooling: the maximum or the mean over a sliding window, or over all of space.

One kernel for all of them. Visited by lab 07.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops import window
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import require
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo

__all__ = ["average_pool", "global_average_pool", "global_max_pool", "max_pool"]


@operator("MaxPool")
def max_pool(
    X: TensorInfo,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Result:
    """Take the largest value in each window of X [N,C,...]. Source: ONNX MaxPool-22."""
    del storage_order  # only orders the indices, which are not made here
    return _pool("MAXIMUM", X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)


@operator("AveragePool")
def average_pool(
    X: TensorInfo,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Result:
    """Take the mean of each window of X [N,C,...]. Source: ONNX AveragePool-22."""
    return _pool("AVERAGE", X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode,
                 count_include_pad)  # fmt: skip


@operator("GlobalAveragePool")
def global_average_pool(X: TensorInfo) -> Result:
    """Take the mean over all of space. Source: ONNX GlobalAveragePool-22."""
    return _global("AVERAGE", X)


@operator("GlobalMaxPool")
def global_max_pool(X: TensorInfo) -> Result:
    """Take the largest value over all of space. Source: ONNX GlobalMaxPool-22."""
    return _global("MAXIMUM", X)


def _global(mode: str, X: TensorInfo) -> Result:
    if X.rank < 3:
        raise ModelError(f"X of rank {X.rank} has no spatial axes")
    if 0 in X.dims[2:]:
        raise UnsupportedOperatorError(f"nothing to pool in {X.shape}")
    return _pool(mode, X, X.dims[2:], None, None, None, "NOTSET", 0)


def _pool(
    mode: str,
    X: TensorInfo,
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int,
    count_padding: int = 0,
) -> Result:
    require(FLOATS, X)
    if X.rank < 3:
        raise ModelError(f"X of rank {X.rank} has no spatial axes")
    batch, channels, *spatial = X.dims
    view, space = window.resolve(spatial, kernel, strides, dilations, pads, auto_pad, ceil_mode)
    result = output(X.dtype, (batch, channels, *space))
    if result.count == 0:
        return Result((result,))
    names = ("in", "out", "kernel", "stride", "dilation")
    pairs = (view.input, view.output, view.kernel, view.strides, view.dilations)
    sizes = [(f"{name}_{axis}", pair[i]) for name, pair in zip(names, pairs, strict=True)
             for i, axis in enumerate("hw")]  # fmt: skip
    dispatch = Dispatch(
        kernel="pool",
        reads=(("x_buffer", X),),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-result.count // WORKGROUP)),
        push=(
            ("count", result.count),
            *sizes,
            ("pad_top", view.pads_begin[0]), ("pad_left", view.pads_begin[1]),
            ("pad_bottom", view.pads_end[0]), ("pad_right", view.pads_end[1]),
            ("count_padding", count_padding),
        ),
        defines=(("MODE", mode), *type_defines("T", X.dtype)),
        flops=result.count * view.kernel[0] * view.kernel[1],
        iterations=(view.kernel[0] + 1) * (view.kernel[1] + 1),
    )  # fmt: skip
    return Result((result,), (dispatch,))
