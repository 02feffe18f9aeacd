"""Convert tokenizer.json or tokenizer.model of a folder to the metadata of a vocabulary in GGUF.

Source: llama.cpp, conversion/base.py and gguf-py/gguf/vocab.py (MIT).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.llm.tokens import hugging_face_steps as steps
from vklab.apps.llm.tokens import sentencepiece
from vklab.apps.llm.tokens.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER
from vklab.apps.llm.weights.gguf import Value
from vklab.apps.llm.weights.noted import read_json, require
from vklab.errors import ModelError

KEY = "tokenizer.ggml"
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# Added tokens that some folders forget to mark as special.
_LOOKS_SPECIAL = re.compile(r"<\|.*\|>|<｜.*｜>|<unused.*>|<pad>|<mask>")
MOST_TOKENS = 1 << 21
Entry = tuple[str, Any, int]  # text, number and type


def vocabulary_metadata(
    folder: Path, config: Mapping[str, Any], notes: list[str]
) -> dict[str, Value]:
    """Return the metadata of a folder's tokenizer: tokens, merges or scores, and special tokens.

    Args:
        folder: the folder; tokenizer_config.json and a template are read where they are there.
        config: the object of config.json.
        notes: gets a line for what GGUF has no name for.

    Raises FileNotFoundError, and ModelError for a tokenizer of an unknown kind.
    """
    more = folder / "tokenizer_config.json"
    settings = read_json(more) if more.exists() else {}
    path = folder / "tokenizer.json"
    if not path.exists() and (folder / "tokenizer.model").exists():
        found, tokens = _of_pieces(folder, settings, config)
        frame, begins = None, True
    else:
        given = read_json(path)
        found, tokens = _of_json(given, config, path)
        notes += steps.stripped(given)
        frame, begins = steps.frame(given, path), False
    found |= _special(settings, config, folder, tokens)
    if f"{KEY}.add_space_prefix" not in found:
        require(settings, "add_prefix_space", (False, None), str(more), "can be converted")
    elif isinstance(settings.get("add_prefix_space"), bool):
        found[f"{KEY}.add_space_prefix"] = settings["add_prefix_space"]
    for name, text, default in zip(("bos", "eos"), frame or ("", ""), (begins, False), strict=True):
        wanted = settings.get(f"add_{name}_token", default)
        adds = bool(text) if frame else wanted is True
        if f"add_{name}_token" in settings and wanted is not None and wanted is not adds:
            notes.append(
                f"{more.name} has add_{name}_token={wanted!r:.20}; {path.name} says "
                f"{adds}, and is converted"
            )
        number = found.get(f"{KEY}.{name}_token_id")
        if text and (not isinstance(number, int) or tokens[number] != text):
            raise ModelError(f"{path} adds {text!r:.40} to a text, which is not its {name}_token")
        found[f"{KEY}.add_{name}_token"] = adds and number is not None
    template = _template(folder, settings)
    if template:
        found["tokenizer.chat_template"] = template
    return found


def _of_json(
    given: Mapping[str, Any], config: Mapping[str, Any], path: Path
) -> tuple[dict[str, Value], list[str]]:
    """Return the metadata of tokenizer.json, and the texts of all tokens.

    Args:
        given: its object.
        config: the object of config.json.
        path: the file, for errors.
    """
    model = given.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        raise ModelError(f"{path} has a tokenizer of the kind {kind!r:.40}; BPE can be converted")
    merges = _merges(model.get("merges"), path)
    is_spm = bool(model.get("byte_fallback"))
    vocabulary, added = model.get("vocab"), given.get("added_tokens") or []
    if not isinstance(vocabulary, dict) or not isinstance(added, list):
        raise ModelError(f"{path} has no vocabulary, or added tokens that are no list")
    entries = [(text, number, NORMAL) for text, number in vocabulary.items()]
    tokens, types = _tokens([*entries, *_added(added, path)], config, path)
    found: dict[str, Value] = {f"{KEY}.model": "llama" if is_spm else "gpt2"}
    family = ""
    if is_spm:
        found |= _sentencepiece(given, tokens, types, merges, path)
    else:
        found[f"{KEY}.pre"] = family = steps.split_name(given, path)
        found[f"{KEY}.merges"] = tuple(f"{left} {right}" for left, right in merges)
    steps.require_plain(given, family, path)
    return found | _stored(tokens, types), tokens


def _of_pieces(
    folder: Path, settings: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[dict[str, Value], list[str]]:
    """Return the metadata of tokenizer.model, and the texts of all tokens.

    Args:
        folder: the folder, which may have added_tokens.json, too.
        settings: the object of tokenizer_config.json.
        config: the object of config.json.
    """
    path = folder / "tokenizer.model"
    pieces = sentencepiece.read_pieces(path)
    more = folder / "added_tokens.json"
    added = [
        {"content": text, "id": number}
        for text, number in (read_json(more) if more.exists() else {}).items()
    ]
    known = settings.get("added_tokens_decoder")
    for number, token in (known if isinstance(known, dict) else {}).items():
        if number.isdecimal() and int(number) >= len(pieces.texts) and isinstance(token, dict):
            added.append({**token, "id": int(number)})
    entries = [
        (text, number, kind)
        for number, (text, kind) in enumerate(zip(pieces.texts, pieces.types, strict=True))
    ]
    tokens, types = _tokens([*entries, *_added(added, path)], config, path)
    scores = np.zeros(len(tokens), np.float32)
    scores[: len(pieces.scores)] = pieces.scores
    return {
        f"{KEY}.model": "llama",
        f"{KEY}.pre": "default",
        f"{KEY}.scores": scores,
        f"{KEY}.add_space_prefix": pieces.adds_space,
        **_stored(tokens, types),
    }, tokens


def _stored(tokens: list[str], types: list[int]) -> dict[str, Value]:
    return {f"{KEY}.tokens": tuple(tokens), f"{KEY}.token_type": np.array(types, np.int32)}


def _added(tokens: list[Any], path: Path) -> list[Entry]:
    """Return the tokens that a folder adds to a vocabulary.

    Args:
        tokens: objects with content, id, and perhaps special.
        path: the file, for errors.
    """
    entries: list[Entry] = []
    for token in tokens:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise ModelError(f"{path} has the added token {token!r:.60}, which has no text")
        text, is_special = token["content"], token.get("special")
        kind = CONTROL if is_special or _LOOKS_SPECIAL.fullmatch(text) else USER
        entries.append((text, token.get("id"), kind))
    return entries


def _tokens(
    entries: list[Entry], config: Mapping[str, Any], path: Path
) -> tuple[list[str], list[int]]:
    """Return the texts and types of all tokens; numbers that no token has are unused.

    Args:
        entries: text, number and type of each token, added tokens last.
        config: the object of config.json, which has the number of tokens.
        path: the file, for errors.
    """
    if not all(type(number) is int and 0 <= number < MOST_TOKENS for _, number, _ in entries):
        raise ModelError(f"{path} has tokens whose numbers are not from 0 to {MOST_TOKENS}")
    count = max((number + 1 for _, number, _ in entries), default=0)
    wanted = config.get("vocab_size", count)
    if type(wanted) is not int or not count <= wanted <= MOST_TOKENS:
        raise ModelError(
            f"{path} has tokens up to number {count - 1}, but config.json has "
            f"vocab_size={wanted!r:.20}"
        )
    tokens, types = [f"[PAD{number}]" for number in range(wanted)], [UNUSED] * wanted
    for text, number, kind in entries:  # added tokens last: they know their types
        tokens[number], types[number] = text, kind
    return tokens, types


def _merges(found: Any, path: Path) -> list[tuple[str, str]]:
    """Return the merges as pairs; tokenizer.json has them as "left right" or as pairs."""
    if not isinstance(found, list):
        raise ModelError(f"{path} has no list of merges")
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in found]
    if not all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], str)
        for pair in pairs
    ):
        raise ModelError(f"{path} has merges that are not pairs of texts")
    # A space in a pair would end it; byte BPE writes a space as the letter 256 further.
    return [(left.replace(" ", "Ġ"), right.replace(" ", "Ġ")) for left, right in pairs]


def _sentencepiece(
    given: Mapping[str, Any], tokens: list[str], types: list[int], merges: list[tuple[str, str]],
    path: Path,
) -> dict[str, Value]:  # fmt: skip
    """Return the scores of a SentencePiece vocabulary, and set the types of its bytes.

    tokenizer.json has ranks of merges, SentencePiece scores of their results: minus the rank of a
    token's first merge gives the same order.

    Args:
        given: the object of tokenizer.json.
        tokens: the texts.
        types: the types, which are changed.
        merges: pairs, the first merged first.
        path: the file, for errors.
    """
    scores = np.full(len(tokens), -float(len(merges) + 1), np.float32)
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    unknown = (given["model"] or {}).get("unk_token")
    for number, text in enumerate(tokens):
        if _BYTE.fullmatch(text):
            types[number] = BYTE
        elif text == unknown:
            types[number] = UNKNOWN
        if types[number] == NORMAL and text in ranks:
            scores[number] = -ranks[text]
        elif types[number] != NORMAL:
            scores[number] = 0
    return {
        f"{KEY}.pre": "default",
        f"{KEY}.scores": scores,
        f"{KEY}.add_space_prefix": steps.adds_space(given, path),
    }


def _special(
    settings: Mapping[str, Any], config: Mapping[str, Any], folder: Path, tokens: list[str]
) -> dict[str, Value]:
    """Return the numbers of special tokens.

    Args:
        settings: the object of tokenizer_config.json.
        config: the object of config.json.
        folder: the folder, whose generation_config.json may name more ends of a turn.
        tokens: the texts of the tokens.
    """
    found: dict[str, Value] = {}
    numbers = {text: number for number, text in enumerate(tokens)}
    path = folder / "generation_config.json"
    more = read_json(path) if path.exists() else {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        text = settings.get(f"{name}_token")
        text = text.get("content") if isinstance(text, dict) else text
        ids = [numbers.get(text)] if isinstance(text, str) else []
        for source in (config, more):
            value = source.get(f"{name}_token_id")
            ids += value if isinstance(value, list) else [value]
        good = [n for n in dict.fromkeys(ids) if type(n) is int and 0 <= n < len(tokens)]
        if good:
            found[f"{KEY}.{key}_token_id"] = good[0]
        if name == "eos":
            found |= {
                f"{KEY}.{end}_token_id": number
                for end, number in zip(("eot", "eom"), good[1:], strict=False)
            }
    return found


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """Return the chat template of a folder: of a file of its own, or of tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"{path} is no UTF-8") from error
    found = settings.get("chat_template")
    if isinstance(found, list):  # several, by name
        found = next(
            (
                entry.get("template")
                for entry in found
                if isinstance(entry, dict) and entry.get("name") == "default"
            ),
            None,
        )
    return found if isinstance(found, str) else None
