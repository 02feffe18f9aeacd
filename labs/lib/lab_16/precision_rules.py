"""Natural rules that choose which nodes stay float32. Visited by lab 16."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from vklab_labs.lab_16.precision import Node, bytes_moved, noise_of

__all__ = ["RULES", "by_operator", "first_ones", "flipped", "last_ones", "loudest",
           "loudest_flipped", "noise_by_byte", "plain"]  # fmt: skip


def _until_quiet(nodes: Sequence[Node], order: Sequence[Node], most_noise: int) -> list[str]:
    """Return as many names of an order as leave little enough noise."""
    wide: list[str] = []
    for node in order:
        if noise_of(nodes, wide) <= most_noise:
            break
        wide.append(node["name"])
    return wide


def loudest(nodes: Sequence[Node], most_noise: int) -> list[str]:
    """Keep the noisiest nodes in float32."""
    order = sorted(nodes[1:], key=lambda node: -node["noise"])
    return _until_quiet(nodes, order, most_noise)


def noise_by_byte(nodes: Sequence[Node], most_noise: int) -> list[str]:
    """Keep the nodes with the most noise for each element that they move."""
    result = {node["name"]: node["result"] for node in nodes}

    def density(node: Node) -> float:
        elements = node["weights"] + node["result"] + sum(result[read] for read in node["reads"])
        return -float(node["noise"]) / float(elements)

    return _until_quiet(nodes, sorted(nodes[1:], key=density), most_noise)


def first_ones(nodes: Sequence[Node], most_noise: int) -> list[str]:
    """Keep nodes from the beginning."""
    return _until_quiet(nodes, nodes[1:], most_noise)


def last_ones(nodes: Sequence[Node], most_noise: int) -> list[str]:
    """Keep nodes from the end."""
    return _until_quiet(nodes, nodes[:0:-1], most_noise)


def flipped(
    nodes: Sequence[Node], most_noise: int, start: Collection[str] | None = None
) -> list[str]:
    """Change the precision of the one node that saves most, as long as one saves anything.

    Args:
        nodes: the graph.
        most_noise: the limit.
        start: names in float32 at the beginning; default: all.
    """
    names = [node["name"] for node in nodes[1:]]
    wide = {*names} if start is None else {*start}
    while True:
        tried = [wide ^ {name} for name in names]
        allowed = [each for each in tried if noise_of(nodes, each) <= most_noise]
        best = min(allowed, key=lambda each: bytes_moved(nodes, each), default=wide)
        if bytes_moved(nodes, best) >= bytes_moved(nodes, wide):
            return [name for name in names if name in wide]
        wide = best


def loudest_flipped(nodes: Sequence[Node], most_noise: int) -> list[str]:
    """Keep the noisiest nodes, then change one node at a time."""
    return flipped(nodes, most_noise, loudest(nodes, most_noise))


def by_operator(nodes: Sequence[Node], most_noise: int) -> list[str]:
    """Return the best choice that keeps whole operator types, as `op_block_list` does."""
    kinds = sorted({node["operator"] for node in nodes[1:]})
    choices = [
        [node["name"] for node in nodes[1:] if node["operator"] in kept]
        for count in range(len(kinds) + 1)
        for kept in itertools.combinations(kinds, count)
    ]
    allowed = [each for each in choices if noise_of(nodes, each) <= most_noise]
    return min(allowed, key=lambda each: bytes_moved(nodes, each))


def plain(nodes: Sequence[Node], most_noise: int) -> list[str]:
    """Return the cheaper of two rules: the noisiest stay, or those with most noise by byte."""
    both = loudest(nodes, most_noise), noise_by_byte(nodes, most_noise)
    return min(both, key=lambda each: bytes_moved(nodes, each))


RULES = {
    "all float32": lambda nodes, most: [node["name"] for node in nodes[1:]],
    "noisiest out": loudest,
    "noise by byte": noise_by_byte,
    "first ones": first_ones,
    "last ones": last_ones,
    "one flip at a time": flipped,
    "noisiest, then flips": loudest_flipped,
    "operator types": by_operator,
}
