"""MiniClassifier in NumPy, layer by layer: right, in another dtype, or with a planted mistake.

Data flows from an image to ten logits through nine layers, each of which is a function of one array.
Visited by lab 17.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vklab_course.data import data

__all__ = ["LAYERS", "TERMS", "default_weights", "images", "layers_of", "run", "share_of_blind",
           "trained_weights"]  # fmt: skip

Weights = Mapping[str, np.ndarray]
Layers = dict[str, Callable[[np.ndarray], np.ndarray]]
LAYERS = ("conv1", "relu1", "conv2", "relu2", "pool", "linear1", "relu3", "linear2")
# Terms of the sums of a layer; a maximum has none.
TERMS = {"conv1": 27, "conv2": 288, "pool": 64, "linear1": 1024, "linear2": 128}


def trained_weights() -> Weights:
    """Return the weights that were trained on digits, float32."""
    with np.load(data("digits_mini_classifier.npz")) as arrays:
        return {name: arrays[name] for name in arrays.files}


def default_weights(seed: int = 0) -> Weights:
    """Return weights as PyTorch draws them for a new network: uniform, up to 1 / sqrt(inputs)."""
    random, drawn = np.random.default_rng(seed), {}
    for name, array in trained_weights().items():
        inputs = array[0].size if array.ndim > 1 else drawn[f"{name[:-4]}weight"][0].size
        drawn[name] = random.uniform(-1, 1, array.shape).astype(np.float32) / np.float32(inputs**0.5)
    return drawn


def images(count: int, seed: int = 0) -> np.ndarray:
    """Return random images, float32 [count, 3, 32, 32], with numbers from 0 to 1."""
    return np.random.default_rng(seed).random((count, 3, 32, 32), np.float32)


def _convolved(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, wraps: bool) -> np.ndarray:
    """Return a convolution of 3 by 3 that keeps the size of its images."""
    sides = ((0, 0), (0, 0), (1, 1), (1, 1))
    padded = np.pad(x, sides, "wrap") if wraps else np.pad(x, sides)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weights, optimize=True) + bias[:, None, None]


def _pooled(x: np.ndarray) -> np.ndarray:
    count, channels, height, width = x.shape
    blocks = x.reshape(count, channels, 4, height // 4, 4, width // 4)
    return blocks.mean((3, 5)).reshape(count, -1)


def layers_of(weights: Weights, dtype: Any = np.float64, wraps: bool = False) -> Layers:
    """Return the layers as functions, which compute in a dtype.

    Args:
        weights: arrays by name.
        dtype: of weights and of what a layer stores; sums of float16 are float32.
        wraps: plants a mistake: the border of the second convolution is the image's other side.
    """
    stored = {name: array.astype(dtype) for name, array in weights.items()}
    wide = {
        name: array.astype(np.float32 if dtype == np.float16 else dtype)
        for name, array in stored.items()
    }

    def kept(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        work = np.float32 if dtype == np.float16 else dtype
        return lambda x: function(x.astype(dtype).astype(work)).astype(dtype)

    def conv(number: int) -> Callable[[np.ndarray], np.ndarray]:
        name = f"conv{number}"
        return lambda x: _convolved(
            x, wide[f"{name}.weight"], wide[f"{name}.bias"], wraps and number == 2
        )

    def linear(number: int) -> Callable[[np.ndarray], np.ndarray]:
        name = f"linear{number}"
        return lambda x: x @ wide[f"{name}.weight"].T + wide[f"{name}.bias"]

    def relu(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    functions = (conv(1), relu, conv(2), relu, _pooled, linear(1), relu, linear(2))
    return {name: kept(function) for name, function in zip(LAYERS, functions, strict=True)}


def run(layers: Layers, image: np.ndarray) -> dict[str, np.ndarray]:
    """Return the result of each layer in a run of the whole network."""
    values, x = {}, image
    for name, function in layers.items():
        x = values[name] = function(x)
    return values


def share_of_blind(weights: Weights, limit: float, count: int = 100) -> float:
    """Return the share of random images on which a backend that ignores its input passes.

    It returns the mean logits of 50 images. A check passes below `limit`.
    """
    drawn = images(50 + count)
    layers = layers_of(weights, np.float32)
    logits = np.concatenate(
        [run(layers, drawn[first : first + 50])[LAYERS[-1]] for first in range(0, 50 + count, 50)]
    )
    differences = np.abs(logits[50:] - logits[:50].mean(0)).max(1)
    return float((differences < limit).mean())
