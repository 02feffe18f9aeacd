"""Tokenizers on tiny vocabularies; equality with llama.cpp where its files are at hand."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy as np
import pytest

from support.language.vocabularies import byte_bpe, file_of, sentencepiece
from vklab.apps.llm.tokens import pretokenize, tokenizer
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.errors import ModelError

TEXTS = ["hello world", "  a\tb\n\n c", "don't 1234", "Größe 日本語 🦙", "\x00\x7f", "", " "]
# A folder with llama.cpp's models/ggml-vocab-*.gguf and their .inp and .out files.
PAIRS = os.environ.get("VKLAB_TEST_VOCABULARIES", "")


def words(tokenizer, text, **how):
    """Return the texts of the tokens of a text."""
    return [tokenizer.vocabulary.tokens[token] for token in tokenizer.encode(text, **how)]


def test_byte_bpe_merges_by_rank():
    tokenizer = Tokenizer(file_of(byte_bpe()))
    assert words(tokenizer, "hello world") == ["hello", "Ġworld"]
    assert words(tokenizer, "hell world") == ["hell", "Ġworld"]
    assert words(tokenizer, "é") == ["Ã", "©"]


def test_sentencepiece_merges_by_score_and_falls_back_to_bytes():
    tokenizer = Tokenizer(file_of(sentencepiece()))
    assert words(tokenizer, "ab") == ["<s>", "▁ab"]
    assert words(tokenizer, "aba", add_special=False) == ["▁", "a", "ba"]  # "ba" scores highest
    assert words(tokenizer, "cé", add_special=False) == ["▁", "c", "<0xC3>", "<0xA9>"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("metadata", [byte_bpe(), byte_bpe("llama-bpe"), sentencepiece()])
def test_text_comes_back(metadata, text):
    tokenizer = Tokenizer(file_of(metadata))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_control_tokens_are_read_only_on_demand():
    tokenizer = Tokenizer(file_of(byte_bpe()))
    text = "<|im_start|>a<|im_end|><tool>"
    assert 0 not in tokenizer.encode(text)
    assert tokenizer.encode(text)[-1] == 2  # a word of the user's is always one token
    found = tokenizer.encode(text, parse_special=True)
    assert found == [0, tokenizer.vocabulary.numbers["a"], 1, 2]
    assert tokenizer.decode(found) == "a<tool>"
    assert tokenizer.decode(found, special=True) == text


@pytest.mark.parametrize("metadata", [byte_bpe(), byte_bpe("llama-bpe"), sentencepiece()])
def test_no_merge_of_plain_text_ends_in_a_control_token(metadata):
    name = "hello" if "tokenizer.ggml.merges" in metadata else "▁ab"
    number = metadata["tokenizer.ggml.tokens"].index(name)
    text = name.replace("▁", "")
    assert number in Tokenizer(file_of(metadata)).encode(text)
    types = metadata["tokenizer.ggml.token_type"].copy()
    types[number] = 3
    tokenizer = Tokenizer(file_of({**metadata, "tokenizer.ggml.token_type": types}))
    assert number not in tokenizer.encode(text) and tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(name, False, parse_special=True)[-1] == number


def test_a_text_begins_and_ends_as_the_file_says():
    tokenizer = Tokenizer(file_of(byte_bpe(add_bos_token=True, add_eos_token=True)))
    assert tokenizer.encode("") == [0, 1]
    assert tokenizer.encode("", add_special=False) == []
    assert tokenizer.ends == {1}
    assert Tokenizer(file_of(sentencepiece())).encode("") == [1]


def test_a_stream_holds_back_half_a_character():
    tokenizer = Tokenizer(file_of(byte_bpe()))
    stream = tokenizer.stream()
    assert [stream.add(token) for token in tokenizer.encode("é!")] == ["", "é", "!"]
    assert stream.add(tokenizer.encode("é")[0]) == ""
    assert stream.end() == "\ufffd"


def test_families_split_numbers_differently():
    parts = {
        family: pretokenize.split("a 12345", pretokenize.patterns_of(family))
        for family in ("gpt-2", "smollm", "llama-bpe", "qwen2")
    }
    assert parts == {
        "gpt-2": ["a", " 12345"],
        "smollm": ["a", " ", "1", "2", "3", "4", "5"],
        "llama-bpe": ["a", " ", "123", "45"],
        "qwen2": ["a", " ", "1", "2", "3", "4", "5"],
    }


@pytest.mark.parametrize("family", ["default", "falcon", "llama-bpe", "qwen35", "deepseek-llm"])
def test_words_joined_are_the_text(family):
    text = "I'll  say:\n\n «Größe» 12345 日本語 ▁🦙\u00a0\t\r\n  "
    assert "".join(pretokenize.split(text, pretokenize.patterns_of(family))) == text


def test_merging_is_the_plain_rule():
    ranks = {"ab": 3, "bc": 1, "abc": 0, "ca": 2, "aa": 1, "bcbc": 4}
    rng = random.Random(5)
    for _ in range(50):
        symbols = rng.choices("abc", k=rng.randrange(12))
        assert tokenizer.merged(symbols, lambda a, b: ranks.get(a + b)) == plain(symbols, ranks)


def plain(symbols, ranks):
    """Return merged symbols, by a search of all pairs before each merge."""
    symbols = list(symbols)
    while True:
        pairs = [
            (ranks[a + b], index)
            for index, (a, b) in enumerate(zip(symbols, symbols[1:], strict=False))
            if a + b in ranks
        ]
        if not pairs:
            return symbols
        index = min(pairs)[1]
        symbols[index : index + 2] = [symbols[index] + symbols[index + 1]]


def test_a_long_word_does_not_take_quadratic_time():
    ranks = {"a" * 2**power: power for power in range(1, 12)}
    started = time.process_time()
    tokenizer.merged("a" * 20_000, lambda a, b: ranks.get(a + b) if len(a) == len(b) else None)
    assert time.process_time() - started < 2


DAMAGED = {
    "no tokens": ({"tokens": ()}, "missing or empty"),
    "tokens are numbers": ({"tokens": np.arange(3)}, "not an array of strings"),
    "unknown family": ({"pre": "klingon"}, "klingon"),
    "unknown kind": ({"model": "bert"}, "'bert'"),
    "types too few": ({"token_type": np.zeros(2, np.int32)}, "numbers"),
    "scores not finite": ({"scores": np.full(268, np.nan, np.float32)}, "not finite"),
    "begin out of range": ({"bos_token_id": 10**6}, "there are 268 tokens"),
    "flag is text": ({"add_bos_token": "yes"}, "not true or false"),
    "merges are numbers": ({"merges": np.arange(3)}, "not an array of strings"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_vocabulary_is_refused(case):
    changed, words = DAMAGED[case]
    with pytest.raises(ModelError, match=words):
        Tokenizer(file_of(byte_bpe(**changed)))


def test_text_and_tokens_are_checked():
    tokenizer = Tokenizer(file_of(byte_bpe()))
    with pytest.raises(ModelError, match="no valid Unicode at character 1"):
        tokenizer.encode("a\ud800")
    with pytest.raises(ModelError, match="token 999 is not among the 268"):
        tokenizer.decode([999])
    with pytest.raises(ModelError, match="token -1"):
        tokenizer.decode([-1])


@pytest.mark.slow
@pytest.mark.skipif(not PAIRS, reason="VKLAB_TEST_VOCABULARIES names no folder of llama.cpp")
def test_tokens_are_those_of_llama_cpp():
    compared, divider = 0, "\n__ggml_vocab_test__\n"
    for given in sorted(Path(PAIRS).glob("*.gguf.inp")):
        file = read_gguf(given.with_suffix(""))
        if file.text("tokenizer.ggml.model") not in ("llama", "gpt2"):
            continue
        tokenizer = Tokenizer(file)
        texts = given.read_bytes().decode("utf-8").split(divider)
        lines = given.with_suffix(".out").read_text("utf-8").split("\n")
        for text, line in zip(texts, lines, strict=True):
            wanted = [int(number) for number in line.split()]
            assert tokenizer.encode(text, add_special=False) == wanted, (given.name, text)
            compared += 1
    assert compared >= 47
