"""Weights whose rows are turned, so that a product reads a flattened image without a Transpose."""

from __future__ import annotations

import numpy as np
import pytest

from support.graphs.pass_graphs import array, evaluate, kinds, made, shaped
from vklab.graph.passes import turned_weights

TURN = "t = Transpose(x, perm=[0, 3, 1, 2]); "
ROWS = "f = Reshape(t, (0, -1)); y = MatMul(f, w)"


def image(text, batch=2, **changed):
    given = {"w": array(4 * 5 * 3, 7)} | changed
    return made(text, known=" ".join(given), x=array(batch, 4, 5, 3, seed=1), **given)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("text", [
    ROWS, "r = Relu(t); s = Sigmoid(r); f = Reshape(s, (0, -1)); y = MatMul(f, w)",
    "f = Reshape(t, (0, -1)); y = Gemm(f, w, b)",
    "f = Reshape(t, (0, -1)); y = Gemm(f, v, transB=1)",
], ids=["product", "element-wise", "bias", "transposed"])  # fmt: skip
def test_no_transpose_remains(text, batch):
    given = {"b": array(7)} if "b)" in text else {"v": array(7, 60)} if "v," in text else {}
    model = image(TURN + text, batch, **given)
    graph = shaped(model)
    changed = turned_weights.turn_weights(graph)
    assert "Transpose" not in kinds(changed)
    (truth,), (y,) = (evaluate(each, model[1]).values() for each in (graph, changed))
    np.testing.assert_allclose(y, truth, rtol=1e-5, atol=1e-5)
    assert turned_weights.turn_weights(changed) is changed


@pytest.mark.parametrize("text", [
    "t = Transpose(x, perm=[1, 0, 3, 2]); f = Reshape(t, (4, -1)); y = MatMul(f, z)",
    TURN + ROWS.replace("y = ", "p = ") + "; q = Relu(t); s = ReduceSum(q); y = Add(p, s)",
    TURN + "f = Reshape(t, (-1, 20)); y = MatMul(f, h)",
    TURN + "f = Reshape(t, (0, -1)); y = Relu(f)",
    TURN + "a = Add(t, n); f = Reshape(a, (0, -1)); y = MatMul(f, w)",
], ids=["images-move", "two-readers", "other-rows", "no-product", "a-constant-image"])  # fmt: skip
def test_other_transposes_stay(text):
    given = {"z": array(30, 7), "h": array(20, 7), "n": array(3, 4, 5)}
    used = {name: value for name, value in given.items() if f", {name})" in text}
    graph = shaped(image(text, **used))
    assert turned_weights.turn_weights(graph) is graph


def test_a_large_weight_is_not_copied(monkeypatch):
    graph = shaped(image(TURN + ROWS))
    monkeypatch.setattr(turned_weights, "MOST_ELEMENTS", 419)
    assert turned_weights.turn_weights(graph) is graph
    monkeypatch.setattr(turned_weights, "MOST_ELEMENTS", 420)
    assert turned_weights.turn_weights(graph) is not graph
