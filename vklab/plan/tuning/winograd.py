"""Compute a 3 x 3 convolution by products of matrices of transformed tiles: less arithmetic.

Tiles of 2 x 2 pixels take 16 multiplications instead of 36. The transforms are dispatches of their
own, and an infinity becomes NaN in the whole tile that sees it. Visited by lab 08.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from vklab import settings
from vklab.graph import constant_cache
from vklab.ops import dtypes, linear, registry
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["fill", "parts"]

SIDE, POINTS, WORKGROUP = 2, 16, 64
# Channels and filters from which on a CPU gains more by the products than it loses by transforms.
FEWEST = 16
# The same on a GPU, and the most pixels. On an H200 512 channels of 14 x 14 pixels take 35 instead
# of 63 us, 256 channels of 28 x 28 pixels 63 instead of 52.
FEWEST_GPU, MOST_PIXELS_GPU = 512, 256
# Rows of G: a filter of three taps becomes four.
FILTER = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_NAME = re.compile(r"(.*):winograd", re.S)


def parts(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return a convolution as transform, product and transform; as it is where that is slower.

    Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks"
    """
    if dispatch.kernel != "conv" or not _gains(dispatch, info):
        return (dispatch,)
    push: dict[str, Any] = dict(dispatch.push)
    (_, image), (_, weight), *bias = dispatch.reads
    filters, depth, batch = push["out_channels"], push["in_channels"], push["batches"]
    down, across = (-(-push[name] // SIDE) for name in ("out_h", "out_w"))
    # The value before an epilogue: several convolutions may write parts of one tensor.
    own = dispatch.epilogue.operands[0] if dispatch.epilogue else None
    count, name = batch * down * across, (own.info if own else dispatch.writes[0][1]).name
    seen = TensorInfo(f"{name}:tiles", "float32", (POINTS, count, depth))
    turned = TensorInfo(f"{weight.name}:winograd", "float32", (POINTS, depth, filters))
    made = TensorInfo(f"{name}:products", "float32", (POINTS, count, filters))
    grid = (("down", down), ("across", across))
    before = Dispatch(
        "winograd_input", (("x_buffer", image),), (("y_buffer", seen),),
        registry.grid(-(-count * depth // WORKGROUP)),
        (("count", count * depth), ("channels", depth), ("in_h", push["in_h"]),
         ("in_w", push["in_w"]), *grid, ("pad_top", push["pad_top"]),
         ("pad_left", push["pad_left"])),
        (*dtypes.type_defines("T", image.dtype)[:2], *dtypes.type_defines("Y", "float32")[::2]),
        (("WORKGROUP", WORKGROUP),), flops=32 * count * depth,
    )  # fmt: skip
    (product,) = linear.product(
        seen, turned, None, made, (count, filters, depth), (depth, 1), (filters, 1), (POINTS,),
        ((count * depth,), (depth * filters,)),
    )  # fmt: skip
    after = Dispatch(
        "winograd_output", (("x_buffer", made), *bias), dispatch.writes,
        registry.grid(-(-count * filters // WORKGROUP)),
        (("count", count * filters), ("filters", filters), ("out_h", push["out_h"]),
         ("out_w", push["out_w"]), *grid),
        (("BIAS", str(len(bias))), *dtypes.type_defines("X", "float32")[:2],
         *dtypes.type_defines("T", image.dtype)[:2],
         *dtypes.type_defines("Y", dispatch.writes[0][1].dtype)[::2]),
        (("WORKGROUP", WORKGROUP),), flops=24 * count * filters, stores=True,
        epilogue=dispatch.epilogue,
    )  # fmt: skip
    return before, product, after


def _gains(dispatch: Dispatch, info: DeviceInfo) -> bool:
    """Tell whether a device computes a convolution faster so, with weights known before the run."""
    push: dict[str, Any] = dict(dispatch.push)
    ones = ("groups", "stride_h", "stride_w", "dilation_h", "dilation_w")
    weight = dict(dispatch.reads)["w_buffer"]
    fewest = min(push["in_channels"], push["out_channels"])
    pixels = push["batches"] * push["out_h"] * push["out_w"]
    return (
        (fewest >= FEWEST if info.is_cpu else fewest >= FEWEST_GPU and pixels <= MOST_PIXELS_GPU)
        and weight.constant is not None and dict(dispatch.defines)["T"] == "float"
        and (push["kernel_h"], push["kernel_w"]) == (3, 3)
        and all(push[name] == 1 for name in ones)
        and min(push["out_h"], push["out_w"]) >= SIDE
        and not settings.get("DISABLE_VARIANTS") and not settings.get("DISABLE_PREPACK")
        and "winograd" not in settings.names("DISABLE_PASSES")
    )  # fmt: skip


def fill(read: TensorInfo, constants: Mapping[str, TensorInfo]) -> TensorInfo | None:
    """Return a tensor that `parts` named, with its value; None for any other tensor."""
    match = _NAME.fullmatch(read.name)
    source = constants[match[1]].constant if match and match[1] in constants else None
    if source is None or read.constant is not None:
        return None
    array = constant_cache.derive("winograd", _transformed, source)
    return TensorInfo(read.name, read.dtype, read.shape, array)


def _transformed(weight: np.ndarray) -> np.ndarray:
    """Return filters [filters, depth, 3, 3] as [16, depth, filters]."""
    wide = np.einsum("ai,ocij,bj->abco", FILTER, weight.astype(np.float64), FILTER, optimize=True)
    return np.ascontiguousarray(wide.reshape(POINTS, *wide.shape[2:]).astype(np.float32))
