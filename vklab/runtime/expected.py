"""What a session's results are held to: the same model in ONNX Runtime, outputs or every node.

Needs onnx and onnxruntime, so a session loads it when somebody compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from vklab.graph import onnx_import
from vklab.graph.graph import Graph
from vklab.runtime import host, node_check
from vklab.runtime.check import Comparison

__all__ = ["Expected"]


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
        return node_check.compare_outputs(outputs, self.outputs(inputs), self._is_half)

    def compare_nodes(self, values: Mapping[str, Any], inputs: Mapping[str, Any]) -> Comparison:
        """Compare what every node makes, up to the first that differs."""
        expected = node_check.reference_values(self._model, self.graph, inputs)
        return node_check.compare_nodes(self.graph, values, expected, self._is_half)
