"""A device that can run a node has a kernel for each of its dispatches."""

from __future__ import annotations

from collections import Counter

import pytest
from onnx import TensorProto, helper

from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, value
from support.models.planned import plan_graph
from vklab import settings
from vklab.graph import onnx_import, shapes
from vklab.plan import capability
from vklab.plan.tuning import tune

INFO = fake_device(features=frozenset({"shaderInt64"}))
NODE = helper.make_node
ROWS = dict.fromkeys("qkv", (1, 2, 5, 8))
# Nodes of several dispatches, and the shapes of their inputs.
CASES = {
    "two outputs": (NODE("MaxPool", ["x"], ["y", "z"], kernel_shape=[3, 3]), {"x": (1, 2, 7, 7)}),
    "parts of an output": (NODE("Concat", ["x", "z"], ["y"], axis=0), {"x": (2, 3), "z": (4, 3)}),
    "scratch": (NODE("Attention", list("qkv"), ["y", "", "", "weights"]), ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_device_is_asked_for_every_kernel_of_a_node(name):
    node, inputs = CASES[name]
    values = [value(each, shape) for each, shape in inputs.items()]
    outputs = [each for each in node.output if each]
    graph = onnx_import.load_graph(model([node], values, outputs, opset=24))
    graph = shapes.infer(graph)
    with settings.settings(DISABLE_FUSION=True):
        planned = [dispatch.variant for dispatch in plan_graph(graph, INFO).dispatches]

    def refusal(missing=None):
        asked.clear()
        return capability.refusal(
            graph,
            graph.nodes[0],
            INFO,
            lambda dispatch: (
                asked.append(dispatch.variant) or "missing" * (dispatch.variant == missing)
            ),
            tune.adapt,
        )

    asked = []
    assert len(planned) > 1 and refusal() == ""
    assert Counter(asked) == Counter(planned)
    assert all(refusal(variant).endswith("missing") for variant in planned)


# Floats by name, and then the numbers of 64 bits by which a node reads them.
READING = {
    "RotaryEmbedding": (NODE("RotaryEmbedding", ["x", "cos", "sin", "at"], ["y"]),
                        {"x": (2, 4, 3, 8), "cos": (50, 4), "sin": (50, 4)}, (2, 3)),
    "contrib": (NODE("RotaryEmbedding", ["x", "at", "cos", "sin"], ["y"], domain="com.microsoft"),
                {"x": (2, 4, 3, 8), "cos": (50, 4), "sin": (50, 4)}, (2, 3)),
    "Attention": (NODE("Attention", [*"qkv", "", "", "", "at"], ["y"]), ROWS, (1,)),
    "Gather": (NODE("Gather", ["x", "at"], ["y"]), {"x": (9, 2)}, (4,)),
}  # fmt: skip


@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_positions_of_64_bits_need_no_64_bit_arithmetic(name, kind):
    node, inputs, shape = READING[name]
    values = [
        *(value(each, size) for each, size in inputs.items()),
        value("at", shape, TensorProto.INT64),
    ]
    proto = model([node], values, ["y"], opset=24)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph = shapes.infer(onnx_import.load_graph(proto))
    without = fake_device(type=kind)
    assert not capability.refusal(graph, graph.nodes[0], without, tune=tune.adapt)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_long_columns_fit_the_smallest_workgroup(op_type):
    node, given = NODE(op_type, ["x"], ["y"], axis=1), fake_device()
    graph = onnx_import.load_graph(model([node], [value("x", (2, 3001, 67))], ["y"], opset=18))
    graph = shapes.infer(graph)
    assert not capability.refusal(graph, graph.nodes[0], given, tune=tune.adapt)
