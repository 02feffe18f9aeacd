"""Passages of six novels as tokens: what the text classifier is trained and judged on.

A passage is 32 words in a row. Every eighth run of 20 passages is held out. Pure; imports
NumPy only.
"""

from __future__ import annotations

import collections
import lzma
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vklab.errors import SetupError

FILE = "novels.txt.xz"
NOVELS = ("Emma", "Mansfield Park", "Northanger Abbey", "Persuasion", "Pride and Prejudice",
          "Sense and Sensibility")  # fmt: skip
SEPARATOR = "\f\n"  # between two novels, in the order of NOVELS
LENGTH = 32  # words of a passage
RUN = 20  # passages in a row on the same side, so that few neighbours are on both
HELD_OUT = 8  # every eighth run
PADDING, UNKNOWN = 0, 1
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
# Titles would give the novel away: the text starts at its first chapter.
_START = re.compile(r"^chapter\b", re.IGNORECASE | re.MULTILINE)
_HEADING = re.compile(
    r"^(?:chapter|volume) [ivxl0-9]+\.?$|^(?:the end|finis)$|^A NOTE ON THE TEXT.*",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Passage:
    """Some words of a novel; `label` is the novel's index in NOVELS."""

    text: str
    label: int


@dataclass(frozen=True)
class Passages:
    """All passages: those to train on, and those held out."""

    training: tuple[Passage, ...]
    held_out: tuple[Passage, ...]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without figures and punctuation."""
    return _WORD.findall(text.lower().replace("_", " "))


def passages(path: Path) -> Passages:
    """Read the novels, and cut them into passages.

    Raises SetupError if the file is not there.
    """
    if not path.is_file():
        raise SetupError(
            f"{path} is not there: the data are in the source tree only",
            "clone the repository and run from it",
        )
    novels = lzma.decompress(path.read_bytes()).decode("utf-8").split(SEPARATOR)
    training: list[Passage] = []
    held_out: list[Passage] = []
    for label, novel in enumerate(novels):
        for index, text in enumerate(_cut(novel)):
            side = held_out if index // RUN % HELD_OUT == 0 else training
            side.append(Passage(text, label))
    return Passages(tuple(training), tuple(held_out))


def _cut(novel: str) -> Iterable[str]:
    first = _START.search(novel)
    body = words(_HEADING.sub("", novel[first.start() if first else 0 :]))
    for start in range(0, len(body) - LENGTH + 1, LENGTH):
        yield " ".join(body[start : start + LENGTH])


def vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """Return the `size` most frequent words, behind the names of padding and unknown words."""
    counts = collections.Counter(word for text in texts for word in words(text))
    frequent = sorted(counts, key=lambda word: (-counts[word], word))
    return ["(padding)", "(unknown)", *frequent[: size - 2]]


def tokens(texts: Sequence[str], vocabulary: Sequence[str]) -> NDArray[np.int32]:
    """Return int32 [texts, LENGTH]: the index of each word; short texts are padded, long ones cut.

    Args:
        texts: the texts.
        vocabulary: the words by index.
    """
    index = {word: number for number, word in enumerate(vocabulary)}
    rows = np.full((len(texts), LENGTH), PADDING, np.int32)
    for row, text in zip(rows, texts, strict=True):
        known = [index.get(word, UNKNOWN) for word in words(text)[:LENGTH]]
        row[: len(known)] = known
    return rows
