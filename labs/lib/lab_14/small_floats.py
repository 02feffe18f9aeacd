"""Numbers that the codes of a small float format mean, and weights to try formats with.

Visited by lab 14.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vklab.apps.quantization import codes
from vklab_course.data import data

__all__ = ["decibels", "int8_rounded", "numbers_of", "weights"]


def numbers_of(stored: np.ndarray, exponent_bits: int, mantissa_bits: int,
               shift: int) -> np.ndarray:  # fmt: skip
    """Return the numbers of codes whose bias is larger than 2^(exponent_bits - 1) - 1 by `shift`.

    Every code is finite, as exercise 14-2 says.
    """
    stored = stored.astype(np.int64)
    sign = np.where(stored >> exponent_bits + mantissa_bits & 1, -1.0, 1.0)
    exponent = stored >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = stored & (1 << mantissa_bits) - 1
    whole = np.where(exponent > 0, mantissa + (1 << mantissa_bits), mantissa)
    power = np.maximum(exponent, 1) - ((1 << exponent_bits - 1) - 1 + shift) - mantissa_bits
    made: np.ndarray = sign * np.ldexp(whole.astype(np.float64), power)
    return made


def weights() -> Mapping[str, np.ndarray]:
    """Return the weights of MiniClassifier, trained on the digits: filters x numbers of each."""
    with np.load(data("digits_mini_classifier.npz")) as arrays:
        return {
            name.removesuffix(".weight"): arrays[name].reshape(len(arrays[name]), -1)
            for name in arrays.files
            if name.endswith(".weight")
        }


def int8_rounded(array: np.ndarray, by_filter: bool) -> np.ndarray:
    """Return weights after int8 codes around 0, with one step for each filter, or one for all."""
    scale = codes.of_weights(array, 0 if by_filter else None)
    return codes.dequantized(codes.quantized(array, scale), scale)


def decibels(exact: np.ndarray, rounded: np.ndarray) -> float:
    """Return the power of numbers over that of their error, in decibels."""
    return codes.sqnr_db(exact, rounded)
