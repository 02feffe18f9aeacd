"""Dispatch pooling: the maximum, mean or norm over a sliding window, or over all pixels.

Windows use one kernel, all pixels use reductions; MaxUnpool and LRN are here too.
Visited by labs 07 and 09.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops import reduction, window
from vklab.ops.dtypes import ELEMENTS, FLOATS, REALS, raw_defines, type_defines
from vklab.ops.inputs import known_integers, require
from vklab.ops.per_element import per_element
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo


@operator("MaxPool")
def max_pool(
    X: TensorInfo, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Compute the maximum of each window of X [N,C,...], and its index in X.

    Source: ONNX MaxPool-22.
    """
    require(REALS | {"int8", "uint8"}, X)
    view = window.resolve(
        window.spatial_axes(X), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    values = _pool("MAXIMUM", X, view)
    indices = _pool("INDEX", X, view, column_major=storage_order)
    return Result(values.outputs + indices.outputs, values.dispatches + indices.dispatches)


@operator("AveragePool")
def average_pool(
    X: TensorInfo, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Sequence[int] | None = None, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Compute the mean of each window of X [N,C,...]. Source: ONNX AveragePool-22."""
    require(REALS, X)
    view = window.resolve(
        window.spatial_axes(X), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    return _pool("AVERAGE", X, view, count_padding=count_include_pad)


@operator("LpPool")
def lp_pool(
    X: TensorInfo, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, kernel_shape: Sequence[int], p: int = 2,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Compute the p-norm of each window of X [N,C,...]. Source: ONNX LpPool-22."""
    require(FLOATS, X)
    view = window.resolve(
        window.spatial_axes(X), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    return _pool("NORM", X, view, p=_order(p))


@operator("GlobalAveragePool")
def global_average_pool(X: TensorInfo) -> Result:
    """Compute the mean of each channel. Source: ONNX GlobalAveragePool-22."""
    return _global(reduction.KINDS["ReduceMean"], X)


@operator("GlobalMaxPool")
def global_max_pool(X: TensorInfo) -> Result:
    """Compute the maximum of each channel. Source: ONNX GlobalMaxPool-22."""
    return _global(reduction.KINDS["ReduceMax"], X)


@operator("GlobalLpPool")
def global_lp_pool(X: TensorInfo, *, p: int = 2) -> Result:
    """Compute the p-norm of each channel. Source: ONNX GlobalLpPool-22."""
    require(FLOATS, X)
    if _order(p) <= 2:
        return _global(reduction.KINDS[f"ReduceL{p}"], X)
    return _global(reduction.Kind(map=f"pow(abs(a),{p})", finish=f"pow(total,1.0/{p})"), X)


def _order(p: int) -> float:
    if p < 1:
        raise ModelError(f"p={p} is not a norm; choose 1 or more")
    return float(p)


def _global(kind: reduction.Kind, X: TensorInfo) -> Result:
    require(REALS, X)
    if X.rank < 3:
        raise ModelError(f"X of rank {X.rank} has no spatial axes")
    if 0 in X.dims[2:]:
        raise UnsupportedOperatorError(f"nothing to pool in {X.shape}")
    result = output(X.dtype, X.dims[:2] + (1,) * (X.rank - 2))
    if result.count == 0:
        return Result((result,))
    work = reduction.reduce_work(kind, X, range(2, X.rank), result)
    return Result((result,), work.dispatches, work.scratch)


def _pool(
    mode: str, X: TensorInfo, view: window.Window, count_padding: int = 0, column_major: int = 0,
    p: float = 2.0,
) -> Result:  # fmt: skip
    index = mode == "INDEX"
    result = output("int64" if index else X.dtype, (*X.dims[:2], *view.output))
    cells = math.prod(view.kernel)
    return per_element(
        "pool",
        result,
        [("x", X)],
        (
            *view.push(),
            ("pad_end", view.lifted(3).pads_end),
            ("count_padding", count_padding),
            ("column_major", column_major),
            ("p", p),
        ),
        (
            ("MODE", mode),
            ("R", ELEMENTS[X.dtype].value),
            *type_defines("X", X.dtype)[:2],
            *(() if index else type_defines("Y", X.dtype)[::2]),
        ),
        cells,
        iterations=cells + 2 * math.prod(view.kernel[:-1]) + 1,
        name="indices" if index else "y",
        stores=not index,
        loads=True,
    )


@operator("MaxUnpool")
def max_unpool(
    X: TensorInfo, I: TensorInfo, output_shape: TensorInfo | None = None, *,  # noqa: E741
    kernel_shape: Sequence[int], pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Write the values of X [N,C,...] at their indices before pooling, with zeros elsewhere.

    An output_shape larger than the attributes' shape appends zeros. Source: ONNX MaxUnpool-22.
    """
    require(REALS, X)
    require(frozenset({"int64"}), I)
    if I.dims != X.dims:
        raise ModelError(f"X {X.shape} and its indices {I.shape} must have the same shape")
    space = window.spatial_axes(X)
    ones = (1,) * len(space)
    view = window.resolve_transposed(space, kernel_shape, strides, ones, pads, "NOTSET", None, None)
    shape = (*X.dims[:2], *view.output)
    if output_shape is not None:
        shape = known_integers(output_shape, "output_shape")
        if (
            len(shape) != X.rank
            or shape[:2] != X.dims[:2]
            or any(a < b for a, b in zip(shape[2:], view.output, strict=True))
        ):
            raise ModelError(f"output_shape={shape} is smaller than {X.dims[:2] + view.output}")
    result = output(X.dtype, shape)
    lifts = (1,) * (3 - len(space))
    sizes = (("in_size", lifts + view.output), ("out_size", lifts + tuple(shape[2:])))
    typing = raw_defines("T", X.dtype)
    push = (("limit", result.count), *sizes)
    cleared = per_element("max_unpool", result, [], push, (("MODE", "CLEAR"), *typing))
    if X.count == 0 or result.count == 0:
        return cleared
    scatter = Dispatch(
        kernel="max_unpool",
        reads=(("x_buffer", X), ("indices_buffer", I)),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-X.count // WORKGROUP)),
        push=(("count", X.count), *push),
        defines=(("MODE", "SCATTER"), *typing),
    )
    return Result((result,), (*cleared.dispatches, scatter))


@operator("LRN")
def lrn(
    X: TensorInfo, *, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0, size: int,
) -> Result:  # fmt: skip
    """Divide by (bias + alpha / size * sum of squares over `size` channels) ** beta.

    Source: ONNX LRN-13; Krizhevsky, Sutskever and Hinton, 2012.
    """
    require(FLOATS, X)
    if X.rank < 3 or size < 1:
        raise ModelError(f"X of rank {X.rank} and size={size}; rank 3 and size 1 are the least")
    return per_element(
        "lrn",
        output(X.dtype, X.dims),
        [("x", X)],
        (
            ("channels", X.dims[1]),
            ("plane", math.prod(X.dims[2:])),
            ("before", (size - 1) // 2),
            ("behind", size // 2),
            ("scale", alpha / size),
            ("beta", beta),
            ("bias", bias),
        ),
        (*type_defines("X", X.dtype)[:2], *type_defines("Y", X.dtype)[::2]),
        2 * size,
        iterations=min(size, X.dims[1]),
        stores=True,
        loads=True,
    )
