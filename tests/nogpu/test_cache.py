"""Plans of attention over a cache: workgroups, parts, and memory that a result takes over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fakes.fake_device import fake_device
from support.graphs.cache_graphs import Case
from vklab import settings
from vklab.apps.llm.decode import memory
from vklab.errors import ModelError, PlanError
from vklab.graph import shapes
from vklab.graph.graph import Node
from vklab.ops import cache, registry
from vklab.plan import lowering
from vklab.plan.tuning import in_place, variants
from vklab.plan.tuning.attention import cache_groups
from vklab.types import TensorInfo


def attention(
    batch=1, steps=1, heads=32, kv_heads=8, size=128, context=4096, kind="F16", is_counted=False,
    counters=256,
):  # fmt: skip
    shape = (batch, kv_heads, context, cache.row_words(size, kind))
    inputs = [
        TensorInfo("q", "float32", (batch, steps, heads * size)),
        *(TensorInfo(name, "uint32", shape) for name in ("k", "v")),
        *(TensorInfo(name, "int32", (batch,)) for name in ("lengths", "counts")),
    ]
    if is_counted:
        inputs += [None] * 4 + [TensorInfo("counters", "int32", (counters,))]
    made = registry.apply("CacheAttention", inputs, {"num_heads": heads}, 1, "vklab")
    assert isinstance(made, registry.Result)
    return made.dispatches


@pytest.mark.parametrize(("size", "kind", "words"), [
    (64, "F16", 32), (64, "F32", 64), (20, "F16", 12), (20, "F32", 20), (1, "F16", 4),
    (32, "Q8_0", 9), (64, "Q8_0", 17), (96, "Q8_0", 26), (128, "Q8_0", 34),
])  # fmt: skip
def test_rows_have_whole_words(size, kind, words):
    assert cache.row_words(size, kind) == words


def test_few_queries_are_cut_along_the_keys():
    few, combined = attention()
    assert few.workgroups == (16, 2, 8) and few.constant_values["ROWS"] == 2
    assert combined.workgroups == (32, 1, 1)
    [many] = attention(steps=512)
    assert many.workgroups == (1, 256, 8) and many.constant_values["ROWS"] == 8
    [short] = attention(context=64)
    assert short.workgroups == (1, 2, 8)


@pytest.mark.parametrize("kind", ["F16", "F32", "Q8_0"])
@pytest.mark.parametrize(("heads", "size"), [(32, 128), (32, 256), (7, 64), (4, 512)])
def test_shared_memory_is_that_of_every_device(kind, heads, size):
    kv_heads = 1 if heads == 7 else 4
    for steps in (1, 64):
        for counted in (False, True):
            first = attention(1, steps, heads, kv_heads, size, 4096, kind, counted)[0]
            constants, elements = first.constant_values, {"F16": 8, "F32": 4, "Q8_0": 16}[kind]
            assert first.kernel == "cache_attention"
            row = constants["FOURS"] * elements
            words = (row + constants["KEYS"] + 1) * constants["ROWS"] + constants["FOLD"] + 128
            words += 2 * constants["FOLD"] // row * counted  # of the parts' shares
            if steps == 1:  # the new row, as words and, before it is rounded, as floats
                words += 2 * row * {"F16": 16, "F32": 32, "Q8_0": 8}[kind] // 32
                words += (2 * row + row // 16) * (kind == "Q8_0")
            assert 4 * words <= 16384


def test_the_last_workgroup_combines_parts_that_are_counted():
    [one] = attention(is_counted=True)
    two, combine = attention()
    assert one.define_values["PARTS"] == "2" and two.define_values["PARTS"] == "1"
    assert combine.kernel == "cache_combine" and one.workgroups == two.workgroups
    assert [name for name, _ in one.writes][:3] == [
        "sums_buffer",
        "heads_buffer",
        "counters_buffer",
    ]
    assert one.workgroups[1] * one.workgroups[2] <= cache.ENOUGH_GROUPS
    [whole] = attention(context=64, is_counted=True)  # one part needs no counter
    assert whole.define_values["PARTS"] == "0"
    with pytest.raises(ModelError, match="do not fit"):
        attention(is_counted=True, counters=3)


@pytest.mark.parametrize("heads", [1, 33, 64])
def test_a_cpu_has_a_counter_for_each_workgroup(heads):
    [dispatch] = attention(steps=2, heads=4 * heads, kv_heads=heads, is_counted=True)
    [made] = variants.choose(dispatch, fake_device(type="cpu"))
    assert made.workgroups[1] * made.workgroups[2] <= cache.ENOUGH_GROUPS
    assert made.push_values["tiles"] == made.workgroups[1]
    assert made.constant_values["WORKGROUP"] >= 128 // 4  # four elements of a head each


@pytest.mark.parametrize(("size", "kind", "lanes"), [(64, "F16", 8), (128, "F16", 16),
                                                     (80, "F32", 32)])  # fmt: skip
def test_a_cpu_has_small_workgroups(size, kind, lanes):
    dispatches = attention(steps=3, size=size, kind=kind)
    cpu = fake_device(type="cpu")
    first, second = (variants.choose(each, cpu)[0] for each in dispatches)
    constants = first.constant_values
    assert constants["WORKGROUP"] == lanes >= constants["FOURS"]
    assert constants["ROWS"] == second.push_values["tile"] == cache_groups.QUERIES
    assert first.workgroups == (dispatches[0].workgroups[0], 6, 8)
    gpu = fake_device(type="discrete_gpu")
    assert [variants.choose(each, gpu) for each in dispatches] == [(each,) for each in dispatches]


def test_one_step_keeps_its_queries_in_registers():
    gpu = fake_device(
        {"minSubgroupSize": 32, "maxComputeSharedMemorySize": 49152},
        type="discrete",
        subgroup_size=32,
        subgroup_operations=frozenset({"arithmetic", "shuffle"}),
    )
    for more, workgroups, rows, pieces in (
        ({}, (16, 1, 8), 4, 16),
        ({"kind": "Q8_0", "size": 64, "kv_heads": 4}, (16, 2, 4), 4, 8),
        ({"heads": 6, "kv_heads": 2, "batch": 3}, (21, 1, 6), 4, 16),
        ({"heads": 2, "kv_heads": 2}, (64, 1, 2), 1, 16),
        ({"context": 64}, (1, 1, 8), 4, 16),
    ):
        [dispatch] = attention(is_counted=True, **more)
        [made] = variants.choose(dispatch, gpu)
        constants, push = made.constant_values, made.push_values
        assert made.kernel == "cache_attention_registers" and made.workgroups == workgroups
        assert (constants["ROWS"], constants["PIECES"]) == (rows, pieces)
        assert workgroups[:2] == (push["parts"], push["tiles"])
        assert push["parts"] <= dispatch.push_values["parts"]  # what its scratch has room for
        assert (made.reads, made.writes) == (dispatch.reads, dispatch.writes)
        with settings.settings(DISABLE_STEP_ATTENTION=True):
            assert variants.choose(dispatch, gpu) == (dispatch,)
    for more in (
        {"steps": 2},
        {"kind": "F32"},
        {"size": 96},
        {"size": 16, "heads": 128},
        {"size": 512},
    ):
        [dispatch] = attention(is_counted=True, **more)
        assert variants.choose(dispatch, gpu) == (dispatch,)
    [dispatch] = attention(is_counted=True)
    for other in (
        replace(gpu, subgroup_operations=frozenset({"arithmetic"})),
        replace(gpu, type="cpu"),
        fake_device(type="discrete"),
    ):
        assert variants.choose(dispatch, other)[0].kernel == "cache_attention"


def test_one_workgroup_samples_where_memory_is_not_shared():
    inputs = [
        TensorInfo("logits", "float32", (2, 5000)),
        TensorInfo("recent", "int32", (2, 64)),
        TensorInfo("step", "int32", (2,)),
        TensorInfo("options", "uint32", (1, 12)),
    ]
    made = registry.apply("SampleToken", inputs, {}, 1, "vklab")
    assert isinstance(made, registry.Result)
    draw, gpu = made.dispatches[1], fake_device(type="discrete_gpu")
    [many] = variants.choose(draw, gpu)
    assert many.workgroups == (10, 1, 1) and many.push_values["slices"] == 5  # of 1,024 tokens
    metal = replace(gpu, extensions=frozenset({"VK_KHR_portability_subset"}))
    with settings.settings(DISABLE_COUNTED_PARTS=True):
        [alone] = variants.choose(draw, gpu)
    assert variants.choose(draw, metal) == (alone,)
    assert alone == draw and draw.workgroups == (2, 1, 1) and draw.push_values["slices"] == 1
    assert not cache_groups.can_share(metal) and cache_groups.can_share(gpu)


def changed(graph, *nodes):
    """Return a graph with other nodes after its updates, and their dispatches."""
    made = shapes.infer(
        replace(graph, nodes=(*graph.nodes[:2], *nodes), outputs=("y", "key2", "value"))
    )
    return made, lowering.lower(made)


def test_memory_is_taken_over_only_from_the_last_reader():
    graph = Case([3], [1]).graph()
    inferred = shapes.infer(graph)
    in_place.require_taken(inferred, lowering.lower(inferred))
    twice = Node(
        "again",
        "CacheUpdate",
        ("key", "k", "lengths", "counts"),
        ("key2",),
        {"size": 16},
        "vklab",
        1,
    )
    late = graph.nodes[-1]
    in_place.require_taken(
        *changed(graph, twice, replace(late, inputs=("q", "key2", "value", "lengths", "counts")))
    )
    with pytest.raises(PlanError, match="'again' writes key2 in place of key, which must be"):
        in_place.require_taken(*changed(graph, twice, late))


def test_sizes_are_told_in_one_line():
    sizes = memory.Sizes(4096, 1 << 30, 92 << 20, 20 << 20, 2 << 30)
    assert str(sizes) == (
        "weights 1.00 GiB, cache of 4096 positions 92.0 MiB, scratch 20.0 MiB; 2.00 GiB free"
    )


def test_a_cache_that_no_kernel_can_read_is_refused_with_the_numbers():
    graph = Case([3], [1], context=64).graph()
    sizes = memory.Sizes(64, 1000, memory.cache_bytes(graph), 100, 1 << 20)
    assert sizes.cache_bytes == 2 * 2 * 64 * 16 * 4
    memory.require_room(graph, sizes, fake_device())
    memory.require_bindable(graph, fake_device({"maxStorageBufferRange": 8192}))
    with pytest.raises(PlanError, match=r"past_key: .* takes 8192 bytes; .* reads 8191 at most"):
        memory.require_bindable(graph, fake_device({"maxStorageBufferRange": 8191}))
    with pytest.raises(PlanError, match=r"cache does not fit 0: .*: weights 1000 B, cache of"):
        memory.require_room(graph, replace(sizes, free_bytes=9000), fake_device())


def test_unknown_formats_and_sizes_are_refused():
    with pytest.raises(ModelError, match="unknown format 'Q4_0' of a cache; choose F16, F32, Q8_0"):
        cache.row_words(64, "Q4_0")
    with pytest.raises(ModelError, match="Q8_0 holds heads of whole blocks of 32 .*, not of 80; "):
        cache.row_words(80, "Q8_0")
