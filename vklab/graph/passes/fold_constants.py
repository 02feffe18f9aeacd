"""fold_constants: replace nodes whose outputs are all constants by initializers.

Evaluates nothing itself: shape inference sets `TensorInfo.constant`. Visited by lab 10.
"""

from __future__ import annotations

from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes whose outputs are constants by initializers.

    Source: Muchnick 1997, "Advanced Compiler Design and Implementation" (constant folding)
    """
    folded: dict[str, TensorInfo] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        outputs = [graph.infos[name] for name in node.outputs if name]
        if all(info.constant is not None for info in outputs):
            folded.update({info.name: info for info in outputs})
        else:
            kept.append(node)
    if not folded:
        return graph
    return graph.with_nodes(kept, initializers={**graph.initializers, **folded})
