"""Batch norms, and factors and shifts per channel, in the weights before them; and where not."""

from __future__ import annotations

import numpy as np
import pytest

from support.graphs import pass_graphs
from support.graphs.pass_graphs import (
    FILTERS,
    GRAPHS,
    IMAGE,
    NORM,
    STATISTICS,
    array,
    kinds,
    made,
    shaped,
)
from vklab.graph.passes import fold_batch_norm
from vklab.types import TensorInfo

fold = fold_batch_norm.fold_batch_norm


def test_a_batch_norm_behind_a_convolution_is_gone_and_so_is_what_follows_it():
    graph = fold(shaped(GRAPHS["batch norms"]()))
    assert kinds(graph) == ["Conv", "Relu", "Conv", "Relu"]
    assert [n.outputs[0] for n in graph.nodes] == ["b", "y", "g", "p"]
    assert {len(n.inputs) for n in graph.nodes[::2]} == {3}


def test_transposed_grouped_and_matrix_weights_take_theirs():
    model = GRAPHS["batch norms behind others"]()
    graph = fold(shaped(model))
    assert kinds(graph) == ["ConvTranspose", "Conv", "GlobalMaxPool", "Flatten", "Gemm", "Gemm"]
    expected, got = (pass_graphs.evaluate(g, model[1]) for g in (shaped(model), graph))
    for name, truth in expected.items():
        np.testing.assert_allclose(got[name], truth, rtol=2e-6, atol=2e-6)


def test_weights_are_rounded_once_from_double_precision():
    graph = fold(
        shaped(
            made(
                "a = Conv(x, w); b = Mul(a, wf); c = Mul(b, ws); y = Mul(c, 3.0)",
                known="w wf ws",
                x=IMAGE,
                w=FILTERS,
                wf=array(4, 1, 1),
                ws=array(4, 1, 1, seed=2),
            )
        )
    )
    factors = array(4, 1, 1).astype(np.float64) * array(4, 1, 1, seed=2) * 3.0
    (node,) = graph.nodes
    made_of = graph.initializers[node.inputs[1]].constant
    np.testing.assert_array_equal(made_of, (FILTERS * factors[..., None]).astype(np.float32))
    np.testing.assert_array_equal(graph.initializers[node.inputs[2]].constant, np.zeros(4))


def test_shifts_alone_leave_the_weights_as_they_are():
    model = made(
        "a = Conv(x, w); y = Add(wf, a)", known="w wf", x=IMAGE, w=FILTERS, wf=array(4, 1, 1)
    )
    (node,) = fold(shaped(model)).nodes
    assert node.inputs[:2] == ("x", "w") and node.outputs == ("y",)


def test_another_plan_gets_the_same_arrays():
    proto, fed = GRAPHS["batch norms"]()
    graphs = []
    graph = shaped((proto, fed))
    for _ in range(2):  # as for another shape: what was folded before is made anew
        infos = {
            name: TensorInfo(name, i.dtype, i.shape, np.array(i.constant))
            if i.constant is not None and i.constant.size <= 4
            else i
            for name, i in graph.initializers.items()
        }
        graphs.append(
            fold(graph.with_nodes(graph.nodes, initializers=infos, infos={**graph.infos, **infos}))
        )
    one, two = ([g.initializers[n.inputs[1]].constant for n in g.nodes[::2]] for g in graphs)
    assert all(a is b for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("text", "outputs"), [
    (f"a = Conv(x, w); b = {NORM.format('a')}; y = Relu(b); p = Neg(a)", "yp"),
    (f"a = Conv(x, w); y = {NORM.format('a')}; p = Identity(a)", "yp"),
    (f"a = Conv(x, w); y = {NORM.format('a')}", "ya"),
    (f"a = Conv(x, w); b = Relu(a); y = {NORM.format('b')}", "y"),
    (f"a = Conv(x, z); y = {NORM.format('a')}", "y"),
    (f"a = Conv(x, w, zb); y = {NORM.format('a')}", "y"),
    ("a = Conv(x, w); y = Mul(a, a)", "y"),
    ("a = Conv(x, w); y = Add(a, zc)", "y"),
    ("a = Conv(x, w); y = Mul(a, wk)", "y"),
    ("a = Conv(x, w); y = Mul(a, wl)", "y"),
    ("a = Conv(x, w); y = Div(a, 2.0)", "y"),
    ("a = MaxPool(x, kernel_shape=[2, 2]); y = Mul(a, 2.0)", "y"),
    ("a = Flatten(x); b = Gemm(a, wg, wh); y = Mul(b, 2.0)", "y"),
    ("a = Flatten(x); b = Gemm(a, wg, wi, beta=0.5); y = Mul(b, 2.0)", "y"),
])  # fmt: skip
def test_other_graphs_stay(text, outputs):
    given = {
        "x": IMAGE,
        "w": FILTERS,
        "z": FILTERS,
        "zb": array(4),
        "zc": array(4, 1, 1),
        "wk": array(5, 3),
        "wl": array(1, 4, 5, 3)[..., :1],
        "wg": array(210, 3),
        "wh": array(2, 3),
        "wi": array(3),
        **STATISTICS,
    }
    words = set(text.replace(",", " ").replace("(", " ").replace(")", " ").split())
    graph = shaped(
        made(
            text,
            outputs,
            known=" ".join(n for n in given if n[0] == "w"),
            **{n: a for n, a in given.items() if n in words},
        )
    )
    assert fold(graph) is graph


def test_a_channel_of_one_element_is_no_row():
    # [N, 4, 4, 4] + [4]: along the last axis, not the channels.
    model = made(
        "a = Conv(x, w); y = Add(a, wf)", known="w wf", x=array(2, 6, 6, 6), w=FILTERS, wf=array(4)
    )
    graph = shaped(model)
    assert fold(graph) is graph
