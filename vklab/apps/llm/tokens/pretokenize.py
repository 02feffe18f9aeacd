"""Split text into words before byte BPE, by the patterns of each family of models.

The patterns of a family are applied in order: each splits what the ones before have left whole.
Matches are words, and so is the text between them.
Source: llama.cpp, src/llama-vocab.cpp (MIT).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable

# Classes \p{..} and \s stand inside brackets only: `_expanded` replaces them by ranges.
_ENDINGS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_GPT2 = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|"
    r"[\s]+(?![^\s])"
)
_LINES = r" ?[^\s\p{L}\p{N}]+[\r\n]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+"
_LLAMA3 = rf"(?:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}]+|[\p{{N}}]{{1,3}}|{_LINES}"
_QWEN2 = rf"(?:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}]+|[\p{{N}}]|{_LINES}"
_QWEN35 = rf"(?:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|[\p{{N}}]|" + _LINES.replace(
    r"\p{L}", r"\p{L}\p{M}"
)
_DIGITS, _CHINESE = r"[\p{N}]", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-"
    "\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90"
    "-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-"
    "\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_POINTS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"

# Patterns by the name that a file gives as `tokenizer.ggml.pre`.
PATTERNS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "dbrx", "smaug-bpe"),
                    (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"), (_QWEN2,)),
    "qwen35": (_QWEN35,),
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "jais", "phi-2", "exaone4"), (_GPT2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone",
                     "minerva-7b"), (_DIGITS, _GPT2)),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "deepseek-llm": ("[\r\n]", rf"[\s]?[{_CASED}]+", rf"[\s]?[{_POINTS}]+", r"[\s]+$",
                     _CHINESE, r"[\p{N}]+"),
    "deepseek-coder": ("[\r\n]", r"[\s]?[\p{L}]+", r"[\s]?[\p{P}]+", _CHINESE, _DIGITS),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"[\p{N}]+", "[0-9][0-9][0-9]"),
}  # fmt: skip
# Families that take a word of the vocabulary as one token, and begin a text with a special one.
WHOLE_WORDS = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3"})

# Assigned characters end here, except for variation selectors.
_CODES = (range(0x32400), range(0xE0000, 0xE0200))
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


@functools.cache
def _ranges(kind: str) -> str:
    """Return the characters of a general category, by its first letter, as ranges of a class."""
    runs: list[list[int]] = []
    for code in (code for codes in _CODES for code in codes):
        if unicodedata.category(chr(code))[0] != kind:
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in runs)


def _expanded(pattern: str) -> str:
    text = re.sub(r"\\p\{(\w)\}", lambda match: _ranges(match[1]), pattern)
    return text.replace(r"\s", _SPACE)


@functools.cache
def patterns_of(family: str) -> tuple[re.Pattern[str], ...]:
    """Return the compiled patterns of a family; KeyError for an unknown one."""
    return tuple(re.compile(_expanded(pattern)) for pattern in PATTERNS[family])


def split(text: str, patterns: Iterable[re.Pattern[str]]) -> list[str]:
    """Return the words of a text; joined they are the text."""
    words = [text] if text else []
    for pattern in patterns:
        words = [part for word in words for part in _parts(word, pattern)]
    return words


def _parts(word: str, pattern: re.Pattern[str]) -> list[str]:
    parts, end = [], 0
    for match in pattern.finditer(word):
        parts += [word[end : match.start()], match[0]]
        end = match.end()
    return [part for part in (*parts, word[end:]) if part]
