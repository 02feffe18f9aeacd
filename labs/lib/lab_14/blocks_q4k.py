"""Blocks of Q4_K: random ones, and their numbers by the places of their bits.

Source: ggml's block structures, GGUF version 3. Visited by lab 14b.
"""

from __future__ import annotations

import numpy as np

__all__ = ["BLOCK", "WORDS", "draw_blocks", "values_of"]

BLOCK, WORDS = 144, 36  # bytes and words of a block of 256 numbers


def draw_blocks(random: np.random.Generator, count: int) -> np.ndarray:
    """Return random blocks one after the other, uint8 [144 count]; their scales are finite.

    Args:
        random: the source of numbers.
        count: how many blocks.
    """
    rows = random.integers(0, 256, (count, BLOCK), np.uint8)
    rows[:, :4] = random.uniform(0.01, 0.09, (count, 2)).astype("<f2").view(np.uint8)
    rows[:, 4:16] |= 0x41  # no scale is 0, and the highest bits are not all 0
    return rows.reshape(-1)


def values_of(row: np.ndarray) -> np.ndarray:
    """Return the numbers of a row of blocks, float32 [256 blocks].

    Args:
        row: uint8 [144 blocks].
    """
    found = []
    for block in np.asarray(row).reshape(-1, BLOCK):
        step, least = block[:4].copy().view("<f2").astype(np.float32)
        bits = np.unpackbits(block[4:16], bitorder="little").reshape(12, 8)
        codes = np.unpackbits(block[16:], bitorder="little").reshape(4, 32, 2, 4)
        for group in range(8):
            first, low = group % 4, 4 * (group // 4)
            numbers = []
            for half, place in ((0, first), (1, 4 + first)):
                six = bits[place, :6]
                if low:
                    six = [*bits[8 + first, 4 * half : 4 * half + 4], *bits[place, 6:]]
                numbers.append(np.float32(np.dot(six, [1, 2, 4, 8, 16, 32])))
            fours = codes[group // 2, :, group % 2] @ np.array([1, 2, 4, 8])
            with np.errstate(invalid="ignore", over="ignore"):
                scaled = step * (numbers[0] * fours.astype(np.float32))
                found.append(scaled - least * numbers[1])
    return np.concatenate(found)
