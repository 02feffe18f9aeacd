"""Fused formulas of products for four neighbours at once: the same numbers as one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.graphs.forced_products import ran
from support.graphs.small_models import random_array
from vklab.types import DeviceInfo

KINDS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
# m, k, n, and the axes of a result that is stored transposed.
SIZES = [(1, 8, 4), (5, 36, 20), (33, 40, 68), (64, 64, 64), (130, 24, 132)]


@pytest.fixture(autouse=True)
def as_gpu(monkeypatch):
    """Take every device for a GPU: CPU devices use no tiles."""
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


def layer(m, k, n, dtype, kind):
    """Return GELU or a residual behind a product, or its heads transposed, and inputs."""
    values = {
        "w": random_array((k, n), 1) / np.float32(k**0.5),
        "b": random_array((n,), 2),
        "scale": random_array((m, 1), 3),
    }
    fed = {"x": random_array((m, k), 4), "r": random_array((m, n), 5)}
    shape = numpy_helper.from_array(np.array([m, n // 4, 4]), "shape")
    last = {
        "gelu": [helper.make_node("Gelu", ["biased"], ["y"])],
        "residual": [
            helper.make_node("Mul", ["biased", "scale"], ["scaled"]),
            helper.make_node("Add", ["scaled", "r"], ["y"]),
        ],
        "heads": [
            helper.make_node("Reshape", ["biased", "shape"], ["heads"]),
            helper.make_node("Transpose", ["heads"], ["y"], perm=[1, 0, 2]),
        ],
    }[kind]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["biased"]),
        *last,
    ]
    fed = {
        name: array.astype(dtype)
        for name, array in fed.items()
        if name == "x" or kind == "residual"
    }
    weights = [numpy_helper.from_array(array.astype(dtype), name) for name, array in values.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, KINDS[dtype], array.shape)
            for name, array in fed.items()
        ],
        [helper.make_tensor_value_info("y", KINDS[dtype], None)],
        [*weights, shape],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)]), fed


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("kind", ["gelu", "residual", "heads"])
def test_four_at_once_are_as_one_at_a_time(device, kind, dtype):
    for sizes in SIZES:
        proto, fed = layer(*sizes, dtype, kind)
        for variant in ("tiled 32x32x16 by 4x4", "tiled 32x32x16 by 4x4 in 2 parts"):
            fours, kernels = ran(proto, fed, device, VARIANT=variant)
            ones, _ = ran(proto, fed, device, VARIANT=variant, DISABLE_PASSES="fours")
            assert kernels[0] == "matmul_tiled" and len(kernels) <= 2
            unit = {"float32": 2**-22, "float16": 2**-9}[dtype]
            np.testing.assert_allclose(fours, ones, rtol=unit, atol=unit)


def test_numbers_past_the_edge_and_nan_stay_apart(device):
    proto, fed = layer(35, 40, 36, "float32", "residual")
    fed["x"][34, 0], fed["r"][0, 35] = np.nan, np.inf
    y, _ = ran(proto, fed, device, VARIANT="tiled 32x32x16 by 4x4")
    assert np.isnan(y[34]).all() and np.isinf(y[0, 35])
    assert np.isfinite(y[:34].ravel()[36:]).all() and np.isfinite(y[0, :35]).all()
