"""Dispatch convolutions and pools of images whose channels come last: vklab's own operators.

Only the pass `channels_last` writes them into a graph, for GPUs: several channels of a pixel are
one load, and a window of one pixel is a plain product. Visited by labs 08 and 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vklab.errors import ModelError
from vklab.ops import linear, registry, window
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import require, same
from vklab.ops.registry import Result, grid, operator, output
from vklab.ops.window import Window
from vklab.types import Dispatch, TensorInfo

WORKGROUP, MOST_PIXELS = 128, 4
FOUR = 4


@operator("ChannelsLastConv", domain="vklab")
def channels_last_conv(
    X: TensorInfo, W: TensorInfo, B: TensorInfo | None = None, *, dilations: Sequence[int],
    group: int = 1, pads: Sequence[int], strides: Sequence[int],
) -> Result:  # fmt: skip
    """Convolve X [N,H,W,C] with W [KH,KW,C/group,M], plus B [M]. Source: own; ONNX Conv-22."""
    require(FLOATS, X, W, B)
    *kernel, depth, filters = W.dims
    if (
        X.rank != 4
        or W.rank != 4
        or X.dims[3] != depth * group
        or filters % group
        or (B is not None and B.dims != (filters,))
    ):
        raise ModelError(f"{X}, {W}, {B} and group={group} do not fit together")
    view = window.resolve(X.dims[1:3], kernel, strides, dilations, pads, "NOTSET")
    result = output(same(X, W, B), (X.dims[0], *view.output, filters))
    if result.count == 0:
        return Result((result,))
    if group == 1 and {*view.kernel, *view.strides} == {1} and not any(pads):
        sizes = result.count // filters, filters, depth
        return Result((result,), linear.product(X, W, B, result, sizes, (depth, 1), (filters, 1)))
    return Result((result,), (_windows(X, W, B, result, view, group),))


def _windows(
    X: TensorInfo, W: TensorInfo, B: TensorInfo | None, result: TensorInfo, view: Window, group: int
) -> Dispatch:
    """Return the dispatch of the kernel `conv_last`."""
    height, width, depth, filters = W.dims
    batch, out_h, out_w = result.dims[:3]
    pixels = 1 if view.dilations[1] > 1 else min(MOST_PIXELS, out_w)
    count = batch * out_h * -(-out_w // pixels) * filters
    sizes = {
        "n": filters,
        "filters": filters // group,
        "in_h": X.dims[1],
        "in_w": X.dims[2],
        "out_h": out_h,
        "out_w": out_w,
        "stride_h": view.strides[0],
        "dilation_h": view.dilations[0],
        "dilation_w": view.dilations[1],
        "pad_top": view.pads_begin[0],
        "pad_left": view.pads_begin[1],
    }
    return Dispatch(
        kernel="conv_last",
        reads=(("x_buffer", X), ("w_buffer", W), *((("bias_buffer", B),) if B else ())),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-count // WORKGROUP)),
        push=(("count", count), *sizes.items()),
        defines=(
            ("BIAS", str(int(B is not None))),
            ("KERNEL_H", str(height)),
            ("KERNEL_W", str(width)),
            *type_defines("T", X.dtype)[:2],
            *type_defines("Y", result.dtype)[::2],
        ),
        constants=(
            ("WORKGROUP", WORKGROUP),
            ("PIXELS", pixels),
            ("STRIDE_W", view.strides[1]),
            ("DEPTH", depth),
        ),
        flops=2 * math.prod(result.dims) * height * width * depth,
        iterations=height * depth * (width * (pixels + 1) + 1),
        stores=True,
    )


@operator("PadLast", domain="vklab")
def pad_last(X: TensorInfo, *, width: int, joined: int = 1) -> Result:
    """Return X [N,C,H,W] as [N,H,W/joined,joined*width], zeros after its channels. Source: own."""
    require(FLOATS, X)
    if X.rank != 4 or X.dims[1] > width or width % FOUR or X.dims[3] % joined:
        raise ModelError(f"{X} does not fit {width} channels, in fours, of {joined} pixels a load")
    batch, channels, height, line = X.dims
    result = output(X.dtype, (batch, height, line // joined, width * joined))
    if result.count == 0:
        return Result((result,))
    count = result.count // FOUR
    dispatch = Dispatch(
        kernel="pad_last",
        reads=(("x_buffer", X),),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-count // registry.WORKGROUP)),
        push=(
            ("count", count),
            ("channels", channels),
            ("width", width // FOUR),
            ("plane", height * line),
        ),
        defines=(*type_defines("X", X.dtype)[:2], *type_defines("Y", X.dtype)[::2]),
        loads=True,
    )
    return Result((result,), (dispatch,))
