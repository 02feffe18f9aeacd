"""Chains of half precision in the device's own halves: the same bits as rounded step by step."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vklab
from vklab.plan.fusion.text import rounding

COUNT = 5003


def chain():
    """Return a chain of sums, products and others, and arrays with all kinds of halves."""
    random = np.random.default_rng(0)
    scales = 10.0 ** random.integers(-7, 5, (3, COUNT))
    x, w, b = (random.standard_normal((3, COUNT)) * scales).astype(np.float16)
    x[:4] = [np.inf, -np.inf, np.nan, 6e-8]
    nodes = [
        helper.make_node(*node)
        for node in (
            ("Mul", ["x", "w"], ["a"]),
            ("Add", ["a", "b"], ["c"]),
            ("Relu", ["c"], ["d"]),
            ("Sub", ["d", "x"], ["e"]),
            ("Mul", ["e", "e"], ["f"]),
            ("Neg", ["f"], ["g"]),
            ("Add", ["g", "d"], ["y"]),
        )
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (COUNT,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets), x, w, b


def test_halves_of_the_device_give_the_same_bits(device_index, monkeypatch):
    """Without the validation layer: CPU drivers keep small halves, but do not say so."""
    proto, x, w, b = chain()
    with np.errstate(all="ignore"):
        d = x * w + b
        d = np.where(np.isnan(d), d, np.maximum(d, 0)).astype(np.float16)
        expected = -((d - x) * (d - x)) + d
    for native in (False, True):
        if native and "shaderFloat16" not in vklab.devices()[device_index].features:
            pytest.skip("the device has no arithmetic of halves; by bits the results are right")
        monkeypatch.setattr(rounding, "has_halves", lambda info, native=native: native)
        with vklab.load(proto, device=device_index) as session:
            (dispatch,) = session.plan.dispatches
            assert (rounding.DEFINE in dispatch.defines) == native
            y = session.run({"x": x})["y"]
        np.testing.assert_array_equal(y, expected)
