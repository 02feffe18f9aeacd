"""Vocabulary of a GGUF file: tokens, their types, scores and merges, checked as a whole.

Source: ggml, docs/gguf.md; llama.cpp, src/llama-vocab.cpp (MIT).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vklab.apps.llm.tokens import pretokenize
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.errors import ModelError

# GGUF's types of tokens.
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
# Tokens that end a turn in one family or another, whatever else a file says.
END_TEXTS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<end_of_turn>", "<|endoftext|>",
    "<|eom_id|>", "<EOT>", "_<EOT>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>",
})  # fmt: skip
KEY = "tokenizer.ggml"


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens of a model by number; `is_spm` tells SentencePiece from byte BPE.

    `bos` and `eos` begin and end a text; `ends` are all tokens that end a turn.
    """

    is_spm: bool
    family: str
    tokens: tuple[str, ...] = field(repr=False)
    types: tuple[int, ...] = field(repr=False)
    scores: np.ndarray | None = field(repr=False)
    ranks: dict[str, int] = field(repr=False)
    numbers: dict[str, int] = field(repr=False)
    bos: int | None
    eos: int | None
    unknown: int | None
    ends: frozenset[int]
    add_bos: bool
    add_eos: bool
    add_space: bool

    @classmethod
    def of(cls, file: GgufFile) -> Vocabulary:
        """Return the vocabulary of a file; ModelError if it is missing, damaged or unknown."""
        model = file.text(f"{KEY}.model")
        if model not in ("llama", "gpt2"):
            raise ModelError(
                f"{file.name} has a tokenizer of the kind {model!r}; 'llama' and 'gpt2' are known"
            )
        is_spm = model == "llama"
        family = "llama" if is_spm else file.text(f"{KEY}.pre", "default") or "default"
        if not is_spm and family not in pretokenize.PATTERNS:
            raise ModelError(
                f"{file.name} splits words as {family!r:.60}; known are "
                f"{', '.join(pretokenize.PATTERNS)}"
            )
        tokens = _texts(file, f"{KEY}.tokens")
        if not tokens:
            raise ModelError(f"{file.name}: {KEY}.tokens is missing or empty")
        types = _numbers(file, f"{KEY}.token_type", "iu", len(tokens))
        scores = _numbers(file, f"{KEY}.scores", "fiu", len(tokens))
        if is_spm and scores is None:
            raise ModelError(f"{file.name}: {KEY}.scores is missing")
        merges = _texts(file, f"{KEY}.merges")
        numbers = {text: number for number, text in enumerate(tokens)}
        default = (1, 2, 0) if is_spm else (11, 11, None)
        bos, eos, unknown = (
            _token(file, f"{name}_token_id", len(tokens), usual)
            for name, usual in zip(("bos", "eos", "unknown"), default, strict=True)
        )
        more = (_token(file, f"{name}_token_id", len(tokens), None) for name in ("eot", "eom"))
        ends = {numbers[text] for text in END_TEXTS & numbers.keys()} | {eos, *more}
        kinds = [NORMAL] * len(tokens) if types is None else [int(kind) for kind in types]
        for number in ends - {None}:
            kinds[number or 0] = CONTROL  # some files store the end of a turn as a plain word
        return cls(
            is_spm,
            family,
            tokens,
            tuple(kinds),
            scores,
            {merge: rank for rank, merge in reversed(list(enumerate(merges)))},
            numbers,
            bos,
            eos,
            unknown,
            frozenset(number for number in ends if number is not None),
            _flag(file, "add_bos_token", is_spm or family in pretokenize.WHOLE_WORDS),
            _flag(file, "add_eos_token", False),
            is_spm and _flag(file, "add_space_prefix", True),
        )


def _texts(file: GgufFile, key: str) -> tuple[str, ...]:
    """Return an array of strings; an empty one of any type is stored where there are none."""
    found = file.metadata.get(key, ())
    if len(found) == 0 if isinstance(found, np.ndarray) else False:
        return ()
    if not isinstance(found, tuple):
        raise ModelError(f"{file.name}: {key} is {found!r:.60}, not an array of strings")
    return found


def _numbers(file: GgufFile, key: str, kinds: str, count: int) -> np.ndarray | None:
    """Return an array of `count` numbers of some kinds of dtype; None if there is none."""
    found = file.metadata.get(key)
    if found is None:
        return None
    if not isinstance(found, np.ndarray) or found.dtype.kind not in kinds or len(found) != count:
        raise ModelError(f"{file.name}: {key} is {found!r:.60}, not {count} numbers")
    if not np.isfinite(found).all():
        raise ModelError(f"{file.name}: {key} holds numbers that are not finite")
    return found


def _token(file: GgufFile, name: str, count: int, default: int | None) -> int | None:
    """Return the number of a special token; a default out of range is none."""
    if f"{KEY}.{name}" not in file.metadata:
        return default if default is not None and default < count else None
    found = file.number(f"{KEY}.{name}")
    if not isinstance(found, int) or not 0 <= found < count:
        raise ModelError(f"{file.name}: {KEY}.{name} is {found}, but there are {count} tokens")
    return found


def _flag(file: GgufFile, name: str, default: bool) -> bool:
    found = file.metadata.get(f"{KEY}.{name}", default)
    if not isinstance(found, bool):
        raise ModelError(f"{file.name}: {KEY}.{name} is {found!r:.60}, not true or false")
    return found
