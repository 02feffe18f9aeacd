"""Read tokenizer.model, as SentencePiece stores a vocabulary: pieces, scores and types.

The file is a message of Protocol Buffers; the few fields that are needed are read here. Only BPE
on text as it is can be converted: what Llama 2, TinyLlama and their descendants have.
Source: SentencePiece, src/sentencepiece_model.proto (Apache 2.0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vklab.errors import ModelError

MOST_BYTES = 200_000_000
# Numbers of fields: of the model, of a piece, of the trainer, and of the normalizer.
PIECES, TRAINER, NORMALIZER = 1, 2, 3
TEXT, SCORE, TYPE = 1, 2, 3
MODEL_TYPE = 3
RULE, TABLE, DUMMY_PREFIX, EXTRA_SPACES = 1, 2, 3, 4
KINDS = {1: "Unigram", 2: "BPE", 3: "Word", 4: "Char"}
# Kinds of values on the wire.
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
Field = tuple[int, int | bytes]


@dataclass(frozen=True)
class Pieces:
    """Pieces of a vocabulary by number: text, score, and type as GGUF counts types.

    `adds_space` tells whether a text gets a space before its first word.
    """

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]
    adds_space: bool


def read_pieces(path: Path) -> Pieces:
    """Return the pieces of a tokenizer.model.

    Raises ModelError for a damaged file, and for a model other than BPE or one that changes text
    before it splits it.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ModelError(f"{path} has more than {MOST_BYTES} bytes")
    found: list[tuple[str, float, int]] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(path.read_bytes(), path):
        if number == PIECES:
            found.append(_piece(_message(value, path), path))
        elif number == TRAINER:
            trainer = _message(value, path)
        elif number == NORMALIZER:
            normalizer = _message(value, path)
    kind = trainer.get(MODEL_TYPE, 1)
    if kind != 2:
        raise ModelError(
            f"{path} has a SentencePiece model of the kind "
            f"{KINDS.get(kind if isinstance(kind, int) else 0, kind)!r:.40}; BPE can "
            "be converted"
        )
    if normalizer.get(TABLE):
        raise ModelError(
            f"{path} normalises text by {normalizer.get(RULE, b'')!r:.40}; only text "
            "that stays as it is can be converted"
        )
    if normalizer.get(EXTRA_SPACES, 1):
        raise ModelError(f"{path} removes spaces (remove_extra_whitespaces), which is not known")
    if not found:
        raise ModelError(f"{path} has no pieces")
    texts, scores, types = zip(*found, strict=True)
    return Pieces(texts, scores, types, bool(normalizer.get(DUMMY_PREFIX, 1)))


def _piece(fields: dict[int, int | bytes], path: Path) -> tuple[str, float, int]:
    """Return the text, score and type of a piece."""
    text, score, kind = fields.get(TEXT, b""), fields.get(SCORE, bytes(4)), fields.get(TYPE, 1)
    if (
        not isinstance(text, bytes)
        or not isinstance(score, bytes)
        or len(score) != 4
        or (not isinstance(kind, int) or not 1 <= kind <= 6)
    ):
        raise ModelError(f"{path} has a piece {text!r:.40} that is none")
    try:
        return text.decode("utf-8"), struct.unpack("<f", score)[0], kind
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} has a piece {text!r:.40} that is no UTF-8") from error


def _message(value: int | bytes, path: Path) -> dict[int, int | bytes]:
    """Return the fields of a message by number; of a repeated one, the last."""
    if not isinstance(value, bytes):
        raise ModelError(f"{path} is no SentencePiece model: a message is a number")
    return dict(_fields(value, path))


def _fields(data: bytes, path: Path) -> Iterator[Field]:
    """Yield number and value of each field: an integer, or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at, path)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(data, at, path)
            yield key >> 3, value
            continue
        if kind == LENGTH:
            size, at = _varint(data, at, path)
        elif kind in (FOUR_BYTES, EIGHT_BYTES):
            size = 4 if kind == FOUR_BYTES else 8
        else:
            raise ModelError(f"{path} is no SentencePiece model: field of kind {kind} at byte {at}")
        if size > len(data) - at:
            raise ModelError(
                f"{path} is cut off, or no SentencePiece model: a field of {size} "
                f"bytes, {len(data) - at} are left"
            )
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int, path: Path) -> tuple[int, int]:
    """Return an integer in groups of seven bits, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ModelError(f"{path} is cut off, or no SentencePiece model")
        value |= (data[at] & 127) << shift
        at += 1
        if not data[at - 1] & 128:
            return value, at
    raise ModelError(f"{path} is no SentencePiece model: an integer of more than ten bytes")
