"""Streams of text: split characters, stop strings across tokens, bytes that are no UTF-8."""

from __future__ import annotations

import random

import pytest

from support.language.vocabularies import byte_bpe, file_of, sentencepiece
from vklab.apps.llm.answer import TextStream
from vklab.apps.llm.tokens.tokenizer import LETTERS, Tokenizer
from vklab.errors import ModelError


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(file_of(byte_bpe()))


def pieces(tokenizer, data: bytes, stops=()):
    """Return what a stream returns for each byte, then at its end, and the stop string."""
    stream = TextStream(tokenizer, stops)
    numbers = tokenizer.vocabulary.numbers
    made = [stream.add(numbers[LETTERS[byte]]) for byte in data]
    return [*made, stream.end()], stream.stop


def test_a_character_appears_with_its_last_byte(tokenizer):
    made, stop = pieces(tokenizer, "é🦙!".encode())
    assert made == ["", "é", "", "", "", "🦙", "!", ""] and not stop


def test_a_stop_string_is_held_back_and_cut(tokenizer):
    made, stop = pieces(tokenizer, b"ab\nUser: x", ["\nUser:"])
    assert made == ["a", "b", *[""] * 9] and stop == "\nUser:"
    made, stop = pieces(tokenizer, b"a\nUs!", ["\nUser:"])
    assert made == ["a", "", "", "", "\nUs!", ""] and not stop
    made, stop = pieces(tokenizer, b"a\nUs", ["\nUser:"])
    assert "".join(made) == "a\nUs" and made[-1] == "\nUs" and not stop


def test_the_first_and_longest_stop_string_counts(tokenizer):
    numbers = tokenizer.vocabulary.numbers
    stream = TextStream(tokenizer, ["wor", " wo", " world"])
    assert stream.add(numbers["hello"]) == "hello"
    assert stream.add(numbers["Ġworld"]) == "" and stream.stop == " world"
    assert stream.add(numbers["hello"]) == "" and stream.end() == ""


def test_a_stop_string_may_be_cut_inside_a_character(tokenizer):
    made, stop = pieces(tokenizer, "a日本".encode(), ["本"])
    assert "".join(made) == "a日" and stop == "本"


def test_random_streams_are_the_text_up_to_the_first_stop(tokenizer):
    rng = random.Random(7)
    for _ in range(300):
        data = bytes(rng.choice(b"ab\xc3\xa9\xf0") for _ in range(rng.randrange(12)))
        stops = ["".join(rng.choice("abé") for _ in range(rng.randint(1, 4))) for _ in range(2)]
        text = data.decode("utf-8", "replace")
        heads = (text[:size] for size in range(len(text) + 1))
        head = next((h for h in heads if any(stop in h for stop in stops)), "")
        cut = min((head.index(stop) for stop in stops if stop in head), default=len(text))
        made, stop = pieces(tokenizer, data, stops)
        assert "".join(made) == text[:cut]
        assert bool(stop) == (cut < len(text))


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\xe6\x97", b"\xed\xa0\x80", b"\xf8a"])
def test_bytes_that_are_no_utf8_become_replacements(tokenizer, data):
    made, _ = pieces(tokenizer, data)
    assert "".join(made) == data.decode("utf-8", "replace") and "\ufffd" in "".join(made)


def test_sentencepiece_bytes_are_joined_too():
    tokenizer = Tokenizer(file_of(sentencepiece()))
    stream = TextStream(tokenizer, ["é"])
    numbers = tokenizer.vocabulary.numbers
    assert stream.add(numbers["ab"]) == "ab"
    assert stream.add(numbers["<0xC3>"]) == "" and stream.add(numbers["<0xA9>"]) == ""
    assert stream.stop == "é"


@pytest.mark.parametrize("stops", [[""], [3], ["a", None]])
def test_a_bad_stop_string_is_refused(tokenizer, stops):
    with pytest.raises(ModelError, match="stop strings"):
        TextStream(tokenizer, stops)
