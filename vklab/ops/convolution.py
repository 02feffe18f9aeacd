"""Convolution, 1-D and 2-D, with groups, pads, strides and dilations.

Right on every device; `plan.variants` swaps in the tiled kernel. Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.errors import ModelError
from vklab.ops import linear, window
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import require, same
from vklab.ops.registry import Result, operator, output
from vklab.types import Dispatch, TensorInfo

__all__ = ["conv"]


@operator("Conv")
def conv(
    X: TensorInfo,
    W: TensorInfo,
    B: TensorInfo | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Result:
    """Convolve X [N,C,...] with W [M,C/group,...], plus B [M]. Source: ONNX Conv-22."""
    require(FLOATS, X, W, B)
    dtype = same(X, W, B)
    if X.rank < 3 or W.rank != X.rank:
        raise ModelError(f"X of rank {X.rank} and W of rank {W.rank}: both need N, C and space")
    batch, channels, *spatial = X.dims
    filters, depth, *kernel = W.dims
    if group < 1 or channels != depth * group or filters % group:
        raise ModelError(f"{channels} channels, {filters} filters of depth {depth} and "
                         f"group={group} do not fit together")  # fmt: skip
    if kernel_shape is not None and tuple(kernel_shape) != tuple(kernel):
        raise ModelError(f"kernel_shape={tuple(kernel_shape)} is not W's {tuple(kernel)}")
    if B is not None and B.dims != (filters,):
        raise ModelError(f"B has shape {B.shape}, not ({filters},)")
    view, space = window.resolve(spatial, kernel, strides, dilations, pads, auto_pad)
    result = output(dtype, (batch, filters, *space))
    if result.count == 0:
        return Result((result,))
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
            ("groups", group), ("in_channels", depth), ("out_channels", rows),
            ("batches", batch * group), ("part", depth),
            ("in_h", view.input[0]), ("in_w", view.input[1]),
            ("out_h", view.output[0]), ("out_w", view.output[1]),
            ("kernel_h", view.kernel[0]), ("kernel_w", view.kernel[1]),
            ("stride_h", view.strides[0]), ("stride_w", view.strides[1]),
            ("dilation_h", view.dilations[0]), ("dilation_w", view.dilations[1]),
            ("pad_top", view.pads_begin[0]), ("pad_left", view.pads_begin[1]),
        ),
        defines=(("BIAS", "0" if B is None else "1"), ("SUBGROUP", "0"),
                 *type_defines("T", dtype)),
        constants=constants,
        flops=2 * batch * filters * pixels * length,
    )  # fmt: skip
    return Result((result,), (dispatch,))
