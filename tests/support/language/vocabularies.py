"""Tiny vocabularies as metadata of GGUF files: byte BPE and SentencePiece."""

from __future__ import annotations

import numpy as np

from vklab.apps.llm.tokens.tokenizer import LETTERS
from vklab.apps.llm.weights.gguf import GgufFile

MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld")
SPECIAL = ("<|im_start|>", "<|im_end|>")


def byte_bpe(family: str = "smollm", **more) -> dict:
    """Return a vocabulary: two control tokens, a word of the user's, 256 bytes, and merges."""
    tokens = (*SPECIAL, "<tool>", *LETTERS, *(merge.replace(" ", "") for merge in MERGES))
    types = [3, 3, 4] + [1] * (len(tokens) - 3)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": family,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def sentencepiece(**more) -> dict:
    """Return a vocabulary: unknown, begin, end, 256 bytes, and a few words with scores."""
    words = ("▁", "a", "b", "ab", "▁ab", "ba", "c")
    tokens = ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words)
    types = [2, 3, 3] + [6] * 256 + [1] * len(words)
    scores = [0.0] * 259 + [-9.0, -9.0, -9.0, -2.0, -3.0, -1.0, -9.0]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def file_of(metadata: dict) -> GgufFile:
    """Return a file of metadata, without tensors."""
    return GgufFile("words.gguf", 3, metadata, {})
