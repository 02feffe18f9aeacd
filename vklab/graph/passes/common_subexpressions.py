"""common_subexpressions: compute each value once if several nodes compute the same one.

Equal constants are merged too; large ones only if they share one array. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from vklab.graph.graph import RANDOM, Graph, Node
from vklab.graph.passes import rewriting

# Constants up to this size are compared by their bytes, larger ones by identity; so are arrays of
# `plan.templates`.
COMPARED_BYTES = 4096


def common_subexpressions(graph: Graph) -> Graph:
    """Redirect the readers of equal values to the first of them; keep nodes that make outputs.

    Source: Muchnick 1997, "Advanced Compiler Design and Implementation" (value numbering)
    """
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
    """Return a key that is equal for nodes that compute the same values."""
    # Numbers become text, because 0.0 == -0.0 and 1 == 1.0.
    attributes = tuple((name, _text(value)) for name, value in sorted(node.attributes.items()))
    asked = tuple(map(bool, node.outputs))
    return node.domain, node.op_type, graph.opset_of(node), node.inputs, attributes, asked


def _text(value: object) -> Hashable:
    if isinstance(value, np.ndarray):
        return _bytes(value)
    # Trees have long lists.
    return (
        id(value) if isinstance(value, tuple) and 8 * len(value) > COMPARED_BYTES else repr(value)
    )


def _bytes(array: np.ndarray) -> Hashable:
    if type(array) is not np.ndarray or array.nbytes > COMPARED_BYTES:
        return id(array)
    return str(array.dtype), array.shape, array.tobytes()
