"""tokenizer.model: tokens are those of SentencePiece, and what cannot be converted is refused.

`models/sentencepiece.model` is what sentencepiece 0.2.3 makes of 120,000 characters of the course's
text with Llama 2's options (BPE, byte_fallback, split_digits, text as it is); the .json beside it
has texts and the tokens that sentencepiece finds in them.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from support.language import hub_folders
from vklab.apps.llm.tokens.sentencepiece import read_pieces
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.apps.llm.weights.hugging_face import convert
from vklab.errors import ModelError

MODEL = Path(__file__).parents[1] / "models" / "sentencepiece.model"
KNOWN = json.loads(MODEL.with_suffix(".json").read_text("utf-8"))


@pytest.fixture
def hub(tmp_path):
    """Return a folder of a Llama model that has tokenizer.model and no tokenizer.json."""
    folder = tmp_path / "hub"
    hub_folders.write_folder(folder, "llama", vocab_size=490, bos_token_id=1, eos_token_id=2)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer.model").write_bytes(MODEL.read_bytes())
    return folder


def file_of(folder):
    convert(folder, folder.parent / "made.gguf")
    return read_gguf(folder.parent / "made.gguf")


def test_tokens_are_those_of_sentencepiece(hub):
    file = file_of(hub)
    found = Tokenizer(file)
    for text, tokens in KNOWN.items():
        assert found.encode(text) == [1, *tokens], text
        assert found.decode(tokens) == text
    types = file.metadata["tokenizer.ggml.token_type"]
    assert [*types[:4]] == [2, 3, 3, 4] and (types[4:260] == 6).all()  # <tool> is the user's
    assert (types[480:] == 5).all() and (types[260:480] == 1).all()
    assert found.ends == {2}


def test_tokens_that_a_folder_adds_are_known(hub):
    (hub / "added_tokens.json").write_text(json.dumps({"<|im_start|>": 480}))
    (hub / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "add_bos_token": False,
                "eos_token": "<end>",
                "added_tokens_decoder": {
                    "1": {"content": "<s>"},
                    "481": {"content": "<end>", "special": True},
                    "482": {"content": "word"},
                },
            }
        )
    )
    found = Tokenizer(file_of(hub))
    assert found.vocabulary.types[480:483] == (3, 3, 4) and found.vocabulary.tokens[1] == "<s>"
    assert found.encode("hello world") == KNOWN["hello world"]  # no <s> before it
    assert 482 in found.encode("a word") and found.vocabulary.eos == 481


def varint(number):
    return (bytes([number & 127 | 128]) + varint(number >> 7)) if number > 127 else bytes([number])


def field(number, value):
    """Return a field of a message: an integer, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text, score=-1.0, kind=1):
    return field(1, field(1, text) + varint(2 << 3 | 5) + struct.pack("<f", score) + field(3, kind))


BPE, AS_IT_IS = field(2, field(3, 2)), field(3, field(4, 0))
BAD = {
    "Unigram": (piece(b"a") + field(2, field(3, 1)) + AS_IT_IS, "the kind 'Unigram'; BPE can be"),
    "default": (piece(b"a") + AS_IT_IS, "the kind 'Unigram'"),
    "word": (piece(b"a") + field(2, field(3, 3)) + AS_IT_IS, "the kind 'Word'"),
    "9": (piece(b"a") + field(2, field(3, 9)) + AS_IT_IS, "the kind 9"),
    "nfkc": (piece(b"a") + BPE + field(3, field(1, b"nmt_nfkc") + field(2, b"xyz")), "nmt_nfkc"),
    "spaces": (piece(b"a") + BPE, "remove_extra_whitespaces"),
    "empty": (BPE + AS_IT_IS, "no pieces"),
    "type": (piece(b"a", kind=7) + BPE + AS_IT_IS, "that is none"),
    "text": (piece(b"\xff") + BPE + AS_IT_IS, "no UTF-8"),
    "cut off": (MODEL.read_bytes()[:-1000], "cut off"),
    "number": (field(2, 3), "a message is a number"),
    "kind": (b"\x0b", "field of kind 3"),
    "long": (b"\xff" * 11, "more than ten bytes"),
    "end": (b"\xff", "cut off"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_converted_is_refused_by_name(tmp_path, name):
    data, words = BAD[name]
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        read_pieces(path)
    assert words in str(caught.value)


def test_damaged_files_end_as_clear_errors(tmp_path):
    whole, random = MODEL.read_bytes(), np.random.default_rng(0)
    path, refused = tmp_path / "tokenizer.model", 0
    for _ in range(200):
        data = bytearray(whole[: random.integers(1, len(whole) + 1)])
        for place in random.integers(0, len(data), 3):
            data[place] = random.integers(0, 256)
        path.write_bytes(data)
        try:
            assert read_pieces(path).texts
        except ModelError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 100
