"""Rewrite rules on plain graphs: products by constants, and a wrong one.

Visited by lab 10.
"""

from __future__ import annotations

from vklab.course.labs.rewriting import PlainGraph

__all__ = ["careless", "merge_products"]


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


def careless(graph: PlainGraph) -> PlainGraph:
    """Fuse each Relu into the node that it reads, and rename what is read."""
    made_here = {node[0] for node in graph["nodes"]}
    new = {reads[0]: made for made, op, reads, _ in graph["nodes"]
           if op == "Relu" and reads[0] in made_here}  # fmt: skip
    nodes = [(new.get(made, made), f"{op}>Relu" if made in new else op,
              tuple(new.get(name, name) for name in reads), perm)
             for made, op, reads, perm in graph["nodes"] if reads[0] not in new or op != "Relu"]
    return {**graph, "nodes": nodes}
