"""Products of the same rows as one dispatch: which are joined, and that their kernels are stock."""

from __future__ import annotations

import pytest

from support.fakes.fake_device import fake_device
from support.graphs.small_models import ROOT
from support.language.llama_models import tiny_model
from vklab import settings
from vklab.apps.llm.graphs.build import BoundedCache
from vklab.apps.llm.graphs.llama import llama_graph
from vklab.graph import passes, shapes
from vklab.ops import blocks, registry
from vklab.plan import block_units, fusion, lowering
from vklab.plan.fusion import same_rows
from vklab.shader import stock_builder
from vklab.types import TensorInfo

GPU = fake_device(
    {"minSubgroupSize": 32, "maxComputeSharedMemorySize": 49152,
     "maxComputeWorkGroupInvocations": 1024}, subgroup_size=32,
    subgroup_operations=frozenset({"basic", "shuffle", "arithmetic"}),
    features=frozenset({"shaderIntegerDotProduct"}),
)  # fmt: skip


def step(**kinds):
    """Return the dispatches of one step of a layer, fused for a GPU."""
    model = tiny_model(width=256, hidden=512, layers=1, kinds=kinds)
    graph = llama_graph(model, bounded=BoundedCache())
    graph = passes.run(shapes.infer(shapes.bind(graph, {"steps": 1})))
    return fusion.fuse(graph, lowering.lower(graph), GPU).dispatches


@pytest.mark.parametrize(("kinds", "further"), [
    ({}, "2"), ({"attn_v": "Q6_K"}, "1"), ({"attn_k": "Q6_K"}, ""),
    ({"attn_k": "F16", "attn_v": "F16"}, "1"), ({"attn": "F32"}, "2"),
])  # fmt: skip
def test_queries_keys_and_values_of_one_format_are_one_product(kinds, further):
    made = [each for each in step(**kinds) if "FURTHER" in each.define_values]
    assert [each.define_values["FURTHER"] for each in made] == [further] * bool(further)
    for dispatch in made:
        sizes, push = [info.dims[-1] for _, info in dispatch.writes], dispatch.push_values
        assert push["n"] == sum(sizes) and push["n1"] == sizes[0]
        assert push["n2"] == sum(sizes[:2]) and len(sizes) == int(further) + 1
        assert len({info.name for _, info in dispatch.writes}) == len(sizes)


def test_it_is_left_out_by_its_name():
    with settings.settings(DISABLE_PASSES="join_rows"):
        apart = step()
    assert not any("FURTHER" in each.define_values for each in apart)
    assert len(apart) == len(step()) + 2


def test_a_machine_without_a_compiler_has_the_kernels():
    stock = {
        variant
        for name in block_units.KERNELS
        for variant in stock_builder.variants(ROOT / "shaders" / "ops" / f"{name}.slang")
    }
    x, scale = TensorInfo("x", "float32", (1, 256)), TensorInfo("s", "float32", (256,))
    for name in blocks.FORMATS:
        size = blocks.FORMATS[name].row_bytes(256)
        weights = TensorInfo("b", "uint32", (64 * size // 4,))
        plain = registry.apply(
            "MatMulBlocks", (x, weights), {"block_type": name, "N": 64, "K": 256}, 1, "vklab"
        ).dispatches[0]
        plain = block_units.of(plain, GPU)
        one = block_units.normed(plain, x, scale, 1e-5)
        two = same_rows.joined(one, one)
        three = same_rows.joined(two, one)
        for made in (two, three):
            assert (made.kernel, tuple(sorted(made.defines)), "") in stock, name
        assert same_rows.joined(three, one) is None, "three are the most"
        assert same_rows.joined(plain, plain) is None, "rows that are not normalised have no kernel"
