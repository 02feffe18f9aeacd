"""Normalisations against ONNX Runtime and NumPy: odd rows, axes, optional outputs, dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from support.checks.check_operator import check_operator
from support.checks.run_node import close, run_all
from support.graphs.small_models import random_array
from vklab.ops import layer_norm as layer_norm_module

SHAPES = [(3, 7), (1, 1031), (5, 1), (2, 257), (2, 3, 5, 7)]
HALF = {"rtol": 2e-3, "atol": 2e-3}


def layer_norm(x, axes, epsilon=1e-5):
    """Return the slow truth in float64."""
    x = x.astype(np.float64)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon), mean, 1 / np.sqrt(variance + epsilon)


def test_layer_normalization(device):
    for shape in SHAPES:
        for axis in range(-len(shape), len(shape)):
            own = shape[axis:] if axis < 0 else shape[axis - len(shape) :]
            x, scale, bias = random_array(shape) + 3, random_array(own, 1), random_array(own, 2)
            y, mean, inverse = run_all("LayerNormalization", [x, scale, bias], 3, device, axis=axis)
            axes = tuple(range(axis % len(shape), len(shape)))
            normal, true_mean, true_inverse = layer_norm(x, axes)
            close(y, normal * scale + bias)
            close(mean, true_mean)
            close(inverse, true_inverse)
            check_operator("LayerNormalization", inputs=[x, scale], device=device, axis=axis)


def test_scales_that_broadcast(device):
    x = random_array((3, 5, 7))
    for own in [(1,), (7,), (5, 1), (1, 7), (3, 1, 7), ()]:
        scale, bias = random_array(own, 1), random_array((7,), 2)
        for given in ([x, scale], [x, scale, bias]):
            y, *_ = run_all("LayerNormalization", given, 3, device, axis=1)
            close(y, layer_norm(x, (1, 2))[0] * scale + (bias if len(given) > 2 else 0))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats(device_index, dtype):
    x, scale, bias = (
        random_array(s, i).astype(dtype) for i, s in enumerate([(3, 67), (67,), (67,)])
    )
    y, *_ = run_all("LayerNormalization", [x, scale, bias], 3, device_index)
    close(y, layer_norm(x, (1,))[0] * scale + bias, **HALF)
    (y,) = run_all("RMSNormalization", [x, scale], 1, device_index, opset=23)
    close(y, x / np.sqrt(np.mean(x.astype(float) ** 2, 1, keepdims=True) + 1e-5) * scale, **HALF)
    channels = [random_array((6,), 9).astype(dtype)] * 2
    image = random_array((2, 6, 5, 3)).astype(dtype)
    (y,) = run_all("InstanceNormalization", [image, *channels], 1, device_index)
    own = channels[0].reshape(6, 1, 1)
    close(y, layer_norm(image, (2, 3))[0] * own + own, **HALF)
    (y,) = run_all(
        "BatchNormalization", [image, *channels, channels[0], abs(channels[0])], 1, device_index
    )
    close(y, (image - own) / np.sqrt(abs(own) + 1e-5) * own + own, **HALF)


def test_a_row_far_from_zero_keeps_its_variance(device):
    x = random_array((2, 4099)) + 1000
    y, *_ = run_all("LayerNormalization", [x, np.ones(4099, np.float32)], 3, device)
    close(y, layer_norm(x, (1,))[0], 1e-3, 1e-3)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_groups_of_channels(device, groups):
    for space in [(), (5,), (7, 3), (2, 3, 5)]:
        x, own = random_array((2, 6, *space)), (6, *(1,) * len(space))
        grouped = layer_norm(x.reshape(2, groups, -1), (2,))[0]
        scale, bias = random_array((6,), 1), random_array((6,), 2)
        (y,) = run_all("GroupNormalization", [x, scale, bias], 1, device, num_groups=groups)
        close(y, grouped.reshape(x.shape) * scale.reshape(own) + bias.reshape(own))
        scale, bias = scale[:groups], bias[:groups]
        (y,) = run_all("GroupNormalization", [x, scale, bias], 1, device, 18, num_groups=groups)
        close(y, (grouped * scale.reshape(-1, 1) + bias.reshape(-1, 1)).reshape(x.shape))
        if space:
            check_operator(
                "InstanceNormalization", [x.shape, (6,), (6,)], device=device, epsilon=0.1
            )


def test_batch_normalization(device):
    for space in [(), (5,), (7, 3)]:
        arrays = [
            random_array((4, 3, *space)),
            *(random_array((3,), i) for i in range(1, 4)),
            np.abs(random_array((3,), 5)),
        ]
        for constants in ([], [1, 2, 3, 4]):
            check_operator(
                "BatchNormalization",
                inputs=arrays,
                constants=constants,
                device=device,
                epsilon=0.01,
            )
        check_operator("BatchNormalization", inputs=arrays, device=device, opset=9)


def test_batch_normalization_in_training(device):
    x, mean, variance = random_array((4, 3, 5)), random_array((3,), 3), np.ones(3, np.float32)
    given = [x, np.ones(3, np.float32), np.zeros(3, np.float32), mean, variance]
    y, new_mean, new_variance = run_all(
        "BatchNormalization", given, 3, device, training_mode=1, momentum=0.75
    )
    close(y, layer_norm(x, (0, 2))[0])
    close(new_mean, 0.75 * mean + 0.25 * x.mean((0, 2)))
    close(new_variance, 0.75 * variance + 0.25 * x.var((0, 2)))


@pytest.mark.parametrize("p", [1, 2])
def test_norms(device, p):
    x = random_array((3, 5, 7))
    x[1, :, 2] = 0
    for axis in (-1, 0, 1):
        (y,) = run_all("LpNormalization", [x], 1, device, 17, axis=axis, p=p)
        norm = np.linalg.norm(x, p, axis, keepdims=True)
        close(y, np.divide(x, norm, out=np.zeros_like(x), where=norm != 0))


def test_mean_and_variance(device):
    check_operator("MeanVarianceNormalization", [(2, 3, 5, 7)], device=device, opset=13)
    check_operator("MeanVarianceNormalization", [(2, 3, 5)], device=device, opset=13, axes=[0, 2])


@pytest.mark.parametrize("with_bias", [False, True])
def test_sums_that_are_normalised(device, with_bias):
    x, skip = random_array((2, 3, 67)), random_array((2, 3, 67), 1)
    gamma, beta, bias = (random_array((67,), i) for i in (2, 3, 4))
    total = x + skip + (bias if with_bias else 0)
    rest = [bias] if with_bias else []
    y, mean, inverse, added = run_all(
        "SkipLayerNormalization", [x, skip, gamma, beta, *rest], 4, device, domain="com.microsoft"
    )
    normal, true_mean, true_inverse = layer_norm(total, (2,))
    for got, expected in [
        (y, normal * gamma + beta),
        (mean, true_mean),
        (inverse, true_inverse),
        (added, total),
    ]:
        close(got, expected)
    root = np.sqrt(np.mean(total.astype(float) ** 2, 2, keepdims=True) + 1e-5)
    (y,) = run_all(
        "SkipSimplifiedLayerNormalization",
        [x, skip, gamma, *rest],
        1,
        device,
        domain="com.microsoft",
    )
    close(y, total / root * gamma)
    for domain in ("", "com.microsoft"):
        (y,) = run_all("SimplifiedLayerNormalization", [total, gamma], 1, device, domain=domain)
        close(y, total / root * gamma)


def test_no_elements(device):
    empty, none = np.zeros((2, 0), np.float32), np.zeros((0,), np.float32)
    y, mean, _ = run_all("LayerNormalization", [empty, none], 3, device)
    assert y.shape == (2, 0) and mean.shape == (2, 1) and np.isnan(mean).all()
    image = np.zeros((0, 3, 5), np.float32)
    three = np.ones(3, np.float32)
    assert run_all("InstanceNormalization", [image, three, three], 1, device)[0].size == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_few_long_rows_are_shared_out(device, rows, monkeypatch):
    monkeypatch.setattr(layer_norm_module, "LONG_ROW", 1000)
    x, scale, bias = (
        random_array((rows, 20011)) + 5,
        random_array((20011,)),
        random_array((20011,), 1),
    )
    y, mean, inverse = run_all("LayerNormalization", [x, scale, bias], 3, device)
    normal, true_mean, true_inverse = layer_norm(x, (1,))
    for got, expected in [(y, normal * scale + bias), (mean, true_mean), (inverse, true_inverse)]:
        close(got, expected)
    (y,) = run_all("RMSNormalization", [x, scale], 1, device, 23, epsilon=0.5)
    close(y, x / np.sqrt(np.mean(x.astype(float) ** 2, 1, keepdims=True) + 0.5) * scale)
    image, own = random_array((rows, 4, 67, 31)), random_array((4,), 2)
    (y,) = run_all("GroupNormalization", [image, own, own], 1, device, num_groups=2)
    grouped = layer_norm(image.reshape(rows, 2, -1), (2,))[0].reshape(image.shape)
    close(y, grouped * own.reshape(-1, 1, 1) + own.reshape(-1, 1, 1))
