"""Accesses of 32 lanes to a tile of 32 x 32 words, and the transactions that they need on 32 banks.

Element `32 * row + column` of the tile lies in some word of shared memory; word `w` is in bank
`w % 32`. An access takes as many transactions as the most words that it needs of one bank.
Visited by lab 07b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["PICTURE", "accesses_of", "lined_up", "obvious", "of_each", "total"]

SIDE = 32  # rows, columns and banks
# A family of accesses: ("block", rows, columns), ("wrapped", slope), ("xor", five bits in order).
Family = tuple[Any, ...]
PICTURE: tuple[Family, ...] = (("block", 1, 32), ("block", 32, 1), ("wrapped", 1), ("wrapped", -1),
                               ("block", 8, 4), ("block", 4, 8))  # fmt: skip
_EVERY = np.arange(SIDE)


def _shuffled(order: Sequence[int]) -> np.ndarray:
    """Return the numbers 0 to 31 with their bits in another order: bit i becomes bit order[i]."""
    return sum(((_EVERY >> bit & 1) << place for bit, place in enumerate(order)), 0 * _EVERY)


def _family(kind: str, *facts: int) -> np.ndarray:
    """Return the 32 accesses of a family: rows of 32 elements."""
    if kind == "block":
        rows, columns = facts
        tile = np.arange(SIDE * SIDE).reshape(SIDE // rows, rows, SIDE // columns, columns)
        return tile.swapaxes(1, 2).reshape(-1, SIDE)
    if kind == "wrapped":
        return SIDE * _EVERY + (_EVERY[:, None] + facts[0] * _EVERY) % SIDE
    return SIDE * _EVERY + (_EVERY[:, None] ^ _shuffled(facts))


def accesses_of(families: Sequence[Family]) -> np.ndarray:
    """Return the accesses of some families as rows of 32 elements."""
    return np.concatenate([_family(*family) for family in families]).astype(np.int16)


def of_each(table: np.ndarray, accesses: np.ndarray) -> np.ndarray:
    """Return the transactions of each access.

    Args:
        table: word of each element.
        accesses: rows of 32 different elements.
    """
    count = len(accesses)
    banks = np.asarray(table).reshape(-1)[accesses] % SIDE + SIDE * np.arange(count)[:, None]
    return np.bincount(banks.reshape(-1), minlength=SIDE * count).reshape(count, SIDE).max(1)


def total(table: np.ndarray, accesses: np.ndarray) -> int:
    """Return the transactions of all accesses.

    Args:
        table: word of each element.
        accesses: rows of 32 different elements.
    """
    return int(of_each(table, accesses).sum())


def lined_up(bank: np.ndarray) -> np.ndarray:
    """Return a table of words: each row of the tile keeps its 32 words, in these banks.

    Args:
        bank: bank of each element, of shape 32 x 32.
    """
    return (SIDE * _EVERY[:, None] + bank % SIDE).reshape(-1)


def obvious(accesses: np.ndarray) -> dict[str, int]:
    """Return the transactions of the obvious tables, by name."""
    row, column = _EVERY[:, None], _EVERY
    tables = {
        "row by row": lined_up(column + 0 * row),
        "XOR": lined_up(column ^ row),
        "XOR of reversed bits": lined_up(column ^ _shuffled((4, 3, 2, 1, 0))[:, None]),
        **{f"skew by {k}": lined_up(column + k * row) for k in range(1, SIDE)},
    }
    return {name: total(table, accesses) for name, table in tables.items()}
