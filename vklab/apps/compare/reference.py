"""ONNX by reference: `onnx.reference` in NumPy, in the model's own dtype.

It is no oracle: it computes a float32 model in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from vklab.apps.compare.backend import Availability, Dtypes, ModelSource
from vklab.apps.compare.onnxruntime import models as onnxruntime_models
from vklab.graph import onnx_import


@dataclass(frozen=True)
class Reference:
    """Reference evaluator of the onnx package."""

    name: str = "onnx-reference-float32"
    device: str = "CPU, NumPy"
    dtypes: Dtypes = Dtypes("float32", "float32", "float32")
    packages: tuple[str, ...] = ("onnx", "numpy")

    def available(self) -> Availability:
        """Return that it is here: vklab needs the onnx package itself."""
        return Availability()

    def prepare(self, source: ModelSource) -> _Evaluated:
        """Load the model's ONNX form."""
        proto, folder = onnx_import.load_proto(source.require_onnx())
        size = onnxruntime_models.size_bytes(proto, folder)
        return _Evaluated(onnxruntime_models.inside(proto, folder), size)


class _Evaluated:
    """A model in the reference evaluator.

    Args:
        proto: the model with its external data inside.
        size_bytes: bytes of the model's files.
    """

    def __init__(self, proto: Any, size_bytes: int) -> None:
        self._runner = ReferenceEvaluator(proto)
        self._names = [value.name for value in proto.graph.output]
        self.nodes = {"onnx.reference": len(proto.graph.node)}
        self.size_bytes = size_bytes

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        with np.errstate(all="ignore"):
            values: Any = self._runner.run(None, dict(inputs))
        return dict(zip(self._names, values, strict=True))

    def layers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every value by name; the evaluator computes the same with and without."""
        with np.errstate(all="ignore"):
            values: Any = self._runner.run(None, dict(inputs), intermediate=True)
        return {
            name: np.asarray(value)
            for name, value in values.items()
            if name and isinstance(value, (np.ndarray, np.generic))
        }

    def close(self) -> None:
        """Free the evaluator."""
        del self._runner
