"""Plans of attention over a cache: workgroups, parts, and memory that a result takes over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cache_graphs import Case
from fake_device import fake_device

from vklab.errors import ModelError, PlanError
from vklab.graph import shapes
from vklab.graph.graph import Node
from vklab.llm import memory
from vklab.ops import cache, registry
from vklab.plan import lowering
from vklab.plan.tuning import cache_groups, in_place, variants
from vklab.types import TensorInfo


def attention(batch=1, steps=1, heads=32, kv_heads=8, size=128, context=4096, kind="F16"):
    shape = (batch, kv_heads, context, cache.row_words(size, kind))
    inputs = [TensorInfo("q", "float32", (batch, steps, heads * size)),
              *(TensorInfo(name, "uint32", shape) for name in ("k", "v")),
              *(TensorInfo(name, "int32", (batch,)) for name in ("lengths", "counts"))]
    made = registry.apply("CacheAttention", inputs, {"num_heads": heads}, 1, "vklab")
    assert isinstance(made, registry.Result)
    return made.dispatches


@pytest.mark.parametrize(("size", "kind", "words"), [
    (64, "F16", 32), (64, "F32", 64), (20, "F16", 12), (20, "F32", 20), (1, "F16", 4),
])  # fmt: skip
def test_rows_end_at_16_bytes(size, kind, words):
    assert cache.row_words(size, kind) == words


def test_few_queries_are_cut_along_the_keys():
    few, combined = attention()
    assert few.workgroups == (32, 1, 8) and dict(few.constants)["ROWS"] == 4
    assert combined.workgroups == (32, 1, 1)
    [many] = attention(steps=512)
    assert many.workgroups == (1, 256, 8) and dict(many.constants)["ROWS"] == 8
    [short] = attention(context=64)
    assert short.workgroups == (1, 1, 8)
    for dispatch in (few, many, *attention(size=256), *attention(heads=7, kv_heads=1, size=64)):
        constants = dict(dispatch.constants)
        if dispatch.kernel == "cache_attention":  # shared memory of every device
            floats = (4 * constants["FOURS"] * 2 + constants["KEYS"]) * constants["ROWS"]
            assert 4 * (floats + constants["FOLD"] + 256) <= 16384


@pytest.mark.parametrize(("size", "kind", "lanes"), [(64, "F16", 8), (128, "F16", 16),
                                                     (80, "F32", 32)])  # fmt: skip
def test_a_cpu_has_small_workgroups(size, kind, lanes):
    dispatches = attention(steps=3, size=size, kind=kind)
    cpu = fake_device(type="cpu")
    first, second = (variants.choose(each, cpu)[0] for each in dispatches)
    constants = dict(first.constants)
    assert constants["WORKGROUP"] == lanes >= constants["FOURS"]
    assert constants["ROWS"] == dict(second.push)["tile"] == cache_groups.QUERIES
    assert first.workgroups == (dispatches[0].workgroups[0], 6, 8)
    gpu = fake_device(type="discrete_gpu")
    assert [variants.choose(each, gpu) for each in dispatches] == [(each,) for each in dispatches]


def changed(graph, *nodes):
    """Return a graph with other nodes after its updates, and their dispatches."""
    made = shapes.infer(replace(graph, nodes=(*graph.nodes[:2], *nodes),
                                outputs=("y", "key2", "value")))  # fmt: skip
    return made, lowering.lower(made)


def test_memory_is_taken_over_only_from_the_last_reader():
    graph = Case([3], [1]).graph()
    inferred = shapes.infer(graph)
    in_place.require_taken(inferred, lowering.lower(inferred))
    twice = Node("again", "CacheUpdate", ("key", "k", "lengths", "counts"), ("key2",),
                 {"size": 16}, "vklab", 1)  # fmt: skip
    late = graph.nodes[-1]
    in_place.require_taken(*changed(graph, twice, replace(
        late, inputs=("q", "key2", "value", "lengths", "counts"))))  # fmt: skip
    with pytest.raises(PlanError, match="'again' writes key2 in place of key, which must be"):
        in_place.require_taken(*changed(graph, twice, late))


def test_sizes_are_told_in_one_line():
    sizes = memory.Sizes(4096, 1 << 30, 92 << 20, 20 << 20, 2 << 30)
    assert str(sizes) == ("weights 1.00 GiB, cache of 4096 positions 92.0 MiB, scratch 20.0 MiB; "
                          "2.00 GiB free")  # fmt: skip


def test_a_cache_that_no_kernel_can_read_is_refused_with_the_numbers():
    graph = Case([3], [1], context=64).graph()
    sizes = memory.Sizes(64, 1000, memory.cache_bytes(graph), 100, 1 << 20)
    assert sizes.cache_bytes == 2 * 2 * 64 * 16 * 4
    memory.require_room(graph, sizes, fake_device())
    with pytest.raises(PlanError, match=r"past_key: .* takes 8192 bytes; .* reads 8191 at most"):
        memory.require_room(graph, sizes, fake_device({"maxStorageBufferRange": 8191}))
    with pytest.raises(PlanError, match=r"cache does not fit 0: .*: weights 1000 B, cache of"):
        memory.require_room(graph, replace(sizes, free_bytes=9000), fake_device())


def test_unknown_formats_are_refused():
    with pytest.raises(ModelError, match="unknown format 'Q8_0' of a cache; choose F16 or F32"):
        cache.row_words(64, "Q8_0")
