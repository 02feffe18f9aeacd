"""A fusion of pairs of nodes whose tests may be wrong, and what such a fusion changes.

Graphs are plain data, as in `rewriting`. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab_labs.lab_10.rewriting import PlainGraph, feed_of, infos_of, run

__all__ = ["MayFuse", "difference", "fuse_pairs", "parts_of", "tests_of"]

MayFuse = Callable[[PlainGraph, Any, Any], Any]


def fuse_pairs(graph: PlainGraph, pair: Sequence[str], may_fuse: MayFuse) -> PlainGraph:
    """Fuse nodes where `may_fuse` allows it; the new node stands where the first one stood.

    Args:
        graph: the graph.
        pair: the operator of the first node, which reads one value, and of the second one.
        may_fuse: called with the graph, a node, and a node whose first operand it makes.
    """
    makers = {node[0]: node for node in graph["nodes"]}
    fused: dict[str, Any] = {}
    for then in graph["nodes"]:
        first = makers.get(then[2][0])
        if (
            first
            and [first[1], then[1]] == [*pair]
            and first[0] not in fused
            and (may_fuse(graph, first, then))
        ):
            fused[first[0]] = then[0], ">".join(pair), (*first[2], *then[2][1:]), ()
    gone = {node[0] for node in fused.values()}
    new = {name: node[0] for name, node in fused.items()}
    kept = [fused.get(node[0], node) for node in graph["nodes"] if node[0] not in gone]
    return {
        **graph,
        "nodes": [
            (made, op, tuple(new.get(name, name) for name in reads), perm)
            for made, op, reads, perm in kept
        ],
    }


def parts_of(graph: PlainGraph, first: Any, then: Any) -> tuple[Any, ...]:
    """Return what the tests of a fusion look at: nodes, value, others, known, infos.

    Args:
        graph: the graph.
        first: a node; `value` is the name of what it makes.
        then: the node that reads it; `others` are the other names that it reads.

    `known` are the names that exist before the place of `first`, and `infos` has the dtype and
    shape of each value.
    """
    nodes, value = graph["nodes"], first[0]
    others = [name for name in then[2] if name != value]
    before = [node[0] for node in nodes[: nodes.index(first)]]
    known = [*graph["inputs"], *graph["constants"], *before]
    return nodes, value, others, known, infos_of(graph)


def tests_of(texts: Mapping[str, str]) -> MayFuse:
    """Return a function that allows a fusion where all tests, given as Python text, are true.

    The texts may use graph, first, then, and the names of what `parts_of` returns.
    """

    def may_fuse(graph: PlainGraph, first: Any, then: Any) -> bool:
        parts = ("nodes", "value", "others", "known", "infos")
        names = dict(zip(parts, parts_of(graph, first, then), strict=True))
        names |= {"graph": graph, "first": first, "then": then}
        return all(eval(text, dict(names)) for text in texts.values())

    return may_fuse


def difference(graph: PlainGraph, pair: Sequence[str], may_fuse: MayFuse) -> str:
    """Return a sentence about an output that `fuse_pairs` changes; "" if it changes none.

    Args:
        graph: a graph that is in order.
        pair: the two operators.
        may_fuse: as in `fuse_pairs`.
    """
    after = fuse_pairs(graph, pair, may_fuse)
    for seed in range(3):
        feed = feed_of(graph, seed)
        right = run(graph, feed)
        try:
            got = run(after, feed)
        except KeyError as error:
            return f"{error} is read or asked for, and no node before makes it"
        except ValueError as error:
            return f"the shapes no longer fit: {error}"
        for name in graph["outputs"]:
            if got[name].shape != right[name].shape:
                return f"output {name!r} has shape {got[name].shape}, not {right[name].shape}"
            if not np.allclose(got[name], right[name], equal_nan=True):
                return f"output {name!r} has other values"
    return ""
