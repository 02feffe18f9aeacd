"""MobileNetV2 of half width in NumPy, with codes of any width in place of its numbers.

Visited by lab 14. It needs no framework, and no device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from vklab.apps.quantization.histogram import METHODS, Histogram
from vklab_course.data import data

__all__ = ["CALIBRATION", "SHOWN", "Layer", "classes", "codes_of", "digits", "forward",
           "histograms", "layers", "ranges", "rounded_to_codes"]  # fmt: skip

EPSILON = 1e-3  # of the normalisations
CALIBRATION = 256  # training images that tell the ranges
SHOWN = "layers.4.layers.0"  # the layer whose input lab 14 draws
ScaleAndZero = Callable[[float, float, int, bool], tuple[float, int]]
See = Callable[[str, np.ndarray], np.ndarray]


class Layer(NamedTuple):
    """A convolution with its normalisation folded in.

    Attributes:
        name: its name in the file of weights.
        weights: filters x channels of a filter x height x width.
        bias: one number for each filter.
        stride: pixels between two places of the filter.
    """

    name: str
    weights: np.ndarray
    bias: np.ndarray
    stride: int


@cache
def layers() -> tuple[Layer, ...]:
    """Return the layers of the network in execution order."""
    with np.load(data("digits_mobilenet.npz")) as arrays:
        stored = {name: arrays[name].astype(np.float32) for name in arrays.files}
    found, strides = [], {"layers.0", "layers.3.layers.2", "layers.5.layers.2",
                          "layers.8.layers.2", "layers.15.layers.2"}  # fmt: skip
    for name in stored:
        if name.endswith(".0.weight") and name != "linear.weight":
            root = name.removesuffix(".0.weight")
            norm = {part: stored[f"{root}.1.{part}"]
                    for part in ("weight", "bias", "running_mean", "running_var")}  # fmt: skip
            factor = norm["weight"] / np.sqrt(norm["running_var"] + np.float32(EPSILON))
            weights = stored[name] * factor[:, None, None, None]
            bias = norm["bias"] - norm["running_mean"] * factor
            found.append(Layer(root, weights, bias, 2 if root in strides else 1))
    found.append(Layer("linear", stored["linear.weight"][:, :, None, None],
                       stored["linear.bias"], 1))  # fmt: skip
    return tuple(found)


@cache
def digits(held_out: bool, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return images [n, 32, 32, 3] and their classes."""
    with np.load(data("digits.npz")) as arrays:
        kept = arrays["held_out"] == held_out
        images, labels = arrays["images"][kept][:count], arrays["labels"][kept][:count]
    framed = np.pad(images[:, 0], ((0, 0), (2, 2), (2, 2)))
    return np.repeat(framed[..., None], 3, axis=3), labels


def _convolved(x: np.ndarray, layer: Layer) -> np.ndarray:
    """Return the layer's result; channels are the last axis."""
    filters, channels, size, _ = layer.weights.shape
    if size == 1:
        made: np.ndarray = x @ layer.weights[:, :, 0, 0].T + layer.bias
        return made
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    n, high, wide = x.shape[0], x.shape[1] - 2, x.shape[2] - 2
    s = layer.stride
    out = np.zeros((n, -(-high // s), -(-wide // s), filters), np.float32) + layer.bias
    for row in range(3):
        for column in range(3):
            seen = x[:, row : row + high : s, column : column + wide : s]
            weights = layer.weights[:, :, row, column]
            out += seen * weights[:, 0] if channels == 1 else seen @ weights.T
    return out


def forward(images: np.ndarray, see: See = lambda name, x: x,
            weights: Mapping[str, np.ndarray] | None = None) -> np.ndarray:  # fmt: skip
    """Return the logits of images.

    Args:
        images: [n, 32, 32, 3].
        see: is called with the name and the input of each layer; what it returns is the input.
        weights: other weights of layers, by name.
    """
    *convolutions, last = layers()
    x, kept, block = images, images, ""
    for layer in convolutions:
        if weights is not None:
            layer = layer._replace(weights=weights[layer.name])
        if layer.name.split(".layers")[0] != block:
            block, kept = layer.name.split(".layers")[0], x
        x = _convolved(see(layer.name, x), layer)
        ends = layer.name.count(".") == 3 and layer.weights.shape[0] < layer.weights.shape[1]
        if not ends:
            x = np.clip(x, 0, 6)
        elif x.shape == kept.shape:
            x = x + kept
    x = see(last.name, x.mean(axis=(1, 2)))
    matrix = last.weights if weights is None else weights[last.name]
    logits: np.ndarray = x @ matrix[:, :, 0, 0].T + last.bias
    return logits


def codes_of(x: np.ndarray, step: float, zero: int, bits: int, signed: bool) -> np.ndarray:
    """Return the codes of numbers, rounded to the nearest and clipped."""
    least = -(1 << bits - 1) if signed else 0
    codes: np.ndarray = np.clip(np.rint(x / step) + zero, least, least + (1 << bits) - 1)
    return codes


def rounded_to_codes(x: np.ndarray, low: float, high: float, bits: int, signed: bool,
                     scale_and_zero: ScaleAndZero) -> np.ndarray:  # fmt: skip
    """Return the numbers that the codes of `x` mean, for a range."""
    step, zero = scale_and_zero(float(low), float(high), bits, signed)
    made: np.ndarray = (codes_of(x, step, zero, bits, signed) - zero) * step
    return made.astype(np.float32)


@cache
def histograms() -> Mapping[str, Histogram]:
    """Return a histogram of the input of each layer, over training images."""
    counted = {layer.name: Histogram() for layer in layers()}

    def see(name: str, x: np.ndarray) -> np.ndarray:
        counted[name].add(x)
        return x

    forward(digits(False, CALIBRATION)[0], see)
    return counted


@cache
def ranges(method: str) -> Mapping[str, tuple[float, float]]:
    """Return the range of each layer's input, by a method of `vklab quantize`."""
    return {name: METHODS[method](histogram) for name, histogram in histograms().items()}


def classes(scale_and_zero: ScaleAndZero | None = None, bits: int = 8, method: str = "min-max",
            weights_only: bool = False) -> np.ndarray:  # fmt: skip
    """Return the classes of the held-out digits, with codes of `bits` bits.

    Args:
        scale_and_zero: an answer to exercise 14-1; without one, the classes in float32.
        bits: width of the codes.
        method: how the ranges of activations are chosen.
        weights_only: leave the activations in float32.
    """
    images, _ = digits(True)
    if scale_and_zero is None:
        return forward(images).argmax(axis=1)
    function = scale_and_zero
    weights = {
        layer.name: np.stack([
            rounded_to_codes(w, w.min(), w.max(), bits, True, function) for w in layer.weights
        ])
        for layer in layers()
    }  # fmt: skip
    of = ranges(method)

    def see(name: str, x: np.ndarray) -> np.ndarray:
        return x if weights_only else rounded_to_codes(x, *of[name], bits, False, function)

    return forward(images, see, weights).argmax(axis=1)
