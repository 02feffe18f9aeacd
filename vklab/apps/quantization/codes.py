"""Codes of 8 bits: the scale and zero point of a range, and numbers rounded to codes.

Source: Jacob et al., "Quantization and Training of Neural Networks", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Codes of weights leave out -128, so that they are symmetric.
LARGEST = 127
SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Scale:
    """Step and zero point of codes; arrays hold one for each index of an axis.

    Attributes:
        dtype: uint8 (asymmetric) or int8 (symmetric).
        steps: the difference of two neighbouring codes' numbers, float32.
        zeros: the codes of 0.
        axis: the axis with steps of its own, or None.
    """

    dtype: str
    steps: np.ndarray
    zeros: np.ndarray
    axis: int | None = None

    def __str__(self) -> str:
        count = f" x {self.steps.size}" if self.steps.size > 1 else ""
        return f"{self.dtype}{count}, steps of {float(self.steps.max()):.4g}"


def of_range(low: float, high: float, dtype: str = "uint8") -> Scale:
    """Return the scale whose codes cover a range and have a code for 0.

    Args:
        low: the least number.
        high: the largest number.
        dtype: uint8 takes the range as it is; int8 makes it symmetric, with zero point 0.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if dtype == "int8":
        step, zero = max(-low, high) / LARGEST, 0
    else:
        step = (high - low) / 255
        zero = round(-low / step) if step > SMALLEST else 0
    step = step if step > SMALLEST else 1.0
    return Scale(dtype, np.asarray(step, np.float32), np.asarray(zero, dtype))


def of_weights(weights: np.ndarray, axis: int | None) -> Scale:
    """Return symmetric int8 scales of weights: one, or one for each index of an axis."""
    others = tuple(i for i in range(weights.ndim) if i != axis) if axis is not None else None
    largest = np.abs(weights).max(axis=others, initial=0).astype(np.float32)
    steps = np.where(largest / LARGEST > SMALLEST, largest / LARGEST, 1).astype(np.float32)
    return Scale("int8", steps, np.zeros(steps.shape, np.int8), axis)


def _along(array: np.ndarray, scale: Scale, rank: int) -> np.ndarray:
    shape = [1] * rank
    if scale.axis is not None:
        shape[scale.axis] = -1
    return array.reshape(shape)


def quantized(array: np.ndarray, scale: Scale) -> np.ndarray:
    """Return the codes of numbers, rounded to the nearest, ties to even."""
    info = np.iinfo(scale.dtype)
    steps, zeros = (_along(each, scale, array.ndim) for each in (scale.steps, scale.zeros))
    codes = np.rint(array / steps) + zeros.astype(np.float64)
    made: np.ndarray = np.clip(codes, info.min, info.max).astype(scale.dtype)
    return made


def dequantized(codes: np.ndarray, scale: Scale) -> np.ndarray:
    """Return the numbers that codes mean, in float32."""
    steps, zeros = (_along(each, scale, codes.ndim) for each in (scale.steps, scale.zeros))
    made: np.ndarray = (codes.astype(np.int32) - zeros.astype(np.int32)) * steps
    return made.astype(np.float32)


def sqnr_db(exact: np.ndarray, ours: np.ndarray) -> float:
    """Return the power of a signal over that of its error in decibels; infinite without error."""
    signal, noise = (float((each.astype(np.float64) ** 2).sum()) for each in (exact, ours - exact))
    if noise == 0:
        return float(np.inf)
    return float(10 * np.log10(signal / noise)) if signal else float(-np.inf)
