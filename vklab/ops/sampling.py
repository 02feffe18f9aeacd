"""Dispatch reads of images between their pixels, at coordinates in another tensor.

Coordinates and regions are read on the device, so no decision here depends on values.
Visited by lab 09. Sources: Jaderberg et al., "Spatial Transformer Networks", 2015 (grids); He et
al., "Mask R-CNN", 2017 (RoiAlign); Girshick, "Fast R-CNN", 2015 (MaxRoiPool).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import ELEMENTS, REALS, type_defines
from vklab.ops.inputs import known_integers, require, same
from vklab.ops.per_element import per_element
from vklab.ops.registry import Result, operator, output
from vklab.types import TensorInfo

# Pixels that are read along an axis; bilinear and bicubic are the names of opset 16.
TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
PADDINGS = ("zeros", "border", "reflection")
MOST_SAMPLES = 1024  # of a region's bin along each axis: a kernel ends


def _choice(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise ModelError(f"unknown {name}={value!r}; choose one of {', '.join(known)}")
    return value


def _value(*dtypes: str) -> tuple[str, str]:
    return ("R", "double" if "float64" in dtypes else ELEMENTS[dtypes[0]].value)


@operator("GridSample", since=16)
def grid_sample(
    X: TensorInfo, grid: TensorInfo, *, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Result:  # fmt: skip
    """Interpolate X [N,C,...] at coordinates of grid [N,...,axes]. Source: ONNX GridSample-22."""
    require(REALS, X, grid)
    taps = TAPS[_choice("mode", mode, tuple(TAPS))]
    padding = _choice("padding_mode", padding_mode, PADDINGS)
    axes = X.rank - 2
    if axes not in (2, 3):
        raise UnsupportedOperatorError(f"{axes} spatial axes; kernels exist for 2 and 3")
    if grid.rank != X.rank or grid.dims[0] != X.dims[0] or grid.dims[-1] != axes:
        raise ModelError(f"grid of shape {grid.shape} does not fit X of shape {X.shape}")
    result = output(X.dtype, (*X.dims[:2], *grid.dims[1:-1]))
    if result.count and not X.count:
        raise ModelError(f"X of shape {X.shape} is empty: there are no pixels to read")
    flat = (1,) * (3 - axes)
    return per_element(
        "grid_sample",
        result,
        [("x", X), ("grid", grid)],
        (
            ("channels", X.dims[1]),
            ("axes", axes),
            ("align", align_corners),
            ("in_size", flat + X.dims[2:]),
            ("out_size", flat + result.dims[2:]),
        ),
        (
            ("TAPS", str(taps)),
            ("PADDING", padding.upper()),
            _value(X.dtype, grid.dtype),
            *type_defines("T", X.dtype),
            *type_defines("G", grid.dtype)[:2],
        ),
        2 * taps**axes,
    )


@operator("AffineGrid", since=20)
def affine_grid(theta: TensorInfo, size: TensorInfo, *, align_corners: int = 0) -> Result:
    """Transform pixel coordinates by theta [N,axes,axes+1]. Source: ONNX AffineGrid-20."""
    require(REALS, theta)
    batch, _, *space = known_integers(size, "size")
    axes = len(space)
    if axes not in (2, 3) or theta.dims != (batch, axes, axes + 1) or min(space) < 0:
        raise ModelError(
            f"theta of shape {theta.shape} does not fit size ({batch}, C, "
            f"{', '.join(map(str, space))})"
        )
    return per_element(
        "affine_grid",
        output(theta.dtype, (batch, *space, axes)),
        [("theta", theta)],
        (("axes", axes), ("align", align_corners), ("out_size", (1,) * (3 - axes) + tuple(space))),
        (_value(theta.dtype), *type_defines("T", theta.dtype)),
        2 * axes,
    )


@operator("RoiAlign", since=16)
def roi_align(
    X: TensorInfo, rois: TensorInfo, batch_indices: TensorInfo, *,
    coordinate_transformation_mode: str = "half_pixel", mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Result:  # fmt: skip
    """Pool interpolated samples of regions of X [N,C,H,W]. Source: ONNX RoiAlign-22."""
    known = ("half_pixel", "output_half_pixel")
    half = _choice("coordinate_transformation_mode", coordinate_transformation_mode, known)
    return _align(
        X,
        rois,
        batch_indices,
        0.5 if half == "half_pixel" else 0.0,
        mode,
        (output_height, output_width),
        sampling_ratio,
        spatial_scale,
    )


@operator("RoiAlign", since=10)
def roi_align_by_corners(
    X: TensorInfo, rois: TensorInfo, batch_indices: TensorInfo, *, mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Result:  # fmt: skip
    """Pool samples of regions without a shift of half a pixel. Source: ONNX RoiAlign-10."""
    return _align(
        X,
        rois,
        batch_indices,
        0.0,
        mode,
        (output_height, output_width),
        sampling_ratio,
        spatial_scale,
    )


def _align(
    X: TensorInfo, rois: TensorInfo, batch_indices: TensorInfo, shift: float, mode: str,
    size: tuple[int, int], samples: int, scale: float,
) -> Result:  # fmt: skip
    require(REALS, X, rois)
    require(frozenset({"int64"}), batch_indices)
    same(X, rois)
    modes = {"avg": "AVERAGE", "max": "MAXIMUM"}
    if rois.dims != (batch_indices.count, 4) or samples < 0:
        raise ModelError(
            f"rois of shape {rois.shape}, batch_indices of {batch_indices.shape} and "
            f"sampling_ratio={samples} do not fit together"
        )
    if samples > MOST_SAMPLES:
        raise ModelError(
            f"sampling_ratio={samples}, squared, is the number of samples of each "
            f"bin; kernels take {MOST_SAMPLES} at most"
        )
    push = (("samples", samples), ("scale", scale), ("shift", shift))
    defines = (("MODE", modes[_choice("mode", mode, tuple(modes))]),)
    return _regions("roi_align", X, rois, size, push, defines, (("batch", batch_indices),))


@operator("MaxRoiPool")
def max_roi_pool(
    X: TensorInfo,
    rois: TensorInfo,
    *,
    pooled_shape: Sequence[int],
    spatial_scale: float = 1.0,
) -> Result:
    """Compute the maximum of each bin of regions of X [N,C,H,W]. Source: ONNX MaxRoiPool-22."""
    require(REALS, X, rois)
    same(X, rois)
    if rois.rank != 2 or rois.dims[1] != 5 or len(pooled_shape) != 2:
        raise ModelError(
            f"rois of shape {rois.shape} and pooled_shape={tuple(pooled_shape)}: a "
            "region has five numbers, pooled_shape two"
        )
    size = (pooled_shape[0], pooled_shape[1])
    return _regions("max_roi_pool", X, rois, size, (("scale", spatial_scale),), (), ())


def _regions(
    kernel: str, X: TensorInfo, rois: TensorInfo, size: tuple[int, int],
    push: tuple[tuple[str, float], ...], defines: tuple[tuple[str, str], ...],
    reads: tuple[tuple[str, TensorInfo], ...],
) -> Result:  # fmt: skip
    """Return the dispatch of a kernel that pools `size` bins of each region."""
    if X.rank != 4 or min(size) < 1:
        raise ModelError(
            f"X of shape {X.shape} with {size} bins: X must have rank 4, bins be 1 or more"
        )
    result = output(X.dtype, (rois.dims[0], X.dims[1], *size))
    if result.count and not X.count:
        raise ModelError(f"X of shape {X.shape} is empty: there are no pixels to pool")
    # Without sampling_ratio, a region is assumed to be as large as the image at most.
    samples = [
        int(dict(push).get("samples", 0)) or dim // bins + 2
        for dim, bins in zip(X.dims[2:], size, strict=True)
    ]
    return per_element(
        kernel,
        result,
        [("x", X), ("rois", rois), *reads],
        (
            ("images", X.dims[0]),
            ("channels", X.dims[1]),
            ("in_size", X.dims[2:]),
            ("out_size", size),
            *push,
        ),
        (_value(X.dtype), *defines, *type_defines("T", X.dtype)),
        8 * math.prod(samples),
        iterations=math.prod(samples) + samples[0],
    )
