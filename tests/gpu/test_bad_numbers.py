"""NaN and infinities through the kernels of convolutions and products: none is lost, none spreads.

Winograd's tiles and joined pixels of photographs are the exceptions that docs/tuning.md names:
there a NaN reaches more results than it should.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs import forced_products
from support.graphs.small_models import model, random_array, value
from vklab.graph import passes
from vklab.graph.passes import channels_last
from vklab.runtime import host
from vklab.types import DeviceInfo

SHAPE, FILTERS = (1, 32, 14, 13), 36
BAD = {(0, 3, 2, 2): np.nan, (0, 30, 7, 9): np.inf, (0, 1, 13, 0): -np.inf, (0, 5, 7, 10): -np.inf}
# The text of VARIANT, and the kernel that it chooses: images in planes, and with channels last.
PLANES = {"plain": "conv", "shared rows": "conv", "tiled 32x32x16 by 4x4": "conv_packed",
          "tiled 128x64x16": "conv_packed"}  # fmt: skip
LAST = {
    "plain": "conv_last",
    "tiled last 32x32x16 by 4x4": "conv_last_tiled",
    "tiled last 64x64x16 by 8x8": "conv_last_tiled",
    "sliced 32x32x32": "conv_last_tiled",
}

# The same for products, with their rows and terms.
PRODUCTS = {"plain": (9, 70), "few rows": (9, 600), "shared rows": (9, 70), "one row": (1, 130),
            "rows at once": (9, 132), "tiled 32x32x16 by 4x4": (33, 70),
            "tiled 64x128x16": (33, 70), "tiled 64x64x16 by 8x8 in 2 parts": (33, 600)}  # fmt: skip


@pytest.fixture
def in_last(monkeypatch):
    """Rewrite all graphs for channels-last images, on CPU devices too."""
    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, channels_last.channels_last))
    monkeypatch.setattr(channels_last, "MOST_MOVED", 1e9)


def convolution(shape, filters, groups=1, bad=BAD, **attributes):
    """Return a model of a 3 x 3 convolution with bias, its input with bad numbers, and without."""
    depth = shape[1] // groups
    weight = random_array((filters, depth, 3, 3), 1) / np.float32(9 * depth) ** 0.5
    constants = {"w": weight, "b": random_array((filters,), 2)}
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=groups, **attributes)
    clean = random_array(shape, 3)
    fed = clean.copy()
    for place, number in bad.items():
        fed[place] = number
    return model([node], [value("x", shape)], ["y"], constants), fed, clean


def run(device, proto, image, kernel):
    with vklab.load(proto, device) as session:
        y = session.run({"x": image})["y"]
        assert kernel in {dispatch.kernel for dispatch in session.plan.dispatches}
    return y


def check(device, kernel, shape=SHAPE, filters=FILTERS, groups=1):
    """Compare with ONNX Runtime, NaN and infinities included."""
    proto, fed, _ = convolution(shape, filters, groups, pads=[1] * 4)
    (expected,) = host.Reference(proto).run({"x": fed}).values()
    assert np.isnan(expected).any() and np.isinf(expected).any()
    y = run(device, proto, fed, kernel)
    np.testing.assert_allclose(y, expected, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("text", PLANES)
def test_images_in_planes(device, monkeypatch, text):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    monkeypatch.setenv("VKLAB_DISABLE_PASSES", "channels_last,winograd")
    monkeypatch.setenv("VKLAB_VARIANT", text)
    check(device, PLANES[text])


@pytest.mark.parametrize("text", LAST)
def test_images_with_channels_last(device, monkeypatch, in_last, text):
    monkeypatch.setenv("VKLAB_VARIANT", text)
    check(device, LAST[text])


def test_one_filter_a_channel(device, in_last):
    check(device, "conv_last_depthwise", filters=32, groups=32)


@pytest.mark.parametrize("side", [2, 4])
@pytest.mark.parametrize("layout", ["planes", "last"])
def test_winograd_keeps_bad_numbers_inside_the_tiles_that_see_them(
    device, monkeypatch, request, layout, side
):
    if layout == "last":
        request.getfixturevalue("in_last")
    monkeypatch.setenv("VKLAB_VARIANT", f"winograd {side}x{side}x3")
    proto, fed, clean = convolution(SHAPE, FILTERS, pads=[1] * 4)
    (expected,) = host.Reference(proto).run({"x": fed}).values()
    y, unharmed = (run(device, proto, image, "winograd_output") for image in (fed, clean))
    assert not np.isfinite(y[~np.isfinite(expected)]).any(), "a bad number disappeared"
    reached = np.zeros(SHAPE[2:], bool)
    for _, _, row, column in BAD:
        for top in range(0, SHAPE[2], side):
            for left in range(0, SHAPE[3], side):
                if top - 1 <= row <= top + side and left - 1 <= column <= left + side:
                    reached[top : top + side, left : left + side] = True
    np.testing.assert_array_equal(y[..., ~reached], unharmed[..., ~reached])
    if side == 2:  # each pixel of a tile is seen by the windows that see it in the convolution
        np.testing.assert_array_equal(np.isfinite(y), np.isfinite(expected))


@pytest.mark.parametrize("text", PRODUCTS)
def test_products(device, text):
    rows, terms = PRODUCTS[text]
    proto, fed, _ = forced_products.model(rows, terms, 36)
    bad = (0, 3, np.nan), (rows // 2, terms - 1, np.inf), (rows - 1, 0, -np.inf)
    for row, column, number in bad:
        fed["a"][row, column] = number
    (expected,) = host.Reference(proto).run(fed).values()
    y, _ = forced_products.ran(proto, fed, device, VARIANT=text)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
