"""Dispatch convolutions over one to three spatial axes, of reals and of quantized integers.

Convolutions of float32, float16 and bfloat16 over one or two axes use the shader `conv`, which
`plan.tuning.variants` can replace by a faster one; all others, float64 included, use `conv_nd`.
Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vklab.errors import ModelError
from vklab.ops import linear, window
from vklab.ops.body import Body, Expansion
from vklab.ops.dtypes import ELEMENTS, FLOATS, REALS, type_defines
from vklab.ops.inputs import require, same
from vklab.ops.per_element import per_element
from vklab.ops.registry import Result, operator, output
from vklab.ops.window import Window
from vklab.types import Dispatch, TensorInfo

BYTES = frozenset({"int8", "uint8"})


def check_filters(
    X: TensorInfo,
    W: TensorInfo,
    B: TensorInfo | None,
    group: int,
    kernel_shape: Sequence[int] | None,
) -> tuple[int, ...]:
    """Return the spatial size of the filters; ModelError unless X, W and B fit together.

    Args:
        X: the input [N,C,...].
        W: the filters [M,C/group,...].
        B: the bias [M], or None.
        group: the number of groups of channels.
        kernel_shape: the spatial size of the filters as an attribute, or None.
    """
    if X.rank < 3 or W.rank != X.rank:
        raise ModelError(
            f"X of rank {X.rank} and W of rank {W.rank}: both need batch, channel and spatial axes"
        )
    filters, depth, *kernel = W.dims
    if group < 1 or X.dims[1] != depth * group or filters % group:
        raise ModelError(
            f"{X.dims[1]} channels, {filters} filters of depth {depth} and "
            f"group={group} do not fit together"
        )
    if kernel_shape is not None and tuple(kernel_shape) != tuple(kernel):
        raise ModelError(f"kernel_shape={tuple(kernel_shape)}, but W has {tuple(kernel)}")
    if B is not None and B.dims != (filters,):
        raise ModelError(f"B has shape {B.shape}; it must be ({filters},)")
    return tuple(kernel)


@operator("Conv")
def conv(
    X: TensorInfo, W: TensorInfo, B: TensorInfo | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Convolve X [N,C,...] with W [M,C/group,...], plus B [M]. Source: ONNX Conv-22."""
    require(REALS, X, W, B)
    dtype = same(X, W, B)
    kernel = check_filters(X, W, B, group, kernel_shape)
    space = window.spatial_axes(X)
    view = window.resolve(space, kernel, strides, dilations, pads, auto_pad)
    if dtype not in FLOATS or len(space) > 2:
        return _direct("REAL", X, W, view, group, dtype, {"bias": B})
    return _planar(X, W, B, view.lifted(2), group, (X.dims[0], W.dims[0], *view.output))


def _planar(
    X: TensorInfo, W: TensorInfo, B: TensorInfo | None, view: Window, group: int,
    shape: Sequence[int],
) -> Result:  # fmt: skip
    """Return the dispatch of the kernel `conv`, over height and width."""
    result = output(X.dtype, shape)
    if result.count == 0:
        return Result((result,))
    batch, filters, depth = shape[0], shape[1], W.dims[1]
    rows, pixels = filters // group, view.output[0] * view.output[1]
    length = depth * view.kernel[0] * view.kernel[1]
    workgroups, constants = linear.row_blocks(
        rows, pixels, batch * group, linear.default_lanes(rows), 1
    )
    dispatch = Dispatch(
        kernel="conv",
        reads=(("x_buffer", X), ("w_buffer", W), *((("bias_buffer", B),) if B else ())),
        writes=(("y_buffer", result),),
        workgroups=workgroups,
        push=(
            ("groups", group),
            ("in_channels", depth),
            ("out_channels", rows),
            ("batches", batch * group),
            ("part", depth),
            *view.plane(),
        ),
        defines=(
            ("BIAS", "0" if B is None else "1"),
            ("SUBGROUP", "0"),
            *type_defines("T", X.dtype)[:2],
            *type_defines("Y", X.dtype)[::2],
        ),
        constants=constants,
        flops=2 * batch * filters * pixels * length,
        stores=True,
    )
    return Result((result,), (dispatch,))


def _direct(
    kind: str, X: TensorInfo, W: TensorInfo, view: Window, group: int, dtype: str,
    operands: dict[str, TensorInfo | None],
) -> Result:  # fmt: skip
    """Return the dispatch of `conv_nd`: one invocation per element, for every dtype and rank.

    `operands` has the names of the kernel's buffers, without `_buffer`.
    """
    depth, cells = W.dims[1], math.prod(view.kernel)
    given = {name: info for name, info in operands.items() if info is not None}
    flags = [(name.upper(), "1") for name in ("x_zero", "w_zero") if name in given]
    per_filter = {name: int(info.count > 1) for name, info in given.items()}
    push: window.Push = (
        *view.push(),
        ("filters", W.dims[0]),
        ("groups", group),
        ("depth", depth),
        ("zero_step", per_filter.get("w_zero", 0)),
        ("scale_step", per_filter.get("w_scale", 0)),
    )
    defines = (
        ("KIND", kind),
        ("BIAS", str(int("bias" in given))),
        *flags,
        *(
            (("LOWEST", "-128" if dtype == "int8" else "0"), *type_defines("Z", dtype)[:2])
            if kind == "QUANTIZED"
            else ()
        ),
        ("R", ELEMENTS[dtype].value if kind == "REAL" else "int"),
        *type_defines("X", X.dtype)[:2],
        *type_defines("W", W.dtype)[:2],
        *type_defines("Y", dtype)[::2],
    )
    return per_element(
        "conv_nd",
        output(dtype, (X.dims[0], W.dims[0], *view.output)),
        [("x", X), ("w", W), *given.items()],
        push,
        defines,
        2 * depth * cells,
        iterations=depth * (cells + 2 * math.prod(view.kernel[:-1]) + 1),
        stores=True,
    )


@operator("ConvInteger")
def conv_integer(
    x: TensorInfo, w: TensorInfo, x_zero_point: TensorInfo | None = None,
    w_zero_point: TensorInfo | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Convolve integers less their zero points, exactly in int32. Source: ONNX ConvInteger-10."""
    require(BYTES, x, w, x_zero_point, w_zero_point)
    kernel = check_filters(x, w, None, group, kernel_shape)
    view = window.resolve(window.spatial_axes(x), kernel, strides, dilations, pads, auto_pad)
    _check_sizes(w.dims[0], x_zero_point=x_zero_point, w_zero_point_per_filter=w_zero_point)
    zeros = {"x_zero": x_zero_point, "w_zero": w_zero_point}
    return _direct("INTEGER", x, w, view, group, "int32", zeros)


@operator("QLinearConv")
def qlinear_conv(
    x: TensorInfo, x_scale: TensorInfo, x_zero_point: TensorInfo, w: TensorInfo,
    w_scale: TensorInfo, w_zero_point: TensorInfo, y_scale: TensorInfo, y_zero_point: TensorInfo,
    B: TensorInfo | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Convolve quantized x with w; quantize, ties to even. Source: ONNX QLinearConv-10."""
    require(BYTES, x, w, x_zero_point, w_zero_point, y_zero_point)
    require(frozenset({"float32"}), x_scale, w_scale, y_scale)
    require(frozenset({"int32"}), B)
    kernel = check_filters(x, w, B, group, kernel_shape)
    view = window.resolve(window.spatial_axes(x), kernel, strides, dilations, pads, auto_pad)
    _check_sizes(
        w.dims[0],
        x_scale=x_scale,
        x_zero_point=x_zero_point,
        y_scale=y_scale,
        y_zero_point=y_zero_point,
        w_scale_per_filter=w_scale,
        w_zero_point_per_filter=w_zero_point,
    )
    operands = {
        "bias": B,
        "x_zero": x_zero_point,
        "w_zero": w_zero_point,
        "y_zero": y_zero_point,
        "x_scale": x_scale,
        "w_scale": w_scale,
        "y_scale": y_scale,
    }
    return _direct("QUANTIZED", x, w, view, group, y_zero_point.dtype, operands)


def _check_sizes(filters: int, **scales: TensorInfo | None) -> None:
    for name, info in scales.items():
        sizes = (1, filters) if name.endswith("_per_filter") else (1,)
        if info is not None and info.count not in sizes:
            label = name.removesuffix("_per_filter")
            raise ModelError(f"{label} has shape {info.shape}; choose one of {sizes} elements")


@operator("CausalConvWithState")
def causal_conv(
    input: TensorInfo, weight: TensorInfo, bias: TensorInfo | None = None,
    past_state: TensorInfo | None = None, *, activation: str = "none",
) -> Expansion:  # fmt: skip
    """Convolve every channel of input [B,C,L] after its past state; return the next state too.

    Source: ONNX CausalConvWithState-27.
    """
    if input.rank != 3 or weight.rank != 3:
        raise ModelError(f"input {input.shape} and weight {weight.shape} must have rank 3")
    if activation not in ("none", "silu", "swish"):
        raise ModelError(f"unknown activation={activation!r}; choose one of none, silu, swish")
    batch, channels, length = input.dims
    before = weight.dims[2] - 1
    body = Body()
    past = past_state or np.zeros((batch, channels, before), np.dtype(input.dtype))
    padded = body("Concat", past, input, axis=2)
    y = body("Conv", padded, weight, bias, group=channels)
    if activation != "none":
        y = body("Mul", y, body("Sigmoid", y))
    ends = (np.array([number], np.int64) for number in (length, length + before, 2))
    return body.result(y, body("Slice", padded, *ends))
