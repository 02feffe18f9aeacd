"""Compute a 3 x 3 convolution by products of matrices of transformed tiles: less arithmetic.

Tiles of 2 x 2 pixels take 16 multiplications instead of 36, tiles of 4 x 4 pixels 36 instead of
144. The transforms are dispatches of their own. An infinity may become NaN, and reach more results
than it should (docs/tuning.md, NaN and infinities). Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vklab import settings
from vklab.base import catalogue
from vklab.base.names import internal
from vklab.ops import dtypes, linear, registry
from vklab.plan.tuning import forced, tiles
from vklab.types import DeviceInfo, Dispatch, TensorInfo

WORKGROUP = 64
# Channels and filters from which on a CPU gains more by the products than it loses by transforms.
FEWEST = 16
# Times on a GPU, fitted to an H200: both transforms and three launches, bytes that transforms move
# and that transformed filters take in one ns; a convolution in slices takes so much longer than its
# table says, and its launch. Tiles of 4 x 4 pixels are never faster there: 256 channels of 28 x 28
# pixels take 31 us (2 x 2: 30, without tiles 45), 512 channels of 14 x 14 pixels 43 (34, 50).
FIXED_NS, MOVED_PER_NS, FILTERS_PER_NS, SLOWER, LAUNCH_NS = 15000, 2000, 2500, 1.35, 2500
# The same for images in planes: channels and filters from which on, and the most pixels.
FEWEST_PLANES, MOST_PIXELS_PLANES = 512, 256
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
    4: np.array(
        [
            [1, 0, 0],
            [-2 / 3, -ROOT / 3, -1 / 3],
            [-2 / 3, ROOT / 3, -1 / 3],
            [1 / 6, ROOT / 6, 1 / 3],
            [1 / 6, -ROOT / 6, 1 / 3],
            [0, 0, 1],
        ]
    ),
}


@dataclass(frozen=True)
class _Image:
    """Sizes of a 3 x 3 convolution.

    Attributes:
        batch: images.
        channels: channels of the input.
        filters: channels of the output.
        seen: height and width of the input.
        made: height and width of the output.
        pads: lines above the input, and columns left of it.
        last: the channels of a pixel lie side by side.
    """

    batch: int
    channels: int
    filters: int
    seen: tuple[int, int]
    made: tuple[int, int]
    pads: tuple[int, int]
    last: bool

    def grid(self, side: int) -> tuple[int, int, int, int]:
        """Return the products of a tile, the tiles along both axes of an image, and all tiles."""
        down, across = (-(-size // side) for size in self.made)
        return (side + 2) ** 2, down, across, self.batch * down * across


@dataclass(frozen=True)
class Filters:
    """Filters [filters, depth, 3, 3], or [3, 3, depth, filters] if `last`, for tiles of a side."""

    weight: str
    side: int
    last: bool

    def lay_out(self, values: np.ndarray) -> np.ndarray:
        """Return the filters as [(side + 2)^2, depth, filters], transformed in float64."""
        taps = values if self.last else values.transpose(2, 3, 1, 0)
        depth, filters = taps.shape[2:]
        both = np.kron(FILTERS[self.side], FILTERS[self.side])
        made = both @ taps.reshape(9, -1).astype(np.float64)
        return made.astype(np.float32).reshape(-1, depth, filters)


def parts(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return a convolution as transform, product and transform; as it is where that is slower.

    Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks"
    """
    image = _image(dispatch)
    side = _side(image, info) if image else 0
    if not image or not side:
        return (dispatch,)
    (_, pixels), (_, weight), *bias = dispatch.reads
    filters, depth = image.filters, image.channels
    points, down, across, count = image.grid(side)
    # The value before an epilogue: several convolutions may write parts of one tensor.
    own = dispatch.epilogue.operands[0] if dispatch.epilogue else None
    name, layout = (own.info if own else dispatch.writes[0][1]).name, " last" * image.last
    seen = TensorInfo(internal(name, "tiles"), "float32", (points, count, depth))
    turned = TensorInfo(
        internal(weight.name, f"winograd{side}{layout}"),
        "float32",
        (points, depth, filters),
        layout=Filters(weight.name, side, image.last),
    )
    made = TensorInfo(internal(name, "products"), "float32", (points, count, filters))
    grid = (("down", down), ("across", across))
    kinds = ("SIDE", str(side)), ("LAST", str(int(image.last)))
    before = Dispatch(
        "winograd_input",
        (("x_buffer", pixels),),
        (("y_buffer", seen),),
        registry.grid(-(-count * depth // WORKGROUP)),
        (
            ("count", count * depth),
            ("channels", depth),
            ("in_h", image.seen[0]),
            ("in_w", image.seen[1]),
            *grid,
            ("pad_top", image.pads[0]),
            ("pad_left", image.pads[1]),
        ),
        (
            *dtypes.type_defines("T", pixels.dtype)[:2],
            *dtypes.type_defines("Y", "float32")[::2],
            *kinds,
        ),
        (("WORKGROUP", WORKGROUP),),
        flops=2 * (side + 2) * points * count * depth,
    )
    (product,) = linear.product(
        seen,
        turned,
        None,
        made,
        (count, filters, depth),
        (depth, 1),
        (filters, 1),
        (points,),
        ((count * depth,), (depth * filters,)),
    )
    after = Dispatch(
        "winograd_output",
        (("x_buffer", made), *bias),
        dispatch.writes,
        registry.grid(-(-count * filters // WORKGROUP)),
        (
            ("count", count * filters),
            ("filters", filters),
            ("out_h", image.made[0]),
            ("out_w", image.made[1]),
            *grid,
        ),
        (
            ("BIAS", str(len(bias))),
            *kinds,
            *dtypes.type_defines("X", "float32")[:2],
            *dtypes.type_defines("T", pixels.dtype)[:2],
            *dtypes.type_defines("Y", dispatch.writes[0][1].dtype)[::2],
        ),
        (("WORKGROUP", WORKGROUP),),
        flops=2 * (side + 1) * points * count * filters,
        stores=True,
        epilogue=dispatch.epilogue,
    )
    return before, product, after


def _image(dispatch: Dispatch) -> _Image | None:
    """Return the sizes of a 3 x 3 convolution of floats by weights that are known before the run.

    Returns None for any other dispatch, and where a switch asks for another kernel.
    """
    if dispatch.kernel not in ("conv", "conv_last"):
        return None
    push, constants = dispatch.push_values, dispatch.constant_values
    defines, is_last = dispatch.define_values, dispatch.kernel == "conv_last"
    if is_last:
        window = int(defines["KERNEL_H"]), int(defines["KERNEL_W"])
        groups, depth, filters = push["n"] // push["filters"], constants["DEPTH"], push["n"]
        strips = -(-push["out_w"] // constants["PIXELS"])
        batch = push["count"] // (filters * strips * push["out_h"])
        strides = push["stride_h"], constants["STRIDE_W"]
    else:
        window, groups = (push["kernel_h"], push["kernel_w"]), push["groups"]
        depth, filters, batch = push["in_channels"], push["out_channels"], push["batches"]
        strides = push["stride_h"], push["stride_w"]
    steps = (groups, *strides, push["dilation_h"], push["dilation_w"])
    off = (
        settings.get("DISABLE_VARIANTS")
        or settings.get("DISABLE_PREPACK")
        or catalogue.is_off("winograd")
    )
    known = dict(dispatch.reads)["w_buffer"].constant is not None
    if off or not known or defines["T"] != "float" or window != (3, 3) or {*steps} != {1}:
        return None
    made = push["out_h"], push["out_w"]
    return (
        None
        if min(made) < min(FILTERS)
        else _Image(
            batch,
            depth,
            filters,
            (push["in_h"], push["in_w"]),
            made,
            (push["pad_top"], push["pad_left"]),
            is_last,
        )
    )


def _side(image: _Image, info: DeviceInfo) -> int:
    """Return the side of the tiles by which a device is fastest; 0 for none.

    On a CPU that is the side with the fewest multiplications, the smaller one if equal. A device
    must be able to bind what the transforms write.
    """
    most, wanted, fitting = info.limit("maxStorageBufferRange") // 4, forced.choice(), []
    is_forced = wanted is not None and wanted[0] == "winograd"
    if not is_forced and not _gains(image, info):
        return 0
    sides = (2, 4) if info.is_cpu else (2,)
    for side in wanted[1][:1] or sides if wanted and is_forced else sides:
        points, _, _, count = image.grid(side)
        depth, filters = image.channels, image.filters
        rows = max(count * depth, count * filters, depth * filters)
        enough = side == 2 or count >= FEWEST_TILES or is_forced
        if side in FILTERS and points * rows <= most and enough:
            fitting.append((points * count, side))
    return min(fitting)[1] if fitting else 0


def _gains(image: _Image, info: DeviceInfo) -> bool:
    """Tell whether a device computes a convolution faster so."""
    fewest = min(image.channels, image.filters)
    pixels = image.batch * image.made[0] * image.made[1]
    if info.is_cpu:
        return fewest >= FEWEST and not image.last
    if not image.last:
        return fewest >= FEWEST_PLANES and pixels <= MOST_PIXELS_PLANES
    return fewest >= FEWEST and _tiles_ns(image) < _whole_ns(image, pixels)


def _tiles_ns(image: _Image) -> float:
    """Return the time that a GPU takes in tiles of 2 x 2 pixels."""
    points, _, _, count = image.grid(2)
    depth, filters = image.channels, image.filters
    sizes = count, filters, depth, points
    product = tiles.expected_ns(*tiles.soonest(tiles.MANY, sizes), sizes)
    moved = 4 * (points + 4) * count * (depth + filters)
    return FIXED_NS + product + moved / MOVED_PER_NS + 4 * points * depth * filters / FILTERS_PER_NS


def _whole_ns(image: _Image, pixels: int) -> float:
    """Return the time that a GPU takes for the convolution as one product."""
    sizes = pixels, image.filters, 9 * image.channels, 1
    sliced, own = (
        tiles.expected_ns(*tiles.soonest(table, sizes), sizes)
        for table in (tiles.SLICED, tiles.LAST_FLOAT)
    )
    return LAUNCH_NS + (SLOWER * sliced if sliced < own else own)
