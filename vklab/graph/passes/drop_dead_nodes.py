"""drop_dead_nodes: a node whose outputs nobody reads goes away, and what only it needed.

Graph outputs count as read.
"""

from __future__ import annotations

from vklab.graph.graph import Graph, Node

__all__ = ["drop_dead_nodes"]


def drop_dead_nodes(graph: Graph) -> Graph:
    """Remove nodes from which no graph output can be reached."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed & set(node.outputs):
            kept.append(node)
            needed.update(node.reads)
    if len(kept) == len(graph.nodes):
        return graph
    return graph.with_nodes(reversed(kept))
