"""Steps of tokenizer.json around the merges, as GGUF's kinds of tokenizers have them.

Reads normalizer, pre_tokenizer, post_processor, decoder and the options of the model; a step that
changes tokens or text otherwise is refused by name.
Source: Hugging Face, tokenizers; llama.cpp, conversion/base.py (MIT).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vklab.apps.llm.tokens import pretokenize
from vklab.apps.llm.weights.noted import require
from vklab.errors import ModelError

_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKED = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
# The pattern that splits words before byte BPE, and the name that llama.cpp has for it.
SPLITS = {
    rf"{_ENDINGS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}": "llama-bpe",
    rf"{_ENDINGS}|{_LETTERS}|\p{{N}}|{_REST}": "qwen2",
    rf"{_ENDINGS}|{_MARKED}|\p{{N}}|{_REST}".replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"):
        "qwen35",
}  # fmt: skip
SPACE = "\u2581"
# Options of the model, of steps and of added tokens, and the values that can be converted.
MODEL = {"dropout": (None, 0), "continuing_subword_prefix": (None, ""),
         "end_of_word_suffix": (None, "")}  # fmt: skip
STEPS: dict[str, dict[str, tuple[Any, ...]]] = {
    "Prepend": {"prepend": (SPACE,)}, "Metaspace": {"replacement": (SPACE,), "split": (False,)},
    "Replace": {"content": (SPACE,), "pattern": ({"String": " "},)},
    "Split": {"behavior": ("Isolated",), "invert": (False,)},
}  # fmt: skip
DECODERS = {True: ("Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"), False: ("ByteLevel",)}


def require_plain(given: Mapping[str, Any], family: str, path: Path) -> None:
    """Raise ModelError for options of the model and of steps that GGUF has no name for.

    Args:
        given: the object of tokenizer.json, which has a model.
        family: how words are split before byte BPE; "" for SentencePiece.
        path: the file, for errors.
    """
    whole = {} if family in pretokenize.WHOLE_WORDS else {"ignore_merges": (False, None)}
    for key, plain in {**MODEL, **whole}.items():
        require(given["model"], key, plain, f"{path}: the model", "can be converted")
    for step in _steps(given, "decoder", "decoders"):
        require(step, "type", DECODERS[not family], f"{path}: the decoder", "can be converted")
    for key in ("normalizer", "pre_tokenizer"):
        for step in _steps(given, key, f"{key.replace('_', '')}s"):
            for name, plain in STEPS.get(str(step.get("type")), {}).items():
                require(step, name, plain, f"{path}: {step['type']}", "can be converted")


def _steps(given: Mapping[str, Any], name: str, inner: str) -> list[dict[str, Any]]:
    """Return the steps of a normalizer or pre-tokenizer: one, or those of a sequence."""
    found = given.get(name)
    if not isinstance(found, dict):
        return []
    steps = found.get(inner) if found.get("type") == "Sequence" else [found]
    return [step for step in steps or () if isinstance(step, dict)]


def adds_space(given: Mapping[str, Any], path: Path) -> bool:
    """Tell whether a text gets a space before its first word; ModelError for unknown steps."""
    adds = False
    for step in (
        *_steps(given, "normalizer", "normalizers"),
        *_steps(given, "pre_tokenizer", "pretokenizers"),
    ):
        kind = step.get("type")
        if kind == "Prepend":
            adds = True
        elif kind == "Metaspace":
            adds |= step.get("prepend_scheme", "always") != "never"
        elif kind != "Replace":
            raise ModelError(
                f"{path} prepares text by {kind!r:.40}; Prepend, Replace and "
                "Metaspace can be converted"
            )
    return adds


def split_name(given: Mapping[str, Any], path: Path) -> str:
    """Return the name of the way a tokenizer splits words; ModelError for an unknown one."""
    for step in _steps(given, "normalizer", "normalizers"):
        if step.get("type") != "NFC":  # llama.cpp leaves it out, too
            raise ModelError(
                f"{path} normalises text by {step.get('type')!r:.40}; only NFC can be left out"
            )
    steps = _steps(given, "pre_tokenizer", "pretokenizers")
    kinds = [step.get("type") for step in steps]
    if kinds[-1:] == ["ByteLevel"] and not steps[-1].get("add_prefix_space"):
        splits = steps[-1].get("use_regex", True)
        if kinds == ["ByteLevel"] and splits:
            return "gpt-2"
        if kinds == ["Digits", "ByteLevel"] and splits and steps[0].get("individual_digits"):
            return "smollm"
        pattern = (steps[0].get("pattern") or {}).get("Regex") if len(steps) == 2 else None
        if kinds[0] == "Split" and pattern in SPLITS and not splits:
            return SPLITS[pattern]
    raise ModelError(
        f"{path} splits words by {given.get('pre_tokenizer')!r:.200}; gpt-2, smollm, "
        f"{', '.join(SPLITS.values())} can be converted"
    )


def frame(given: Mapping[str, Any], path: Path) -> tuple[str, str] | None:
    """Return the special tokens that begin and end a text, "" for none; None if no step tells.

    Raises ModelError for a step that adds others.
    """
    found = None
    for step in _steps(given, "post_processor", "processors"):
        if step.get("type") == "ByteLevel":
            found = found or ("", "")
            continue
        parts = step.get("single") if step.get("type") == "TemplateProcessing" else None
        parts = parts if isinstance(parts, list) else []
        names = [name for name in map(_added, parts) if name is not None]
        at = names.index("") if "" in names else 2
        if len(names) < len(parts) or at > 1 or len(names) > at + 2 or "" in names[at + 1 :]:
            raise ModelError(
                f"{path} adds tokens by {step!r:.200}; one before a text and one "
                "behind it can be converted"
            )
        found = ("".join(names[:at]), "".join(names[at + 1 :]))
    return found


def _added(part: Any) -> str | None:
    """Return the token that a part of a template is, "" for the text; None for another part."""
    if not isinstance(part, dict):
        return None
    token = part.get("SpecialToken")
    name = token.get("id") if isinstance(token, dict) else None if token else ""
    return name if isinstance(name, str) else None


def stripped(given: Mapping[str, Any]) -> list[str]:
    """Return a line if added tokens take spaces beside them, which tokens of GGUF do not."""
    names = [
        str(token.get("content"))
        for token in given.get("added_tokens") or ()
        if any(token.get(side) for side in ("lstrip", "rstrip", "single_word"))
    ]
    return (
        [
            f"spaces and letters beside {', '.join(map(repr, names[:6]))} stay as they are: GGUF "
            "has no lstrip, rstrip and single_word"
        ]
        if names
        else []
    )
