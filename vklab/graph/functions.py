"""Function bodies: replace an operator by ONNX's definition of it in terms of other operators.

The onnx package builds and inlines the body for given input types and opset. Bodies of If are
inlined here too. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

if TYPE_CHECKING:
    import onnx

__all__ = ["expand", "has_body", "inline", "to_proto"]

MOST_NODES = 2000


def _load() -> Any:
    import onnx
    import onnx.inliner

    return onnx


def _load_importer() -> Any:
    from vklab.graph import onnx_import

    return onnx_import


def has_body(node: Node, opset: int) -> bool:
    """Tell whether ONNX defines a node's operator by a function body; False without onnx."""
    try:
        defs = _load().defs
    except ImportError:
        return False
    try:
        schema = defs.get_schema(node.op_type, opset, node.domain)
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def expand(
    graph: Graph, node: Node, infos: Mapping[str, TensorInfo]
) -> tuple[tuple[Node, ...], dict[str, TensorInfo]] | None:
    """Return the nodes and constants of a node's function body, or None if it has none.

    Args:
        graph: the graph of the node, for its opsets.
        node: the node to replace; its inputs and outputs keep their names.
        infos: dtype and shape of the node's inputs.

    Source: ONNX IR specification, section "Functions"
    """
    if not has_body(node, graph.opset_of(node)):
        return None
    model = _model(graph, node, infos)
    try:
        body = _load().inliner.inline_selected_functions(
            model, [(node.domain, node.op_type)], inline_schema_functions=True
        )
        if any(n.op_type == node.op_type for n in body.graph.node) or (
            len(body.graph.node) > MOST_NODES
        ):
            return None
        versions = {entry.domain: entry.version for entry in body.opset_import}
        imported: Graph = _load_importer().from_graph(body.graph, versions)
    except Exception:  # onnx's C++ exceptions share no base class; the body is unusable then
        return None
    bodies = [body for part in imported.nodes for body in part.bodies.values()]
    if not {name for body in bodies for name in body.captures} <= set(node.inputs):
        return None  # values inside these bodies would keep their old names
    outer = {*node.inputs, *node.outputs, ""}

    def rename(name: str) -> str:
        return name if name in outer else internal(node.name, f"/{name}")

    return _copy(node, imported, rename)


def _model(graph: Graph, node: Node, infos: Mapping[str, TensorInfo]) -> onnx.ModelProto:
    """Return a model of one node."""
    loaded = _load()
    helper = loaded.helper
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(infos[name].dtype)), infos[name].dims
        )
        for name in dict.fromkeys(filter(None, node.inputs))
    ]
    outputs = [loaded.ValueInfoProto(name=name) for name in node.outputs if name]
    proto = helper.make_graph([to_proto(node)], node.name, inputs, outputs)
    opsets = [helper.make_opsetid(node.domain, graph.opset_of(node))]
    if node.domain:
        opsets.append(helper.make_opsetid("", graph.opset))
    return helper.make_model(proto, opset_imports=opsets)


def inline(
    node: Node, body: Graph
) -> tuple[tuple[Node, ...], dict[str, TensorInfo]] | None:
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
            inner = internal(node.name, f"/{local}") if local in made else local
            copies.append(Node(internal(node.name, f"/{name}"), "Identity", (inner,), (name,)))
            names.pop(local, None)

    def rename(name: str) -> str:
        return names.get(name) or (internal(node.name, f"/{name}") if name in made else name)

    nodes, constants = _copy(node, body, rename)
    return (*nodes, *copies), constants


def _copy(
    node: Node, body: Graph, rename: Callable[[str], str]
) -> tuple[tuple[Node, ...], dict[str, TensorInfo]]:
    """Return a body's nodes and constants with names that are unique in the graph."""
    versions = body.opsets
    nodes = tuple(
        Node(internal(node.name, f"/{part.name}"), part.op_type, tuple(map(rename, part.inputs)),
             tuple(map(rename, part.outputs)), part.attributes, part.domain,
             part.opset or versions.get(part.domain, versions.get("", 0)), part.bodies)
        for part in body.nodes
    )  # fmt: skip
    constants = {
        rename(name): TensorInfo(rename(name), info.dtype, info.shape, info.constant)
        for name, info in body.initializers.items()
    }
    return nodes, constants


def to_proto(node: Node) -> onnx.NodeProto:
    """Return a node as ONNX's NodeProto."""
    proto = _load().helper.make_node(
        node.op_type, node.inputs, node.outputs, node.name, domain=node.domain
    )
    for name, value in node.attributes.items():
        proto.attribute.append(_attribute(name, value))
    return proto


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    loaded = _load()
    if isinstance(value, np.ndarray):
        value = loaded.numpy_helper.from_array(value)
    if isinstance(value, tuple) and not value:
        return loaded.helper.make_attribute(name, [], attr_type=loaded.AttributeProto.INTS)
    return loaded.helper.make_attribute(name, value)
