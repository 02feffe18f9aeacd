"""What a session's results are held to: the same model in ONNX Runtime, outputs or every node.

A wrong result at the end says little; the node after which values part says where to look, and
where float16 overflows, which node to keep in float32. Needs onnx and onnxruntime, so a session
loads it when somebody compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from vklab.graph import onnx_import
from vklab.graph.graph import Graph, Node
from vklab.graph.passes.to_float16 import LARGEST
from vklab.runtime import host
from vklab.runtime.observe import compare
from vklab.runtime.observe.compare import Comparison

__all__ = ["Expected", "all_values", "compare_nodes", "compare_outputs"]


def all_values(graph: Graph) -> Graph:
    """Return the graph with every value that a node makes among its outputs."""
    made = [name for node in graph.nodes for name in node.outputs if name]
    return replace(graph, outputs=tuple(dict.fromkeys([*made, *graph.outputs])))


class Expected:
    """A model on the CPU.

    Args:
        model: as it was loaded; None for a compiled one, whose graph is written as ONNX again.
        is_half: values are stored in float16, which decides the tolerances.
    """

    def __init__(self, model: onnx_import.Model | None, graph: Graph, is_half: bool) -> None:
        self.graph = graph
        self._model: onnx_import.Model | onnx.ModelProto = model or host.to_proto(graph)
        self._is_half = is_half
        self._runner: host.Reference | None = None

    def outputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        if self._runner is None:
            self._runner = host.Reference(*onnx_import.load_proto(self._model))
        return self._runner.run(inputs)

    def compare(self, outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> Comparison:
        """Compare outputs with those of the CPU."""
        return compare_outputs(outputs, self.outputs(inputs), self._is_half)

    def compare_nodes(
        self, values: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> Comparison:
        """Compare what every node makes, up to the first that differs."""
        proto, folder = onnx_import.load_proto(self._model)
        whole = onnx.ModelProto()
        whole.CopyFrom(onnx_import.prepare(proto))
        listed = {value.name for value in whole.graph.output}
        for name in all_values(self.graph).outputs:
            if name not in listed:
                whole.graph.output.append(onnx.ValueInfoProto(name=name))
        expected = host.Reference(whole, folder).run(inputs)
        return compare_nodes(self.graph, values, expected, self._is_half)


def compare_outputs(
    actual: Mapping[str, Any], expected: Mapping[str, Any], is_half: bool = False
) -> Comparison:
    """Compare outputs by name.

    Args:
        is_half: values are stored in float16, which decides the tolerances.
    """
    if not is_half:
        return compare.compare(actual, expected)
    found = compare.compare(actual, expected, *compare.HALF)
    text = _overflow(actual, expected)
    if text:
        text += "; check(nodes=True), or --check=nodes, names the node that is first"
    return replace(found, note=text)


def compare_nodes(
    graph: Graph, actual: Mapping[str, Any], expected: Mapping[str, Any], is_half: bool = False
) -> Comparison:
    """Compare node after node, and stop at the first whose outputs differ.

    Args:
        is_half: values are stored in float16; the first node that overflows it is looked for first.
    """
    largest = relative = 0.0
    notes = _first_overflow(graph, actual, expected) if is_half else {}
    tolerance = compare.HALF if is_half else (compare.RTOL, compare.ATOL)
    for number, node in enumerate(graph.nodes, 1):
        names = _compared(node, expected)
        found = compare.compare({n: actual[n] for n in names}, {n: expected[n] for n in names},
                              *tolerance)  # fmt: skip
        largest = max(largest, found.max_abs_error)
        relative = max(relative, found.max_rel_error)
        if number in notes or (not notes and not found.passed):
            return replace(found, node=str(node), nodes=number, note=notes.get(number, ""))
    return Comparison(True, largest, relative, (), nodes=len(graph.nodes))


def _compared(node: Node, expected: Mapping[str, Any]) -> list[str]:
    return [name for name in node.outputs if isinstance(expected.get(name), np.ndarray)]


def _first_overflow(
    graph: Graph, actual: Mapping[str, Any], expected: Mapping[str, Any]
) -> dict[int, str]:
    """Return the number of the first node that overflows float16, and what to do about it."""
    for number, node in enumerate(graph.nodes, 1):
        found = _overflow(actual, {name: expected[name] for name in _compared(node, expected)})
        if found:
            return {number: f"node {node.name!r} ({node.qualified_type}): {found}; keep it in "
                            f"float32 by KEEP_FLOAT32={node.name}"}  # fmt: skip
    return {}


def _overflow(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Say how many values are infinite or NaN where those of the reference are finite."""
    count = total = 0
    largest = 0.0
    for name, truth in expected.items():
        got = actual.get(name)
        if got is None or got.shape != truth.shape or truth.dtype.kind != "f":
            continue
        lost = ~np.isfinite(got) & np.isfinite(truth)
        count, total = count + int(lost.sum()), total + truth.size
        largest = max(largest, float(np.abs(truth[lost]).max(initial=0.0)))
    if not count:
        return ""
    if largest > LARGEST:
        return (f"{count} of {total} values overflow float16 (largest reference value "
                f"{largest:g} > {LARGEST:g})")  # fmt: skip
    return (f"{count} of {total} values are infinite or NaN in float16 (largest reference value "
            f"there {largest:g})")  # fmt: skip
