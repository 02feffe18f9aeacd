"""Outputs of host nodes and of control flow, compared with what the model and its plan declare.

What a device makes is compared by `plan.partition`. Visited by lab 12.
"""

from __future__ import annotations

from typing import Any

from vklab.errors import ModelError
from vklab.graph.graph import Graph
from vklab.ops.dtypes import OTHER_TYPES
from vklab.runtime.plan_cache import describe


def require(graph: Graph, outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of a chunk by name; raise ModelError for one of an undeclared dtype.

    Args:
        graph: the graph of the chunk; its `infos` hold the dtypes.
        outputs: arrays, lists (sequences) and None (optionals) by name.
    """
    for name, value in outputs.items():
        info = graph.infos.get(name)
        wanted, given = info.dtype if info else "", describe(name, value)
        if wanted not in (*OTHER_TYPES, given.dtype):
            node = next(node for node in graph.nodes if name in node.outputs)
            raise ModelError(f"node {node} makes {given}; the model declares {wanted}")
    return outputs
