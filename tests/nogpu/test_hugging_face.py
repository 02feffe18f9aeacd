"""Folders of Hugging Face become GGUF: equal logits, equal tokens, and errors by name."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest

from support.language import gpt2_models, hub_folders, llama_models
from support.language.vocabularies import byte_bpe, file_of, sentencepiece
from support.runs.tiers import seeds
from vklab.apps import cli
from vklab.apps.llm.graphs.models import model_graph
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.apps.llm.weights.hugging_face import convert
from vklab.apps.quantization import blocks
from vklab.errors import ModelError

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
TEXTS = ["hello world", "  a\tb\n\n c", "don't 12345 WE'LL", "Größe 日本語 🦙", "<tool><|im_end|>"]


def made(folder, *how, **more):
    """Return the GGUF file of a folder."""
    path = folder.parent / "made.gguf"
    notes = convert(folder, path, *how, **more)
    return read_gguf(path), notes


@pytest.mark.parametrize("kind", seeds("llama", "qwen2", "qwen3", "gpt2"))
def test_logits_are_those_of_the_folder(tmp_path, kind):
    model = hub_folders.write_folder(tmp_path / "hub", kind, parts=2 if kind == "qwen2" else 1)
    file, notes = made(tmp_path / "hub", "F32")
    assert not notes and file.text("general.architecture") == kind
    reference = gpt2_models if kind == "gpt2" else llama_models
    expected = reference.logits(model, TOKENS)
    found = reference.logits(file, TOKENS)
    assert abs(found - expected).max() < 1e-12 * abs(expected).max()
    model_graph(file)  # every tensor and all metadata that a graph needs are there
    assert gguf.GGUFReader(tmp_path / "made.gguf").get_field("general.file_type").parts[-1] == [0]


@pytest.mark.parametrize("block_type", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_matrices_have_the_format_that_is_asked_for(tmp_path, block_type):
    model = hub_folders.write_folder(tmp_path / "hub", "qwen2")
    seen = []
    file, notes = made(
        tmp_path / "hub",
        block_type,
        quantize=blocks.quantize,
        progress=lambda *step: seen.append(step),
    )
    assert not notes
    count = len(model.tensors)
    assert [step[:2] for step in seen] == [(number, count) for number in range(count + 1)]
    for name, tensor in file.tensors.items():
        kind = block_type if len(tensor.shape) == 2 else "F32"
        exact = model.tensors[name]
        values = blocks.dequantize(exact.block_type, exact.data).reshape(exact.shape)
        assert tensor.block_type == kind and tensor.shape == exact.shape
        assert (tensor.data == blocks.quantize(kind, values)).all()


def test_rows_that_are_no_whole_blocks_get_another_format(tmp_path):
    hub_folders.write_folder(tmp_path / "hub", "qwen2")
    file, notes = made(tmp_path / "hub", "Q4_K", quantize=blocks.quantize)
    assert {t.block_type for t in file.tensors.values()} == {"Q8_0", "F32"}
    assert "blk.0.ffn_down.weight is Q8_0: its rows have 96 elements" in notes


def test_llama_31_gets_a_divisor_for_each_frequency(tmp_path):
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    hub_folders.write_folder(tmp_path / "hub", "llama", rope_scaling=scaling, rope_theta=100.0)
    file, _ = made(tmp_path / "hub", "F32")
    found = blocks.dequantize("F32", file.tensor("rope_freqs.weight").data)
    lengths = 2 * np.pi * 100.0 ** (np.arange(8) / 8)
    assert found[lengths < 8].tolist() == [1.0] and set(found[lengths > 32]) == {8.0}
    between = (lengths > 8) & (lengths < 32)
    smooth = (32 / lengths[between] - 1) / 3
    assert np.allclose(found[between], 1 / ((1 - smooth) / 8 + smooth)) and between.sum() == 2
    assert file.number("llama.rope.freq_base") == 100


def test_a_linear_scale_and_the_newer_names_are_kept(tmp_path):
    hub_folders.write_folder(
        tmp_path / "hub",
        "llama",
        rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5},
    )
    file, _ = made(tmp_path / "hub")
    assert file.text("llama.rope.scaling.type") == "linear"
    assert file.number("llama.rope.scaling.factor") == 4
    assert file.number("llama.rope.freq_base") == 5e5


@pytest.mark.parametrize("family", ["gpt-2", "smollm", "qwen2", "llama-bpe", "llama"])
def test_tokens_are_those_of_the_same_vocabulary(tmp_path, family):
    hub_folders.write_folder(tmp_path / "hub", "qwen2")
    hub_folders.write_tokenizer(tmp_path / "hub", family, chat_template="{{ bos_token }}")
    file, _ = made(tmp_path / "hub")
    known = sentencepiece() if family == "llama" else byte_bpe(family, add_bos_token=False)
    found, expected = Tokenizer(file), Tokenizer(file_of(known))
    for text in (*TEXTS, "abab cab aba"):
        assert found.encode(text) == expected.encode(text)
        assert found.encode(text, parse_special=True) == expected.encode(text, parse_special=True)
    assert found.ends >= expected.ends and found.vocabulary.bos == expected.vocabulary.bos
    count = len(known["tokenizer.ggml.tokens"])
    assert file.metadata["tokenizer.ggml.tokens"][count:] == tuple(
        f"[PAD{number}]" for number in range(count, 300)
    )
    assert set(file.metadata["tokenizer.ggml.token_type"][count:]) == {5}
    assert file.text("tokenizer.chat_template") == "{{ bos_token }}"


def test_ends_and_templates_are_found_where_folders_have_them(tmp_path):
    hub = tmp_path / "hub"
    hub_folders.write_folder(hub, "qwen2", bos_token_id=0, eos_token_id=[1, 7])
    (hub / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8]}))
    (hub / "chat_template.jinja").write_text("of the file")
    file, _ = made(hub)
    assert Tokenizer(file).ends == {1, 7, 8}
    assert file.text("tokenizer.chat_template") == "of the file"
    (hub / "chat_template.jinja").unlink()
    hub_folders.write_tokenizer(
        hub,
        "qwen2",
        chat_template=[
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "yes"},
        ],
    )
    assert made(hub)[0].text("tokenizer.chat_template") == "yes"


def change(folder, name, **entries):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **entries}), "utf-8")


BAD_CONFIGS = [
    ({"architectures": ["MambaForCausalLM"]}, "holds a 'MambaForCausalLM' model; LlamaForCausalLM"),
    ({"architectures": None}, "holds a None model"),
    ({"hidden_size": "wide"}, "hidden_size='wide', no size"),
    ({"num_hidden_layers": -1}, "no size"),
    ({"hidden_act": "gelu"}, "hidden_act='gelu'; only 'silu'"),
    ({"use_sliding_window": True}, "use_sliding_window=True"),
    ({"rope_scaling": {"type": "yarn"}}, "by 'yarn'; 'linear'"),
    ({"rms_norm_eps": None}, "rms_norm_eps=None, no number above 0"),
    ({"num_attention_heads": 3, "architectures": ["LlamaForCausalLM"]}, "not 3 heads of 21"),
    ({"rope_scaling": {"factor": 4.0}}, "of no type has factor=4.0; only 1.0"),
    ({"rope_scaling": [4.0]}, "rope_scaling=[4.0], no object"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "each of full_attention"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types=['full_attention'"),
    ({"quantization_config": {"bits": 4}}, "quantization_config={'bits': 4}; only None"),
    ({"num_hidden_layers": 1}, "'model.layers.1.input_layernorm.weight', but config.json has 1"),
    ({"vocab_size": 3}, "vocab_size=3"),
    ({"vocab_size": 1 << 40}, "vocab_size=1099511627776"),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "words"), BAD_CONFIGS)
def test_a_model_that_cannot_be_converted_is_refused_by_name(tmp_path, entries, words):
    hub_folders.write_folder(tmp_path / "hub", "qwen2", **entries)
    with pytest.raises(ModelError) as caught:
        made(tmp_path / "hub")
    assert words in str(caught.value) and not (tmp_path / "made.gguf").exists()


BAD_TOKENIZERS = [
    ({"model": {"type": "Unigram"}}, "of the kind 'Unigram'"),
    ({"model": None}, "of the kind None"),
    ({"model": {"merges": [["a"]], "vocab": {}}}, "not pairs of texts"),
    ({"model": {"merges": 3, "vocab": {}}}, "no list of merges"),
    ({"model": {"merges": [], "vocab": {"a": -1}}}, "numbers are not from 0"),
    ({"model": {"merges": [], "vocab": {"a": "b"}}}, "numbers are not from 0"),
    ({"model": {"merges": [], "vocab": []}}, "no vocabulary"),
    ({"added_tokens": [{"id": 3}]}, "which has no text"),
    ({"pre_tokenizer": {"type": "Whitespace"}}, "splits words by {'type': 'Whitespace'}"),
    ({"pre_tokenizer": None}, "splits words by None"),
    ({"normalizer": {"type": "Lowercase"}}, "normalises text by 'Lowercase'"),
    ({"decoder": {"type": "WordPiece"}}, "the decoder has type='WordPiece'; only 'ByteLevel'"),
    ({"post_processor": {"type": "TemplateProcessing", "single": [3, {"Sequence": {}}]}}, "adds"),
    ({"post_processor": {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": 3}}, {"Sequence": {}}]}}, "adds tokens by"),
    ({"post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2]}}, "adds tokens by"),
    ({"post_processor": {"type": "TemplateProcessing", "single": [
        {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<tool>"}}]}}, "not its eos_token"),
    ({"model": {"merges": [], "vocab": {}, "end_of_word_suffix": "</w>"}}, "suffix='</w>'"),
    ({"model": {"merges": [], "vocab": {}, "ignore_merges": True}}, "ignore_merges=True"),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "words"), BAD_TOKENIZERS)
def test_a_tokenizer_that_cannot_be_converted_is_refused_by_name(tmp_path, entries, words):
    hub_folders.write_folder(tmp_path / "hub", "qwen2")
    change(tmp_path / "hub", "tokenizer.json", **entries)
    with pytest.raises(ModelError) as caught:
        made(tmp_path / "hub")
    assert words in str(caught.value)


@pytest.mark.parametrize(("step", "words"), [
    ({"type": "Replace", "pattern": {"String": "\n"}, "content": "▁"}, "pattern={'String':"),
    ({"type": "Prepend", "prepend": "x"}, "prepend='x'"),
    ({"type": "Metaspace", "replacement": "_"}, "replacement='_'"),
])  # fmt: skip
def test_a_step_of_sentencepiece_that_gguf_lacks_is_refused_by_name(tmp_path, step, words):
    hub_folders.write_folder(tmp_path / "hub", "llama")
    hub_folders.write_tokenizer(tmp_path / "hub", "llama")
    change(tmp_path / "hub", "tokenizer.json", normalizer=step)
    with pytest.raises(ModelError, match=words):
        made(tmp_path / "hub")


def test_tokens_that_a_tokenizer_adds_and_spaces_are_kept(tmp_path):
    hub = tmp_path / "hub"
    hub_folders.write_folder(hub, "llama")
    hub_folders.write_tokenizer(hub, "llama", add_prefix_space=False)
    change(
        hub,
        "tokenizer.json",
        post_processor={
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>"}},
                {"Sequence": {"id": "A"}},
                {"SpecialToken": {"id": "</s>"}},
            ],
        },
    )
    file, notes = made(hub)
    assert Tokenizer(file).encode("a") == [1, file.metadata["tokenizer.ggml.tokens"].index("a"), 2]
    assert not notes and file.metadata["tokenizer.ggml.add_space_prefix"] is False
    hub_folders.write_tokenizer(hub, "llama", add_bos_token=False)
    assert made(hub)[1] == (
        "tokenizer_config.json has add_bos_token=False; tokenizer.json says True, and is converted",
    )
    hub_folders.write_tokenizer(hub, "qwen2", add_prefix_space=True)
    with pytest.raises(ModelError, match=r"tokenizer_config\.json has add_prefix_space=True"):
        made(hub)


def test_what_a_conversion_leaves_out_is_told(tmp_path):
    hub = tmp_path / "hub"
    hub_folders.write_folder(
        hub,
        "llama",
        logits_scaling=8.0,
        attention_bias=False,
        torch_dtype="bfloat16",
        sliding_window=None,
        use_cache=True,
        rope_scaling={"type": "linear", "factor": 2, "x": 1},
    )
    tokens = hub_folders.byte_level("qwen2")["added_tokens"]
    change(hub, "tokenizer.json", added_tokens=[*tokens[:2], {**tokens[2], "lstrip": True}])
    weights = {
        name: tensor
        for name, tensor in llama_models.tiny_model(
            "qwen2", kinds={"": "F32"}, vocabulary=300
        ).tensors.items()
        if "bias" not in name
    }
    hub_folders.write_weights(
        hub,
        {
            hub_folders.hub_name(name, "llama"): blocks.dequantize("F32", tensor.data).reshape(
                tensor.shape
            )
            for name, tensor in weights.items()
        },
    )
    _, notes = made(hub)
    assert notes == (
        "spaces and letters beside '<tool>' stay as they are: GGUF has no lstrip, rstrip and "
        "single_word",
        "there is no lm_head.weight, so the embedding makes the logits",
        "config.json has logits_scaling=8.0, x=1, which nothing uses",
    )


def test_folders_that_are_damaged_are_refused_by_name(tmp_path):
    hub = tmp_path / "hub"
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        made(hub)
    hub_folders.write_folder(hub, "qwen2", parts=2)
    with pytest.raises(ModelError, match="choose F32"):
        made(hub, "Q9")
    with pytest.raises(ModelError, match="Q8_0 needs a function"):
        made(hub, "Q8_0")
    index = hub / "model.safetensors.index.json"
    for names in ({"a": "../secret"}, {"a": 3}, [], {"a": ".."}):
        index.write_text(json.dumps({"weight_map": names}))
        with pytest.raises(ModelError, match="weight_map"):
            made(hub)
    index.write_text(json.dumps({"weight_map": {"a": "absent.safetensors"}}))
    with pytest.raises(FileNotFoundError, match=r"absent\.safetensors"):
        made(hub)
    index.write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}))
    with pytest.raises(ModelError, match="names 1 tensors that its files lack, first 'a'"):
        made(hub)
    index.unlink()
    (hub / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="save_pretrained"):
        made(hub)
    hub_folders.write_weights(hub, {"model.rotary": np.zeros((2, 2))})
    with pytest.raises(ModelError, match=r"'model\.rotary', which qwen2 models lack"):
        made(hub)
    for text in ("{", "[]", "\ud800".encode("utf-8", "surrogatepass")):
        (hub / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ModelError, match=r"config\.json"):
            made(hub)


def test_the_command_writes_a_file_and_says_what_it_did(tmp_path, capsys):
    hub_folders.write_folder(tmp_path / "hub", "llama")
    path = tmp_path / "model.gguf"
    line = ["gguf", str(tmp_path / "hub"), "-o", str(path)]
    assert cli.main([*line, "--type", "Q4_K"]) == 0
    said = capsys.readouterr()
    assert "llama, 27 tensors" in said.out and "is Q8_0" in said.err
    assert cli.main([*line, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["type"] == "F16" and facts["size_bytes"] == path.stat().st_size
    assert facts["tensors"] == len(read_gguf(path).tensors) and facts["notes"] == []
    assert cli.main([*line, "--type", "Q9"]) == 2
    assert "choose F32" in capsys.readouterr().err
