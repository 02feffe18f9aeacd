"""Products of halves with operands in registers against NumPy, on NVIDIA's GPUs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vklab
from support.graphs import small_models
from support.graphs.small_models import random_array
from vklab import settings
from vklab.graph.passes import channels_last
from vklab.plan.tuning import precision, tiles
from vklab.runtime import host, open_devices

SIZES = [(16, 32, 16), (50, 16, 24), (40, 24, 96), (33, 40, 44), (64, 64, 64), (17, 72, 1000),
         (197, 768, 200), (130, 200, 60), (95, 2048, 132), (31, 1032, 20)]  # fmt: skip


@pytest.fixture(autouse=True)
def with_known_matrices(device):
    """Skip a device on which the order of a matrix's elements is not known."""
    if not precision.has_known_order(open_devices.open_device(device).info):
        pytest.skip("it is not known which elements of a matrix an invocation has")


erf = np.vectorize(math.erf, otypes=[np.float32])


def model(m, k, n, turned=False, tail=()):
    """Return Gemm with constant weights, and operators after it, with inputs."""
    weight = (random_array((k, n), 1) / k**0.5).astype(np.float16)
    bias = random_array((n,), 2).astype(np.float16)
    stored = np.ascontiguousarray(weight.T) if turned else weight
    nodes = [helper.make_node("Gemm", ["a", "w", "c"], ["p"], transB=int(turned)), *tail]
    names = {"a": (m, k), "r": (m, n)}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape)
        for name, shape in names.items()
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)]
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        outputs,
        [numpy_helper.from_array(stored, "w"), numpy_helper.from_array(bias, "c")],
    )
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
    fed = {
        name: random_array(shape, number).astype(np.float16)
        for number, (name, shape) in enumerate(names.items())
    }
    exact = fed["a"].astype(np.float32) @ weight.astype(np.float32) + bias.astype(np.float32)
    return proto, fed, exact


def run(device, proto, fed, variant="registers"):
    """Return y, and the kernels."""
    with settings.settings(VARIANT=variant), vklab.load(proto, device=device) as session:
        y = session.run(fed)["y"]
        return y, [dispatch.kernel for dispatch in session.plan.dispatches]


ADDED = (helper.make_node("Gelu", ["p"], ["q"]), helper.make_node("Add", ["q", "r"], ["y"]))
KEPT = (helper.make_node("Identity", ["p"], ["y"]),)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_of_all_sizes(device, sizes, turned):
    proto, fed, exact = model(*sizes, turned, KEPT)
    y, kernels = run(device, proto, fed)
    assert kernels[0] == "matmul_registers"
    np.testing.assert_allclose(y.astype(np.float32), exact, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("tile", tiles.REGISTERS, ids=lambda tile: str(tile.shape))
def test_every_tile_computes_the_same_with_what_is_fused(device, monkeypatch, tile):
    monkeypatch.setattr(tiles, "REGISTERS", (tile,))
    proto, fed, exact = model(150, 1096, 140, tail=ADDED)
    y, kernels = run(device, proto, fed)
    assert kernels == ["matmul_registers"]
    exact = exact * 0.5 * (1 + erf(exact / 2**0.5)) + fed["r"].astype(np.float32)
    np.testing.assert_allclose(y.astype(np.float32), exact, rtol=4e-3, atol=8e-3)


def test_sums_in_parts(device):
    proto, fed, exact = model(50, 1096, 64, tail=ADDED)
    y, kernels = run(device, proto, fed, "registers in 3 parts")
    assert kernels == ["matmul_registers", "sum_splits"]
    exact = exact * 0.5 * (1 + erf(exact / 2**0.5)) + fed["r"].astype(np.float32)
    np.testing.assert_allclose(y.astype(np.float32), exact, rtol=4e-3, atol=8e-3)


def test_results_stored_by_heads(device):
    tail = (
        helper.make_node("Reshape", ["p", "s"], ["q"]),
        helper.make_node("Transpose", ["q"], ["y"], perm=[1, 0, 2]),
    )
    proto, fed, exact = model(37, 64, 96, tail=tail)
    proto.graph.initializer.append(numpy_helper.from_array(np.array([37, 3, 32]), "s"))
    y, kernels = run(device, proto, fed)
    assert kernels == ["matmul_registers"]
    wanted = exact.reshape(37, 3, 32).transpose(1, 0, 2)
    np.testing.assert_allclose(y.astype(np.float32), wanted, rtol=2e-3, atol=4e-3)


def test_infinities_and_nan_stay_in_their_rows(device):
    proto, fed, _ = model(40, 72, 48, tail=KEPT)
    fed["a"][3, 5], fed["a"][7, 0], fed["a"][39, 71] = np.inf, np.nan, np.nan
    y, kernels = run(device, proto, fed)
    assert kernels[0] == "matmul_registers"
    assert np.isnan(y[[7, 39]]).all() and not np.isfinite(y[3]).any()
    assert np.isfinite(np.delete(y, (3, 7, 39), axis=0)).all()


WINDOWS = {
    "3x3": ((1, 64, 13, 17), 40, (3, 3), {"pads": [1] * 4}),
    "strides": ((2, 32, 14, 13), 48, (3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
    "point-strides": ((2, 40, 13, 14), 44, (1, 1), {"strides": [2, 2]}),
    "dilations": ((1, 64, 9, 11), 36, (3, 3), {"pads": [2] * 4, "dilations": [2, 2]}),
    "channels-8": ((1, 8, 12, 9), 20, (3, 2), {"pads": [1, 0, 1, 1]}),
    "channels-24": ((1, 24, 7, 7), 132, (3, 3), {"pads": [1] * 4}),
    "long": ((1, 512, 7, 7), 64, (3, 3), {"pads": [1] * 4}),
}  # fmt: skip


@pytest.mark.parametrize("case", WINDOWS)
def test_windows_of_images(device, monkeypatch, case):
    shape, filters, kernel, attributes = WINDOWS[case]
    monkeypatch.setattr(channels_last, "MOST_MOVED", 1e9)
    terms = shape[1] * kernel[0] * kernel[1]
    weight = random_array((filters, shape[1], *kernel), 1) / np.float32(terms) ** 0.5
    constants = {"w": weight, "b": random_array((filters,), 2)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    proto = small_models.model(nodes, [small_models.value("x", shape)], ["y"], constants)
    fed = {"x": random_array(shape, 3)}
    (expected,) = host.Reference(proto).run(fed).values()
    for tile in tiles.REGISTERS_LAST:
        monkeypatch.setattr(tiles, "REGISTERS_LAST", (tile,))
        with (
            settings.settings(VARIANT="registers"),
            vklab.load(proto, device=device, dtype="float16") as session,
        ):
            y = session.run(fed)["y"]
            kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
        assert "matmul_registers" in kernels
        np.testing.assert_allclose(y, expected, rtol=8e-3, atol=8e-3)
