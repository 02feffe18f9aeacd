"""Merge neighbouring symbols, best pair first: the inner loop of both kinds of tokenizer.

Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword
Units", 2016.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

Rank = Callable[[str, str], float | None]


def merged(symbols: Sequence[str], rank: Rank) -> list[str]:
    """Return the symbols after all merges; n symbols take about n log n steps.

    Args:
        symbols: the symbols, mostly characters.
        rank: the rank of a pair: the lowest is merged first, of equal ones the left; None for a
            pair that is never merged.
    """
    texts = list(symbols)
    after, before = list(range(1, len(texts) + 1)), list(range(-1, len(texts) - 1))
    heap: list[tuple[float, int, str, str]] = []

    def offer(left: int) -> None:
        right = after[left] if left >= 0 else len(texts)
        if right < len(texts):
            value = rank(texts[left], texts[right])
            if value is not None:
                heapq.heappush(heap, (value, left, texts[left], texts[right]))

    for index in range(len(texts)):
        offer(index)
    while heap:
        _, left, first, second = heapq.heappop(heap)
        right = after[left]
        if right == len(texts) or (texts[left], texts[right]) != (first, second):
            continue  # one of them has been merged since
        texts[left], texts[right] = first + second, ""
        after[left] = after[right]
        if after[left] < len(texts):
            before[after[left]] = left
        offer(before[left])
        offer(left)
    return [text for text in texts if text]
