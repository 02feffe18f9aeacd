"""Passes that leave out work: no-ops, views of views, equal nodes and pads; what they keep."""

from __future__ import annotations

import numpy as np
import pytest

from support.graphs import pass_graphs
from support.graphs.pass_graphs import FILTERS, GRAPHS, IMAGE, array, kinds, made, same_bits, shaped
from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import common_subexpressions, drop_no_ops, join_views, merge_pads
from vklab.types import TensorInfo

drop = drop_no_ops.drop_no_ops
join = join_views.join_views
merge = common_subexpressions.common_subexpressions
pads = merge_pads.merge_pads


def is_kept(step, text, outputs=("y",), **more):
    """Tell whether a pass leaves a graph as it is."""
    graph = shaped(made(text, outputs, **more))
    return step(graph) is graph


# ---------------------------------------------------------------- drop_no_ops


def test_no_ops_are_dropped_and_the_output_keeps_its_name():
    graph = drop(shaped(GRAPHS["no-ops"]()))
    assert [str(node) for node in graph.nodes] == ["m: y = Relu(x)"]


def test_what_is_an_input_or_has_two_names_is_copied():
    graph = drop(shaped(GRAPHS["outputs that are inputs"]()))
    assert [str(node) for node in graph.nodes] == [
        "y: y = Identity(x)",
        "p: p = Identity(y)",
        "a: q = Neg(x)",
        "r: r = Identity(q)",
    ]


@pytest.mark.parametrize("text", [
    "y = Relu(x)", "y = Mul(x, w)", "y = Add(x, 0.0)", "y = Sub(x, -0.0)", "y = Mul(x, 0.0)",
    "y = Div(1.0, x)", "y = Sub(0.0, x)", "y = Mul(x, -1.0)", "y = Pow(x, 1.0)",
    "y = Cast(x, to=11)", "y = Cast(x, to=10)", "y = Div(x, 2.0)", "y = Mul(x, e)",
    "y = Reshape(x, (5, 2, 8))", "y = Transpose(x, perm=[1, 0, 2])", "y = Slice(x, (1,), (2,))",
    "y = Slice(x, (-1,), (-9,), (0,), (-1,))", "y = Expand(x, (3, 1, 1, 1))",
    "y = Concat(x, x, axis=0)", "y = Pad(x, (0, 0, 0, 0, 0, 1))", "y = Sum(x, x)",
    "y = Tile(x, (1, 2, 1))", "y = Max(x, 0.0)", "y = Clip(x, 0.0)",
])  # fmt: skip
def test_what_changes_a_value_a_shape_or_a_sign_stays(text):
    assert is_kept(drop, f"{text}; p = Neg(y)", "p")


@pytest.mark.parametrize(("rows", "left"), [(1, ["Mul", "Neg"]), (3, ["Neg"])])
def test_ones_that_make_the_shape_larger_stay(rows, left):
    ones = np.ones((3, 1), np.float32)
    graph = shaped(made("a = Mul(x, w); y = Neg(a)", known="w", x=array(rows, 5), w=ones))
    assert kinds(drop(graph)) == left


def test_a_number_that_is_neutral_but_for_one_element_stays():
    ones = np.float32([1, 1, 1, 2])
    assert is_kept(drop, "a = Mul(x, w); y = Neg(a)", known="w", x=array(3, 4), w=ones)


def test_the_bits_of_nan_infinity_and_both_zeros_stay():
    x = np.float32([[0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, 3.0]])
    text = "a = {}; b = Neg(a); y = Neg(b)"
    for operation in ("Mul(x, 1.0)", "Div(x, 1.0)", "Sub(x, 0.0)", "Add(x, -0.0)", "Add(-0.0, x)"):
        model = made(text.format(operation), x=x)
        graph = drop(shaped(model))
        assert kinds(graph) == ["Neg", "Neg"], operation
        assert same_bits(pass_graphs.evaluate(graph, model[1])["y"], x)


def test_adding_zero_is_kept_for_it_loses_the_sign():
    model = made("a = Add(x, 0.0); b = Neg(a); y = Neg(b)", x=np.float32([-0.0, 1.0]))
    graph = drop(shaped(model))
    assert "Add" in kinds(graph)
    assert not np.signbit(pass_graphs.evaluate(graph, model[1])["y"][0])


def test_integers_and_truth_values_have_neutral_operands_too():
    x = np.int32([[3, 0, -7]])
    constants = {"w": np.int32([0]), "wo": np.int32([1])}
    graph = drop(
        shaped(
            made(
                "a = Add(x, w); b = Div(a, wo); c = Neg(b); y = Neg(c)",
                known="w wo",
                x=x,
                **constants,
            )
        )
    )
    assert kinds(graph) == ["Neg", "Neg"]
    truth = {"x": np.array([True, False]), "w": np.array([True]), "wf": np.array([False])}
    graph = drop(
        shaped(made("a = And(x, w); b = Or(wf, a); c = Not(b); y = Not(c)", known="w wf", **truth))
    )
    assert kinds(graph) == ["Not", "Not"]
    graph = shaped(made("a = And(x, wf); y = Not(a)", known="wf", x=truth["x"], wf=truth["wf"]))
    assert drop(graph) is graph


def test_a_dropout_whose_mask_is_read_stays():
    info = TensorInfo("x", "float32", (2, 3))
    nodes = (Node("d", "Dropout", ("x",), ("a", "m")), Node("y", "Neg", ("a",), ("y",)))
    infos = {
        n: TensorInfo(n, t, (2, 3))
        for n, t in [("x", "float32"), ("a", "float32"), ("m", "bool"), ("y", "float32")]
    }
    graph = Graph("g", 17, nodes, (info,), ("y", "m"), {}, infos)
    assert drop(graph) is graph


# ---------------------------------------------------------------- join_views


def test_views_of_views_are_one_reshape():
    graph = join(shaped(GRAPHS["views"]()))
    assert [str(node) for node in graph.nodes if node.op_type in ("Reshape", "Squeeze")] == [
        f"d: d = Reshape(a, {internal('d', 'shape')})",
        f"f: f = Reshape(a, {internal('f', 'shape')})",
        "q: q = Reshape(a, 12)",
    ]
    assert graph.initializers[internal("d", "shape")].constant.tolist() == [1, 80]
    assert kinds(drop(graph)).count("Reshape") == 2, "the last is the shape that it was"


def test_a_view_that_is_an_output_stays_beside_the_one_that_reads_on():
    graph = join(
        shaped(made("a = Relu(x); y = Flatten(a); b = Unsqueeze(y, (0,)); p = Neg(b)", ("y", "p")))
    )
    assert [str(n) for n in graph.nodes[1:3]] == [
        f"{name}: {name} = Reshape(a, {internal(name, 'shape')})" for name in "yb"
    ]


@pytest.mark.parametrize("text", [
    "a = Relu(x); y = Reshape(a, (5, 2, 8))", "a = Transpose(x); y = Neg(a)",
    "a = Slice(x, (0,), (1,)); y = Neg(a)", "a = Expand(x, (3, 2, 5, 8)); y = Neg(a)",
])  # fmt: skip
def test_a_plain_reshape_and_what_moves_elements_stay(text):
    assert is_kept(join, text)


def test_transposes_of_axes_of_one_stay_for_patterns_to_find():
    assert is_kept(join, "a = Transpose(x, perm=[0, 2, 1, 3]); y = Neg(a)", x=array(2, 1, 4, 3))


# ---------------------------------------------------------------- common_subexpressions


def test_equal_nodes_are_one_and_outputs_are_made_twice():
    graph = merge(shaped(GRAPHS["equal nodes"]()))
    assert kinds(graph) == ["Add", "Add", "Mul", "Add", "Mul", "Mul", "Elu", "Elu"]
    assert [n.inputs for n in graph.nodes[2:4]] == [("a", "a"), ("d", "d")]
    assert [n.outputs for n in graph.nodes[4:]] == [("p",), ("q",), ("r",), ("s",)]


def test_two_outputs_that_are_equal_are_both_made():
    assert is_kept(merge, "y = Relu(x); p = Relu(x)", ("y", "p"))


def test_equal_constants_are_one():
    graph = merge(shaped(made("a = Mul(x, 2.5); b = Mul(z, 2.5); y = Sub(a, b)")))
    assert len(graph.initializers) == 1
    assert len({name for node in graph.nodes[:2] for name in node.inputs[1:]}) == 1


@pytest.mark.parametrize("text", [
    "a = Elu(x, alpha=0.0); b = Elu(x, alpha=-0.0); y = Sub(a, b)",
    "a = Transpose(x, perm=[1, 0, 2]); b = Transpose(x); y = Concat(a, a, axis=0); p = Neg(b)",
    "a = Relu(x); b = Relu(z); y = Sub(a, b)",
    "a = Sub(x, z); b = Sub(z, x); y = Mul(a, b)",
    "a = Mul(x, 0.0); b = Mul(x, -0.0); y = Div(a, b)",
])  # fmt: skip
def test_what_only_looks_equal_is_computed_twice(text):
    assert is_kept(merge, text, ("y", "p") if "p =" in text else ("y",))


def test_large_constants_are_compared_by_being_the_same_array():
    graph = shaped(
        made(
            "a = Mul(x, w); b = Mul(x, wb); y = Sub(a, b)",
            known="w wb",
            x=array(2000),
            w=array(2000),
            wb=array(2000),
        )
    )
    assert merge(graph) is graph
    same = graph.initializers["w"].constant
    other = TensorInfo("wb", "float32", (2000,), same)
    graph = graph.with_nodes(graph.nodes, initializers={**graph.initializers, "wb": other})
    assert kinds(merge(graph)) == ["Mul", "Sub"]


@pytest.mark.parametrize(("one", "other", "is_same"), [
    ("Softmax", Node("b", "Softmax", ("x",), ("b",)), True),
    ("Softmax", Node("b", "Softmax", ("x",), ("b",), opset=11), False),
    ("Softmax", Node("b", "Softmax", ("x",), ("b",), domain="com.microsoft"), False),
    ("RandomNormalLike", Node("b", "RandomNormalLike", ("x",), ("b",)), False),
    ("Bernoulli", Node("b", "Bernoulli", ("x",), ("b",)), False),
])  # fmt: skip
def test_versions_domains_and_draws_are_told_apart(one, other, is_same):
    x = TensorInfo("x", "float32", (3,))
    infos = {n: TensorInfo(n, "float32", (3,)) for n in "xaby"}
    nodes = (Node("a", one, ("x",), ("a",)), other, Node("y", "Sub", ("a", "b"), ("y",)))
    graph = Graph("g", 17, nodes, (x,), ("y",), {}, infos)
    assert (len(merge(graph).nodes) == 2) == is_same


# ---------------------------------------------------------------- merge_pads


def test_a_pad_of_zeros_becomes_the_pads_of_the_convolution():
    graph = pads(shaped(GRAPHS["pads"]()))
    assert kinds(graph) == ["Conv"] * 3 and {n.inputs[0] for n in graph.nodes} == {"x"}
    assert [n.attributes["pads"] for n in graph.nodes] == [
        (2, 2, 0, 2),
        (1, 2, 0, 1),
        (0, 1, 0, 1),
    ]


def test_a_pad_that_others_read_stays_for_them():
    graph = pads(
        shaped(
            made(
                "a = Pad(x, (0, 0, 1, 1, 0, 0, 1, 1)); y = Conv(a, w); p = Neg(a)",
                ("y", "p"),
                known="w",
                x=IMAGE,
                w=FILTERS,
            )
        )
    )
    assert [(n.op_type, n.inputs[0]) for n in graph.nodes] == [
        ("Pad", "x"),
        ("Conv", "x"),
        ("Neg", "a"),
    ]


@pytest.mark.parametrize("text", [
    "a = Pad(x, (0, 0, 1, 1, 0, 0, 1, 1), 0.5); y = Conv(a, w)",
    "a = Pad(x, (0, 0, 1, 1, 0, 0, 1, 1), mode='edge'); y = Conv(a, w)",
    "a = Pad(x, (0, 0, 1, -1, 0, 0, 1, 1)); y = Conv(a, w)",
    "a = Pad(x, (1, 0, 1, 1, 0, 0, 1, 1)); y = Conv(a, w)",
    "a = Pad(x, (0, 0, 1, 1, 0, 0, 1, 1)); y = Conv(a, w, auto_pad='SAME_UPPER')",
    "a = Pad(x, (0, 0, 1, 1, 0, 0, 1, 1)); y = MaxPool(a, kernel_shape=[2, 2])",
    "a = Pad(x, (0, 0, 1, 1, 0, 0, 1, 1)); y = Conv(a, wi)",
    "a = Pad(x, (0, 0, 1, 1, 0, 0, 1, 1)); y = Conv(a, z)",
])  # fmt: skip
def test_other_pads_stay(text):
    infinite = FILTERS.copy()
    infinite[0, 0, 0, 0] = np.inf  # times zero it is NaN, and beside a border it is nothing
    given = {"w": FILTERS, "wi": infinite, "z": FILTERS}
    read = {n: a for n, a in given.items() if f" {n})" in text or f" {n}," in text}
    assert is_kept(pads, text, known="w wi", x=IMAGE, **read)
