"""Products with weights in blocks on a GPU: kernels, what they take along, and what prevents it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.fakes.fake_device import fake_device
from support.fakes.matrix_gpu import GPU, LIMITS
from support.graphs.block_cases import moderate_blocks
from support.language.llama_models import tiny_model
from vklab import settings
from vklab.apps.llm.graphs.llama import llama_graph
from vklab.base.names import internal
from vklab.graph import passes, shapes
from vklab.ops import blocks, registry
from vklab.ops.blocks import words
from vklab.plan import fusion, lowering
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.tuning import prepack, variants
from vklab.plan.tuning.blocks import split_blocks
from vklab.types import TensorInfo

FLOATS = ("F16", "BF16", "F32")


def product(rows=1, block_type="Q4_K", elements=256, count=70, dtype="float32", weights=None):
    size = count * blocks.FORMATS[block_type].row_bytes(elements)
    made = registry.apply(
        "MatMulBlocks",
        (
            TensorInfo("a", dtype, (rows, elements)),
            TensorInfo("b", "uint32", (-(-size // 4),), weights),
        ),
        {"block_type": block_type, "N": count, "K": elements},
        1,
        "vklab",
    )
    assert isinstance(made, registry.Result)
    return made.dispatches[0]


def chosen(dispatch, info=GPU):
    return [
        (made.kernel, made.constant_values.get("ROWS")) for made in variants.choose(dispatch, info)
    ]


@pytest.mark.parametrize(("rows", "at_once", "groups"), [(1, 1, 1), (3, 3, 1), (8, 4, 2)])
def test_a_gpu_multiplies_units(rows, at_once, groups):
    for name in blocks.FORMATS:
        (made,) = variants.choose(product(rows, name), GPU)
        assert made.kernel == ("matvec_floats" if name in FLOATS else "matvec_units")
        sizes = made.constant_values
        assert sizes["ROWS"] == at_once and made.workgroups[2] == groups
        each = sizes["WORKGROUP"] // 32 * sizes["AT_ONCE"]
        assert made.workgroups[:2] == (-(-70 // each), 1)


@pytest.mark.parametrize(("changes", "kernel"), [
    ({"type": "cpu"}, "matvec_blocks"), ({"features": frozenset()}, "matvec_blocks"),
    ({"subgroup_operations": frozenset({"basic", "shuffle"})}, "matvec_blocks"),
    ({"limits": {**GPU.limits, "minSubgroupSize": 8}}, "matvec_blocks"),
    ({"limits": {**GPU.limits, "maxComputeSharedMemorySize": 500}}, "matvec_blocks"),
    ({}, "matvec_units"),
])  # fmt: skip
def test_devices_that_cannot_keep_the_kernel(changes, kernel):
    info = fake_device(**{**vars(GPU), **changes})
    assert chosen(product(), info)[0][0] == kernel


@pytest.mark.parametrize(
    "switches",
    [{"DISABLE_INTEGER_DOT": True}, {"DISABLE_VARIANTS": True}, {"PRECISION": "exact"}],
    ids=str,
)
def test_three_switches_keep_float32(switches):
    with settings.settings(**switches):
        assert chosen(product())[0][0] == "matvec_blocks"


def test_shared_memory_limits_the_rows_of_activations():
    assert chosen(product(8, "Q4_0", 8192, 2)) == [("matvec_units", 3)]
    assert chosen(product(8, "Q4_0", 65536, 2)) == [("matvec_blocks", 8)]


def test_rows_of_floats_that_end_within_sixteen_bytes_keep_the_kernel():
    assert chosen(product(1, "F16", 36))[0][0] == "matvec_blocks"
    assert chosen(product(1, "F32", 36))[0][0] == "matvec_floats"


def test_many_rows_are_halves_for_matrix_units():
    made = [kernel for kernel, _ in chosen(product(64, "Q4_K", 512, 96))]
    assert made[:3] == ["elementwise", "unpack_units", "matmul_cooperative"]
    assert [k for k, _ in chosen(product(64, "F16", 512, 96))][:2] == [
        "elementwise",
        "matmul_cooperative",
    ]
    assert [k for k, _ in chosen(product(64, "BF16", 512, 96, "float16"))][:2] == [
        "gather_blocks",
        "matmul_cooperative",
    ]


def test_exact_products_of_many_rows_are_no_halves():
    with settings.settings(PRECISION="exact"):
        assert chosen(product(64, "Q4_K", 512, 96))[0][0] == "matmul_blocks"
        assert chosen(product(64, "F16", 512, 96))[0][0] == "matmul_blocks"


@pytest.mark.parametrize("given", [(15, "Q4_K", 512), (64, "F16", 36), (64, "F32", 36)])
def test_few_rows_and_odd_ones_are_no_halves(given):
    (made,) = variants.choose(product(*given), GPU)
    assert made.kernel == "matmul_blocks"


def test_weights_too_large_for_halves_stay_blocks(monkeypatch):
    info = fake_device(**{**vars(GPU), "limits": {**LIMITS, "maxStorageBufferRange": 1 << 16}})
    assert chosen(product(64, "Q4_K", 512, 96), info)[0][0] == "matmul_blocks"


def decoding(model, **inputs):
    """Return the dispatches of one token, fused for a GPU."""
    graph = llama_graph(model)
    sizes = {"batch": 1, "steps": 1, "past": 3, **inputs}
    graph = passes.run(shapes.infer(shapes.bind(graph, sizes)))
    return graph, fusion.fuse(graph, lowering.lower(graph), GPU)


def kernels(fused):
    return [dispatch.kernel for dispatch in fused.dispatches]


def products(fused):
    return [kernel for kernel in kernels(fused) if kernel.startswith("matvec_")]


def test_a_layer_has_no_dispatch_for_norms_and_gates():
    _, fused = decoding(tiny_model(width=256, hidden=512, layers=1))
    found = kernels(fused)
    # q with k, v (which stores into the cache), output, gate with up, down, logits
    assert len(products(fused)) == 6 and "normalize" not in found
    gated = [d for d in fused.dispatches if d.define_values.get("GATED") == "1"]
    assert len(gated) == 1 and gated[0].define_values["NORM"] == "1"
    assert [name for name, _ in gated[0].reads] == ["a_buffer", "b_buffer", "g_buffer", "w_buffer"]
    assert sum(bool(d.epilogue) for d in fused.dispatches if d.kernel == "matvec_blocks") == 2


@pytest.mark.parametrize(("left_out", "normalized", "gated"), [
    ("fuse_norms", 3, 1), ("fuse_gates", 0, 0), ("fuse_gates, fuse_norms", 3, 0)])  # fmt: skip
def test_each_is_left_out_by_its_name(left_out, normalized, gated):
    with settings.settings(DISABLE_PASSES=left_out):
        _, fused = decoding(tiny_model(width=256, hidden=512, layers=1))
    assert kernels(fused).count("normalize") == normalized
    assert sum(d.define_values.get("GATED") == "1" for d in fused.dispatches) == gated


def test_norms_of_heads_and_biases_keep_their_dispatches():
    _, fused = decoding(tiny_model("qwen3", width=256, hidden=512, layers=1))
    assert kernels(fused).count("normalize") == 2  # of the heads of queries and keys
    _, fused = decoding(tiny_model("qwen2", width=256, hidden=512, layers=1))
    assert "normalize" not in kernels(fused)


def test_gate_and_up_in_different_formats_stay_two_products():
    model = tiny_model(width=256, hidden=512, layers=1, kinds={"ffn_up": "Q4_K"})
    _, fused = decoding(model)
    assert len(products(fused)) == 7 and "normalize" not in kernels(fused)


def test_a_norm_with_another_reader_stays():
    model = tiny_model(width=256, hidden=512, layers=1, kinds={"attn_v": "Q8_0"})
    with settings.settings(DISABLE_INTEGER_DOT=True):
        _, fused = decoding(model)
    assert kernels(fused).count("normalize") == 3, "products in float32 do not normalise"


def test_fusing_what_is_fused_changes_nothing():
    graph, once = decoding(tiny_model(width=256, hidden=512, layers=2))
    assert fusion.fuse(graph, once, GPU).dispatches == once.dispatches


def test_a_plan_for_a_gpu_is_complete():
    graph, _ = decoding(tiny_model(width=256, hidden=512, layers=2))
    chunk = plans.lower_chunk(Chunk(0, graph), GPU)
    assert len(chunk.barriers) < len(chunk.dispatches)
    assert all(
        info.name in chunk.memory.slots for d in chunk.dispatches for _, info in d.reads + d.writes
    )


@pytest.mark.parametrize("name", sorted(split_blocks.HEADS))
def test_heads_of_blocks_are_read_apart_without_a_copy(name):
    data = moderate_blocks(name, 3, 256)
    held = words(data)
    (made,) = variants.choose(product(1, name, 256, 3, weights=held), GPU)
    (unpacked, *_) = variants.choose(product(64, name, 256, 64), GPU)[1:]
    assert made.define_values["SPLIT"] == "1" and unpacked.define_values["SPLIT"] == "0"
    reads, constants = dict(made.reads), {"b": TensorInfo("b", "uint32", held.shape, held)}
    parts = [prepack.fill(reads[key], constants) for key in ("b_buffer", "b_heads_buffer")]
    arrays = [part.constant for part in parts]
    assert all(np.may_share_memory(array, held) for array in arrays)
    assert [part.dims for part in parts] == [array.shape for array in arrays]
    whole = arrays[::-1] if name != "Q6_K" else arrays
    size = blocks.FORMATS[name].fields.itemsize
    assert np.array_equal(np.concatenate(whole, axis=1).view(np.uint8), data.reshape(-1, size))
    assert prepack.fill(parts[0], constants) is None, "it has its value"
    assert prepack.fill(TensorInfo("other", "uint16", (1,)), constants) is None


@pytest.mark.parametrize(("name", "resident", "changes", "switch"), [
    ("Q8_0", ("b",), {}, {}), ("Q4_K", (), {}, {}), ("F16", (), {}, {}),
    ("Q8_0", (), {"features": frozenset({"shaderIntegerDotProduct"})}, {}),
    ("Q8_0", (), {}, {"DISABLE_PREPACK": True}),
])  # fmt: skip
def test_other_weights_are_read_as_they_are(name, resident, changes, switch):
    held = words(moderate_blocks(name, 3, 256))
    with settings.settings(**switch):
        (made,) = variants.choose(
            product(1, name, 256, 3, weights=held),
            fake_device(**{**vars(GPU), **changes}),
            resident,
        )
    assert made.define_values.get("SPLIT", "0") == "0"
    assert dict(made.reads)["b_buffer"].name == "b"


def test_a_weight_with_another_reader_is_held_once():
    graph, _ = decoding(tiny_model(width=256, hidden=512, layers=1, tied=True))
    chunk = plans.lower_chunk(Chunk(0, graph), GPU)
    readers = {info.name for d in chunk.dispatches for _, info in d.reads}
    table, query = "token_embd.weight", "blk.0.attn_q.weight"
    assert table in readers and internal(table, "block codes of Q8_0") not in readers
    assert internal(query, "block heads of Q8_0") in readers and query not in readers


def test_products_of_one_input_share_its_halves():
    graph, _ = decoding(tiny_model(width=256, hidden=512, layers=1), steps=64)
    with settings.settings(DISABLE_PASSES="round_rows"):
        chunk = plans.lower_chunk(Chunk(0, graph), GPU)
    written = [info.name for d in chunk.dispatches for _, info in d.writes]
    halves = [name for name in written if name.endswith(internal("", "halves"))]
    assert len(halves) == len(set(halves)) == 4  # of norms, attention and the gated values


def test_rows_are_rounded_where_they_are_written():
    graph, fused = decoding(tiny_model(width=256, hidden=512, layers=1), steps=64)
    halves = [d for d in fused.dispatches if d.writes[0][1].dtype == "float16"]
    assert kernels(replace(fused, dispatches=tuple(halves))) == [
        "normalize",
        "normalize",
        "matmul_blocks",
    ]
    assert all(d.define_values["Y_STORE"] == "half" for d in halves)
    rows = {d.writes[0][1].name for d in halves}
    readers = [d for d in fused.dispatches for name, info in d.reads if info.name in rows]
    assert {(d.kernel, d.define_values["T"]) for d in readers} == {("matmul_blocks", "half")}
    assert len(readers) == 5  # q, k, v, gate with up, down
    assert graph.infos[halves[0].writes[0][1].name].dtype == "float32"


@pytest.mark.parametrize("changes", [
    {"kinds": {"": "F32"}}, {"kinds": {"attn_v": "F32"}}])  # fmt: skip
def test_rows_that_a_product_reads_as_floats_stay_floats(changes):
    _, fused = decoding(tiny_model(width=256, hidden=512, layers=1, **changes), steps=64)
    norm = next(d for d in fused.dispatches if d.kernel == "normalize")
    assert norm.writes[0][1].dtype == "float32"
