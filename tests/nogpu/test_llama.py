"""Graphs of Llama-like models: what is in them, and files that no graph can be made of."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from support.language import gpt2_models, llama_models, weight_files
from support.runs.tiers import is_long
from vklab.apps.llm.graphs.llama import LlamaSizes, llama_graph
from vklab.apps.llm.graphs.models import model_graph
from vklab.apps.llm.weights.gguf import parse
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.errors import ModelError

FILE = llama_models.tiny_model()


def test_a_graph_has_a_layers_nodes_and_its_cache():
    graph = llama_graph(FILE)
    counts = Counter(node.op_type for node in graph.nodes)
    assert counts["MatMulBlocks"] == 2 * 7 + 1 and counts["GatherBlocks"] == 1
    assert counts["RMSNormalization"] == 2 * 2 + 1 and counts["Attention"] == 2
    assert graph.outputs == ("logits", "key.0", "value.0", "key.1", "value.1")
    names = [info.name for info in graph.inputs]
    assert names == [
        "tokens",
        "positions",
        "past_key.0",
        "past_value.0",
        "past_key.1",
        "past_value.1",
    ]
    words = graph.initializers["blk.0.ffn_up.weight"].constant
    assert np.shares_memory(words, FILE.tensors["blk.0.ffn_up.weight"].data)


@pytest.mark.parametrize(("change", "message"), [
    ({"general.architecture": "mamba"}, "holds a 'mamba' model; graphs are built for llama, qwen2"),
    ({"general.architecture": 3}, "'general.architecture' is 3, not a string"),
    ({"llama.block_count": None}, "metadata 'llama.block_count' is missing"),
    ({"llama.block_count": 10**9}, "promises 1000000000 layers, the file has 20 tensors"),
    ({"llama.block_count": 3}, "has 20 tensors, but no 'blk.2.attn_norm.weight'"),
    ({"llama.block_count": 0}, "'llama.block_count' is 0, no size"),
    ({"llama.block_count": 2.5}, "'llama.block_count' is 2.5, no size"),
    ({"llama.attention.head_count": 3}, "3 heads, 2 of keys and values"),
    ({"llama.attention.head_count": 8}, "attn_k.weight: .*must have 16 rows of 64"),
    ({"llama.attention.key_length": 1 << 31}, "must have 8589934592 rows of 64"),
    ({"llama.attention.value_length": 8}, "keys have 16 elements, values 8"),
    ({"llama.rope.dimension_count": 32}, "32 of 16 elements rotated"),
    ({"llama.rope.scaling.type": "yarn"}, "scales rotary embeddings by 'yarn'; 'linear' is known"),
    ({"llama.rope.freq_base": -1.0}, "frequency base -1.0"),
    ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "epsilon nan"),
    ({"llama.embedding_length": 32}, "token_embd.weight: .*must have some rows of 32"),
])  # fmt: skip
def test_metadata_that_fits_no_model_is_refused(change, message):
    kept = {key: value for key, value in {**FILE.metadata, **change}.items() if value is not None}
    with pytest.raises(ModelError, match=message):
        llama_graph(replace(FILE, metadata=kept))


@pytest.mark.parametrize(("change", "message"), [
    ({"gpt2.attention.head_count": 7}, "2 layers of 64 elements, 7 heads"),
    ({"gpt2.block_count": 1 << 40}, "1099511627776 layers .* do not fit 28 tensors"),
    ({"gpt2.context_length": 64}, "position_embd.weight: .*must have 64 rows of 64"),
    ({"gpt2.attention.layer_norm_epsilon": 2.0}, "epsilon 2.0"),
    ({"general.architecture": "mamba"}, "a 'mamba' model; graphs .* llama, qwen2, qwen3, gpt2"),
])  # fmt: skip
def test_metadata_that_fits_no_gpt2_is_refused(change, message):
    file = gpt2_models.tiny_gpt2()
    with pytest.raises(ModelError, match=message):
        model_graph(replace(file, metadata={**file.metadata, **change}))
    with pytest.raises(ModelError, match="trained for 32 positions, not for 33"):
        model_graph(file, 33)


def test_every_missing_tensor_is_named():
    for name in FILE.tensors:
        rest = {key: tensor for key, tensor in FILE.tensors.items() if key != name}
        with pytest.raises(ModelError, match=f"has 19 tensors, but no '{name}'"):
            llama_graph(replace(FILE, tensors=rest))


def test_tensors_of_a_wrong_shape_or_format_are_refused():
    norm, up = FILE.tensors["output_norm.weight"], FILE.tensors["blk.1.ffn_up.weight"]
    for name, tensor, message in (
        ("output_norm.weight", up, r"must be F32 or F16 of shape \(64,\)"),
        ("blk.1.ffn_up.weight", norm, "must have 96 rows of 64"),
        ("blk.1.ffn_gate.weight", FILE.tensors["blk.1.attn_q.weight"], "must have 64 rows of 64"),
    ):
        changed = replace(FILE, tensors={**FILE.tensors, name: tensor})
        with pytest.raises(ModelError, match=message):
            llama_graph(changed)


@pytest.mark.parametrize("context", [0, -1, 65, 1 << 40])
def test_a_context_beyond_the_models_is_refused(context):
    with pytest.raises(ModelError, match=f"a context of {context} is not among 1 to 64"):
        llama_graph(FILE, context)


def test_absurd_sizes_allocate_nothing():
    absurd = {
        **FILE.metadata,
        "llama.context_length": 1 << 62,
        "llama.attention.key_length": 1 << 40,
    }
    tracemalloc.start()
    try:
        with pytest.raises(ModelError):
            llama_graph(replace(FILE, metadata=absurd), 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_damaged_files_give_a_graph_or_a_model_error(tmp_path):
    path = tmp_path / "tiny.gguf"
    small = llama_models.tiny_model(layers=1, vocabulary=5)
    write_gguf(path, small.metadata, small.tensors.values())
    data = path.read_bytes()
    head, graphs = len(data) - small.size_bytes, 0
    for seed in range(3000 if is_long() else 60):
        try:
            part = head if seed % 2 else len(data)
            llama_graph(parse(weight_files.damaged(data, seed, part)))
            graphs += 1
        except ModelError:
            continue
    assert graphs


def test_sizes_are_those_of_the_metadata():
    sizes = LlamaSizes.of(FILE)
    assert (sizes.layers, sizes.width, sizes.heads, sizes.kv_heads, sizes.head) == (2, 64, 4, 2, 16)
    assert sizes.rotated == 16 and sizes.context == 64 and sizes.base == 10000
