"""Parts of a GGUF file that nothing reads: used, refused by name, known, or named once."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import vklab
from support.language import gpt2_models, llama_models, trained_model
from support.language.vocabularies import byte_bpe, sentencepiece
from vklab.apps import cli
from vklab.apps.llm.graphs.models import model_graph, unused_entries
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.errors import ModelError, UnusedWarning

FILE = llama_models.tiny_model()
SHIPPED = str(trained_model.MODEL)


def changed(file=FILE, tensors=(), **metadata):
    """Return a file with more entries, `__` for the architecture, and copies of its first norm."""
    kind = file.metadata["general.architecture"]
    norm = file.tensors["blk.0.attn_norm.weight"]
    named = {key.replace("__", f"{kind}."): value for key, value in metadata.items()}
    more = {name: replace(norm, name=name) for name in tensors}
    return replace(file, metadata={**file.metadata, **named}, tensors={**file.tensors, **more})


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_a_rotary_factor_scales_linearly_whatever_its_form(kind):
    file = llama_models.tiny_model(kind)
    angles = np.arange(64)[:, None] * 10000.0 ** (-np.arange(8) / 8) / 4
    for form in ({"type": "linear", "factor": 4.0}, {"factor": 4.0}, {"factor": 4}):
        graph = model_graph(changed(file, **{f"__rope.scaling.{k}": v for k, v in form.items()}))
        assert np.allclose(graph.initializers["cos"].constant, np.cos(angles), atol=1e-6)
    older = {"__rope.scale_linear": 4.0}
    for form in (older, {**older, "__rope.scaling.type": "linear"}):
        graph = model_graph(changed(file, **form))
        assert np.allclose(graph.initializers["sin"].constant, np.sin(angles), atol=1e-6)
    plain = model_graph(file).initializers["cos"].constant
    for form in ({**older, "__rope.scaling.type": "none"}, {**older, "__rope.scaling.factor": 0.0}):
        assert (model_graph(changed(file, **form)).initializers["cos"].constant == plain).all()


def test_a_factor_of_attention_scales_queries_and_keys():
    plain, scaled = (
        model_graph(changed(**{"__rope.scaling.attn_factor": value})).initializers
        for value in (1.0, 1.5)
    )
    for name in ("cos", "sin"):
        assert np.allclose(scaled[name].constant, 1.5 * plain[name].constant)


REFUSED = [
    ({"__attention.causal": False}, "llama.attention.causal=False; only True can be"),
    ({"__attention.clamp_kqv": 8.0}, "clamp_kqv=8.0; only 0 can be computed"),
    ({"__logit_scale": 0.25}, "logit_scale=0.25; only 0 or 1"),
    ({"__final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    ({"__expert_count": 8, "__expert_used_count": 2}, "llama.expert_count=8"),
    ({"__rope.dimension_sections": np.array([16, 24, 24, 0], np.int32)}, "sections=array"),
    ({"__rope.scaling.type": "longrope"}, "by 'longrope'"),
    ({"__rope.scaling.attn_factor": 0.0}, "factor of attention 0.0"),
    ({"__rope.scaling.factor": float("inf")}, "scaling factor inf"),
    ({"__rope.scaling.factor": float("nan")}, "scaling factor nan"),
    ({"__attention.scale": 0.5}, "attention.scale' is 0.5; vklab has only 0.25, for heads of 16"),
    ({"__attention.sliding_window": 32}, "choose a context of 32 at most, not 64"),
    ({"general.type": "adapter"}, "general.type='adapter'; only 'model' is a model in one piece"),
    ({"split.count": 3}, "split.count=3.*llama-gguf-split --merge"),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "words"), REFUSED)
def test_an_entry_that_changes_the_numbers_is_refused_by_name(metadata, words):
    with pytest.raises(ModelError, match=words):
        model_graph(changed(**metadata))


PLAIN = {
    "__attention.causal": True, "__attention.clamp_kqv": 0.0, "__logit_scale": 1.0,
    "__expert_count": 0, "__expert_used_count": 0, "__rope.dimension_sections":
    np.zeros(4, np.int32), "__attention.scale": 0.25, "__attention.sliding_window": 64,
    "__attention.sliding_window_pattern": np.array([True, False]), "general.type": "model",
    "general.quantization_version": 2, "general.file_type": 7, "general.sampling.temp": 0.6,
    "__rope.scaling.original_context_length": 64, "__rope.scaling.finetuned": True,
    "__vocab_size": 45, "__tensor_data_layout": "Meta AI original pth", "split.count": 0,
}  # fmt: skip


@pytest.mark.parametrize("file", [FILE, gpt2_models.tiny_gpt2()])
def test_entries_that_change_nothing_are_known(file):
    entries = (
        {**PLAIN, "__attention.sliding_window": 0, "__attention.head_count_kv": 4}
        if ("gpt2.block_count" in file.metadata)
        else PLAIN
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain, found = model_graph(file), model_graph(changed(file, **entries))
    assert [*found.nodes] == [*plain.nodes]
    assert all(each.reason for each in unused_entries(changed(file, **entries)))


@pytest.mark.parametrize("name", [
    "blk.0.attn_norm.bias", "blk.1.attn_sinks", "blk.0.attn_q.scale", "blk.2.attn_norm.weight",
    "blk.0.ffn_gate_exps.weight", "output.bias", "rope_factors_long.weight",
    "token_embd_norm.weight",
])  # fmt: skip
def test_a_tensor_of_the_model_that_no_layer_reads_is_refused_by_name(name):
    with pytest.raises(ModelError, match=f"no layer of a 'llama' model reads {name}"):
        model_graph(changed(tensors=[name]))


def test_biases_are_read_and_frequencies_of_a_model_without_rotation_refused():
    model_graph(llama_models.tiny_model("qwen2", tied=False, divisors=8))
    with pytest.raises(ModelError, match=r"'gpt2' model reads rope_freqs\.weight"):
        model_graph(changed(gpt2_models.tiny_gpt2(), ["rope_freqs.weight"]))
    with pytest.raises(ModelError, match="head_count_kv is 2; GPT-2 has 4"):
        model_graph(changed(gpt2_models.tiny_gpt2(), **{"__attention.head_count_kv": 2}))


@pytest.mark.parametrize("make", [llama_models.tiny_model, gpt2_models.tiny_gpt2])
def test_a_size_may_be_an_array_of_one_number_for_each_layer(make):
    file = make()
    heads = file.metadata[f"{file.text('general.architecture')}.attention.head_count"]
    kv_heads = file.metadata.get("llama.attention.head_count_kv", heads)
    layers = int(file.number(f"{file.text('general.architecture')}.block_count"))
    arrays = {
        "__attention.head_count": np.full(layers, heads, np.int32),
        "__attention.head_count_kv": np.full(layers, kv_heads, np.int32),
    }
    assert [*model_graph(changed(file, **arrays)).nodes] == [*model_graph(file).nodes]
    for wrong in ([kv_heads, 2 * kv_heads], [kv_heads] * (layers + 1), [], [1.5] * layers):
        with pytest.raises(ModelError, match="head_count_kv' is .*one size for all|not a number"):
            model_graph(changed(file, **{"__attention.head_count_kv": np.array(wrong)}))


def test_what_is_unknown_is_named_by_one_warning():
    more = {f"__new_{number}": number for number in range(9)}
    file = changed(tensors=["v.patch.weight"], **{**more, "general.license": "mit"})
    with pytest.warns(UnusedWarning, match=r"nothing reads llama\.new_0 \(0\), .* and 4 more"):
        model_graph(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_graph(file)
    named = [each for each in unused_entries(file) if not each.reason]
    assert named[-1] == vklab.llm.unused.Unused("v.patch.weight", "F32[64]", "")
    assert [each.name for each in named[:-1]] == [f"llama.new_{number}" for number in range(9)]


@pytest.mark.parametrize("words", [byte_bpe(), sentencepiece()])
def test_entries_of_a_tokenizer_count_once_it_is_read(words):
    known = {
        "padding_token_id": 0,
        "fim_pre_token_id": 1,
        "pre": "smollm",
        "add_sep_token": False,
        "precompiled_charsmap": np.zeros(0, np.uint8),
    }
    file = changed(
        **{
            **words,
            **{f"tokenizer.ggml.{key}": known[key] for key in known},
            "tokenizer.ggml.remove_extra_whitespaces": True,
            "tokenizer.chat_template.tool_use": "x",
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_graph(file)
    Tokenizer(file)
    with pytest.warns(UnusedWarning, match=r"reads tokenizer\.ggml\.remove_\w+ \(True\); results"):
        model_graph(file)


def test_the_command_lists_what_is_not_read(tmp_path, capsys):
    assert cli.main(["gguf", SHIPPED, "--unused"]) == 0
    assert "describes the file" in capsys.readouterr().out
    path = tmp_path / "m.gguf"
    file = changed(**{"__new": 3, "general.license": "mit"})
    write_gguf(path, file.metadata, file.tensors.values())
    assert cli.main(["gguf", str(path), "--unused", "--json"]) == 1
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert facts["unused"][0] == {"name": "llama.new", "value": "3", "reason": ""}
    assert "general.license" in [each["name"] for each in facts["unused"]] and not said.err
    assert cli.main(["gguf", str(path), "-o", str(tmp_path / "m.onnx")]) == 0
    assert capsys.readouterr().err.startswith("vklab: m.gguf: nothing reads llama.new (3); ")
    assert cli.main(["gguf", str(tmp_path), "--unused"]) == 2
    assert cli.main(["gguf", str(path)]) == 2


def test_the_shipped_model_gives_no_warning():
    file = read_gguf(SHIPPED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Tokenizer(file)
        model_graph(file)
