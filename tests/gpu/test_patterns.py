"""Patterns replaced by one operator: results with the passes on and off agree with ONNX Runtime."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import vklab
from support.checks.check_operator import lacks
from support.graphs import pattern_forms, written
from support.graphs.small_models import one_node, random_array
from support.models import exported_models
from vklab import settings

PASSES = ",".join(pattern_forms.PATTERNS)
# What is recognised in models of two layers; the operators that their exporters knew stay.
FOUND = {
    "bert": {"LayerNormalization": 5, "Gelu": 2, "Attention": 2},
    "bert_script": {"LayerNormalization": 5, "Gelu": 2, "Attention": 2},
    "gpt2": {"LayerNormalization": 5, "Gelu": 2, "Attention": 2},
    "gpt2_script": {"LayerNormalization": 5, "Gelu": 2, "Attention": 2},
    "llama": {"RMSNormalization": 5, "RotaryHeads": 2, "Attention": 2},
    "llama_script": {"RMSNormalization": 5, "RotaryHeads": 2, "Attention": 2},
    "vit": {"LayerNormalization": 5, "Gelu": 2, "Attention": 2},
    "vit_script": {"LayerNormalization": 5, "Gelu": 2, "Attention": 2},
}
SIZES = {"batch": 2, "sequence": 3, "past": 5, "total": 8}
LEFT = frozenset({"Erf", "Tanh", "Softmax", "IsNaN", "Pow", "ReduceMean", "Expand"})


def run(proto, fed, device, **switches):
    """Return outputs, the reference's, and the graph that was planned."""
    with settings.settings(**{"FALLBACK": False, **switches}), vklab.load(proto, device) as session:
        return session.run(fed), session.reference(fed), session.plan.chunks[0].graph


@pytest.mark.parametrize("kind", pattern_forms.FORMS)
def test_results_do_not_depend_on_the_passes(device_index, kind):
    forms = pattern_forms.FORMS[kind].values()
    models = [written.write(text, prefix=f"{n}_") for n, (_, text) in enumerate(forms)]
    proto, fed = written.together(models)
    plainly = {"DISABLE_FUSION": True}  # its kernels would be compiled for this test alone
    on, expected, graph = run(proto, fed, device_index, **plainly)
    off, _, plain = run(proto, fed, device_index, DISABLE_PASSES=PASSES, **plainly)
    assert len(graph.nodes) < len(plain.nodes)
    for name, truth in expected.items():
        for got in (on[name], off[name]):
            np.testing.assert_allclose(got, truth, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("name", FOUND)
def test_patterns_in_exported_models(device_index, name):
    model = exported_models.load(name)
    fed = exported_models.inputs_of(model, SIZES)
    # Without int64 the host casts BERT's mask, between two parts that share an attention.
    is_cut = name.startswith("bert") and lacks(device_index, "int64")
    outputs, expected, graph = run(model, fed, device_index, FALLBACK=is_cut)
    counts = Counter(node.op_type for node in graph.nodes)
    assert is_cut or FOUND[name].items() <= counts.items()
    left = LEFT - ({"Tanh"} if name.startswith("bert") else set())  # its pooler has one
    assert is_cut or not left & counts.keys()
    for output, truth in expected.items():
        assert np.abs(outputs[output] - truth).max() < 1e-5 * np.abs(truth).max()


SCORES = "s = MatMul(q, Transpose(k, perm=(0, 1, 3, 2)));"
MASKED = {
    "added": f"{SCORES} y = MatMul(Softmax(Add(s, m)), v)",
    "guarded": f"{SCORES} p = Softmax(Add(s, m)); y = MatMul(Where(IsNaN(p), 0.0, p), v)",
    "chosen": f"{SCORES} y = MatMul(Softmax(Where(o, s, -1e999)), v)",
    "chosen, guarded": f"{SCORES} p = Softmax(Where(o, s, -1e999));"
                       "y = MatMul(Where(IsNaN(p), 0.0, p), v)",
    "filled": f"{SCORES} y = MatMul(Softmax(Where(o, s, -3.0)), v)",
}  # fmt: skip


@pytest.mark.parametrize("keys", [7, 35])
def test_rows_without_keys_and_nan_are_what_the_nodes_make_of_them(device_index, keys):
    models = [written.write(text, prefix=f"{n}_") for n, text in enumerate(MASKED.values())]
    proto, fed = written.together(models)
    for number, value in enumerate(proto.graph.input):
        fed[value.name] = array = widened(fed[value.name], keys)
        for dim, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
            dim.dim_value = size
        if value.name.endswith("_m"):
            array[0, 0, 1], array[1, 0, 2, 3], array[1, 0, 3] = -np.inf, np.nan, -3.4e38
            array[0, 0, 4, 0], array[1, 0, 4, 1] = np.inf, -np.inf
        if value.name.endswith("_o"):
            array[0, 0, 1], array[1, 0, 4] = False, True
        assert number < 5 * len(MASKED)
    outputs, expected, graph = run(proto, fed, device_index)
    assert Counter(node.op_type for node in graph.nodes)["Attention"] == len(MASKED)
    assert any(np.isnan(truth).any() for truth in expected.values())
    for name, truth in expected.items():
        np.testing.assert_allclose(outputs[name], truth, rtol=2e-4, atol=2e-5, err_msg=name)


def widened(array, keys):
    """Return an array whose axis of 7 keys is longer."""
    repeats = -(-keys // 7)
    shape = tuple(keys if dim == 7 else dim for dim in array.shape)
    tiled = np.tile(array, [repeats if dim == 7 else 1 for dim in array.shape])
    return tiled[tuple(slice(dim) for dim in shape)].copy()


@pytest.mark.parametrize("keys", [5, 70])
def test_attention_shows_nan_and_closes_rows(device_index, keys):
    q, k, v = (random_array((1, 2, 4, 8), 0), *(random_array((1, 2, keys, 8), i) for i in (1, 2)))
    mask = np.zeros((4, keys), np.float32)
    mask[0], mask[1, 2], mask[2, 1:] = -np.inf, np.nan, -np.inf
    proto, fed = one_node("Attention", [q, k, v, mask], opset=24)
    with vklab.load(proto, device_index) as session:
        y = session.run(fed)["y0"]
    assert not y[:, :, 0].any()
    assert np.isnan(y[:, :, 1]).all()
    np.testing.assert_allclose(y[:, :, 2], v[:, :, 0], rtol=1e-5)
    assert np.isfinite(y[:, :, 3]).all()


@pytest.mark.parametrize(("queries", "heads"), [(1, 4), (5, 1), (5, 4)])
def test_heads_side_by_side_take_three_dispatches(device_index, queries, heads):
    q = random_array((2, queries, heads * 8), 0)
    k, v = (random_array((2, 7, heads * 8), i) for i in (1, 2))
    proto, fed = one_node("Attention", [q, k, v], opset=24, q_num_heads=heads, kv_num_heads=heads)
    with vklab.load(proto, device_index) as session:
        y = session.run(fed)["y0"]
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    q, k, v = (x.reshape(2, -1, heads, 8).swapaxes(1, 2) for x in (q, k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(8)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = (weights @ v).swapaxes(1, 2).reshape(y.shape)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert len(kernels) == 3, kernels
