"""Bodies in the place of the nodes that have them: branches of If, functions of ONNX.

Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Callable

from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo


def inside(node: Node, name: str) -> str:
    """Return the name in the graph of a value or a node that is in the body of a node."""
    return internal(node.name, f"/{name}")


def inline(node: Node, body: Graph) -> tuple[tuple[Node, ...], dict[str, TensorInfo]] | None:
    """Return the nodes and constants of an If's branch, or None if that has bodies inside.

    Captured values keep their names; the branch's outputs get the names of the node's.
    """
    if any(part.bodies for part in body.nodes):
        return None
    made = {name for part in body.nodes for name in part.outputs} | set(body.initializers)
    names = dict(zip(body.outputs, node.outputs, strict=False))
    copies = []
    for local, name in zip(body.outputs, node.outputs, strict=False):
        if local not in made or local in body.initializers or names[local] != name:
            inner = inside(node, local) if local in made else local
            copies.append(Node(inside(node, name), "Identity", (inner,), (name,)))
            names.pop(local, None)

    def rename(name: str) -> str:
        return names.get(name) or (inside(node, name) if name in made else name)

    nodes, constants = copied(node, body, rename)
    return (*nodes, *copies), constants


def copied(
    node: Node, body: Graph, rename: Callable[[str], str]
) -> tuple[tuple[Node, ...], dict[str, TensorInfo]]:
    """Return a body's nodes and constants with names that are unique in the graph.

    Args:
        node: the node in whose place they are.
        body: the body.
        rename: returns the name in the graph of a value in the body.
    """
    versions = body.opsets
    nodes = tuple(
        Node(
            inside(node, part.name),
            part.op_type,
            tuple(map(rename, part.inputs)),
            tuple(map(rename, part.outputs)),
            part.attributes,
            part.domain,
            part.opset or versions.get(part.domain, versions.get("", 0)),
            part.bodies,
        )
        for part in body.nodes
    )
    constants = {
        rename(name): TensorInfo(rename(name), info.dtype, info.shape, info.constant)
        for name, info in body.initializers.items()
    }
    return nodes, constants
