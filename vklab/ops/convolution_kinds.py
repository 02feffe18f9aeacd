"""Dispatch transposed and deformable convolutions, and sums of overlapping blocks.

Each kernel gathers: one invocation writes one element and reads all elements that contribute
to it. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops import convolution, window
from vklab.ops.dtypes import ELEMENTS, FLOATS, NUMBERS, REALS, type_defines
from vklab.ops.inputs import known_integers, require, same
from vklab.ops.per_element import per_element
from vklab.ops.registry import Result, operator, output
from vklab.types import TensorInfo


@operator("ConvTranspose")
def conv_transpose(
    X: TensorInfo, W: TensorInfo, B: TensorInfo | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Convolve X [N,C,...] by W [C,M/group,...] transposed. Source: ONNX ConvTranspose-22."""
    require(REALS, X, W, B)
    dtype = same(X, W, B)
    space = window.spatial_axes(X)
    if W.rank != X.rank or group < 1 or W.dims[0] != X.dims[1] or X.dims[1] % group:
        raise ModelError(f"X {X.shape}, W {W.shape} and group={group} do not fit together")
    rows, kernel = W.dims[1], W.dims[2:]
    if kernel_shape is not None and tuple(kernel_shape) != kernel:
        raise ModelError(f"kernel_shape={tuple(kernel_shape)}, but W has {kernel}")
    if B is not None and B.dims != (rows * group,):
        raise ModelError(f"B has shape {B.shape}; it must be ({rows * group},)")
    view = window.resolve_transposed(
        space, kernel, strides, dilations, pads, auto_pad, output_padding, output_shape
    )
    result = output(dtype, (X.dims[0], rows * group, *view.output))
    depth, taps = X.dims[1] // group, math.prod(kernel)
    return per_element(
        "conv_transpose",
        result,
        [("x", X), ("w", W), ("bias", B)],
        (*view.push(), ("filters", rows), ("groups", group), ("depth", depth)),
        (
            ("BIAS", "0" if B is None else "1"),
            ("R", ELEMENTS[dtype].value),
            *type_defines("T", dtype)[:2],
            *type_defines("Y", dtype)[::2],
        ),
        2 * X.count * rows * taps // max(1, result.count),
        iterations=taps * (depth + 1) + 2 * math.prod(kernel[:-1]) + 1,
        stores=True,
    )


@operator("Col2Im")
def col2im(
    input: TensorInfo, image_shape: TensorInfo, block_shape: TensorInfo, *,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Add the columns of input [N,C*block,L] at their blocks' pixels. Source: ONNX Col2Im-18."""
    require(NUMBERS, input)
    space = known_integers(image_shape, "image_shape")
    block = known_integers(block_shape, "block_shape")
    view = window.resolve(space, block, strides, dilations, pads, "NOTSET")
    taps = math.prod(block)
    if input.rank != 3 or input.dims[1] % taps or input.dims[2] != math.prod(view.output):
        raise ModelError(f"input {input.shape} does not hold {view.output} blocks of {block}")
    return per_element(
        "col2im",
        output(input.dtype, (input.dims[0], input.dims[1] // taps, *space)),
        [("x", input)],
        view.push(),
        (("R", ELEMENTS[input.dtype].value), *type_defines("T", input.dtype)),
        iterations=taps + 2 * math.prod(block[:-1]) + 1,
    )


@operator("DeformConv")
def deform_conv(
    X: TensorInfo, W: TensorInfo, offset: TensorInfo, B: TensorInfo | None = None,
    mask: TensorInfo | None = None, *, dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, offset_group: int = 1,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Convolve X [N,C,H,W] with an offset for every tap of every output pixel.

    Source: ONNX DeformConv-22; Dai et al., "Deformable Convolutional Networks", 2017.
    """
    require(FLOATS, X, W, offset, B, mask)
    dtype = same(X, W, offset, B, mask)
    if X.rank != 4:
        raise UnsupportedOperatorError(f"{X.rank - 2} spatial axes; a kernel exists for 2")
    kernel = convolution.check_filters(X, W, B, group, kernel_shape)
    view = window.resolve(X.dims[2:], kernel, strides, dilations, pads, "NOTSET")
    if offset_group < 1 or X.dims[1] % offset_group:
        raise ModelError(f"{X.dims[1]} channels do not divide by offset_group={offset_group}")
    taps = offset_group * math.prod(kernel)
    for name, info, count in (("offset", offset, 2 * taps), ("mask", mask, taps)):
        wanted = (X.dims[0], count, *view.output)
        if info is not None and info.dims != wanted:
            raise ModelError(f"{name} has shape {info.shape}; it must be {wanted}")
    push = (
        ("filters", W.dims[0]),
        ("groups", group),
        ("depth", W.dims[1]),
        ("offset_groups", offset_group),
        ("channels", X.dims[1]),
        ("in_size", view.input),
        ("out_size", view.output),
        ("kernel", view.kernel),
        ("stride", view.strides),
        ("dilation", view.dilations),
        ("pad", view.pads_begin),
    )
    return per_element(
        "deform_conv",
        output(dtype, (X.dims[0], W.dims[0], *view.output)),
        [("x", X), ("w", W), ("offset", offset), ("bias", B), ("mask", mask)],
        push,
        (
            ("BIAS", "0" if B is None else "1"),
            ("MASK", "0" if mask is None else "1"),
            *type_defines("T", dtype),
        ),
        12 * W.dims[1] * math.prod(kernel),
        iterations=W.dims[1] * (math.prod(kernel) + 1),
    )
