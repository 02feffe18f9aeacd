"""drop_no_ops: remove nodes whose output equals one of their inputs bit by bit.

x - 0, x + -0, x * 1 and x / 1 are removed; x + 0 stays, since it turns -0 into 0.
Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.ops.dtypes import REALS

# The neutral number of each operator, and the operands that may be it. For reals -0 + x is x.
NEUTRAL: Mapping[str, tuple[float, tuple[int, ...]]] = {
    "Add": (-0.0, (0, 1)), "Sub": (0.0, (1,)), "Mul": (1.0, (0, 1)), "Div": (1.0, (1,)),
    "And": (1.0, (0, 1)), "Or": (0.0, (0, 1)),
}  # fmt: skip


def drop_no_ops(graph: Graph) -> Graph:
    """Remove nodes that pass a value on unchanged; their readers read that value directly.

    A graph output keeps its name: the node before the removed one makes it under that name.

    Source: Muchnick 1997, "Advanced Compiler Design and Implementation" (algebraic simplification)
    """
    fixed = rewriting.fixed(graph)
    made = {name for node in graph.nodes for name in node.outputs}
    names: dict[str, str] = {}
    kept: list[Node] = []
    for given in graph.nodes:
        node = rewriting.renamed(given, names)
        source, target = _source(graph, node), node.outputs[0]
        if source and target not in fixed:
            names[target] = source
        elif source and source in made and source not in fixed:
            names[source] = target
        else:
            kept.append(node)
    if not names:
        return graph
    makers = {old: new for old, new in names.items() if new in fixed and old in made}
    nodes = (_with_outputs(rewriting.renamed(node, names), makers) for node in kept)
    return rewriting.rewritten(graph, nodes)


def _with_outputs(node: Node, names: Mapping[str, str]) -> Node:
    if names.keys().isdisjoint(node.outputs):
        return node
    return replace(node, outputs=tuple(names.get(name, name) for name in node.outputs))


def _source(graph: Graph, node: Node) -> str:
    """Return the input that equals a node's output; '' if there is none."""
    source = rewriting.handed_on(graph, node) or _operand(graph, node)
    if not source or graph.infos[source].shape != graph.infos[node.outputs[0]].shape:
        return ""
    return source


def _operand(graph: Graph, node: Node) -> str:
    """Return the operand beside a neutral one; '' if neither is neutral."""
    if node.op_type not in NEUTRAL or node.domain:
        return ""
    number, operands = NEUTRAL[node.op_type]
    for operand in operands:
        value = graph.infos[node.inputs[operand]].constant
        if value is not None and value.size and _is_all(value, number):
            return node.inputs[1 - operand]
    return ""


def _is_all(value: np.ndarray, number: float) -> bool:
    if value.flat[0] != number:  # spares most constants the full comparison
        return False
    if str(value.dtype) in REALS and (np.signbit(value) != np.signbit(number)).any():
        return False
    return bool((value == number).all())
