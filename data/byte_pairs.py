"""Learn the merges of a byte BPE from words and their counts. Standard library and vklab only.

Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", 2016.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

from vklab.apps.llm.tokens.tokenizer import LETTERS

__all__ = ["learn"]

Pair = tuple[str, str]


def learn(words: Mapping[str, int], count: int) -> list[Pair]:
    """Return the merges, the most frequent pair first; of equal ones the first by alphabet.

    Args:
        words: how often each word stands in the text; no merge crosses the end of a word.
        count: the number of merges.
    """
    texts = [[LETTERS[byte] for byte in word.encode("utf-8")] for word in words]
    weights = list(words.values())
    pairs: collections.Counter[Pair] = collections.Counter()
    owners: dict[Pair, set[int]] = collections.defaultdict(set)

    def add(index: int, sign: int) -> None:
        for pair in zip(texts[index], texts[index][1:], strict=False):
            pairs[pair] += sign * weights[index]
            if sign > 0:
                owners[pair].add(index)

    for index in range(len(texts)):
        add(index, 1)
    merges = []
    for _ in range(count):
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for index in sorted(owners.pop(best)):
            add(index, -1)
            texts[index] = _merged(texts[index], best)
            add(index, 1)
        del pairs[best]
    return merges


def _merged(symbols: list[str], pair: Pair) -> list[str]:
    found: list[str] = []
    for symbol in symbols:
        if found and (found[-1], symbol) == pair:
            found[-1] += symbol
        else:
            found.append(symbol)
    return found
