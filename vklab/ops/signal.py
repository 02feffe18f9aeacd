"""Dispatch discrete Fourier transforms as direct sums (not FFTs), and compute their windows.

Windows and mel weights depend on sizes alone; they are constants, computed here in float64.
Visited by lab 09. Source: Oppenheim and Schafer, "Discrete-Time Signal Processing", 1989.
"""

from __future__ import annotations

import math

import numpy as np

from vklab.errors import ModelError
from vklab.ops.cast import dtype_of
from vklab.ops.dtypes import REALS, table, type_defines
from vklab.ops.inputs import affordable, known_array, known_integers, normal_axis, require, same
from vklab.ops.linear import value_defines
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo


def transform(
    x: TensorInfo,
    shape: tuple[int, ...],
    sizes: tuple[int, int, int, int],
    frames: tuple[int, int, int] = (1, 0, 0),
    window: TensorInfo | None = None,
    inverse: bool = False,
    half: bool = False,
) -> Result:
    """Return the discrete Fourier transforms of signals in x.

    Args:
        x: the signals; the last axis is 1 (real) or 2 (complex).
        shape: the shape of the result.
        sizes: the length of a transform, its elements taken from x, its bins, its stride in x.
        frames: the frames of a batch, and the strides of batches and frames in x.
        window: the weights of a frame's elements; None for 1.
        inverse: compute the inverse transform.
        half: x is the first half of a spectrum, the result a real signal.
    """
    require(REALS, x)
    length, taken, bins, inner = sizes
    if length < 1:
        raise ModelError(f"a transform has length {length}; it must be 1 or more")
    result = output(x.dtype, shape)
    affordable(length)
    turns = np.arange(length) * (2 * math.pi / length)
    wide = "float64" if x.dtype == "float64" else "float32"
    circle = table(np.stack((np.cos(turns), np.sin(turns)), axis=-1), wide)
    count = result.count // (1 if half else 2)
    if not count:
        return Result((result,))
    reads = (("x_buffer", x), ("turns_buffer", circle))
    push = (
        ("count", count),
        ("length", length),
        ("taken", min(taken, length)),
        ("bins", bins),
        ("inner", inner),
        ("frames", frames[0]),
        ("batch_step", frames[1]),
        ("frame_step", frames[2]),
        ("sign", 1.0 if inverse else -1.0),
        ("scale", 1.0 if inverse else 0.0),
    )
    defines = (
        ("PARTS", str(x.dims[-1])),
        ("WINDOW", str(int(window is not None))),
        ("HALF", str(int(half))),
        *value_defines(x.dtype),
        *type_defines("T", x.dtype),
    )
    dispatch = Dispatch(
        "dft",
        reads + ((("window_buffer", window),) if window else ()),
        (("y_buffer", result),),
        grid(-(-count // WORKGROUP)),
        push,
        defines,
        flops=8 * count * taken,
        iterations=min(taken, length),
    )
    return Result((result,), (dispatch,), (circle,))


@operator("DFT", since=20)
def dft(
    input: TensorInfo,
    dft_length: TensorInfo | None = None,
    axis: TensorInfo | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Result:
    """Compute the discrete Fourier transform along an axis. Source: ONNX DFT-20."""
    along = -2 if axis is None else known_integers(axis, "the axis")[0]
    return _dft(input, dft_length, along, bool(inverse), bool(onesided))


@operator("DFT", since=17)
def dft_by_attribute(
    input: TensorInfo,
    dft_length: TensorInfo | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Result:
    """Compute the discrete Fourier transform along an axis. Source: ONNX DFT-17."""
    return _dft(input, dft_length, axis, bool(inverse), bool(onesided))


def _dft(
    x: TensorInfo, dft_length: TensorInfo | None, axis: int, inverse: bool, onesided: bool
) -> Result:
    axis = normal_axis(axis, x.rank)
    if x.dims[-1] not in (1, 2) or axis == x.rank - 1:
        raise ModelError(f"{x} must have a last axis of 1 or 2 (real, complex) after axis {axis}")
    dim = x.dims[axis]
    half = inverse and onesided
    length = 2 * (dim - 1) if half else dim
    if dft_length is not None:
        length = known_integers(dft_length, "dft_length")[0]
    bins = length // 2 + 1 if onesided and not inverse else length
    taken = min(dim, length // 2 + 1) if half else dim
    shape = (*x.dims[:axis], bins, *x.dims[axis + 1 : -1], 1 if half else 2)
    inner = math.prod(x.dims[axis + 1 : -1])
    return transform(
        x, shape, (length, taken, bins, inner), (1, dim * inner, 0), None, inverse, half
    )


@operator("STFT", since=17)
def stft(
    signal: TensorInfo,
    frame_step: TensorInfo,
    window: TensorInfo | None = None,
    frame_length: TensorInfo | None = None,
    *,
    onesided: int = 1,
) -> Result:
    """Transform overlapping frames of a signal. Source: ONNX STFT-17."""
    if signal.rank != 3 or signal.dims[-1] not in (1, 2):
        raise ModelError(f"{signal} must be [batch, length, 1 or 2]")
    batch, samples, _ = signal.dims
    step = known_integers(frame_step, "frame_step")[0]
    if frame_length is not None:
        length = known_integers(frame_length, "frame_length")[0]
    else:
        length = window.dims[0] if window is not None else samples
    if step < 1 or not 0 < length <= samples or (window and window.dims != (length,)):
        raise ModelError(
            f"frames of {length} every {step} elements do not fit {signal}, window {window}"
        )
    if window is not None:
        same(signal, window)
    frames = (samples - length) // step + 1
    bins = length // 2 + 1 if onesided else length
    return transform(
        signal, (batch, frames, bins, 2), (length, length, bins, 1), (frames, samples, step), window
    )


def _window(
    size: TensorInfo, periodic: int, kind: int, terms: tuple[float, float, float]
) -> Result:
    """Return a window: a sum of cosines over one period, with or without its end point."""
    count = known_integers(size, "the size")[0]
    affordable(count)
    turn = 2 * math.pi * np.arange(count) / max(count if periodic else count - 1, 1)
    values = terms[0] - terms[1] * np.cos(turn) + terms[2] * np.cos(2 * turn)
    return _constant(values, kind)


def _constant(values: np.ndarray, kind: int) -> Result:
    dtype = dtype_of(kind)
    return Result((output(dtype, values.shape, values.astype(dtype)),))


@operator("HannWindow", since=17)
def hann_window(size: TensorInfo, *, output_datatype: int = 1, periodic: int = 1) -> Result:
    """Compute a window of one raised cosine. Source: ONNX HannWindow-17."""
    return _window(size, periodic, output_datatype, (0.5, 0.5, 0.0))


@operator("HammingWindow", since=17)
def hamming_window(size: TensorInfo, *, output_datatype: int = 1, periodic: int = 1) -> Result:
    """Compute a window of a raised cosine with ends above zero. Source: ONNX HammingWindow-17."""
    return _window(size, periodic, output_datatype, (25 / 46, 21 / 46, 0.0))


@operator("BlackmanWindow", since=17)
def blackman_window(size: TensorInfo, *, output_datatype: int = 1, periodic: int = 1) -> Result:
    """Compute a window of two cosines. Source: ONNX BlackmanWindow-17."""
    return _window(size, periodic, output_datatype, (0.42, 0.5, 0.08))


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(
    num_mel_bins: TensorInfo,
    dft_length: TensorInfo,
    sample_rate: TensorInfo,
    lower_edge_hertz: TensorInfo,
    upper_edge_hertz: TensorInfo,
    *,
    output_datatype: int = 1,
) -> Result:
    """Compute triangular weights from bins to mel bands. Source: ONNX MelWeightMatrix-17."""
    bins, length, rate = (
        known_integers(info, "a size")[0] for info in (num_mel_bins, dft_length, sample_rate)
    )
    edges = [float(known_array(e, "an edge")) for e in (lower_edge_hertz, upper_edge_hertz)]
    affordable(bins + 2, max(length, 0) // 2 + 1)
    low, high = (2595 * math.log10(1 + edge / 700) for edge in edges)
    pitch = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    hertz = 700 * (10 ** (pitch / 2595) - 1)
    corners = ((length + 1) * hertz // rate).astype(int)
    if not 0 <= corners.min(initial=0) <= corners.max(initial=0) <= length // 2:
        raise ModelError(f"edges {edges} are outside the {length // 2 + 1} bins at {rate} Hz")
    weights = np.zeros((length // 2 + 1, bins))
    triples = zip(corners[:-2], corners[1:-1], corners[2:], strict=True)
    for number, (left, center, right) in enumerate(triples):
        rise, fall = center - left, right - center
        weights[left : center + 1, number] = np.arange(rise + 1) / rise if rise else 1.0
        if fall > 0:
            weights[center:right, number] = np.arange(fall, 0, -1) / fall
    return _constant(weights, output_datatype)
