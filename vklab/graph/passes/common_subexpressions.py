"""common_subexpressions: what is computed twice from the same values is computed once.

So are constants with the same bytes; large ones only if they are one array. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting

__all__ = ["RANDOM", "common_subexpressions"]

# Two nodes of these are two draws.
RANDOM = frozenset({"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike",
                    "RandomUniform", "RandomUniformLike", "Dropout"})  # fmt: skip
COMPARED_BYTES = 4096


def common_subexpressions(graph: Graph) -> Graph:
    """Let the readers of equal values read the first of them. Outputs are made as they are."""
    fixed = rewriting.fixed(graph)
    names: dict[str, str] = {}
    first: dict[Hashable, Any] = {}
    for name, info in graph.initializers.items():
        if info.constant is not None and name not in fixed:
            one = first.setdefault(_bytes(info.constant), name)
            if one != name:
                names[name] = one
    kept: list[Node] = []
    for given in graph.nodes:
        node = rewriting.renamed(given, names)
        same = node
        if node.op_type not in RANDOM and not node.bodies:
            same = first.setdefault(_meaning(graph, node), node)
        if same is node or not fixed.isdisjoint(node.outputs):
            kept.append(node)
        else:
            names.update(zip(node.outputs, same.outputs, strict=True))
    return rewriting.rewritten(graph, kept) if names else graph


def _meaning(graph: Graph, node: Node) -> Hashable:
    """Return what is equal for nodes that compute the same."""
    # As text, since 0.0 equals -0.0 and 1 equals 1.0.
    attributes = tuple(
        (name, _bytes(value) if isinstance(value, np.ndarray) else repr(value))
        for name, value in sorted(node.attributes.items())
    )
    asked = tuple(map(bool, node.outputs))
    return node.domain, node.op_type, graph.opset_of(node), node.inputs, attributes, asked


def _bytes(array: np.ndarray) -> Hashable:
    if array.nbytes > COMPARED_BYTES:
        return id(array)
    return str(array.dtype), array.shape, array.tobytes()
