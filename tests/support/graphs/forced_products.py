"""A product as a model, and its run under some switches: for tests of forced kernels."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

import vklab
from support.graphs.small_models import random_array
from vklab import settings


def model(m, k, n, relu=False, turns=(0, 0), dtype=np.float32, constant=True):
    random = random_array((k, n), 2) / np.float32(k**0.5)
    b = np.ascontiguousarray((random.T if turns[1] else random).astype(dtype))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node(
            "Gemm", ["a", "b", "c"], ["p"], transA=turns[0], transB=turns[1], alpha=0.5
        ),
        helper.make_node("Relu" if relu else "Identity", ["p"], ["y"]),
    ]
    fed = {
        "a": random_array((k, m) if turns[0] else (m, k), 1).astype(dtype),
        "c": random_array((n,), 3).astype(dtype),
    }
    values = [numpy_helper.from_array(b, "b")]
    if not constant:
        fed["b"], values = b, []
    inputs = [helper.make_tensor_value_info(name, kind, each.shape) for name, each in fed.items()]
    outputs = [helper.make_tensor_value_info("y", kind, (m, n))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, values)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    a = fed["a"].T if turns[0] else fed["a"]
    exact = 0.5 * (a.astype(np.float64) @ (b.T if turns[1] else b).astype(np.float64)) + fed["c"]
    return proto, fed, np.maximum(exact, 0) if relu else exact


def plain(k, n, dtype):
    """Return MatMul and Relu of one row as a model, its input and its output."""
    a, b = random_array((1, k), 1).astype(dtype), random_array((k, n), 2) / np.float32(k**0.5)
    b = b.astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("a", kind, a.shape)],
        [helper.make_tensor_value_info("y", kind, (1, n))],
        [numpy_helper.from_array(b, "b")],
    )
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return proto, {"a": a}, np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)


def ran(proto, fed, device, **switches):
    """Return the output under some switches, and the kernels."""
    with settings.settings(**switches), vklab.load(proto, device=device) as session:
        return session.run(fed)["y"], [dispatch.kernel for dispatch in session.plan.dispatches]
