"""fold_constants: a node whose outputs are all known becomes initializers.

Evaluates nothing itself: operators say what they know (`TensorInfo.constant`).
"""

from __future__ import annotations

from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

__all__ = ["fold_constants"]


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes with known outputs by initializers."""
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
