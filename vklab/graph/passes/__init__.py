"""Graph passes, one per file, in the one order in which they run.

Each is a pure function from a shaped Graph to a Graph; DISABLE_PASSES switches off those that it
names. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vklab import settings
from vklab.graph.graph import Graph
from vklab.graph.passes import drop_dead_nodes, fold_constants

__all__ = ["PASSES", "run", "walk"]

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    fold_constants.fold_constants,
    drop_dead_nodes.drop_dead_nodes,
)


def walk(graph: Graph, dtype: str = "") -> Iterator[tuple[str, Graph]]:
    """Apply the passes in order; yield the name of each and what it has made of the graph.

    Args:
        graph: its values have infos.
        dtype: "float16" to compute in half precision.
    """
    named = str(settings.get("DISABLE_PASSES"))
    disabled = {name.strip() for name in named.split(",")}
    for step in PASSES:
        if step.__name__ not in disabled and "all" not in disabled:
            graph = step(graph)
            yield step.__name__, graph


def run(graph: Graph, dtype: str = "") -> Graph:
    """Apply every pass in order to a graph whose values have infos."""
    return [graph, *(made for _, made in walk(graph, dtype))][-1]
