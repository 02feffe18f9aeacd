"""A product of 8-bit codes that adds pairs in 16 bits, and codes to try it with.

Visited by lab 14.
"""

from __future__ import annotations

import numpy as np

from vklab.apps.quantization import codes
from vklab_labs.lab_14 import codes_networks

__all__ = ["LAYERS", "exact_sums", "full_range_codes", "share_wrong", "summed", "trained_codes"]

LAYERS = ("layers.14.layers.4", "layers.17.layers.4", "linear")  # depths 288, 480 and 1280
Codes = tuple[np.ndarray, np.ndarray]


def summed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sums of products of codes, int32 [m, n].

    Args:
        a: activations, uint8 [m, k]; k is even.
        b: weights, int8 [k, n].
    """
    wide = a.astype(np.int32)[:, :, None] * b.astype(np.int32)
    pairs = (wide[:, 0::2] + wide[:, 1::2]).clip(-32768, 32767).astype(np.int16)
    return pairs.sum(axis=1, dtype=np.int32)


def exact_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the same sums, all in 32 bits."""
    sums: np.ndarray = a.astype(np.int32) @ b.astype(np.int32)
    return sums


def share_wrong(a: np.ndarray, b: np.ndarray) -> float:
    """Return the share of the sums that `summed` gets wrong."""
    return float((summed(a, b) != exact_sums(a, b)).mean())


def full_range_codes(depth: int = 256, weight_bits: int = 8, seed: int = 0) -> Codes:
    """Return random codes that use their whole ranges: 64 rows and 64 columns."""
    random = np.random.default_rng(seed)
    half = 1 << weight_bits - 1
    return (random.integers(0, 256, (64, depth)).astype(np.uint8),
            random.integers(-half, half, (depth, 64)).astype(np.int8))  # fmt: skip


def trained_codes(name: str, count: int = 64) -> Codes:
    """Return the codes of a layer of the digits' MobileNetV2 of half width, and of its input.

    Args:
        name: a layer whose filters have one pixel.
        count: rows of the input, of held-out digits.
    """
    layer = next(layer for layer in codes_networks.layers() if layer.name == name)
    seen = {}

    def see(of: str, x: np.ndarray) -> np.ndarray:
        seen[of] = x
        return x

    codes_networks.forward(codes_networks.digits(True, 64)[0], see)
    rows = seen[name].reshape(-1, seen[name].shape[-1])
    rows = rows[np.linspace(0, len(rows) - 1, count).astype(int)]
    weights = layer.weights[:, :, 0, 0]
    return (codes.quantized(rows, codes.of_range(*codes_networks.ranges("min-max")[name])),
            codes.quantized(weights, codes.of_weights(weights, 0)).T)  # fmt: skip
