"""Squeeze-and-excite against ONNX Runtime, planned as for a GPU: two products in one dispatch."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from vklab import settings
from vklab.graph.passes import channels_last
from vklab.runtime import host
from vklab.types import DeviceInfo


@pytest.fixture(autouse=True)
def as_gpu(monkeypatch):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    monkeypatch.setattr(channels_last, "MOST_MOVED", 1e9)


def block(shape, channels, hidden, activation, bias=True):
    """Return a model that scales channels by gates of their means, and its input."""
    constants = {
        "w": random_array((channels, shape[1], 1, 1), 1),
        "v": random_array((hidden, channels, 1, 1), 2) / np.float32(channels) ** 0.5,
        "u": random_array((channels, hidden, 1, 1), 3),
    }
    biases = {"vb": random_array((hidden,), 4), "ub": random_array((channels,), 5)}
    constants |= biases if bias else {}
    make = helper.make_node
    inner = (
        [make("Relu", ["h"], ["i"])]
        if activation == "Relu"
        else [make("Sigmoid", ["h"], ["j"]), make("Mul", ["h", "j"], ["i"])]
    )
    nodes = [
        make("Conv", ["x", "w"], ["a"]),
        make("GlobalAveragePool", ["a"], ["m"]),
        make("Conv", ["m", "v", *["vb"] * bias], ["h"]),
        *inner,
        make("Conv", ["i", "u", *["ub"] * bias], ["g"]),
        make("Sigmoid", ["g"], ["s"]),
        make("Mul", ["a", "s"], ["y"]),
    ]
    proto = model(nodes, [value("x", shape)], ["y"], constants, opset=18)
    return proto, {"x": random_array(shape, 6)}


def check(device, proto, fed, tolerance, dtype=None):
    """Compare a run with ONNX Runtime; return the kernels that ran."""
    (expected,) = host.Reference(proto).run(fed).values()
    with vklab.load(proto, device, dtype=dtype) as session:
        (y,) = session.run(fed).values()
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    return kernels


@pytest.mark.parametrize("dtype", [None, "float16"], ids=["float32", "float16"])
@pytest.mark.parametrize(("shape", "channels", "hidden", "activation", "bias"), [
    ((1, 8, 9, 7), 96, 4, "Swish", True), ((1, 8, 5, 4), 1152, 48, "Swish", True),
    ((3, 8, 4, 5), 101, 7, "Relu", False),
])  # fmt: skip
def test_gates_of_channels(device, shape, channels, hidden, activation, bias, dtype):
    proto, fed = block(shape, channels, hidden, activation, bias)
    tolerance = 3e-2 if dtype else 3e-5
    assert "squeeze" in check(device, proto, fed, tolerance, dtype)
    with settings.settings(DISABLE_PASSES="fuse_squeezes"):
        assert "squeeze" not in check(device, proto, fed, tolerance, dtype)


def test_many_values_in_between_stay_a_result(device):
    proto, fed = block((1, 8, 4, 5), 64, 129, "Relu")
    assert "squeeze" not in check(device, proto, fed, 3e-5)


def test_nan_in_one_channel_reaches_every_gate(device):
    proto, fed = block((1, 8, 5, 5), 32, 4, "Swish")
    fed["x"][0, 2, 1, 1] = np.nan
    with vklab.load(proto, device) as session:
        assert np.isnan(session.run(fed)["y"]).all()
