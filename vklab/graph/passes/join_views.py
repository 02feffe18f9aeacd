"""join_views: whatever only renames axes is one Reshape of the value behind it.

Chains of Reshape, Flatten, Squeeze, Unsqueeze, and Expand or Slice of nothing: other passes and
patterns meet one word for all of them. Costs no dispatch either way. Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.types import TensorInfo

__all__ = ["join_views"]


def join_views(graph: Graph) -> Graph:
    """Let every view be a Reshape of what is no view itself.

    Transposes of axes of one are left: patterns of attention look for them at every length.
    """
    roots: dict[str, str] = {}
    nodes: list[Node] = []
    new: list[TensorInfo] = []
    for node in graph.nodes:
        source = rewriting.handed_on(graph, node) if node.op_type != "Transpose" else ""
        made = graph.infos[node.outputs[0]] if source else None
        if made is None or graph.infos[source].shape == made.shape:
            nodes.append(node)
            continue
        roots[made.name] = roots.get(source, source)
        if _is_plain(graph, node, made):
            nodes.append(replace(node, inputs=(roots[made.name], node.inputs[1])))
        else:
            made_node, shape = rewriting.reshape(graph, roots[made.name], made)
            nodes.append(replace(made_node, name=node.name))
            new.append(shape)
    if all(old.inputs == now.inputs for old, now in zip(graph.nodes, nodes, strict=True)):
        return graph
    read = {name for node in nodes for name in node.reads} | set(graph.outputs)
    return rewriting.rewritten(
        graph, (n for n in nodes if n.outputs[0] not in roots or n.outputs[0] in read), *new
    )


def _is_plain(graph: Graph, node: Node, made: TensorInfo) -> bool:
    """Tell whether a node is a Reshape that names every size."""
    shape = graph.infos[node.inputs[1]].constant if node.op_type == "Reshape" else None
    return shape is not None and tuple(shape.tolist()) == made.dims
