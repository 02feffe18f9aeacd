"""Residuals added by the product that makes the other operand: the codes of AddWords."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.quantized_models import Drawn
from vklab import settings
from vklab.types import DeviceInfo


class Network(Drawn):
    """Two blocks with a residual each, between scalings; the second adds two products."""

    def coded(self, name, scale, zero):
        codes = self.scaling("QuantizeLinear", name, scale, np.uint8(zero))
        return self.scaling("DequantizeLinear", codes, scale, np.uint8(zero))

    def conv(self, x, name, channels, size=1):
        codes = self.constant(name, self.codes("int8", (channels, channels, size, size)))
        steps, zeros = np.full(channels, 0.004), np.zeros(channels, np.int8)
        weights = self.scaling("DequantizeLinear", codes, steps, zeros, 0)
        return self.node("Conv", x, weights, pads=[size // 2] * 4)

    def build(self, channels, relu):
        x = self.coded("x", 0.03, 128)
        x = self.coded(self.node("Relu", self.conv(x, "a", channels)), 0.04, 0)
        y = self.coded(self.node("Relu", self.conv(x, "b", channels, 3)), 0.15, 0)
        y = self.coded(self.conv(y, "c", channels), 0.5, 131)
        total = self.node("Add", x, y)
        x = self.coded(self.node("Relu", total) if relu else total, 0.3, 0 if relu else 100)
        y, z = (self.coded(self.conv(x, name, channels), 0.6, 120) for name in "de")
        made = self.coded(self.node("Add", y, z), 0.7, 119)
        fed = {"x": self.random.normal(size=(2, channels, 7, 5)).astype(np.float32) * 2}
        return self.model(fed, made, "float32"), fed


def run(proto, fed, device, **switches):
    with settings.settings(FALLBACK=False, **switches), vklab.load(proto, device) as session:
        (made,) = session.run(fed).values()
        return made, [dispatch.kernel for dispatch in session.plan.dispatches]


@pytest.mark.parametrize(("channels", "relu"), [(18, True), (70, False)])
def test_a_residual_is_added_by_a_product(device, channels, relu, monkeypatch):
    proto, fed = Network(channels).build(channels, relu)
    expected, plain = run(proto, fed, device, DISABLE_PASSES="fuse_sums")
    assert plain.count("add_words") == 2
    assert len(np.unique(expected)) > 20
    made, kernels = run(proto, fed, device)
    assert "add_words" not in kernels and len(kernels) == len(plain) - 2
    np.testing.assert_array_equal(made, expected)
    if "shaderIntegerDotProduct" in vklab.devices()[device].features:
        monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
        made, kernels = run(proto, fed, device)
        assert "words_tiled" in kernels and "add_words" not in kernels
        np.testing.assert_array_equal(made, expected)
