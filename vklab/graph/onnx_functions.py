"""Function bodies of ONNX's own operators, and nodes as ONNX stores them.

Imports the onnx package, which builds and inlines a body for given input types and opset;
`plan.constant_folding` loads this module. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import defs, helper

from vklab.graph import functions, onnx_import
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

MOST_NODES = 2000


def has_body(node: Node, opset: int) -> bool:
    """Tell whether ONNX defines a node's operator by a function body."""
    try:
        schema: Any = defs.get_schema(node.op_type, opset, node.domain)
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
        body = onnx.inliner.inline_selected_functions(
            model, [(node.domain, node.op_type)], inline_schema_functions=True
        )
        if any(n.op_type == node.op_type for n in body.graph.node) or (
            len(body.graph.node) > MOST_NODES
        ):
            return None
        versions = {entry.domain: entry.version for entry in body.opset_import}
        imported = onnx_import.from_graph(body.graph, versions)
    except Exception:  # onnx's C++ exceptions share no base class; the body is unusable then
        return None
    bodies = [body for part in imported.nodes for body in part.bodies.values()]
    if not {name for body in bodies for name in body.captures} <= set(node.inputs):
        return None  # values inside these bodies would keep their old names
    outer = {*node.inputs, *node.outputs, ""}

    def rename(name: str) -> str:
        return name if name in outer else functions.inside(node, name)

    return functions.copied(node, imported, rename)


def _model(graph: Graph, node: Node, infos: Mapping[str, TensorInfo]) -> onnx.ModelProto:
    """Return a model of one node."""
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(infos[name].dtype)), infos[name].dims
        )
        for name in dict.fromkeys(filter(None, node.inputs))
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
    proto = helper.make_graph([to_proto(node)], node.name, inputs, outputs)
    opsets = [helper.make_opsetid(node.domain, graph.opset_of(node))]
    if node.domain:
        opsets.append(helper.make_opsetid("", graph.opset))
    return helper.make_model(proto, opset_imports=opsets)


def to_proto(node: Node) -> onnx.NodeProto:
    """Return a node as ONNX's NodeProto."""
    proto = helper.make_node(node.op_type, node.inputs, node.outputs, node.name, domain=node.domain)
    for name, value in node.attributes.items():
        proto.attribute.append(_attribute(name, value))
    return proto


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    if isinstance(value, np.ndarray):
        value = onnx.numpy_helper.from_array(value)
    if isinstance(value, tuple) and not value:
        return helper.make_attribute(name, [], attr_type=onnx.AttributeProto.INTS)
    return helper.make_attribute(name, value)
