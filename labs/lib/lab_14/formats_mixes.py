"""Mixes of block formats: bytes and divergence, the best mix exactly, and the obvious ones.

Visited by lab 14b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product

from vklab.ops.blocks import FORMATS

__all__ = ["best_mix", "best_single", "by_gain", "cost_of", "exchanged", "mixes_to_judge",
           "options_of"]  # fmt: skip

# By format: bytes, and divergence in millionths of a nat.
Options = Mapping[str, tuple[int, int]]
KINDS = ("Q4_K", "Q5_K", "Q6_K", "Q8_0")
TABLE = "token_embd.weight"


def cost_of(matrices: Sequence[Options], names: Sequence[str]) -> tuple[int, int]:
    """Return the bytes and the divergence of a mix.

    Args:
        matrices: the formats of each matrix.
        names: the chosen format of each.
    """
    chosen = [options[name] for options, name in zip(matrices, names, strict=True)]
    return sum(size for size, _ in chosen), sum(apart for _, apart in chosen)


def best_mix(matrices: Sequence[Options], budget: int) -> list[str] | None:
    """Return a mix of least divergence within a budget of bytes; None if there is none.

    Merges fronts: of all mixes of the first matrices, those stay that no other beats in both bytes
    and divergence.
    """
    front: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, ())]
    for options in matrices:
        every = sorted(
            (size + more, apart + further, (*names, name))
            for size, apart, names in front
            for name, (more, further) in options.items()
            if size + more <= budget
        )
        front, least = [], float("inf")
        for state in every:
            if state[1] < least:
                front.append(state)
                least = state[1]
    return list(front[-1][2]) if front else None


def best_single(matrices: Sequence[Options], budget: int) -> list[str] | None:
    """Return the best mix that has one format for all matrices; None if none fits."""
    every = [[name] * len(matrices) for name in matrices[0]]
    able = [names for names in every if cost_of(matrices, names)[0] <= budget]
    return min(able, key=lambda names: cost_of(matrices, names)[1], default=None)


def changes(
    matrices: Sequence[Options], names: Sequence[str], budget: int
) -> Iterator[tuple[int, int, int, str]]:
    """Yield (gain, more bytes, matrix, format) of each change that helps and fits."""
    left = budget - cost_of(matrices, names)[0]
    for n, (options, name) in enumerate(zip(matrices, names, strict=True)):
        size, apart = options[name]
        for other, (bytes_, further) in options.items():
            if further < apart and bytes_ - size <= left:
                yield apart - further, bytes_ - size, n, other


def by_gain(
    matrices: Sequence[Options], budget: int, worth: Callable[[int, int], float]
) -> list[str]:
    """Return the mix of a greedy rule: begin with the fewest bytes, take the best change first.

    Args:
        matrices: the formats of each matrix.
        budget: the most bytes.
        worth: what a change is worth, from its gain and its bytes.
    """
    names = [min(options, key=lambda name: options[name]) for options in matrices]
    while found := max(
        changes(matrices, names, budget), key=lambda each: worth(*each[:2]), default=None
    ):
        names[found[2]] = found[3]
    return names


def exchanged(matrices: Sequence[Options], budget: int, names: Sequence[str]) -> list[str]:
    """Return a mix after all exchanges of one or two formats that lower the divergence.

    Args:
        matrices: the formats of each matrix.
        budget: the most bytes.
        names: the mix to begin with.
    """
    best, is_new = list(names), True
    while is_new:
        is_new = False
        for i, j in combinations(range(len(best)), 2):
            size, apart = cost_of(matrices, best)
            (size_i, apart_i), (size_j, apart_j) = matrices[i][best[i]], matrices[j][best[j]]
            room, least = budget - size + size_i + size_j, apart_i + apart_j
            for (one, (a, x)), (other, (b, y)) in product(matrices[i].items(), matrices[j].items()):
                if a + b <= room and x + y < least:
                    best[i], best[j], least, is_new = one, other, x + y, True
    return best


def options_of(shape: Sequence[int], divergence: Mapping[str, float]) -> dict[str, tuple[int, int]]:
    """Return bytes and divergence of a matrix by format.

    Args:
        shape: its rows and columns.
        divergence: by format, in millionths of a nat.
    """
    return {
        kind: (shape[0] * FORMATS[kind].row_bytes(shape[1]), round(divergence[kind]))
        for kind in KINDS
    }


def mixes_to_judge(
    shapes: Mapping[str, Sequence[int]],
    divergence: Mapping[str, Mapping[str, float]],
    known: Mapping[str, str],
) -> dict[str, dict[str, str]]:
    """Return the mixes that the lab compares: the format of each matrix, by the mix's title.

    Args:
        shapes: rows and columns by matrix.
        divergence: measured, by matrix and format.
        known: llama.cpp's Q4_K_M.
    """
    names = list(shapes)
    tables = [options_of(shapes[name], divergence[name]) for name in names]
    budget = cost_of(tables, [known[name] for name in names])[0]
    short = [{k: v for k, v in t.items() if k == "Q4_K" or name != TABLE}
             for name, t in zip(names, tables, strict=True)]  # fmt: skip
    cheap = dict.fromkeys(names, "Q4_K")
    longer = [f"blk.{n}.attn_v.weight" for n in range(4)]
    longer += [f"blk.{n}.ffn_down.weight" for n in (0, 3)]
    found = {
        "Q4_K_M": [known[name] for name in names],
        "best": best_mix(tables, budget),
        "gain per byte": by_gain(tables, budget, lambda gain, more: gain / max(more, 1)),
        "best with the table in Q4_K": best_mix(short, budget),
    }
    mixes = {
        title: dict(zip(names, mix, strict=True)) for title, mix in found.items() if mix is not None
    }
    return mixes | {
        "table in Q6_K": cheap | {TABLE: "Q6_K"},
        "values in Q6_K": cheap | dict.fromkeys(longer, "Q6_K"),
    }
