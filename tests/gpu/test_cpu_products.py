"""Kernels for CPU devices against ONNX Runtime: Winograd's tiles, loads of two floats, depthwise.

They run on every device here, as if it were a CPU.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import vklab
from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, random_array, value
from vklab.ops import registry
from vklab.plan.tuning.products import pairs, winograd
from vklab.runtime import host
from vklab.types import DeviceInfo, TensorInfo


@pytest.fixture(autouse=True)
def as_cpu(monkeypatch):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: True))


def conv(shape, filters, kernel, bias=True, relu=True, **attributes):
    depth = shape[1] // attributes.get("group", 1)
    weight = random_array((filters, depth, *kernel), 1) / np.float32(depth * np.prod(kernel)) ** 0.5
    constants = {"w": weight, **({"b": random_array((filters,), 2)} if bias else {})}
    nodes = [
        helper.make_node("Conv", ["x", *constants], ["c"], **attributes),
        helper.make_node("Relu" if relu else "Identity", ["c"], ["y"]),
    ]
    proto = model(nodes, [value("x", shape)], ["y"], constants)
    return proto, {"x": random_array(shape, 3)}


def kernels_of(device, proto, fed, tolerance=3e-5):
    """Compare a run with ONNX Runtime; return the kernels that ran."""
    (expected,) = host.Reference(proto).run(fed).values()
    with vklab.load(proto, device) as session:
        (y,) = session.run(fed).values()
        kernels = {dispatch.kernel for dispatch in session.plan.dispatches}
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    return kernels


@pytest.mark.parametrize(("shape", "filters", "pads"), [
    ((1, 16, 14, 14), 32, [1] * 4), ((2, 17, 7, 9), 19, [1] * 4), ((1, 31, 5, 4), 33, [0, 1, 2, 0]),
    ((3, 16, 4, 4), 16, [0] * 4), ((2, 17, 30, 27), 19, [1, 1, 0, 1]),
])  # fmt: skip
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
def test_winograd(device, shape, filters, pads, bias):
    kernels = kernels_of(device, *conv(shape, filters, (3, 3), bias, pads=pads))
    assert {"winograd_input", "winograd_output"} <= kernels


@pytest.mark.parametrize(("shape", "side"), [
    ((1, 16, 14, 14), 4), ((1, 16, 12, 12), 2), ((2, 16, 12, 12), 4), ((9, 16, 6, 6), 2),
])  # fmt: skip
def test_larger_tiles_where_they_save_multiplications(device, shape, side):
    proto, fed = conv(shape, 16, (3, 3), pads=[1] * 4)
    with vklab.load(proto, device) as session:
        session.run(fed)
        before = next(d for d in session.plan.dispatches if d.kernel == "winograd_input")
    assert before.define_values["SIDE"] == str(side)
    assert before.writes[0][1].dims[0] == (side + 2) ** 2


def test_transforms_that_a_device_cannot_bind_are_left_out(monkeypatch):
    weight = TensorInfo("w", "float32", (1024, 1024, 3, 3), np.zeros((1024, 1024, 3, 3), "f4"))
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: True))
    for size, side in ((28, "2"), (32, "2"), (256, None)):
        image = TensorInfo("x", "float32", (1, 1024, size, size))
        made = registry.apply("Conv", [image, weight], {"pads": (1,) * 4}, 22).dispatches
        parts = winograd.parts(*made, fake_device({"maxStorageBufferRange": 1 << 27}))
        assert parts[0].define_values.get("SIDE") == side


def test_two_convolutions_into_one_tensor(device):
    constants = {"w": random_array((16, 16, 3, 3), 1) / np.float32(12), "b": random_array((16,), 2)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["d"]),
        helper.make_node("Relu", ["c"], ["e"]),
        helper.make_node("Neg", ["d"], ["f"]),
        helper.make_node("Concat", ["e", "f"], ["y"], axis=1),
    ]
    proto = model(nodes, [value("x", (1, 16, 8, 8))], ["y"], constants)
    assert "winograd_input" in kernels_of(device, proto, {"x": random_array((1, 16, 8, 8), 3)})


@pytest.mark.parametrize("change", [
    {"strides": [2, 1]}, {"dilations": [2, 2]}, {"group": 2}, {"kernel": (3, 2)}, {"depth": 8},
], ids=str)  # fmt: skip
def test_other_windows_are_no_tiles_of_winograd(device, change):
    given = {"kernel": (3, 3), "depth": 32, "pads": [1] * 4, **change}
    shape = (1, given.pop("depth"), 9, 9)
    kernels = kernels_of(device, *conv(shape, 32, given.pop("kernel"), **given))
    assert "winograd_input" not in kernels


def test_winograd_can_be_left_out(device, monkeypatch):
    monkeypatch.setenv("VKLAB_DISABLE_PASSES", "winograd")
    assert kernels_of(device, *conv((1, 16, 9, 9), 16, (3, 3))) == {"conv"}


@pytest.mark.parametrize(("shape", "filters"), [
    ((1, 16, 6, 6), 24), ((2, 18, 7, 7), 17), ((1, 15, 4, 6), 40), ((1, 64, 1, 2), 1),
    ((3, 2, 9, 10), 3),
])  # fmt: skip
def test_windows_of_one_pixel_are_products(device, shape, filters):
    kernels = kernels_of(device, *conv(shape, filters, (1, 1)))
    assert kernels == {"matmul_pairs" if pairs.fits(vklab.devices()[device]) else "conv"}


@pytest.mark.parametrize("shape", [(2, 17, 7, 9), (1, 8, 1, 5), (1, 3, 13, 2)], ids=str)
@pytest.mark.parametrize(("kernel", "attributes"), [
    ((3, 3), {"pads": [1] * 4}), ((5, 5), {"pads": [2] * 4, "strides": [2, 2]}),
    ((1, 3), {"strides": [1, 3], "pads": [0, 1, 0, 2]}), ((7, 7), {"pads": [3] * 4}),
], ids=str)  # fmt: skip
def test_depthwise(device, shape, kernel, attributes):
    proto, fed = conv(shape, shape[1], kernel, group=shape[1], **attributes)
    assert kernels_of(device, proto, fed) == {"conv_depthwise"}


def test_two_filters_a_channel(device):
    proto, fed = conv((2, 5, 6, 7), 10, (3, 3), group=5)
    assert kernels_of(device, proto, fed) == {"conv_depthwise"}


@pytest.mark.parametrize(("m", "k", "n", "turned"), [
    (1, 784, 256, 1), (1, 130, 10, 1), (3, 66, 34, 1), (1, 64, 33, 0), (9, 31, 18, 0),
    (17, 40, 50, 0),
])  # fmt: skip
def test_products_by_pairs(device, m, k, n, turned):
    weight = random_array((n, k) if turned else (k, n), 1) / np.float32(k) ** 0.5
    constants = {"w": weight, "b": random_array((n,), 2)}
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=turned, alpha=0.5, beta=2.0)
    proto = model([node], [value("x", (m, k))], ["y"], constants)
    kernels = kernels_of(device, proto, {"x": random_array((m, k), 3)})
    assert kernels == {"matmul_pairs" if pairs.fits(vklab.devices()[device]) else "matmul"}


def test_nan_and_infinity_stay_in_their_rows(device):
    constants = {"w": random_array((64, 32), 1)}
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", (20, 64))], ["y"], constants
    )
    fed = {"x": random_array((20, 64), 3)}
    fed["x"][5, 7], fed["x"][18, 1] = np.nan, np.inf
    with vklab.load(proto, device) as session:
        y = session.run(fed)["y"]
    assert np.isfinite(np.delete(y, (5, 18), axis=0)).all()
    assert np.isnan(y[5]).all() and np.isinf(y[18]).all()
