"""Winograd's tiles of channels-last images, and turned weights of the classifier behind them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from vklab.graph import passes
from vklab.graph.passes import channels_last
from vklab.runtime import host


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """Rewrite all graphs, whatever their Transposes cost, on CPU devices too."""
    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, channels_last.channels_last))
    monkeypatch.setattr(channels_last, "MOST_MOVED", 1e9)


def network(shape, filters, bias=True, tail=True, **attributes):
    """Return a model of a 3 x 3 convolution, a Relu and, with a tail, a classifier."""
    depth, height, width = shape[1:]
    constants = {"w": random_array((filters, depth, 3, 3), 1) / np.float32(9 * depth) ** 0.5}
    if bias:
        constants["b"] = random_array((filters,), 2)
    nodes = [
        helper.make_node("Conv", ["x", *constants], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["r"]),
    ]
    if tail:
        row = filters * (height + 2 * attributes["pads"][0] - 2) * (width - 2 + 2)
        constants["m"] = random_array((7, row), 5) / np.float32(row) ** 0.5
        nodes += [
            helper.make_node("Flatten", ["r"], ["f"]),
            helper.make_node("Gemm", ["f", "m"], ["y"], transB=1),
        ]
    out = "y" if tail else "r"
    return model(nodes, [value("x", shape)], [out], constants), {"x": random_array(shape, 3)}


def run(device, proto, fed):
    """Return the result of a run, that of ONNX Runtime, and the kernels that ran."""
    (expected,) = host.Reference(proto).run(fed).values()
    with vklab.load(proto, device) as session:
        (y,) = session.run(fed).values()
        return y, expected, [dispatch.kernel for dispatch in session.plan.dispatches]


@pytest.mark.parametrize("side", [2, 4])
@pytest.mark.parametrize(("shape", "filters", "bias"), [
    ((1, 16, 14, 14), 32, True), ((2, 20, 7, 9), 24, False), ((1, 36, 5, 4), 40, True),
])  # fmt: skip
def test_tiles_of_channels_last_images(device, monkeypatch, shape, filters, bias, side):
    monkeypatch.setenv("VKLAB_VARIANT", f"winograd {side}x{side}x3")
    proto, fed = network(shape, filters, bias, tail=False, pads=[1] * 4)
    y, expected, kernels = run(device, proto, fed)
    np.testing.assert_allclose(y, expected, rtol=3e-5, atol=3e-5)
    assert {"winograd_input", "winograd_output"} <= set(kernels)


def test_the_classifier_reads_the_image_as_it_is(device):
    proto, fed = network((2, 16, 6, 5), 24, pads=[1] * 4)
    y, expected, kernels = run(device, proto, fed)
    np.testing.assert_allclose(y, expected, rtol=3e-5, atol=3e-5)
    assert kernels.count("transpose") <= 1  # the input's


@pytest.mark.parametrize(("m", "k", "n"), [(49, 72, 68), (7, 36, 132), (64, 64, 64)], ids=str)
def test_many_products_at_once_take_longer_steps(device, monkeypatch, m, k, n):
    monkeypatch.setenv("VKLAB_VARIANT", "tiled 64x64x32 by 4x4")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = model(
        [node],
        [value("x", (18, m, k))],
        ["y"],
        {"w": random_array((18, k, n), 1) / np.float32(k) ** 0.5},
    )
    fed = {"x": random_array((18, m, k), 3)}
    (expected,) = host.Reference(proto).run(fed).values()
    with vklab.load(proto, device) as session:
        (y,) = session.run(fed).values()
        (product,) = session.plan.dispatches
        room = session.device.limit("maxComputeSharedMemorySize")
    np.testing.assert_allclose(y, expected, rtol=3e-5, atol=3e-5)
    assert product.define_values.get("TILE_K") == "32" or room < 4 * 32 * 136
