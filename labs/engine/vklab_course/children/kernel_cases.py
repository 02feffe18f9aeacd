"""Inputs and parts of exercises whose answers are kernels, shared by the labs."""

from __future__ import annotations

import numpy as np

__all__ = ["INSIDE", "SHAPE", "VALUES", "odd_count", "rooms", "signed_numbers"]

VALUES = ("each y[i] has its value", 1)
INSIDE = ("only elements that exist are read and written", 1)
SHAPE = ("each invocation does its own share of the work", 2)


def signed_numbers(count: int, random: np.random.Generator) -> np.ndarray:
    """Return values of both signs between 0.05 and 4, none of which follows from its neighbours."""
    signs = random.choice(np.array([-1, 1]), count)
    return (random.uniform(0.05, 4, count) * signs).astype(np.float32)


def odd_count(random: np.random.Generator, size: int) -> int:
    """Draw a count that no workgroup size divides.

    Args:
        random: the source of numbers.
        size: elements of a workgroup.
    """
    return int(size * random.integers(2, 12) + random.integers(1, size))


def rooms(random: np.random.Generator, least: int = 3) -> int:
    """Draw the elements behind the end of each array, so that no kernel can know how many they are.

    Args:
        random: the source of numbers.
        least: fewest of them.
    """
    return int(random.integers(least, least + 50))
