"""Tell how a kernel with tiles can load the operands of a product. Visited by lab 08."""

from __future__ import annotations

from vklab.plan.tuning.tiles import ProductSizes, Tile
from vklab.types import Dispatch


def operands(
    dispatch: Dispatch, width: int
) -> tuple[tuple[tuple[str, int], ...], bool, bool] | None:
    """Tell along which sides A and B are dense, and whether each is loaded `width` at once.

    Returns None for an operand that is dense along no side.
    """
    push = dispatch.push_values
    if 1 not in (push["a_row"], push["a_column"]) or 1 not in (push["b_row"], push["b_column"]):
        return None
    along_k, along_n = push["a_column"] == 1, push["b_column"] == 1
    # Elements are read at once if each group of `width` begins at a multiple of its size.
    of_a = (
        push["a_row"] if along_k else push["a_column"],
        push["k" if along_k else "m"],
        *push["a_batch"],
    )
    of_b = (
        push["b_row"] if along_n else push["b_column"],
        0 if along_n and push["b_row"] > push["n"] else push["n" if along_n else "k"],
        *push["b_batch"],
    )
    a, b = (not any(step % width for step in steps) for steps in (of_a, of_b))
    return (("A_ALONG_K", int(along_k)), ("B_ALONG_N", int(along_n))), a, b


def aligned(tile: Tile, sizes: ProductSizes) -> tuple[str, int]:
    """Return the constant that tells whether a tile divides m, n and k."""
    sides = zip(sizes[:3], (tile.m, tile.n, tile.k), strict=True)
    return "ALIGNED", int(not any(side % step for side, step in sides))
