"""Graph, topological order, shapes and passes on hand-written graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from support.graphs.small_models import model, relu, value
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.graph import onnx_import, passes, shapes
from vklab.graph.graph import Graph, Node, topological_order
from vklab.graph.passes import drop_dead_nodes, fold_constants


@st.composite
def shuffled_graphs(draw: st.DrawFn) -> tuple[list[Node], list[Node]]:
    """Return nodes of a random acyclic graph in a possible order, and shuffled."""
    count = draw(st.integers(1, 20))
    nodes = []
    for number in range(count):
        earlier = st.sampled_from(["x", *(f"v{i}" for i in range(number))])
        inputs = draw(st.lists(earlier, max_size=4))
        nodes.append(Node(f"n{number}", "Op", tuple(inputs), (f"v{number}",)))
    return nodes, draw(st.permutations(nodes))


@given(shuffled_graphs())
@pytest.mark.full
def test_topological_order_puts_makers_before_readers(graph):
    nodes, shuffled = graph
    order = topological_order(shuffled, ["x"])
    assert sorted(node.name for node in order) == sorted(node.name for node in nodes)
    known = {"x"}
    for node in order:
        assert set(node.inputs) <= known
        known.update(node.outputs)


@given(shuffled_graphs())
@pytest.mark.full
def test_topological_order_keeps_an_order_that_is_right(graph):
    nodes, _ = graph
    assert list(topological_order(nodes, ["x"])) == nodes


@given(shuffled_graphs(), st.data())
@pytest.mark.full
def test_topological_order_finds_cycles(graph, data):
    nodes, _ = graph
    first = data.draw(st.integers(0, len(nodes) - 1))
    # The last node reads the first, which now reads the last.
    nodes.append(Node("tail", "Op", (f"v{first}",), ("tail",)))
    old = nodes[first]
    nodes[first] = Node(old.name, "Op", (*old.inputs, "tail"), old.outputs)
    with pytest.raises(ModelError, match="cycle"):
        topological_order(data.draw(st.permutations(nodes)), ["x"])


def test_left_out_inputs_and_outputs_are_no_values():
    nodes = [Node("a", "Op", ("x", "", ""), ("", "v")), Node("b", "Op", ("", "v"), ("", "w"))]
    assert [node.name for node in topological_order(reversed(nodes), ["x"])] == ["a", "b"]


def shaped(proto: object, **sizes: int) -> Graph:
    return shapes.infer(shapes.bind(onnx_import.load_graph(proto), sizes))  # type: ignore[arg-type]


def test_open_dimensions_are_listed_and_bound():
    graph = onnx_import.load_graph(relu(("batch", "rows", "batch", 3)))
    assert shapes.unknown_dims(graph) == ("batch", "rows")
    bound = shapes.infer(shapes.bind(graph, {"batch": 2, "rows": 5}))
    assert bound.infos["y"].shape == (2, 5, 2, 3)
    with pytest.raises(ModelError, match=r"x: float32\[2,rows,2,3\]"):
        shapes.bind(graph, {"batch": 2})


@pytest.mark.parametrize(("node", "error", "words"), [
    (("Foo", ["x"], {}), UnsupportedOperatorError, r"node 'n' \(Foo\(x: float32\[2,3\]\)\).*Foo"),
    (("Relu", ["x"], {"alpha": 1.0}), ModelError, "attribute alpha, which the operator lacks"),
    (("Relu", ["x"], {"domain": "mine"}), UnsupportedOperatorError, "domain 'mine'"),
    (("LeakyRelu", ["x"], {"alpha": 1}), ModelError, "attribute alpha should be of type FLOAT"),
    (("LeakyRelu", ["x"], {"alpha": "a"}), ModelError, "alpha should be of type FLOAT, not STRING"),
    (("Flatten", ["x"], {"axis": 1.0}), ModelError, "axis should be of type INT, not FLOAT"),
    (("MaxPool", ["x"], {"kernel_shape": 2}), ModelError, "of type INTS"),
    (("MaxPool", ["x"], {"kernel_shape": [2.0]}), ModelError, "of type INTS"),
    (("MaxPool", ["x"], {"kernel_shape": "22"}), ModelError, "of type INTS"),
    (("MaxPool", ["x"], {"kernel_shape": [2], "strides": "1"}), ModelError, "of type INTS"),
    (("MaxPool", ["x"], {"kernel_shape": [2], "auto_pad": 1}), ModelError, "of type STRING"),
    (("Transpose", ["x"], {"perm": [0.5, 1.0]}), ModelError, "of type INTS"),
    (("MaxPool", ["x"], {}), ModelError, "attribute kernel_shape is missing"),
    (("Add", ["x"], {}), ModelError, "takes 2 inputs, 1 are given"),
    (("Add", ["x", ""], {}), ModelError, "input B is missing"),
    (("Relu", ["x", "x"], {}), ModelError, "takes 1 inputs, 2 are given"),
    (("Softmax", ["x"], {"axis": 2}), ModelError, "axis=2 is not an axis"),
])  # fmt: skip
def test_nodes_that_break_a_rule(node, error, words):
    op_type, inputs, attributes = node
    proto = model(
        [helper.make_node(op_type, inputs, ["y"], name="n", **attributes)],
        [value("x", (2, 3))],
        ["y"],
    )
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(ModelError, match=words) as caught:
        shaped(proto)
    assert type(caught.value) is error


def test_more_outputs_than_a_kernel_makes():
    proto = model([helper.make_node("Relu", ["x"], ["y", "z"], name="n")], [value("x", (3,))], "yz")
    with pytest.raises(ModelError, match="'n'.*makes 1 outputs, 2 are given"):
        shaped(proto)


def foldable() -> Graph:
    """y = x * transpose(w), beside a dead branch that reads x, and a dead constant branch."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], name="t"),
        helper.make_node("Reshape", ["t", "shape"], ["r"], name="r"),
        helper.make_node("MatMul", ["x", "r"], ["y"], name="y"),
        helper.make_node("Relu", ["x"], ["d"], name="dead"),
        helper.make_node("Neg", ["d"], ["e"], name="dead too"),
    ]
    constants = {"w": np.arange(6, dtype=np.float32).reshape(3, 2), "shape": np.int64([3, 2])}
    return shaped(model(nodes, [value("x", (5, 3))], ["y"], constants))


def test_fold_constants():
    graph = fold_constants.fold_constants(foldable())
    assert [node.name for node in graph.nodes] == ["y", "dead", "dead too"]
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(graph.initializers["r"].constant, w.T.reshape(3, 2))
    assert set(graph.initializers) == {"r"}


def test_drop_dead_nodes():
    graph = drop_dead_nodes.drop_dead_nodes(foldable())
    assert [node.name for node in graph.nodes] == ["t", "r", "y"]


def test_a_left_out_name_keeps_nothing_alive():
    nodes = (Node("dead", "Op", ("x",), ("",)), Node("live", "Op", ("x", "", "x"), ("y",)))
    graph = Graph("g", 17, nodes, (), ("y",), {})
    assert [node.name for node in drop_dead_nodes.drop_dead_nodes(graph).nodes] == ["live"]


@pytest.mark.parametrize("step", passes.PASSES, ids=lambda step: step.name)
def test_a_pass_has_nothing_to_do_the_second_time(step):
    once = step(foldable())
    assert step(once) is once


def test_all_passes_leave_what_computes():
    graph = passes.run(foldable())
    assert [node.name for node in graph.nodes] == ["y"] and graph.outputs == ("y",)
    assert graph.infos["y"].shape == (5, 2)


def test_an_output_that_is_folded_is_kept():
    nodes = [helper.make_node("Transpose", ["w"], ["y"])]
    graph = passes.run(shaped(model(nodes, [], ["y"], {"w": np.zeros((2, 3), np.float32)})))
    assert graph.nodes == () and graph.initializers["y"].shape == (3, 2)


def test_a_graph_shows_itself():
    graph = foldable()
    assert str(graph).startswith("graph 'test': 5 nodes (") and "1 MatMul" in str(graph)
    assert "y: float32[5,2]" in graph._repr_html_()
    assert graph.readers()["x"] == [graph.nodes[2], graph.nodes[3]]
