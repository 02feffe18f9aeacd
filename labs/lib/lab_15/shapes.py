"""Allowed lengths of an input: padding, and the natural answers of a search. Visited by lab 15."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

__all__ = ["KINDS", "draw_sizes", "equal_steps", "exchanges", "fault_of", "greedy", "halves",
           "naturals", "padding", "quantiles", "sentence_lengths"]  # fmt: skip

KINDS = ("log-normal", "two humps", "geometric")
LONGEST = 256


def draw_sizes(random: np.random.Generator, kind: str) -> list[int]:
    """Return 60 to 200 lengths of inputs, 1 to 256.

    Args:
        random: a generator.
        kind: the distribution, one of KINDS.
    """
    count = int(random.integers(60, 201))
    if kind == "log-normal":
        drawn = random.lognormal(random.uniform(2.8, 3.4), random.uniform(0.5, 0.8), count)
    elif kind == "two humps":
        low, high = random.uniform(10, 25), random.uniform(70, 120)
        near = random.random(count) < random.uniform(0.5, 0.8)
        drawn = np.where(
            near, random.normal(low, low / 4, count), random.normal(high, high / 8, count)
        )
    else:
        drawn = random.geometric(random.uniform(0.02, 0.05), count).astype(np.float64)
    return [int(size) for size in np.clip(np.rint(drawn), 1, LONGEST)]


def sentence_lengths(novels: Path, count: int) -> list[int]:
    """Return the words of each of some sentences, taken evenly from the novels; 128 at most.

    Args:
        novels: the file of the novels.
        count: the number of sentences.
    """
    text = lzma.decompress(novels.read_bytes()).decode("utf-8")
    sizes = [len(each.split()) for each in re.split(r"[.!?]+\s", text)]
    fit = [size for size in sizes if 1 <= size <= 128]
    return fit[:: len(fit) // count][:count]


def fault_of(sizes: Sequence[int], most: int, shapes: object) -> str:
    """Return why an answer is no list of allowed lengths, or "".

    Args:
        sizes: the lengths of the inputs.
        most: how many lengths may be allowed.
        shapes: the answer.
    """
    if not isinstance(shapes, list | tuple):
        return "expected a list of lengths"
    for each in shapes:
        if not isinstance(each, int | np.integer) or isinstance(each, bool):
            return f"{each!r} in your list is no whole number"
    if len(shapes) > most:
        return f"your list has {len(shapes)} lengths, at most {most} are allowed"
    if list(shapes) != sorted(shapes):
        return "your list is not sorted"
    if not shapes or shapes[-1] < max(sizes):
        return f"no length of your list holds the longest input, {max(sizes)}"
    return ""


def padding(sizes: Iterable[int], shapes: Sequence[int]) -> int:
    """Return how many elements are added, if each input is padded to the smallest length.

    Args:
        sizes: the lengths of the inputs.
        shapes: the allowed lengths, sorted; the last one holds every input.
    """
    given, allowed = np.asarray([*sizes]), np.asarray(shapes)
    return int((allowed[np.searchsorted(allowed, given)] - given).sum())


def equal_steps(sizes: Sequence[int], most: int) -> list[int]:
    """Return lengths at equal distances up to the longest input."""
    return [-(-max(sizes) * step // most) for step in range(1, most + 1)]


def halves(sizes: Sequence[int], most: int) -> list[int]:
    """Return the longest input, half of it, a quarter of it and so on."""
    return sorted({-(-max(sizes) // 2**power) for power in range(most)})


def quantiles(sizes: Sequence[int], most: int) -> list[int]:
    """Return lengths that hold equal numbers of inputs."""
    ordered = sorted(sizes)
    return sorted({ordered[-(-len(sizes) * part // most) - 1] for part in range(1, most + 1)})


def greedy(sizes: Sequence[int], most: int) -> list[int]:
    """Return the longest input, and then one by one the length that saves most."""
    shapes, candidates = [max(sizes)], sorted(set(sizes))
    while len(shapes) < min(most, len(candidates)):
        left = (each for each in candidates if each not in shapes)
        best = min(left, key=lambda each: padding(sizes, sorted([*shapes, each])))
        shapes = sorted([*shapes, best])
    return shapes


def exchanges(sizes: Sequence[int], most: int) -> list[int]:
    """Return quantiles, improved by moving one length at a time as long as that helps."""
    shapes, candidates = quantiles(sizes, most), sorted(set(sizes))
    best = padding(sizes, shapes)
    while True:
        moved = [
            sorted([*shapes[:place], each, *shapes[place + 1 :]])
            for place in range(len(shapes) - 1)
            for each in candidates
            if each not in shapes
        ]
        nearest = min(moved, key=lambda each: padding(sizes, each), default=shapes)
        if padding(sizes, nearest) >= best:
            return shapes
        shapes, best = nearest, padding(sizes, nearest)


def naturals(sizes: Sequence[int], most: int) -> dict[str, int]:
    """Return the padding of each natural answer by its name.

    Args:
        sizes: the lengths of the inputs.
        most: how many lengths may be allowed.
    """
    rules = (equal_steps, halves, quantiles, greedy, exchanges)
    return {rule.__name__: padding(sizes, rule(sizes, most)) for rule in rules}
