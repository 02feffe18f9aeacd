"""A product of 8-bit codes that adds pairs in 16 bits, and codes of real layers to try it with.

Visited by lab 14.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vklab.apps.quantization import codes
from vklab_labs.lab_14 import codes_networks

__all__ = ["TrainedLayer", "exact_sums", "full_range_codes", "pair_sums", "share_wrong",
           "trained_layer"]  # fmt: skip


def pair_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sums of products of codes, int32 [m, n].

    Args:
        a: activations, uint8 [m, k]; k is even.
        b: weights, int8 [k, n].
    """
    products = a.astype(np.int32)[:, :, None] * b.astype(np.int32)
    pairs = (products[:, 0::2] + products[:, 1::2]).clip(-32768, 32767).astype(np.int16)
    return pairs.sum(axis=1, dtype=np.int32)


def exact_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the same sums, all in 32 bits."""
    sums: np.ndarray = a.astype(np.int32) @ b.astype(np.int32)
    return sums


def share_wrong(a: np.ndarray, b: np.ndarray) -> float:
    """Return the share of the sums that `pair_sums` gets wrong."""
    return float((pair_sums(a, b) != exact_sums(a, b)).mean())


def full_range_codes(depth: int = 256, weight_bits: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Return random codes that use their whole ranges: 64 rows and 64 columns."""
    random, half = np.random.default_rng(0), 1 << weight_bits - 1
    return (random.integers(0, 256, (64, depth)).astype(np.uint8),
            random.integers(-half, half, (depth, 64)).astype(np.int8))  # fmt: skip


class TrainedLayer(NamedTuple):
    """The arguments of exercise 14-3 for a layer of one pixel, and its result in float32.

    Attributes:
        a: codes of the input, uint8.
        b: codes of the weights, int8.
        a_zero: the code of 0 in `a`.
        b_zeros: the codes of 0 in the columns of `b`.
        steps: the step of `a`, and the steps of the columns of `b`.
        out: step and zero point of the result.
        exact: the float32 product, without the bias.
    """

    a: np.ndarray
    b: np.ndarray
    a_zero: int
    b_zeros: np.ndarray
    steps: tuple[float, np.ndarray]
    out: tuple[float, int]
    exact: np.ndarray


def trained_layer(name: str, rows: int = 64, weight_bits: int = 8) -> TrainedLayer:
    """Return a layer of the digits' MobileNetV2 of half width, with codes of held-out digits.

    Args:
        name: a layer whose filters have one pixel.
        rows: rows of the input.
        weight_bits: 8, or 7 as for the instruction that adds pairs.
    """
    layer = next(layer for layer in codes_networks.layers() if layer.name == name)
    seen = {}

    def see(of: str, x: np.ndarray) -> np.ndarray:
        seen[of] = x
        return x

    codes_networks.forward(codes_networks.digits(True, 64)[0], see)
    x = seen[name].reshape(-1, seen[name].shape[-1])
    x = x[np.linspace(0, len(x) - 1, rows).astype(int)]
    weights = layer.weights[:, :, 0, 0]
    scale = codes.of_range(*codes_networks.ranges("min-max")[name])
    filters = codes.of_weights(weights, 0)
    if weight_bits < 8:  # as many levels less
        filters = codes.Scale("int8", filters.steps * (1 << 8 - weight_bits), filters.zeros, 0)
    exact = x @ weights.T
    result = codes.of_range(float(exact.min()), float(exact.max()))
    return TrainedLayer(
        codes.quantized(x, scale),
        np.ascontiguousarray(codes.quantized(weights, filters).T),
        int(scale.zeros),
        filters.zeros,
        (float(scale.steps), filters.steps.astype(np.float64)),
        (float(result.steps), int(result.zeros)),
        exact,
    )
