"""Dispatch Resize and Upsample from tables of the indices and weights of each output coordinate.

Interpolation is separable: each axis has one small table, and the kernel adds weighted elements.
ONNX leaves the precision open: sizes by scales, nearest elements and the edges of a crop are
computed in float32, as in ONNX Runtime.
Visited by lab 09. Source: ONNX Resize-19; Keys, "Cubic Convolution Interpolation", 1981.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vklab.errors import ModelError
from vklab.ops.dtypes import ELEMENTS, MOVABLE, REALS, raw_defines, table, type_defines
from vklab.ops.inputs import affordable, known_array, known_integers, normal_axes, require
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.ops.shape import view
from vklab.types import Dispatch, TensorInfo, dense_strides

COORDINATES = ("align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric",
               "pytorch_half_pixel", "tf_crop_and_resize", "tf_half_pixel_for_nn")  # fmt: skip
TIE = 1e-6  # a coordinate this near to a half counts as one, as in ONNX Runtime
ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5 - TIE),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5 + TIE),
    "floor": np.floor,
    "ceil": np.ceil,
    "simple": np.floor,
}
WEIGHED = REALS | {"int8", "uint8", "int16", "uint16", "int32"}
MOST_AXES = 8


@dataclass(frozen=True)
class Sampling:
    """Hold the attributes of Resize that decide how an axis is read."""

    mode: str = "nearest"
    coordinates: str = "asymmetric"
    rounding: str = "simple"
    antialias: bool = False
    exclude_outside: bool = False
    cubic_a: float = -0.75

    def __post_init__(self) -> None:
        for name, value, known in (
            ("mode", self.mode, ("nearest", "linear", "cubic")),
            ("coordinate_transformation_mode", self.coordinates, COORDINATES),
            ("nearest_mode", self.rounding, tuple(ROUNDINGS)),
        ):
            if value not in known:
                raise ModelError(f"unknown {name}={value!r}; choose one of {', '.join(known)}")


@dataclass(frozen=True)
class _Axis:
    """Hold the sizes of one axis before and after, and the part of it that is read."""

    size: int
    new_size: int
    scale: float
    length: float  # the new size before it is rounded down: align_corners in ONNX's own cases
    start: float = 0.0
    end: float = 1.0

    def same(self, sampling: Sampling) -> bool:
        cropped = sampling.coordinates == "tf_crop_and_resize" and (self.start, self.end) != (0, 1)
        return self.size == self.new_size and math.isclose(self.scale, 1.0) and not cropped


def _coordinates(axis: _Axis, how: str, real: type[np.floating]) -> np.ndarray:
    """Return the input coordinate of each output coordinate, computed in the dtype `real`."""
    affordable(axis.new_size)
    at = np.arange(axis.new_size).astype(real)
    scale, last = real(axis.scale), axis.size - 1
    if how == "align_corners":
        return at * (0 if axis.length == 1 else last) / real(max(axis.length - 1, 1e-9))
    if how == "asymmetric":
        return at / scale
    if how == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if how == "tf_crop_and_resize":
        start, end = real(axis.start), real(axis.end)
        if axis.new_size == 1:
            return at + (start + end) / 2 * last
        return start * last + at * (end - start) * last / (axis.new_size - 1)
    if how == "pytorch_half_pixel" and axis.new_size == 1:
        return at
    if how == "half_pixel_symmetric":
        middle = real(axis.size / 2) * (1 - axis.new_size / (scale * real(axis.size)))
        return (middle + (np.float64(at) + 0.5) / np.float64(scale) - 0.5).astype(real)
    return (at + 0.5) / scale - 0.5


def _kernel(distance: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Return the weight of an element at a distance from a coordinate."""
    x = np.abs(distance)
    if sampling.mode == "linear":
        return np.clip(1 - x, 0, 1)
    a = sampling.cubic_a
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def taps(axis: _Axis, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices [new_size, taps] that each coordinate of an axis reads, and their weights.

    An index of -1 marks a coordinate outside the part that is read.
    """
    cropped = sampling.coordinates == "tf_crop_and_resize"
    real = np.float32 if cropped or sampling.mode == "nearest" else np.float64
    x = _coordinates(axis, sampling.coordinates, real).astype(np.float64)
    if sampling.mode == "nearest":
        rounding = ROUNDINGS[sampling.rounding]
        if sampling.rounding == "simple" and axis.scale < 1:
            rounding = np.ceil
        index = rounding(x)[:, None]
        weights = np.ones_like(index)
    else:
        stretch = min(axis.scale, 1.0) if sampling.antialias else 1.0
        reach = 1 if sampling.mode == "linear" else 2
        half = int(np.ceil(reach / stretch))
        index = np.ceil(x)[:, None] + np.arange(-half, half)
        weights = _kernel((index - x[:, None]) * stretch, sampling)
        if sampling.exclude_outside:
            weights = np.where((index < 0) | (index >= axis.size), 0.0, weights)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    index = np.clip(index, 0, axis.size - 1).astype(np.int32)
    if cropped:
        index[(x < 0) | (x > axis.size - 1)] = -1
    return index, weights


def _resized(
    X: TensorInfo, axes: Sequence[_Axis], sampling: Sampling, outside: float = 0.0
) -> Result:
    """Return the one dispatch that resizes along all axes that change."""
    nearest = sampling.mode == "nearest"
    require(MOVABLE if nearest else WEIGHED, X)
    shape = tuple(axis.new_size for axis in axes)
    result = output(X.dtype, shape)
    if result.count == 0:
        return Result((result,))
    if X.count == 0:
        raise ModelError(f"X of shape {X.shape} is empty: it cannot be resized to {shape}")
    if all(axis.same(sampling) for axis in axes):
        return view(X, shape)
    rows: list[tuple[int, ...]] = []  # of the kernel's axes_buffer
    indices, weights, product, first = [], [], 1, 0
    for axis, stride in zip(axes, dense_strides(X.dims), strict=True):
        if axis.same(sampling):
            # Merge neighbouring axes that keep their size.
            if rows and rows[-1][2] == 0 and rows[-1][1] == stride * axis.new_size:
                rows[-1] = (rows[-1][0] * axis.new_size, stride, 0, 0)
            else:
                rows.append((axis.new_size, stride, 0, 0))
            continue
        index, weight = taps(axis, sampling)
        rows.append((axis.new_size, stride, index.shape[1], first))
        indices.append(index.ravel())
        weights.append(weight.ravel())
        product, first = product * index.shape[1], first + index.size
    known = np.concatenate(indices)
    return _dispatch(X, result, rows, known, np.concatenate(weights), product, nearest, outside)


def _dispatch(
    X: TensorInfo, result: TensorInfo, rows: Sequence[tuple[int, ...]], indices: np.ndarray,
    weights: np.ndarray, product: int, nearest: bool, outside: float,
) -> Result:  # fmt: skip
    crossed = bool((indices < 0).any())
    whole = X.dtype not in REALS
    wide = "float64" if X.dtype == "float64" else "float32"
    if nearest and crossed:
        require(WEIGHED, X)
    if sum(row[2] > 0 for row in rows) > MOST_AXES:
        raise ModelError(f"more than {MOST_AXES} axes change size; kernels take {MOST_AXES}")
    tables = [
        ("axes_buffer", table(np.array(rows).ravel(), "uint32")),
        ("index_buffer", table(indices)),
    ]
    if not nearest:
        tables.append(("weight_buffer", table(weights, wide)))
    bounds = np.iinfo(X.dtype) if whole and not nearest else None
    # The largest int32 is not a float32.
    highest = min(bounds.max, 2147483520) if bounds else 0
    raw = nearest and not crossed
    typing = raw_defines if raw else type_defines
    value = {} if raw else {"R": ELEMENTS[X.dtype].value, "W": ELEMENTS[wide].value}
    dispatch = Dispatch(
        kernel="resize",
        reads=(("x_buffer", X), *tables),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-result.count // WORKGROUP)),
        push=(
            ("count", result.count),
            ("axes", len(rows)),
            ("taps", product),
            ("outside", outside),
            ("lowest", float(bounds.min if bounds else 0)),
            ("highest", float(highest)),
        ),
        defines=(
            ("MODE", "NEAREST" if nearest else "WEIGHTED"),
            ("OUTSIDE", str(int(crossed))),
            ("ROUND", str(int(whole and not nearest))),
            *value.items(),
            *typing("X", X.dtype)[:2],
            *typing("Y", X.dtype)[::2],
        ),
        flops=0 if nearest else 2 * result.count * product,
        iterations=len(rows) + product * (1 + len(rows)),
        stores=True,
        loads=True,
    )
    return Result((result,), (dispatch,), scratch=tuple(info for _, info in tables))


@operator("Resize", since=11)
def resize(
    X: TensorInfo, roi: TensorInfo | None = None, scales: TensorInfo | None = None,
    sizes: TensorInfo | None = None, *, antialias: int = 0, axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Result:  # fmt: skip
    """Resize X to sizes, or by scales. Source: ONNX Resize-19."""
    sampling = Sampling(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        bool(antialias),
        bool(exclude_outside),
        cubic_coeff_a,
    )
    chosen = normal_axes(tuple(axes) if axes is not None else tuple(range(X.rank)), X.rank)
    # Up to opset 12 an unused input is an empty tensor.
    given = [info for info in (scales, sizes) if info is not None and info.count]
    if len(given) != 1 or given[0].count != len(chosen):
        raise ModelError(
            f"{len(given)} of scales and sizes are given for {len(chosen)} axes; give "
            "one of them, with a number for each axis"
        )
    dims = [X.dims[axis] for axis in chosen]
    if given[0] is sizes:
        changed = _to_sizes(dims, known_integers(sizes, "sizes"), keep_aspect_ratio_policy)
    else:
        changed = _by_scales(dims, known_array(given[0], "scales"))
    parts = [0.0] * len(chosen) + [1.0] * len(chosen)
    if sampling.coordinates == "tf_crop_and_resize":
        if roi is None or roi.count != len(parts):
            raise ModelError(f"tf_crop_and_resize needs a roi of {len(parts)} numbers")
        parts = [float(value) for value in np.ravel(known_array(roi, "the roi"))]
    whole = [_Axis(dim, dim, 1.0, dim) for dim in X.dims]
    for i, axis in enumerate(chosen):
        whole[axis] = replace(changed[i], start=parts[i], end=parts[i + len(chosen)])
    return _resized(X, whole, sampling, extrapolation_value)


def _by_scales(dims: Sequence[int], scales: np.ndarray | Sequence[float]) -> list[_Axis]:
    """Return the axes of a tensor that change by scales; 1 keeps a size that is no float32."""
    factors = [float(value) for value in np.ravel(scales)]
    if len(factors) != len(dims) or not all(0 < factor < math.inf for factor in factors):
        raise ModelError(f"scales {factors} must be {len(dims)} finite numbers above zero")
    news = [
        dim if factor == 1 else int(np.float32(min(dim * factor, 2**62)))
        for dim, factor in zip(dims, factors, strict=True)
    ]
    return [_Axis(d, new, f, d * f) for d, new, f in zip(dims, news, factors, strict=True)]


def _to_sizes(dims: Sequence[int], sizes: Sequence[int], policy: str) -> list[_Axis]:
    """Return the axes of a tensor that change to sizes, or near to them to keep their ratio."""
    if any(size < 0 for size in sizes):
        raise ModelError(f"sizes {tuple(sizes)} must all be zero or more")
    factors = [size / dim if dim else 1.0 for dim, size in zip(dims, sizes, strict=True)]
    if policy == "stretch":
        return [_Axis(*axis) for axis in zip(dims, sizes, factors, sizes, strict=True)]
    if policy not in ("not_larger", "not_smaller"):
        raise ModelError(
            f"unknown keep_aspect_ratio_policy={policy!r}; choose one of stretch, "
            "not_larger, not_smaller"
        )
    ratio = min(factors) if policy == "not_larger" else max(factors)
    return [_Axis(dim, int(np.float32(ratio * dim) + 0.5), ratio, ratio * dim) for dim in dims]


@operator("Resize", since=10)
@operator("Upsample", since=9)
def resize_by_scales(X: TensorInfo, scales: TensorInfo, *, mode: str = "nearest") -> Result:
    """Resize X by scales, aligned at its first element. Source: ONNX Resize-10, Upsample-9."""
    return _resized(X, _by_scales(X.dims, known_array(scales, "scales")), Sampling(mode))


@operator("Upsample", since=7)
def upsample_by_attribute(
    X: TensorInfo, *, mode: str = "nearest", scales: Sequence[float]
) -> Result:
    """Resize X by scales, aligned at its first element. Source: ONNX Upsample-7."""
    return _resized(X, _by_scales(X.dims, scales), Sampling(mode))
