"""Dispatch padding and cropping of axes. ONNX: Pad, CenterCropPad.

Visited by labs 09 and 10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vklab.errors import ModelError
from vklab.ops.body import Body, Expansion
from vklab.ops.dtypes import MOVABLE, raw_defines, table
from vklab.ops.inputs import known_integers, normal_axes, require, same
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.ops.shape import view
from vklab.types import Dispatch, TensorInfo, dense_strides

MODES = {"constant": "CONSTANT", "edge": "EDGE", "reflect": "REFLECT", "wrap": "WRAP"}


@operator("Pad", since=11)
def pad(
    data: TensorInfo,
    pads: TensorInfo,
    constant_value: TensorInfo | None = None,
    axes: TensorInfo | None = None,
    *,
    mode: str = "constant",
) -> Result:
    """Pad or crop both ends of each axis. Source: ONNX Pad-25."""
    given = range(data.rank) if axes is None else known_integers(axes, "axes")
    return _pad(data, known_integers(pads, "pads"), given, constant_value, mode)


@operator("Pad", since=2)
def pad_by_attribute(
    data: TensorInfo, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0
) -> Result:
    """Pad or crop both ends of each axis. Source: ONNX Pad-2."""
    require(MOVABLE, data)
    return _pad(data, pads, range(data.rank), table([value], data.dtype), mode)


def _pad(
    X: TensorInfo, pads: Sequence[int], axes: Sequence[int], value: TensorInfo | None, mode: str
) -> Result:
    require(MOVABLE, X)
    axes = normal_axes(tuple(axes), X.rank)
    if len(pads) != 2 * len(axes) or mode not in MODES:
        raise ModelError(
            f"pads={tuple(pads)}, mode={mode!r}: give two pads for each of "
            f"{len(axes)} axes and one of the modes {', '.join(MODES)}"
        )
    ends = dict(zip(axes, zip(pads, pads[len(axes) :], strict=False), strict=True))
    rows, start = [], 0
    for axis, (dim, stride) in enumerate(zip(X.dims, dense_strides(X.dims), strict=True)):
        begin, end = ends.get(axis, (0, 0))
        kept = dim + min(begin, 0) + min(end, 0)
        if kept < 0 or kept == 0 < max(begin, 0) + max(end, 0) and mode != "constant":
            raise ModelError(f"pads {begin} and {end} leave nothing of axis {axis} of {X.shape}")
        rows.append((dim + begin + end, kept, max(begin, 0), stride))
        start += max(-begin, 0) * stride
    result = output(X.dtype, [row[0] for row in rows])
    if not any(pads):
        return view(X, X.dims)
    if result.count == 0:
        return Result((result,))
    merged = [rows[0]]
    for new, old, begin, stride in rows[1:]:  # merge neighbouring axes without pads
        whole = (new, begin) == (old, 0) and merged[-1][0::2] == (merged[-1][1], 0)
        if whole and merged[-1][3] == stride * new:
            merged[-1] = (merged[-1][0] * new, merged[-1][1] * new, 0, stride)
        else:
            merged.append((new, old, begin, stride))
    value = value or table(np.zeros(1), X.dtype)
    same(X, value)
    dispatch = Dispatch(
        kernel="pad",
        reads=(("x_buffer", X), ("v_buffer", value), ("walk_buffer", table(merged, "uint32"))),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-result.count // WORKGROUP)),
        push=(("count", result.count), ("rank", len(merged)), ("start", start)),
        defines=(
            ("MODE", MODES[mode]),
            *raw_defines("X", X.dtype)[:2],
            *raw_defines("Y", X.dtype)[::2],
        ),
        stores=True,
        loads=True,
    )
    return Result((result,), (dispatch,))


@operator("CenterCropPad", since=18)
def center_crop_pad(
    input_data: TensorInfo, shape: TensorInfo, *, axes: Sequence[int] | None = None
) -> Expansion:
    """Crop or pad both ends of axes evenly to a shape. Source: ONNX CenterCropPad-18."""
    wanted = known_integers(shape, "the shape")
    chosen = normal_axes(tuple(range(input_data.rank) if axes is None else axes), input_data.rank)
    if len(wanted) != len(chosen) or min(wanted, default=0) < 0:
        raise ModelError(f"shape {wanted} does not fit {len(chosen)} axes")
    more = [new - input_data.dims[axis] for new, axis in zip(wanted, chosen, strict=True)]
    begins = [extra // 2 if extra > 0 else -(-extra // 2) for extra in more]
    ends = [extra - begin for extra, begin in zip(more, begins, strict=True)]
    body = Body()
    pads = np.array([*begins, *ends], np.int64)
    return body.result(body("Pad", input_data, pads, None, np.array(chosen, np.int64)))
