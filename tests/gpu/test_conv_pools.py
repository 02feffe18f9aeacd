"""Small convolutions with the maxima of their windows in one dispatch, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import vklab
from support.graphs.small_models import model, random_array, value
from vklab.runtime import host
from vklab.settings import settings
from vklab.types import DeviceInfo

node = helper.make_node


@pytest.fixture(autouse=True)
def as_gpu(monkeypatch):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


def network(shape, filters, kernel, pool, inner=("Relu",), bias=True, group=1, **attributes):
    """Return a convolution, activations and a pool of (window, strides, pads), and its input."""
    window, strides, pads = pool
    constants = {"w": random_array((filters, shape[1] // group, *kernel), 1)}
    constants |= {"b": random_array((filters,), 2)} if bias else {}
    nodes = [node("Conv", ["x", *constants], ["v0"], group=group, **attributes)]
    nodes += [node(kind, [f"v{n}"], [f"v{n + 1}"]) for n, kind in enumerate(inner)]
    nodes.append(
        node("MaxPool", [f"v{len(inner)}"], ["y"], kernel_shape=window, strides=strides, pads=pads)
    )
    proto = model(nodes, [value("x", shape)], ["y"], constants, opset=18)
    return proto, {"x": random_array(shape, 3)}


def run(device, proto, fed, **given):
    """Return the result and the kernels."""
    with settings(**given), vklab.load(proto, device) as session:
        (y,) = session.run(fed).values()
        return y, [dispatch.kernel for dispatch in session.plan.dispatches]


def check(device, proto, fed, **given):
    """Compare a run with ONNX Runtime; return the kernels."""
    (expected,) = host.Reference(proto).run(fed).values()
    y, kernels = run(device, proto, fed, **given)
    np.testing.assert_allclose(y, expected, rtol=3e-5, atol=3e-5)
    return kernels


APART = ((2, 2), (2, 2), (0, 0, 0, 0))


@pytest.mark.parametrize(("shape", "filters", "kernel", "pool", "more"), [
    ((1, 1, 28, 28), 8, (5, 5), APART, {"pads": [2] * 4}),
    ((3, 8, 13, 11), 17, (3, 3), ((3, 3), (3, 3), (0,) * 4), {"pads": [1] * 4}),
    ((2, 6, 13, 11), 10, (3, 3), APART, {"group": 2, "inner": ()}),
    ((1, 3, 17, 19), 5, (3, 2), ((3, 3), (2, 2), (1, 1, 1, 1)),
     {"strides": [2, 1], "dilations": [1, 2], "pads": [0, 1, 1, 2], "bias": False}),
    ((1, 1, 7, 7), 1, (1, 1), ((4, 4), (3, 3), (0,) * 4), {}),
])  # fmt: skip
def test_the_largest_results(device, shape, filters, kernel, pool, more):
    proto, fed = network(shape, filters, kernel, pool, **more)
    assert check(device, proto, fed) == ["conv_pool"]
    apart = check(device, proto, fed, DISABLE_PASSES="fuse_conv_pools")
    assert len(apart) == 2 and apart[1].startswith("pool")


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(device, odd):
    proto, fed = network((1, 2, 8, 8), 3, (3, 3), APART)
    fed["x"][0, 1, 3, 4] = odd
    y, kernels = run(device, proto, fed)
    expected, _ = run(device, proto, fed, DISABLE_PASSES="fuse_conv_pools")
    assert kernels == ["conv_pool"]
    np.testing.assert_allclose(y, expected, rtol=3e-5, atol=3e-5)


def test_a_window_of_padding_alone_is_what_it_is_apart(device):
    proto, fed = network((1, 1, 2, 2), 1, (1, 1), ((2, 2), (1, 1), (2,) * 4), inner=(), bias=False)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(-np.ones((1, 1, 1, 1), "f4"), "w"))
    fed["x"] = np.abs(fed["x"]) + 1  # so that all results are below the 0 of an empty window
    y, kernels = run(device, proto, fed)
    expected, apart = run(device, proto, fed, DISABLE_PASSES="fuse_conv_pools")
    assert (kernels, len(apart)) == (["conv_pool"], 2)
    assert y[0, 0, 0, 0] == 0 > y[0, 0, 2, 2]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("change", [
    {"inner": ("Sigmoid",)}, {"pool": ((5, 5), (5, 5), (0,) * 4)},
    {"shape": (1, 64, 40, 40), "filters": 64},
])  # fmt: skip
def test_what_stays_two_dispatches(device, change):
    given = {"shape": (1, 4, 12, 12), "filters": 4, "kernel": (3, 3), "pool": APART, **change}
    assert "conv_pool" not in check(device, *network(**given))


def test_a_result_that_is_needed_stays(device):
    proto, fed = network((1, 2, 8, 8), 3, (3, 3), APART)
    proto.graph.output.append(value("v1", (1, 3, 6, 6)))
    with vklab.load(proto, device) as session:
        found = session.run(fed)
        assert "conv_pool" not in [dispatch.kernel for dispatch in session.plan.dispatches]
    for name, expected in host.Reference(proto).run(fed).items():
        np.testing.assert_allclose(found[name], expected, rtol=3e-5, atol=3e-5)
