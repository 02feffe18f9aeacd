"""DFT, STFT and windows against NumPy and ONNX Runtime: lengths, axes, halves, overlaps."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.checks.check_operator import check_operator, lacks
from support.graphs.small_models import one_node, random_array
from vklab import settings


def run(op_type, arrays, device, opset=20, constants=(), **attributes):
    proto, fed = one_node(op_type, arrays, constants, opset, **attributes)
    on_host = lacks(device, arrays[0].dtype)
    with settings.settings(FALLBACK=on_host), vklab.load(proto, device) as session:
        return session.run(fed)["y0"]


def parts(values):
    return np.stack((values.real, values.imag), axis=-1)


def close(got, expected):
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [None, 1, 5, 7, 8, 16])
@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3])
def test_transforms_along_an_axis(device, length, axis):
    x = random_array((2, 7, 3, 2))
    signal = x[..., 0] + 1j * x[..., 1]
    given = None if length is None else np.array(length, np.int64)
    along = axis + 1 if axis < 0 else axis
    arrays, known = [x, given, np.array(axis, np.int64)], [2] if length is None else [1, 2]
    close(run("DFT", arrays, device, constants=known), parts(np.fft.fft(signal, length, along)))
    y = run("DFT", arrays, device, constants=known, inverse=1)
    close(y, parts(np.fft.ifft(signal, length, along)))


@pytest.mark.parametrize("length", [1, 2, 7, 8, 97])
def test_half_spectra(device, length):
    x = random_array((3, length, 1))
    half = np.fft.rfft(x[..., 0])
    close(run("DFT", [x], device, onesided=1), parts(half))
    arrays = [parts(half).astype(np.float32), np.array(length, np.int64)]
    close(run("DFT", arrays, device, constants=[1], onesided=1, inverse=1), x)


def test_the_axis_was_an_attribute(device):
    x = random_array((2, 7, 5, 2))
    signal = x[..., 0] + 1j * x[..., 1]
    close(run("DFT", [x], device, opset=17), parts(np.fft.fft(signal, axis=1)))
    close(run("DFT", [x], device, opset=17, axis=2), parts(np.fft.fft(signal, axis=2)))


def test_doubles(device):
    x = random_array((3, 31, 1)).astype(np.float64)
    expected = parts(np.fft.fft(x[..., 0]))
    np.testing.assert_allclose(run("DFT", [x], device), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(("length", "step"), [(16, 8), (7, 3), (61, 1)])
def test_frames(device, length, step, onesided):
    for window in (None, np.hanning(length).astype(np.float32)):
        arrays = [
            random_array((2, 61, 1)),
            np.array(step, np.int64),
            window,
            np.array(length, np.int64),
        ]
        known = [1, 3] if window is None else [1, 2, 3]
        check_operator("STFT", inputs=arrays, device=device, constants=known, onesided=onesided)


@pytest.mark.parametrize(("name", "terms"), [
    ("HannWindow", (0.5, 0.5, 0)), ("HammingWindow", (25 / 46, 21 / 46, 0)),
    ("BlackmanWindow", (0.42, 0.5, 0.08)),
])  # fmt: skip
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(device, name, terms, periodic):
    for size in (1, 2, 10, 31):
        y = run(name, [np.array(size, np.int64)], device, periodic=periodic, output_datatype=11)
        turn = 2 * np.pi * np.arange(size) / max(size if periodic else size - 1, 1)
        expected = terms[0] - terms[1] * np.cos(turn) + terms[2] * np.cos(2 * turn)
        np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
