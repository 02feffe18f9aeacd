"""`vklab.llm.load` on the device: text, chats that keep the cache, and files that are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import vklab
from support.language import llama_models
from support.language.vocabularies import byte_bpe
from vklab.apps import cli
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.errors import ModelError

WORDS = byte_bpe(eos_token_id=1)
COUNT = len(WORDS["tokenizer.ggml.tokens"])


def write(path, **more) -> GgufFile:
    """Write a tiny model with words, and return it."""
    made = llama_models.tiny_model(vocabulary=COUNT, **{"llama.context_length": 256})
    metadata = {**made.metadata, **WORDS, **more}
    write_gguf(path, metadata, made.tensors.values())
    return GgufFile(made.name, 3, metadata, made.tensors)


def likeliest(file, tokens, answer):
    """Return the likeliest token before each token of an answer and after it, in float64."""
    return llama_models.logits(file, [*tokens, *answer])[len(tokens) - 1 :].argmax(axis=-1).tolist()


@pytest.mark.full
def test_text_is_that_of_float64_and_a_chat_keeps_its_cache(tmp_path, device_index):
    file = write(tmp_path / "tiny.gguf")
    with vklab.llm.load(tmp_path / "tiny.gguf", device_index, 256, "F32") as model:
        prompt = model.tokens("hello world")
        answer = model.generate("hello world", 8)
        text = "".join(answer)
        best = likeliest(file, prompt, answer.tokens)
        assert answer.tokens == best[:-1] and text == model.tokenizer.decode(best[:-1])
        assert answer.statistics.reason == ("length" if len(answer.tokens) == 8 else "end")
        assert len(answer.tokens) == 8 or best[-1] == 1
        chat = model.chat(system="a", max_tokens=6)
        chat.ask("hello").read()
        second = chat.ask("and?")
        tokens = model.template.encode(chat.messages)
        second.read()
        assert second.statistics.kept_tokens > 20
        assert second.tokens and second.tokens == likeliest(file, tokens, second.tokens)[:-1]
        assert len(model.cached) == model.decoder.lengths[0]
        assert "positions" in model._repr_html_()
        broken = model.generate(list(tokens))
        next(broken)
        broken.close()
        assert broken.statistics.reason == "cancelled"
        assert len(model.cached) == model.decoder.lengths[0] >= len(tokens)
        model.decoder.rewind(10)  # a decoder may be used beside its model
        model.decoder.prompt([3, 4])
        assert model.generate(list(tokens), 6).read() == second.text
        again = model.generate(list(tokens), 6)
        assert again.read() == second.text and again.statistics.kept_tokens == len(tokens) - 1


@pytest.mark.full
def test_the_commands_run_a_file(tmp_path, device_index, capsys, monkeypatch):
    write(tmp_path / "tiny.gguf")
    line = [
        "generate",
        str(tmp_path / "tiny.gguf"),
        "-p",
        "hello",
        "-n",
        "5",
        "--device",
        str(device_index),
        "--context",
        "64",
        "--seed",
        "3",
        "--json",
    ]
    found = []
    for _ in range(2):
        assert cli.main(line) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["tokens"] == found[1]["tokens"] and found[0]["cache_bytes"] > 0
    assert found[0]["statistics"]["answer_tokens"] <= 5 and found[0]["context"] == 64


BAD_FILES = [
    ({"general.architecture": "mamba"}, "holds a 'mamba' model; graphs are built for llama"),
    ({"tokenizer.ggml.model": "rwkv"}, "tokenizer of the kind 'rwkv'"),
    ({"tokenizer.ggml.pre": "nix"}, "splits words as 'nix'"),
    ({"tokenizer.ggml.tokens": ("a",)}, "not 1 numbers"),
    ({"tokenizer.ggml.tokens": ("a",) * (COUNT + 1),
      "tokenizer.ggml.token_type": np.ones(COUNT + 1, np.int32)}, "logits for"),
    ({"tokenizer.ggml.eos_token_id": 10**6}, "but there are"),
    ({"tokenizer.chat_template": 3}, "not a string"),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "words"), BAD_FILES)
def test_a_file_that_cannot_be_loaded_is_refused_by_name(tmp_path, device_index, metadata, words):
    write(tmp_path / "tiny.gguf", **metadata)
    with pytest.raises(ModelError) as caught:
        vklab.llm.load(tmp_path / "tiny.gguf", device_index)
    assert words in str(caught.value)


def test_contexts_and_caches_that_are_none_are_refused(tmp_path, device_index):
    write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match="257"):
        vklab.llm.load(tmp_path / "tiny.gguf", device_index, 257)
    with pytest.raises(ModelError, match="F99"):
        vklab.llm.load(tmp_path / "tiny.gguf", device_index, cache="F99")
    with pytest.raises(FileNotFoundError):
        vklab.llm.load(tmp_path / "absent.gguf", device_index)
