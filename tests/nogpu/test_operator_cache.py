"""What is asked once and used again while planning says the same as if it were asked each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from support.fakes.fake_device import fake_device
from support.fakes.matrix_gpu import GPU
from support.graphs.small_models import model, random_array, value
from support.language.llama_models import tiny_model
from support.models import exported_models
from support.models.planned import next_chunk, plan_graph
from vklab.apps.llm.graphs.build import BoundedCache
from vklab.apps.llm.graphs.llama import llama_graph
from vklab.graph import onnx_import, operator_cache, shapes
from vklab.graph.graph import Graph, Node
from vklab.plan import capability
from vklab.runtime import host

SIZES = {"steps": 1, "batch": 2, "sequence": 5, "past": 3, "total": 8}
I32, I64 = np.int32, np.int64
INFO = fake_device(features=frozenset({"shaderInt64"}))


def described(plan):
    """Return all that a plan decides, as text."""
    return [
        (node, str(step), getattr(step, "push", ()), getattr(step, "defines", ()))
        for chunk in plan.chunks
        for node, step in zip(chunk.nodes, chunk.steps, strict=True)
    ], plan.memory.slots


def planned(graph, info=INFO):
    inputs = {info.name: info for info in shapes.bind(graph, SIZES).inputs}
    with operator_cache.active():
        chunk, rest = next_chunk(graph, inputs, info)
        assert chunk.kind == "vulkan" and not rest.nodes
        return described(plan_graph(chunk.graph, info))


@pytest.mark.parametrize("name", ["bert", "gpt2_script", "llama"])
def test_remembered_answers_lead_to_the_same_plan(name, monkeypatch):
    graph = onnx_import.load_graph(exported_models.load(name))
    asked = []
    apply = shapes.registry.apply
    monkeypatch.setattr(shapes.registry, "apply", lambda *a: asked.append(a[0]) or apply(*a))
    quick = planned(graph)
    few = len(asked)
    monkeypatch.setattr(operator_cache, "remembered", lambda graph, node, inputs, ask: ask())
    monkeypatch.setattr(operator_cache, "key", lambda *a: None)
    assert planned(graph) == quick
    assert 2 * few < len(asked) - few


def test_layers_with_weights_in_blocks_are_asked_about_once(monkeypatch):
    kinds = {"attn_v": "Q4_0", "": "Q8_0"}

    def asked_of(layers):
        file = tiny_model(layers=layers, tied=False, kinds=kinds)
        graph = llama_graph(file, 64, bounded=BoundedCache())
        asked, apply = [], shapes.registry.apply
        with monkeypatch.context() as patched:
            patched.setattr(shapes.registry, "apply", lambda *a: asked.append(a[0]) or apply(*a))
            found = planned(graph, GPU)
        return graph, found, asked.count("MatMulBlocks")

    graph, quick, few = asked_of(4)
    assert few == asked_of(1)[2]
    monkeypatch.setattr(operator_cache, "remembered", lambda graph, node, inputs, ask: ask())
    monkeypatch.setattr(operator_cache, "key", lambda *a, **k: None)
    assert planned(graph, GPU) == quick
    assert few < asked_of(1)[2] < asked_of(4)[2]


def test_answers_are_told_apart_by_all_that_decides():
    graph = onnx_import.load_graph(
        model(
            [helper.make_node("Relu", ["x"], ["y"])],
            [value("x", (2, 3))],
            ["y"],
            {
                "small": I64([1, 2]),
                "same": I64([1, 2]),
                "other": I64([1, 3]),
                "large": random_array((99,)),
                "equal": random_array((99,)),
            },
        )
    )
    x, infos = graph.inputs[0], graph.initializers

    def key(*inputs, op="Add", outputs=("y",), exact=True, **attributes):
        names = tuple(info.name if info else "" for info in inputs)
        return operator_cache.key(graph, Node("n", op, names, outputs, attributes), inputs, exact)

    assert key(x, infos["small"]) == key(x, infos["same"])
    keys = [
        key(x, infos["small"]),
        key(x, infos["other"]),
        key(x, infos["large"]),
        key(x, infos["equal"]),
        key(x, x),
        key(x),
        key(x, None),
        key(infos["small"], x),
        key(x, op="Sub"),
        key(x, axis=1),
        key(x, axis=1.0),
        key(x, axis=2),
        key(x, outputs=("y", "z")),
    ]
    assert len(set(keys)) == len(keys)
    assert key(x, tensor=np.zeros(3)) is None
    assert (
        key(infos["large"], exact=False)
        == key(infos["equal"], exact=False)
        != key(infos["small"], exact=False)
        != key(infos["other"], exact=False)
    )


def test_layers_that_differ_in_their_weights_alone_are_tuned_once():
    graph = onnx_import.load_graph(
        model(
            [
                helper.make_node("MatMul", ["x", "a"], ["y"]),
                helper.make_node("MatMul", ["y", "b"], ["z"]),
            ],
            [value("x", (2, 31))],
            ["z"],
            {name: random_array((31, 31)) for name in "ab"},
        )
    )
    graph = shapes.infer(graph)
    tuned = []

    def require(node, result):
        inputs = [graph.infos[name] for name in node.inputs]
        capability.require(
            graph,
            node,
            inputs,
            result,
            INFO,
            lambda dispatch: "",
            lambda lowered, info: tuned.append(node.outputs) or lowered,
        )

    with operator_cache.active():
        for node in graph.nodes:
            result, _ = shapes.apply_node(graph, node, graph.infos)
            require(node, result)
            require(
                node,
                replace(
                    result,
                    dispatches=tuple(
                        replace(each, defines=(("OTHER", "1"),)) for each in result.dispatches
                    ),
                ),
            )
    assert tuned == [("y",)] * 2  # as the operator says, and with the other define


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes"),
    [
        *((op, [I64([3, -4, 5]), I64([3, 5, -6])], {}) for op in
          ("Add", "Sub", "Mul", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")),
        *((op, [np.array([True, False]), np.array([[True], [False]])], {}) for op in ("And", "Or")),
        ("Add", [I64(7), I64(8)], {}), ("Add", [np.zeros((0,), I32), I32([1])], {}),
        ("Mul", [I64(2**62), I64(6)], {}), ("Mul", [I32([2**30, 3]), I32(4)], {}),
        ("Not", [np.array([True, False])], {}),
        ("Where", [np.array([True, False]), I64([1, 2]), I64(9)], {}),
        ("Concat", [I64([1, 2]), I64([3])], {"axis": 0}),
        ("Concat", [I32([[1, 2]]), I32([[3]])], {"axis": -1}),
        ("Gather", [I64([4, 5, 6]), I64(1)], {}), ("Gather", [I64([4, 5, 6]), I64([-1, 0])], {}),
        ("Gather", [I64([[4, 5], [6, 7]]), I64([[1], [0]])], {"axis": 1}),
        ("Expand", [I64([[1], [2]]), I64([3, 1, 4])], {}),
        ("Expand", [np.array([True]), I64([2])], {}), ("Expand", [I64([[1, 2]]), I64([1])], {}),
        ("Expand", [I64(5), I64([0, 2])], {}),
    ],
)  # fmt: skip
def test_shape_arithmetic_on_the_host_is_that_of_onnx(op_type, arrays, attributes, monkeypatch):
    arrays = [np.asarray(array) for array in arrays]
    names = tuple(f"x{number}" for number in range(len(arrays)))
    node = Node("n", op_type, names, ("y",), attributes)
    graph = Graph("g", 17, (node,), (), ("y",), {}, opsets={"": 17})
    assert op_type in host._PLAIN
    [got] = host.evaluate(node, graph, arrays)
    monkeypatch.delitem(host._PLAIN, op_type)
    [expected] = host.evaluate(node, graph, arrays)
    assert isinstance(got, np.ndarray)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(got, expected)


def test_what_cannot_be_computed_is_left_to_onnx_runtime():
    node = Node("n", "Gather", ("a", "b"), ("y",))
    graph = Graph("g", 17, (node,), (), ("y",), {}, opsets={"": 17})
    with pytest.raises(Exception, match="Gather"):
        host.evaluate(node, graph, [I64([1, 2]), np.asarray(I64(5))])
