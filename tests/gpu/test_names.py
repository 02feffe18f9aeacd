"""Names of a model never meet the names that passes, lowering and tuning make."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import vklab
from support.graphs import pass_graphs
from vklab.base import names
from vklab.base.names import SEPARATOR, internal
from vklab.errors import ModelError
from vklab.graph import escaping, onnx_import

FLOAT = TensorProto.FLOAT
RANDOM = np.random.default_rng(5)
W = RANDOM.standard_normal((64, 512)).astype(np.float32)
X = RANDOM.standard_normal((8, 64)).astype(np.float32)


def model(nodes, inputs, outputs, weights):
    """Return a model of nodes; outputs have any shape."""
    given = [helper.make_tensor_value_info(n, FLOAT, a.shape) for n, a in inputs.items()]
    made = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "names", given, made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_product(other):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "m"),
        helper.make_node("Sin", ["x"], [other], "s"),
        helper.make_node("MatMul", [other, "w"], ["z"], "n"),
    ]
    return model(nodes, {"x": X}, ["y", "z"], {"w": W})


def with_lstm(other):
    each = {"w": RANDOM.standard_normal((1, 32, 4)), "r": RANDOM.standard_normal((1, 32, 8))}
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["y"], "m", hidden_size=8),
        helper.make_node("Sin", ["x"], [other], "s"),
        helper.make_node("Exp", [other], ["z"], "e"),
    ]
    weights = {name: array.astype(np.float32) for name, array in each.items()}
    x = RANDOM.standard_normal((5, 3, 4)).astype(np.float32)
    return model(nodes, {"x": x}, ["y", "z"], weights), x


def with_top_k(other):
    x = RANDOM.standard_normal((4, 100)).astype(np.float32)
    nodes = [
        helper.make_node("Sin", ["x"], [other], "s"),
        helper.make_node("TopK", ["x", "k"], ["y", "i"], "m"),
        helper.make_node("Exp", [other], ["z"], "e"),
    ]
    return model(nodes, {"x": x}, ["y", "z"], {"k": np.array([7])}), x


def with_batch_norm(other):
    x = RANDOM.standard_normal((1, 4, 8, 8)).astype(np.float32)
    kinds = ("scale", "b", "mean", "var")
    weights = {name: np.abs(RANDOM.standard_normal(4)).astype(np.float32) for name in kinds}
    weights["w"] = RANDOM.standard_normal((4, 4, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "c", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", *kinds], ["y"], "n"),
        helper.make_node("Sin", ["x"], [other], "s"),
        helper.make_node("Exp", [other], ["z"], "e"),
    ]
    return model(nodes, {"x": x}, ["y", "z"], weights), x


def agrees(proto, x, device_index):
    with vklab.load(proto, device_index) as session:
        checked = session.check(x)
    assert checked.passed, checked
    return True


ROLES = {
    "product": (lambda other: (with_product(other), X),
                ["w:turned1x64x512x1/1x1", internal("w", "turned1x64x512x1/1x1"),
                 internal("w", "turned1x512x64x1/1x1"), internal("y", "splits")]),
    "lstm": (with_lstm, ["m:scratch1", *(internal("m", f"scratch{n}") for n in range(4))]),
    "top_k": (with_top_k, ["m:scratch0", *(internal("m", f"scratch{n}") for n in range(2)),
                           internal("m", "unused1")]),
    "batch_norm": (with_batch_norm, [
        "c:bias", "c:weights", *(internal(value, f"normalized {role}") for value in "cy"
                                 for role in ("bias", "weights"))]),
}  # fmt: skip

KINDS = [(kind, other) for kind, (_, names) in ROLES.items() for other in names]


@pytest.mark.parametrize(("kind", "other"), KINDS)
def test_a_value_with_the_name_that_a_step_makes_keeps_its_own(kind, other, device_index):
    assert agrees(*ROLES[kind][0](other), device_index)


def test_an_output_with_the_separator_keeps_its_name(device_index):
    proto = model(
        [helper.make_node("Sin", ["x"], [f"x {SEPARATOR}C"], "s")],
        {"x": X},
        [f"x {SEPARATOR}C"],
        {},
    )
    with vklab.load(proto, device_index) as session:
        assert session.outputs == (f"x {SEPARATOR}C",)
        assert np.allclose(session.run(X)[f"x {SEPARATOR}C"], np.sin(X), atol=1e-5)


@pytest.mark.parametrize("name", [internal("m", "scratch0"), internal("w", "turned"), SEPARATOR])
def test_an_output_that_an_internal_name_could_be_is_refused(name):
    nodes = [helper.make_node("MatMul", ["x", "w"], [name], "m")]
    with pytest.raises(ModelError, match=f"{name}'.*give the input or output another name"):
        onnx_import.from_proto(model(nodes, {"x": X}, [name], {"w": W}))


def test_names_in_bodies_are_escaped_with_those_that_they_read(device_index):
    inner, given = internal("x", "a"), internal("b", "given")
    branches = {
        f"{branch}_branch": helper.make_graph(
            [helper.make_node(op, [given], [inner]), helper.make_node("Exp", [inner], ["made"])],
            branch,
            [],
            [helper.make_tensor_value_info("made", FLOAT, None)],
        )
        for branch, op in (("then", "Sin"), ("else", "Cos"))
    }
    nodes = [
        helper.make_node("Abs", ["x"], [given], "b"),
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["is"]),
        helper.make_node("If", ["is"], ["y"], "i", **branches),
    ]
    proto = model(nodes, {"x": X}, ["y"], {"zero": np.zeros((), np.float32)})
    with vklab.load(proto, device_index) as session:
        for x, function in ((abs(X), np.sin), (-abs(X), np.cos)):
            assert np.allclose(session.run(x)["y"], np.exp(function(abs(x))), atol=1e-4)
            assert session.check(x).passed


@pytest.mark.parametrize("name", ["m", "a·b", "'a", "··", "a·'b"])
def test_the_origin_of_an_internal_name_is_the_name_that_it_was_made_from(name):
    stored = escaping.escape(name)
    assert names.origin(stored) == stored
    assert names.origin(internal(internal(stored, "half"), f"for {stored}")) == stored


def made_names(session) -> list[str]:
    """Return the names that passes, lowering and tuning have made in a session's last plan."""
    found: set[str] = set()
    for chunk in session.plan.chunks:
        found |= {*chunk.graph.names(), *chunk.constants, *chunk.memory.slots}
        found |= {info.name for each in chunk.dispatches for _, info in (*each.reads, *each.writes)}
    return sorted(name for name in found if SEPARATOR in name)


def renamed(proto: onnx.ModelProto, old: str, new: str) -> onnx.ModelProto:
    """Return a model in which a value that a node makes, and the node, have another name."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for node in made.graph.node:
        if old in node.output:
            node.name = new
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    return made


@pytest.mark.parametrize("graph", pass_graphs.GRAPHS)
def test_a_model_that_spells_the_names_of_its_plan_gives_the_same_bits(graph, device_index):
    proto, fed = pass_graphs.GRAPHS[graph]()
    kept = {value.name for value in proto.graph.output}
    inner = [name for node in proto.graph.node for name in node.output if name and name not in kept]
    with vklab.load(proto, device_index) as session:
        expected, hostile = session.run(fed), made_names(session)
    random = np.random.default_rng(len(graph))
    for new in random.permutation(hostile)[:3] if inner else ():
        other = renamed(proto, str(random.choice(inner)), str(new))
        with vklab.load(other, device_index) as session:
            made = session.run(fed)
        assert all(pass_graphs.same_bits(made[name], expected[name]) for name in expected), new
