"""Rewrite rules on plain graphs: dead nodes, and products by constants.

Visited by lab 10.
"""

from __future__ import annotations

from typing import Any

from vklab_labs.lab_10.rewriting import PlainGraph

__all__ = ["drop_dead", "merge_products"]


def drop_dead(graph: PlainGraph) -> PlainGraph:
    """Return the graph without the nodes and constants that no output needs."""
    needed = set(graph["outputs"])
    alive: list[Any] = []
    for node in reversed(graph["nodes"]):
        if node[0] in needed:
            alive.insert(0, node)
            needed.update(node[2])
    used = {name: array for name, array in graph["constants"].items() if name in needed}
    return {**graph, "nodes": alive, "constants": used}


def merge_products(graph: PlainGraph) -> PlainGraph:
    """Turn (x @ A) @ B into x @ (A @ B) where that takes fewer multiply-adds, as often as it fits.

    A and B are constants with two axes; the inner value has one reader and is no output.
    """
    constants = graph["constants"]
    makers = {node[0]: node for node in graph["nodes"]}
    read = [name for node in graph["nodes"] for name in node[2]]
    for place, (made, op, reads, perm) in enumerate(graph["nodes"]):
        inner = makers.get(reads[0]) if op == "MatMul" else None
        if inner is None or inner[1] != "MatMul":
            continue
        (x, first), second = inner[2], reads[1]
        if first not in constants or second not in constants or x in constants:
            continue
        a, b = constants[first], constants[second]
        is_inside = read.count(inner[0]) == 1 and inner[0] not in graph["outputs"]
        if is_inside and a.ndim == b.ndim == 2 and a.shape[0] * b.shape[1] < a.size + b.size:
            new, nodes = f"{first}@{second}", list(graph["nodes"])
            nodes[place] = made, op, (x, new), perm
            nodes.remove(inner)
            return merge_products({**graph, "nodes": nodes, "constants": {**constants, new: a @ b}})
    return graph
