"""drop_dead_nodes: remove nodes whose outputs are never read, and nodes only they needed.

Graph outputs count as read. Visited by lab 10.
"""

from __future__ import annotations

from vklab.graph.graph import Graph, Node


def drop_dead_nodes(graph: Graph) -> Graph:
    """Remove nodes from which no graph output can be reached.

    Source: Muchnick 1997, "Advanced Compiler Design and Implementation" (dead-code elimination)
    """
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed & set(node.outputs):
            kept.append(node)
            needed.update(node.reads)
    if len(kept) == len(graph.nodes):
        return graph
    return graph.with_nodes(reversed(kept))
