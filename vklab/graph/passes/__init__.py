"""Graph passes, one per file, in the one order in which they run.

Each is a pure function from a shaped Graph to a Graph. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable

from vklab.graph.graph import Graph
from vklab.graph.passes import drop_dead_nodes, fold_constants

__all__ = ["PASSES", "run"]

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    fold_constants.fold_constants,
    drop_dead_nodes.drop_dead_nodes,
)


def run(graph: Graph) -> Graph:
    """Apply every pass in order to a graph whose values have infos."""
    for step in PASSES:
        graph = step(graph)
    return graph
