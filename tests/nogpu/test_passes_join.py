"""join_products: queries, keys and values as one product, where that costs nothing."""

from __future__ import annotations

import pytest

from support.graphs.rotary_model import SIZE, K, rotary_model
from support.rules import compiler_table
from vklab import settings
from vklab.errors import ModelError
from vklab.graph import onnx_import, passes, shapes
from vklab.graph.passes import join_products
from vklab.ops import registry
from vklab.types import TensorInfo


def joined(**given):
    """Return a graph before the pass, and after it."""
    with settings.settings(DISABLE_PASSES="join_products"):
        graph = passes.run(shapes.infer(onnx_import.load_graph(rotary_model(**given)[0])))
    return graph, join_products.join_products(graph)


def kinds(graph):
    return [node.qualified_type for node in graph.nodes]


@pytest.mark.parametrize("given", [
    {}, {"steps": 1}, {"steps": 1, "batch": 1}, {"heads": (3, 1, 1)}, {"heads": (4, 2)},
    {"bias": True}, {"bias": True, "steps": 1},
])  # fmt: skip
def test_one_product_makes_queries_keys_and_values(given):
    before, after = joined(**given)
    assert kinds(before).count("MatMul") == len(given.get("heads", "qkv"))
    assert kinds(before).count("RotaryEmbedding") == 2
    made = kinds(after)
    assert made.count("MatMul") == made.count("vklab.RotaryHeads") == 1
    assert "RotaryEmbedding" not in made
    assert made.count("Slice") == (len(given.get("heads", "qkv")) == 3)
    assert made.count("Add") == given.get("bias", False)
    assert join_products.join_products(after) is after
    assert shapes.infer(after).infos["k"].shape == before.infos["k"].shape
    heads = sum(given.get("heads", (4, 2, 2)))
    weights = [i for i in after.initializers.values() if i.rank == 2]
    assert [i.shape for i in weights] == [(K, heads * SIZE)], "the parts have gone"


@pytest.mark.parametrize("given", [
    {"tables": "ab"}, {"more": ("q3",)}, {"more": ("k0",)}, {"shared": True},
])  # fmt: skip
def test_what_is_read_otherwise_is_left_alone(given):
    before, after = joined(**given)
    assert after is before


def test_what_no_device_may_bind_is_not_joined(monkeypatch):
    monkeypatch.setattr(join_products, "MOST_BYTES", 4 * K * SIZE * 8 - 1)
    before, after = joined()
    assert after is before


def test_weights_are_joined_once_for_all_shapes():
    graph = onnx_import.load_graph(rotary_model()[0])
    made = [passes.run(shapes.infer(graph)) for _ in range(2)]
    arrays = [next(i.constant for i in g.initializers.values() if i.rank == 2) for g in made]
    assert arrays[0] is arrays[1]


def test_heads_that_a_row_does_not_hold():
    x, table = TensorInfo("x", "float32", (1, 3, 30)), TensorInfo("c", "float32", (1, 3, 4))
    with pytest.raises(ModelError, match=r"does not hold 3 \+ 1 heads of 8"):
        registry.apply(
            "RotaryHeads", [x, table, table], {"size": 8, "queries": 3, "keys": 1}, 1, "vklab"
        )


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "llama_script", "vit"])
def test_a_block_takes_at_most_twelve_dispatches(name):
    plan = compiler_table.planned(*compiler_table.exported(name)[1:])
    kernels = [dispatch.kernel for dispatch in plan.dispatches]
    first, second = (n for n, kernel in enumerate(kernels) if kernel == "attention_weights")
    assert 9 <= second - first <= 12
