"""Shape inference: compute dtype and shape of every value by asking each operator in turn.

The operators' own functions are the only source: there is no second set of shape rules.
`plan.partition` calls `apply_node` node by node; `infer` serves calibration and tests. Visited by
lab 09.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vklab.base.names import internal
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.graph import bounds, operator_cache
from vklab.graph.graph import Graph, Node
from vklab.ops import registry
from vklab.ops.body import Expansion
from vklab.ops.dtypes import OTHER_TYPES
from vklab.types import TensorInfo

# The largest value: nodes without a kernel run on the host, which has this much memory.
MOST_BYTES = 1 << 38
if hasattr(os, "sysconf"):
    MOST_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
HOST_DOMAINS = ("com.microsoft", "ai.onnx.contrib", "com.ms.")


def unknown_dims(graph: Graph) -> tuple[str, ...]:
    """Return the names of the open dimensions of a graph's inputs."""
    dims = (dim for info in graph.inputs for dim in info.shape if isinstance(dim, str))
    return tuple(dict.fromkeys(dims))


def bind(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a graph with the open dimensions of its inputs set to sizes.

    Raises ModelError for a dimension that stays open.
    """
    inputs = bounds.at_bounds(graph.inputs, sizes)
    for info in inputs:
        if not info.is_static and info.dtype not in OTHER_TYPES:
            raise ModelError(f"input {info} has an open dimension without a size")
    infos = {**graph.infos, **{info.name: info for info in inputs}}
    return replace(graph, inputs=inputs, infos=infos)


def require_operators(graph: Graph) -> None:
    """Raise UnsupportedOperatorError for the first node with an unknown operator.

    Operators of ONNX and of ONNX Runtime's domains need no kernel: they can run on the host.
    """
    for node in graph.nodes:
        known = (node.domain, node.op_type) in registry.OPERATORS
        if not (known or node.domain.startswith(HOST_DOMAINS) or _is_of_onnx(node)):
            raise UnsupportedOperatorError(
                f"node {node}: operator {node.qualified_type} is known neither to vklab nor to ONNX"
            )
        for body in node.bodies.values():
            require_operators(body)


def _is_of_onnx(node: Node) -> bool:
    import onnx

    # Gradient is in ONNX's list, but differentiates a graph, and nothing here or in ONNX runs it.
    return node.op_type != "Gradient" and bool(onnx.defs.has(node.op_type, domain=node.domain))


def apply_node(
    graph: Graph, node: Node, infos: Mapping[str, TensorInfo]
) -> tuple[registry.Answer, tuple[TensorInfo, ...]]:
    """Return an operator's answer for a node, and infos of the node's outputs.

    An Expansion has no outputs yet; the nodes that `expand` returns have.

    Args:
        graph: the graph of the node, for its opset.
        node: the node.
        infos: dtype and shape of the values that the node reads.
    """
    inputs = [infos[name] if name else None for name in node.inputs]
    result = operator_cache.remembered(
        graph,
        node,
        inputs,
        lambda: registry.apply(
            node.op_type,
            inputs,
            node.attributes,
            graph.opset_of(node),
            node.domain,
            node.name,
            len(node.outputs),
        ),
    )
    if isinstance(result, Expansion):
        return result, ()
    extra = [name for name in node.outputs[len(result.outputs) :] if name]
    if extra:
        raise UnsupportedOperatorError(
            f"node {node.name!r} ({node.op_type}): no kernel makes output {extra[0]!r}"
        )
    named = tuple(
        TensorInfo(name, info.dtype, info.shape, info.constant)
        for info, name in zip(result.outputs, node.outputs, strict=False)
    )
    for info in (*named, *result.scratch):
        if info.is_static and info.size_bytes > MOST_BYTES:
            raise ModelError(
                f"node {node.name!r} ({node.op_type}): {info} needs {info.size_bytes} "
                f"bytes; the limit is {MOST_BYTES}"
            )
    return result, named


def expand(node: Node, expansion: Expansion) -> tuple[tuple[Node, ...], dict[str, TensorInfo]]:
    """Return the nodes that replace an expanded node, and the constants that they read."""
    names = dict(zip(expansion.outputs, node.outputs, strict=False))

    def rename(local: str) -> str:
        inner = internal(node.name, f"{local}") if local.startswith("%") else local
        return names.get(local) or inner

    constants = {
        rename(local): TensorInfo(rename(local), str(array.dtype), array.shape, np.asarray(array))
        for local, array in expansion.constants.items()
    }
    nodes = tuple(
        Node(
            internal(node.name, f"{step.op_type}_{number}"),
            step.op_type,
            tuple(map(rename, step.inputs)),
            tuple(map(rename, step.outputs)),
            step.attributes,
            step.domain,
            expansion.opset,
        )
        for number, step in enumerate(expansion.steps)
    )
    return nodes, constants


def infer(graph: Graph) -> Graph:
    """Return a graph with an info for every value; its inputs must have static shapes.

    Raises ModelError or UnsupportedOperatorError naming the first node that cannot be computed.
    """
    infos = {**{info.name: info for info in graph.inputs}, **graph.initializers}
    initializers = dict(graph.initializers)
    nodes: list[Node] = []
    waiting = deque(graph.nodes)
    while waiting:
        node = waiting.popleft()
        result, outputs = apply_node(graph, node, infos)
        if isinstance(result, Expansion):
            parts, constants = expand(node, result)
            infos.update(constants)
            initializers.update(constants)
            waiting.extendleft(reversed(parts))
            continue
        nodes.append(node)
        infos.update({info.name: info for info in outputs if info.name})
    return replace(graph, nodes=tuple(nodes), initializers=initializers, infos=infos)
