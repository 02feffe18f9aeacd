"""Transposes that merge, cancel and sink; and those that stay because nothing would be gained."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.graphs import pass_graphs
from support.graphs.pass_graphs import (
    FILTERS,
    GRAPHS,
    NHWC,
    TO_NCHW,
    TO_NHWC,
    array,
    kinds,
    made,
    shaped,
)
from support.runs import tiers
from vklab.base.names import internal
from vklab.graph.passes import layouts, move_transposes

move = move_transposes.move_transposes


def perms(graph):
    return [n.attributes["perm"] for n in graph.nodes if n.op_type == "Transpose"]


def test_two_transposes_are_one_and_opposite_ones_none():
    graph = move(shaped(GRAPHS["transposes that meet"]()))
    assert [str(n) for n in graph.nodes] == [
        f"{internal('b', 'transpose')}: b = Transpose(x)",
        "y: y = Relu(b)",
        "d: d = Neg(x)",
    ]
    assert perms(graph) == [(0, 2, 1)]


def test_a_transpose_that_is_an_output_keeps_its_name():
    graph = move(
        shaped(
            made("a = Transpose(x); b = Transpose(a); y = Identity(b);p = Transpose(a)", ("y", "p"))
        )
    )
    assert [n.outputs[0] for n in graph.nodes] == ["y", "p"]
    assert perms(graph) == [(0, 1, 2)]


def test_a_network_in_nhwc_has_no_transpose_left_but_that_of_its_input():
    assert kinds(move(shaped(GRAPHS["image in NHWC"]()))) == [
        "Transpose",
        "Conv",
        "Add",
        "Relu",
        "Conv",
        "Add",
        "Clip",
        "ReduceMean",
    ]
    assert kinds(move(shaped(GRAPHS["residuals in NHWC"]()))) == [
        "Transpose",
        "Conv",
        "Relu",
        "Conv",
        "Add",
        "Concat",
        "ReduceMax",
        "Mul",
        "Relu",
    ]


def test_a_transpose_passes_a_reshape_that_joins_other_axes():
    graph = move(shaped(GRAPHS["transposes around a reshape"]()))
    assert perms(graph) == [(0, 2, 3, 1)]


@pytest.mark.parametrize(("text", "shape"), [
    ("a = Transpose(x, perm=[1, 0, 2]); y = Relu(a)", (2, 5, 8)),  # moves, and gains nothing
    ("a = Transpose(x, perm=[1, 0, 2]); y = Add(a, w)", (2, 5, 8)),
    ("a = Transpose(x, perm=[1, 0, 2]); b = Transpose(x); y = Reshape(b, (80,)); p = Neg(a)",
     (2, 5, 8)),
    ("a = Transpose(x, perm=[1, 0, 2]); b = Add(a, z); y = Transpose(b)", (2, 5, 8)),
    ("a = Transpose(x, perm=[1, 0, 2]); b = Softmax(a); y = Transpose(b)", (2, 5, 8)),
    ("a = Transpose(x, perm=[1, 0, 2]); b = Reshape(a, (2, 5, 8)); y = Transpose(b)", (2, 5, 8)),
    ("a = Transpose(x); b = Relu(a); c = Transpose(b); y = Neg(c); p = Exp(b)", (2, 5, 8)),
    ("a = Transpose(x); b = Transpose(w); c = Add(a, b); y = Relu(c); p = Exp(a); q = Abs(b)",
     (2, 5, 8)),
    ("a = Transpose(x); y = Relu(a); p = Transpose(y, perm=[1, 0, 2])", (2, 5, 8)),
    (f"a = Transpose(x, {TO_NHWC}); y = ReduceMean(a, axes=[1, 2])", (2, 6, 7, 5)),
])  # fmt: skip
def test_transposes_that_would_not_become_fewer_stay(text, shape):
    outputs = ["y", *(name for name in "pq" if f"{name} =" in text)]
    more = {n: array(5, 2, 8) for n in "z" if " z)" in text}
    more |= {n: array(2, 5, 8, seed=1) if "(w)" in text else array(8) for n in "w" if "w)" in text}
    graph = shaped(
        made(text, outputs, known="w" if "Add(a, w)" in text else "", x=array(*shape), **more)
    )
    assert move(graph) is graph


def test_two_transposes_into_a_sum_become_one_behind_it():
    model = made(
        "a = Transpose(x); b = Transpose(w); c = Add(a, b); y = Softmax(c)",
        x=array(2, 5, 8),
        w=array(2, 5, 1),
    )
    graph = move(shaped(model))
    assert kinds(graph) == ["Add", "Transpose", "Softmax"]
    assert graph.nodes[0].inputs == ("x", "w")


def test_what_does_not_sink_holds_up_what_it_meets():
    # b is read untransposed as well, so c + d cannot do without a Transpose, nor need d move.
    graph = shaped(
        made(
            "a = Transpose(x); b = Relu(a); y = Softmax(b); c = Transpose(z);"
            "f = Exp(c); g = Abs(c); h = Add(b, f); i = Add(b, g); j = Mul(h, i);"
            "p = Transpose(j)",
            ("y", "p"),
            x=array(2, 5, 8),
            z=array(2, 5, 8),
        )
    )
    assert move(graph) is graph


def test_constants_are_turned_and_single_numbers_are_not():
    model = made(
        f"a = Transpose(x, {TO_NHWC}); b = Mul(a, w); c = Add(b, e); d = Where(o, c, wb);"
        f"f = Transpose(d, {TO_NCHW}); y = Neg(f)",
        known="w e o wb",
        x=array(2, 6, 7, 5),
        w=array(5, 6),
        e=array(),
        o=array(7, 1, 1) > 0,
        wb=array(1, 1, 1, 1),
    )
    graph = move(shaped(model))
    assert kinds(graph) == ["Mul", "Add", "Where", "Neg"]
    shapes = [graph.infos[n.inputs[i]].shape for n, i in zip(graph.nodes, (1, 1, 0), strict=False)]
    assert shapes == [(1, 6, 1, 5), (), (1, 1, 7, 1)]
    expected, got = (pass_graphs.evaluate(g, model[1])["y"] for g in (shaped(model), graph))
    np.testing.assert_array_equal(got, expected)


def test_a_turned_constant_is_the_same_array_in_every_plan():
    graph = shaped(
        made(
            f"a = Transpose(x, {TO_NHWC}); b = Mul(a, w); y = Transpose(b, {TO_NCHW})",
            known="w",
            x=array(2, 6, 7, 5),
            w=array(5, 6),
        )
    )
    one, two = (move(graph).nodes[0].inputs[1] for _ in range(2))
    assert move(graph).infos[one].constant is move(graph).infos[two].constant


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[1], [1, 2], [-1], [0, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize("opset", [17, 18])
def test_reductions_over_turned_axes(axes, keepdims, opset):
    back = "perm=[3, 0, 2, 1]" if keepdims else "perm=[0, 2, 1]" if axes == [1] else ""
    given = f"axes={axes}" if opset == 17 else ""
    named = "" if given else f", {(*axes,)}"
    tail = f"y = Transpose(b, {back})" if back else "y = Neg(b)"
    text = f"a = Transpose(x, {TO_NHWC}); b = ReduceMax(a{named}, keepdims={keepdims}, {given}); "
    model = made(text + tail, opset=opset, x=array(2, 6, 7, 5))
    graph = shaped(model)
    moved = move(graph)
    expected, got = (pass_graphs.evaluate(g, model[1])["y"] for g in (graph, moved))
    np.testing.assert_array_equal(got, expected)
    assert kinds(moved).count("Transpose") < kinds(graph).count("Transpose")


@st.composite
def reshapes(draw):
    """Return a shape, what a Reshape makes of it by joining and cutting axes, and an order."""
    source = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=5))
    target = []
    for dim in source:
        factor = draw(st.sampled_from([f for f in (1, 2, 3) if dim % f == 0]))
        target += [factor, dim // factor] if draw(st.booleans()) else [dim]
    if len(target) > 1 and draw(st.booleans()):
        place = draw(st.integers(0, len(target) - 2))
        target[place : place + 2] = [target[place] * target[place + 1]]
    return source, target, tuple(draw(st.permutations(range(len(target)))))


@pytest.mark.full
@settings(max_examples=tiers.examples(300))
@given(reshapes())
def test_an_order_behind_a_reshape_is_one_before_it(case):
    source, target, order = case
    before = layouts.before_reshape(source, target, order)
    if before is None:
        return
    numbers = np.arange(np.prod(source)).reshape(source)
    expected = numbers.reshape(target).transpose(order)
    np.testing.assert_array_equal(numbers.transpose(before).reshape(expected.shape), expected)


def test_orders_behind_a_reshape_that_there_are():
    assert layouts.before_reshape((2, 4, 17, 16), (8, 17, 16), (0, 2, 1)) == (0, 1, 3, 2)
    assert layouts.before_reshape((8, 6), (2, 4, 6), (2, 0, 1)) == (1, 0)
    assert layouts.before_reshape((8, 6), (2, 4, 6), (0, 2, 1)) is None
    assert layouts.before_reshape((2, 3), (2, 1, 3), (0, 1, 2)) == (0, 1)
    assert layouts.before_reshape((1, 8, 3, 5), (1, 8, 15), (0, 2, 1)) == (0, 2, 3, 1)
    assert layouts.before_reshape((0, 3), (0, 3), (1, 0)) is None


def test_an_attention_head_order_is_no_gain_and_stays():
    graph = shaped(
        made(
            "a = Transpose(x, perm=[0, 2, 1, 3]); b = MatMul(a, w); y = Transpose(b,"
            "perm=[0, 2, 1, 3])",
            x=array(2, 5, 3, 4),
            w=array(4, 4),
            known="w",
        )
    )
    assert move(graph) is graph


def test_convolutions_themselves_are_not_turned():
    graph = shaped(
        made(
            f"a = Transpose(x, {TO_NCHW}); b = Conv(a, w); y = Transpose(b, {TO_NHWC})",
            known="w",
            x=NHWC,
            w=FILTERS,
        )
    )
    assert move(graph) is graph
