"""join_views: replace chains of nodes that only change a shape by one Reshape.

Reshape, Flatten, Squeeze, Unsqueeze, and an Expand or Slice of the whole value all become Reshape,
so that later patterns look for one operator only. Neither form dispatches. Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.types import TensorInfo


def join_views(graph: Graph) -> Graph:
    """Make every view one Reshape of a value that is no view itself.

    Transposes that only move axes of size 1 stay, since patterns of attention look for them.
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
    """Tell whether a node is a Reshape whose constant shape holds every size (no 0 or -1)."""
    shape = graph.infos[node.inputs[1]].constant if node.op_type == "Reshape" else None
    return shape is not None and tuple(shape.tolist()) == made.dims
