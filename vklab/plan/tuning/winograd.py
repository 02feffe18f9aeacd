"""Compute a 3 x 3 convolution by products of matrices of transformed tiles: less arithmetic.

Tiles of 2 x 2 pixels take 16 multiplications instead of 36, tiles of 4 x 4 pixels 36 instead of
144. The transforms are dispatches of their own, and an infinity becomes NaN in the whole tile that
sees it. Visited by lab 08.
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

WORKGROUP = 64
# Channels and filters from which on a CPU gains more by the products than it loses by transforms.
FEWEST = 16
# The same on a GPU, and the most pixels. On an H200 512 channels of 14 x 14 pixels take 35 instead
# of 63 us, 256 channels of 28 x 28 pixels 63 instead of 52.
FEWEST_GPU, MOST_PIXELS_GPU = 512, 256
# Tiles from which on a side of 4 gains: they are the rows of the products. On llvmpipe 256 channels
# of 28 x 28 pixels take 62 instead of 103 ms, 512 channels of 7 x 7 pixels (4 tiles) 30 instead of
# 22. The largest error is 3e-6 of the largest result there: that of sums without transforms.
FEWEST_TILES = 16
# For each side of a tile the rows of G, by which a filter of three taps becomes side + 2 numbers.
# The kernels' transforms of pixels and products belong to them: points 0, 1, -1 for a side of 2;
# 0, 1 / sqrt(2), sqrt(2) and their negatives for a side of 4; and infinity.
ROOT = 2**0.5
FILTERS = {
    2: np.array([[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]]),
    4: np.array([[1, 0, 0], [-2 / 3, -ROOT / 3, -1 / 3], [-2 / 3, ROOT / 3, -1 / 3],
                 [1 / 6, ROOT / 6, 1 / 3], [1 / 6, -ROOT / 6, 1 / 3], [0, 0, 1]]),
}  # fmt: skip
_NAME = re.compile(r"(.*):winograd(\d)", re.S)


def parts(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return a convolution as transform, product and transform; as it is where that is slower.

    Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks"
    """
    side = _side(dispatch, info) if dispatch.kernel == "conv" and _gains(dispatch, info) else 0
    if not side:
        return (dispatch,)
    push: dict[str, Any] = dict(dispatch.push)
    (_, image), (_, weight), *bias = dispatch.reads
    filters, depth, batch = push["out_channels"], push["in_channels"], push["batches"]
    points, down, across = _grid(side, push["out_h"], push["out_w"])
    # The value before an epilogue: several convolutions may write parts of one tensor.
    own = dispatch.epilogue.operands[0] if dispatch.epilogue else None
    count, name = batch * down * across, (own.info if own else dispatch.writes[0][1]).name
    seen = TensorInfo(f"{name}:tiles", "float32", (points, count, depth))
    turned = TensorInfo(f"{weight.name}:winograd{side}", "float32", (points, depth, filters))
    made = TensorInfo(f"{name}:products", "float32", (points, count, filters))
    grid = (("down", down), ("across", across))
    before = Dispatch(
        "winograd_input", (("x_buffer", image),), (("y_buffer", seen),),
        registry.grid(-(-count * depth // WORKGROUP)),
        (("count", count * depth), ("channels", depth), ("in_h", push["in_h"]),
         ("in_w", push["in_w"]), *grid, ("pad_top", push["pad_top"]),
         ("pad_left", push["pad_left"])),
        (*dtypes.type_defines("T", image.dtype)[:2], *dtypes.type_defines("Y", "float32")[::2],
         ("SIDE", str(side))),
        (("WORKGROUP", WORKGROUP),), flops=2 * (side + 2) * points * count * depth,
    )  # fmt: skip
    (product,) = linear.product(
        seen, turned, None, made, (count, filters, depth), (depth, 1), (filters, 1), (points,),
        ((count * depth,), (depth * filters,)),
    )  # fmt: skip
    after = Dispatch(
        "winograd_output", (("x_buffer", made), *bias), dispatch.writes,
        registry.grid(-(-count * filters // WORKGROUP)),
        (("count", count * filters), ("filters", filters), ("out_h", push["out_h"]),
         ("out_w", push["out_w"]), *grid),
        (("BIAS", str(len(bias))), ("SIDE", str(side)), *dtypes.type_defines("X", "float32")[:2],
         *dtypes.type_defines("T", image.dtype)[:2],
         *dtypes.type_defines("Y", dispatch.writes[0][1].dtype)[::2]),
        (("WORKGROUP", WORKGROUP),), flops=2 * (side + 1) * points * count * filters, stores=True,
        epilogue=dispatch.epilogue,
    )  # fmt: skip
    return before, product, after


def _grid(side: int, height: int, width: int) -> tuple[int, int, int]:
    """Return the products of a tile, and the tiles of an image along both axes."""
    return (side + 2) ** 2, -(-height // side), -(-width // side)


def _side(dispatch: Dispatch, info: DeviceInfo) -> int:
    """Return the side of a tile that takes the fewest multiplications; the smaller one if equal.

    On a GPU the bytes of transformed filters decide, and the side is 2. Returns 0 if a device
    cannot bind what the transforms write.
    """
    push: dict[str, Any] = dict(dispatch.push)
    most, batch = info.limit("maxStorageBufferRange") // 4, push["batches"]
    depth, filters = push["in_channels"], push["out_channels"]
    fitting = []
    for side in (2, 4) if info.is_cpu else (2,):
        points, down, across = _grid(side, push["out_h"], push["out_w"])
        count = batch * down * across
        rows = max(count * depth, count * filters, depth * filters)
        if points * rows <= most and (side == 2 or count >= FEWEST_TILES):
            fitting.append((points * count, side))
    return min(fitting)[1] if fitting else 0


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
        and min(push["out_h"], push["out_w"]) >= min(FILTERS)
        and not settings.get("DISABLE_VARIANTS") and not settings.get("DISABLE_PREPACK")
        and "winograd" not in settings.names("DISABLE_PASSES")
    )  # fmt: skip


def fill(read: TensorInfo, constants: Mapping[str, TensorInfo]) -> TensorInfo | None:
    """Return a tensor that `parts` named, with its value; None for any other tensor."""
    match = _NAME.fullmatch(read.name)
    source = constants[match[1]].constant if match and match[1] in constants else None
    if match is None or source is None or read.constant is not None:
        return None
    side = int(match[2])
    array = constant_cache.derive(("winograd", side), lambda w: _transformed(w, side), source)
    return TensorInfo(read.name, read.dtype, read.shape, array)


def _transformed(weight: np.ndarray, side: int) -> np.ndarray:
    """Return filters [filters, depth, 3, 3] as [(side + 2)^2, depth, filters]."""
    filters, depth = weight.shape[:2]
    taps = weight.transpose(2, 3, 1, 0).reshape(9, -1).astype(np.float64)
    made = np.kron(FILTERS[side], FILTERS[side]) @ taps
    return made.astype(np.float32).reshape(-1, depth, filters)
