"""Passes for transformers on GPUs: patches, spread_sums, join_heads, fewer_rows."""

from __future__ import annotations

import re

import numpy as np
import pytest

from support.fakes.fake_device import fake_device
from support.graphs.pass_graphs import array, evaluate, kinds, made, shaped
from vklab import settings
from vklab.graph import passes
from vklab.graph.passes import fewer_rows, join_heads, patches, spread_sums

GPU = fake_device(subgroup_size=32)
CONV = (
    "c = Conv(x, w, b, strides=[4, 4]); r = Reshape(c, (0, FILTERS, -1));"
    " y = Transpose(r, perm=[0, 2, 1])"
)


def image(text=CONV, batch=1, size=(8, 12), **changed):
    given = {"w": array(8, 3, 4, 4), "b": array(8)} | changed
    given = {name: value for name, value in given.items() if f", {name}" in text}
    text = text.replace("FILTERS", str(len(given["w"])))
    return made(text, known=" ".join(given), x=array(batch, 3, *size), **given)


def same(model, step, *given):
    """Return a graph after a pass that changes no result."""
    before, fed = shaped(model), model[1]
    after = step(before, *given)
    for name, truth in evaluate(before, fed).items():
        np.testing.assert_allclose(evaluate(after, fed)[name], truth, rtol=1e-5, atol=1e-5)
    return after


@pytest.mark.parametrize("batch", [1, 3])
def test_patches_become_a_product(batch):
    graph = same(image(batch=batch), patches.patches, 4)
    assert kinds(graph) == ["Reshape", "Transpose", "Reshape", "MatMul", "Add"]


def test_patches_without_a_bias():
    graph = same(image(CONV.replace(", b", "")), patches.patches)
    assert kinds(graph)[-1] == "MatMul"


@pytest.mark.parametrize("model", [
    image(CONV.replace("strides=[4, 4]", "strides=[2, 2]")),
    image(CONV.replace("strides=[4, 4]", "strides=[4, 4], pads=[1, 1, 1, 1]"), size=(10, 14)),
    image(size=(9, 13)), image(CONV.replace("perm=[0, 2, 1]", "perm=[1, 0, 2]")),
    image(CONV.replace("y = ", "t = ") + "; u = Relu(r); v = Transpose(u, perm=[0, 2, 1]);"
          "y = Add(t, v)"), image(w=array(6, 3, 4, 4), b=array(6)),
], ids=["overlap", "pads", "rest", "other-axes", "two-readers", "odd-filters"])  # fmt: skip
def test_other_convolutions_stay(model):
    graph = shaped(model)
    assert patches.patches(graph, 4) is graph


def test_constants_are_added_to_the_parts():
    model = made(
        "c = Concat(z, x, axis=1); y = Add(c, n)",
        known="z n",
        z=array(2, 1, 8),
        x=array(2, 5, 8),
        n=array(2, 6, 8),
    )
    graph = same(model, spread_sums.spread_sums)
    assert kinds(graph) == ["Add", "Add", "Concat"]


@pytest.mark.parametrize("text", [
    "c = Concat(z, x, axis=1); y = Add(c, b)", "c = Concat(z, x, axis=1); y = Mul(c, n)",
    "c = Concat(z, x, axis=1); a = Add(c, n); d = Relu(c); y = Add(a, d)",
], ids=["broadcast", "product", "two-readers"])  # fmt: skip
def test_other_sums_stay(text):
    given = {"z": array(1, 1, 8), "n": array(1, 6, 8), "b": array(8)}
    given = {name: value for name, value in given.items() if f"{name})" in text or name == "z"}
    graph = shaped(made(text, known=" ".join(given), x=array(1, 5, 8), **given))
    assert spread_sums.spread_sums(graph) is graph


def test_only_gpus_get_them_and_settings_leave_them_out():
    model = image(CONV.replace("y = ", "t = ") + "; y = Add(t, n)", n=array(1, 6, 8))
    graph = shaped(model)
    assert "Conv" in kinds(passes.run(graph)) and "Conv" not in kinds(passes.run(graph, "", GPU))
    with settings.settings(DISABLE_PASSES="patches"):
        assert "Conv" in kinds(passes.run(graph, "", GPU))


HEADS = (
    "q = Add(MatMul(x, w), b); k = Add(MatMul(x, m), g); v = Add(MatMul(x, n), h);"
    "qr = Reshape(q, (2, 9, 2, 4)); kr = Reshape(k, (2, 9, 2, 4));"
    "vr = Reshape(v, (2, 9, 2, 4)); qt = Transpose(qr, perm=[0, 2, 1, 3]);"
    "kt = Transpose(kr, perm=[0, 2, 1, 3]); vt = Transpose(vr, perm=[0, 2, 1, 3]);"
    "y = Attention(qt, kt, vt)"
)


def heads(text=HEADS, **changed):
    given = {name: array(8, 8, seed=number) for number, name in enumerate("wmn")}
    given |= {name: array(8, seed=number) for number, name in enumerate("bgh")}
    given = {name: value for name, value in given.items() if f", {name})" in text}
    return made(text, known=" ".join(given), opset=23, x=array(2, 9, 8), **given, **changed)


def test_queries_keys_and_values_become_one_product():
    bare = re.sub(r"Add\((MatMul\(x, \w\)), \w\)", r"\1", HEADS)
    for text in (HEADS, bare):
        graph = same(heads(text), join_heads.join_heads, 4)
        assert kinds(graph).count("MatMul") == 1 and kinds(graph).count("Slice") == 3
        assert join_heads.join_heads(graph, 4) is graph


@pytest.mark.parametrize("model", [
    heads(HEADS.replace("MatMul(x, n)", "MatMul(z, n)"), z=array(2, 9, 8)),
    heads(HEADS.replace("Add(MatMul(x, n), h)", "MatMul(x, n)")),
    heads(HEADS.replace("y = Attention(qt, kt, vt)", "a = Attention(qt, kt, vt); y = Add(a, vt)")),
], ids=["another-input", "one-without-bias", "another-reader"])  # fmt: skip
def test_other_products_of_attention_stay(model):
    graph = shaped(model)
    assert join_heads.join_heads(graph, 4) is graph


TAIL = (
    "h = LayerNormalization(x, w, b, axis=-1); p = MatMul(h, m); q = Add(p, f);"
    "g = Gelu(q); r = MatMul(g, n); s = Add(r, x); y = Slice(s, (0,), (1,), (1,))"
)


def tail(text=TAIL, outputs=("y",)):
    given = {
        "w": array(8),
        "b": array(8, seed=1),
        "m": array(8, 12),
        "f": array(12),
        "n": array(12, 8),
    }
    given = {
        name: value for name, value in given.items() if f", {name})" in text or f", {name}," in text
    }
    return made(text, outputs, known=" ".join(given), opset=20, x=array(2, 9, 8), **given)


@pytest.mark.parametrize("text", [
    TAIL, TAIL.replace("r = MatMul", "t = Transpose(g, perm=[1, 0, 2]); r = MatMul").replace(
        "MatMul(g, n)", "MatMul(t, n)").replace(
            "Add(r, x)", "Add(Transpose(r, perm=[1, 0, 2]), x)"),
    TAIL.replace("(0,), (1,), (1,)", "(3,), (6,), (1,)"),
    TAIL.replace("s = Add(r, x); y = Slice(s", "a = Reshape(r, (2, 1, 9, 8)); y = Slice(a").replace(
        "(0,), (1,), (1,)", "(0,), (1,), (2,)"),
], ids=["one-row", "transposed", "some-rows", "more-axes"])  # fmt: skip
def test_products_compute_only_the_rows_that_are_read(text):
    graph = same(tail(text), fewer_rows.fewer_rows)
    products = [node for node in graph.nodes if node.op_type == "MatMul"]
    assert all(graph.infos[node.outputs[0]].count < 2 * 9 * 8 for node in products)
    assert fewer_rows.fewer_rows(graph) is graph


@pytest.mark.parametrize("model", [
    tail(outputs=("y", "p")), tail(TAIL.replace("(1,)", "(2,)")),
    tail("y = Slice(Gelu(x), (0,), (1,), (1,))"),
    tail("p = MatMul(x, m); s = Softmax(p, axis=1); y = Slice(s, (0,), (1,), (1,))"),
], ids=["output", "last-axis", "no-product", "rows-meet"])  # fmt: skip
def test_other_slices_stay(model):
    graph = shaped(model)
    made = fewer_rows.fewer_rows(graph)
    products = [node for node in made.nodes if node.op_type == "MatMul"]
    assert all(made.infos[n.outputs[0]].count == 2 * 9 * 12 for n in products[:1])
