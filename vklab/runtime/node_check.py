"""Check mode for nodes: every value of a model beside the reference's, and the first that differs.

A wrong result at the end says little; the node after which values part says where to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from vklab.graph import onnx_import
from vklab.graph.graph import Graph
from vklab.runtime import check, host

__all__ = ["all_values", "compare_nodes", "reference_values"]


def all_values(graph: Graph) -> Graph:
    """Return the graph with every value that a node makes among its outputs."""
    made = [name for node in graph.nodes for name in node.outputs if name]
    return replace(graph, outputs=tuple(dict.fromkeys([*made, *graph.outputs])))


def reference_values(
    model: onnx_import.Model, graph: Graph, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what ONNX Runtime computes for every value of the graph."""
    proto, folder = onnx_import.load_proto(model)
    whole = onnx.ModelProto()
    whole.CopyFrom(onnx_import.prepare(proto))
    listed = {value.name for value in whole.graph.output}
    for name in all_values(graph).outputs:
        if name not in listed:
            whole.graph.output.append(onnx.ValueInfoProto(name=name))
    return host.Reference(whole, folder).run(inputs)


def compare_nodes(
    graph: Graph, actual: Mapping[str, Any], expected: Mapping[str, Any]
) -> check.Comparison:
    """Compare node after node, and stop at the first whose outputs differ."""
    count = 0
    largest = relative = 0.0
    for node in graph.nodes:
        names = [n for n in node.outputs if isinstance(expected.get(n), np.ndarray)]
        found = check.compare({n: actual[n] for n in names}, {n: expected[n] for n in names})
        count += 1
        largest = max(largest, found.max_abs_error)
        relative = max(relative, found.max_rel_error)
        if not found.passed:
            return replace(found, node=str(node), nodes=count)
    return check.Comparison(True, largest, relative, (), nodes=count)
