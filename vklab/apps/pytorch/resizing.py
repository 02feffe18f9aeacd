"""Translation of interpolate and adaptive pools to ONNX: the sizes and elements of PyTorch.

PyTorch computes a new size from a factor in float64, and coordinates from that same factor; Resize
knows either sizes or factors in float32, and the two differ where a product is near a whole number.
Visited by lab 09.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from onnxscript import ir
from onnxscript import opset23 as op

from vklab.apps.pytorch.constants import constant, float64
from vklab.errors import ModelError

FLOAT, INT64, DOUBLE = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.DOUBLE
# A product this near to a whole number is that number: its factor is a rounded fraction.
NEAR = 1e-9


class _Axis:
    """One axis of an interpolated tensor: its number, sizes and factor, as far as they are known.

    Args:
        x: the tensor.
        number: number of the axis in x.
        new_size: the new size, if given.
        factor: new size over size, if given.
    """

    def __init__(self, x: Any, number: int, new_size: Any, factor: float | None) -> None:
        self.x, self.number, self.factor = x, number, factor
        self.size = x.shape[number] if isinstance(x.shape[number], int) else None
        if new_size is None and self.size is not None:
            new_size = int(self.size * factor)
        self.new_size = new_size

    def length(self) -> Any:
        """Return the size before, as a value of the graph of shape [1]."""
        return op.Shape(self.x, start=self.number, end=self.number + 1)

    def new_length(self) -> Any:
        """Return the size after, as a value of the graph of shape [1]."""
        if self.new_size is None:
            return op.Cast(op.Mul(float64(self.length()), float64(self.factor)), to=INT64)
        if isinstance(self.new_size, int):
            return op.Constant(value_ints=[self.new_size])
        return op.Reshape(self.new_size, op.Constant(value_ints=[-1]))

    def whole_factor(self, is_shifted: bool, is_by_ratio: bool) -> int | None:
        """Return n if the nearest elements are those of a repetition n times, else None."""
        count = self.factor
        if self.size and isinstance(self.new_size, int):
            count = self.new_size / self.size
            if self.factor not in (None, count) and not (is_by_ratio and count in (1, 2)):
                return None
        if count is None or count < 1 or not float(count).is_integer():
            return None
        # PyTorch multiplies by 1 / n in float32, which may lie below.
        return int(count) if is_shifted or float(np.float32(1 / count)) * count >= 1 else None

    def nearest(self, is_shifted: bool, is_by_ratio: bool) -> Any:
        """Return the elements that PyTorch takes, by its own arithmetic in float32."""
        length, new_length = self.length(), self.new_length()
        ratio = op.Div(op.Cast(length, to=FLOAT), op.Cast(new_length, to=FLOAT))
        step = ratio
        if self.factor is not None:
            step = constant(1 / self.factor, FLOAT)
            if is_by_ratio:
                is_plain = op.Or(
                    op.Equal(ratio, constant(1.0, FLOAT)), op.Equal(ratio, constant(0.5, FLOAT))
                )
                step = op.Where(is_plain, ratio, step)
        count = op.Squeeze(new_length, op.Constant(value_ints=[0]))
        at = op.Cast(op.Range(constant(0, INT64), count, constant(1, INT64)), to=FLOAT)
        at = op.Add(at, constant(0.5, FLOAT)) if is_shifted else at
        element = op.Cast(op.Floor(op.Mul(at, step)), to=INT64)
        return op.Min(element, op.Sub(length, constant(1, INT64)))

    def is_by_size(self) -> bool:
        """Tell whether the new size says all: no factor is given, or the size times it is whole."""
        if self.factor is None:
            return True
        if self.size is None or not isinstance(self.new_size, int):
            return False
        return abs(self.size * self.factor - self.new_size) <= NEAR * self.new_size

    def scale(self, is_kept: bool) -> Any:
        """Return the least float32 that is not below the factor, as a value of shape [1].

        Args:
            is_kept: PyTorch ignores the factor if the size stays.
        """
        if self.factor is None:
            raise ModelError("interpolate needs a factor for each axis, or for none")
        rounded, above = np.float32(self.factor), np.float32(math.inf)
        known = float(rounded if rounded >= self.factor else np.nextafter(rounded, above))
        scale = op.Constant(value_floats=[known])
        if not (is_kept and 1 < self.factor < 2):
            return scale
        one = op.Constant(value_floats=[1.0])
        return op.Where(op.Equal(self.length(), self.new_length()), one, scale)

    def is_simple(self) -> bool:
        """Tell whether sizes times the factor are exact in float32."""
        return self.factor is not None and (self.factor * 256).is_integer() and self.factor < 256


def _axes(x: Any, size: Sequence[Any] | None, factors: Sequence[float | None]) -> list[_Axis]:
    rank = len(x.shape) - 2
    sizes = size or [None] * rank
    return [_Axis(x, 2 + i, sizes[i], factors[i] if factors else None) for i in range(rank)]


def _nearest(x: Any, axes: Sequence[_Axis], is_shifted: bool) -> Any:
    """Translate the modes nearest, and nearest-exact, which is shifted by half an element."""
    # PyTorch ignores the factor of an axis that stays or is doubled, if it resizes two axes.
    how = (is_shifted, not is_shifted and len(axes) == 2)
    counts = [axis.whole_factor(*how) for axis in axes]
    if None not in counts:
        scales = op.Constant(value_floats=[1.0, 1.0, *(float(count or 1) for count in counts)])
        return op.Resize(
            x,
            None,
            scales,
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )
    for axis, count in zip(axes, counts, strict=True):
        if count != 1:
            x = op.Gather(x, axis.nearest(*how), axis=axis.number)
    return x


def _weighted(
    x: Any, axes: Sequence[_Axis], mode: str, align_corners: bool, antialias: bool
) -> Any:
    """Translate the modes that weigh elements.

    Args:
        x: the tensor.
        axes: its axes that change.
        mode: of Resize: linear or cubic.
        align_corners: of interpolate.
        antialias: of interpolate.
    """
    if align_corners and antialias:
        raise ModelError(
            "interpolate with antialias and align_corners has no equal in ONNX; use "
            "align_corners=False"
        )
    how = {
        "mode": mode,
        "antialias": int(antialias),
        "exclude_outside": int(antialias),
        "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
        "cubic_coeff_a": -0.5 if antialias else -0.75,
    }
    if align_corners or all(axis.is_by_size() for axis in axes):
        sizes = op.Concat(op.Shape(x, start=0, end=2), *(a.new_length() for a in axes), axis=0)
        return op.Resize(x, None, None, sizes, **how)
    is_simple = all(axis.is_simple() for axis in axes)
    is_kept = mode == "linear" or antialias  # an axis whose size stays, whatever its factor
    if x.dtype == DOUBLE and not is_simple:
        raise ModelError(
            f"interpolate of float64 by {[axis.factor for axis in axes]}: factors of "
            "Resize are float32; set recompute_scale_factor=True, or give "
            "the size"
        )
    plain = op.Constant(value_floats=[1.0, 1.0])
    scales = op.Concat(plain, *(axis.scale(is_kept) for axis in axes), axis=0)
    y = op.Resize(x, None, scales, **how)
    if is_simple:
        return y
    # Scales that are rounded up may add an element.
    ends = op.Concat(*(axis.new_length() for axis in axes), axis=0)
    starts = op.Constant(value_ints=[0] * len(axes))
    return op.Slice(y, starts, ends, op.Constant(value_ints=[axis.number for axis in axes]))


def _nearest_by(is_shifted: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the translations of the overloads `vec` and `default` of a nearest mode."""

    def vec(x: Any, size: Any = None, factors: Any = None) -> Any:
        return _nearest(x, _axes(x, size, factors), is_shifted)

    def default(x: Any, size: Any, a: Any = None, b: Any = None, c: Any = None) -> Any:
        return vec(x, size, [a, b, c])

    return vec, default


def _weighted_by(mode: str, antialias: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the translations of the overloads `vec` and `default` of a weighted mode."""

    def vec(x: Any, size: Any = None, align: Any = False, factors: Any = None) -> Any:
        return _weighted(x, _axes(x, size, factors), mode, align, antialias)

    def default(
        x: Any, size: Any, align: Any = False, a: Any = None, b: Any = None, c: Any = None
    ) -> Any:
        return vec(x, size, align, [a, b, c])

    return vec, default


def _means(x: Any, number: int, new_size: Any) -> Any:
    """Return the matrix [new size, size] that averages the elements of an axis for each new one.

    Args:
        x: the tensor.
        number: number of the axis in x.
        new_size: its new size.
    """
    axis = _Axis(x, number, new_size, None)
    zero, one, first = constant(0, INT64), constant(1, INT64), op.Constant(value_ints=[0])
    size, new = op.Squeeze(axis.length(), first), op.Squeeze(axis.new_length(), first)
    at = op.Unsqueeze(op.Range(zero, new, one), op.Constant(value_ints=[1]))
    start = op.Div(op.Mul(at, size), new)
    end = op.Div(op.Add(op.Mul(op.Add(at, one), size), op.Sub(new, one)), new)
    element = op.Range(zero, size, one)
    inside = op.And(op.GreaterOrEqual(element, start), op.Less(element, end))
    return op.Div(op.Cast(inside, to=x.dtype), op.Cast(op.Sub(end, start), to=x.dtype))


def _averaged(x: Any, size: Sequence[Any]) -> Any:
    """Translate adaptive_avg_pool2d; PyTorch's own decomposition fixes open sizes, silently."""
    first = len(x.shape) - 2
    pairs = list(zip(x.shape[first:], size, strict=True))
    is_known = all(isinstance(n, int) and isinstance(new, int) for n, new in pairs)
    if first == 2 and is_known and not any(n % new for n, new in pairs):
        steps = [n // new for n, new in pairs]
        return op.AveragePool(x, kernel_shape=steps, strides=steps)
    columns = op.Transpose(_means(x, first + 1, size[1]), perm=[1, 0])
    return op.MatMul(op.MatMul(_means(x, first, size[0]), x), columns)


_MODES = {
    **{f"upsample_nearest{n}d": _nearest_by(False) for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": _nearest_by(True) for n in (1, 2, 3)},
    "upsample_linear1d": _weighted_by("linear", False),
    "upsample_bilinear2d": _weighted_by("linear", False),
    "upsample_trilinear3d": _weighted_by("linear", False),
    "upsample_bicubic2d": _weighted_by("cubic", False),
    "_upsample_bilinear2d_aa": _weighted_by("linear", True),
    "_upsample_bicubic2d_aa": _weighted_by("cubic", True),
}

# A part of the custom_translation_table of torch.onnx.export.
TABLE: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._adaptive_avg_pool2d.default: _averaged,
    **{
        getattr(getattr(torch.ops.aten, name), overload): function
        for name, functions in _MODES.items()
        for overload, function in zip(("vec", "default"), functions, strict=True)
    },
}
