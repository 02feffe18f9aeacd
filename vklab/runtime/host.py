"""The host's own runtime: ONNX Runtime on the CPU, the slower truth that results are held to.

The only module that imports onnxruntime. Visited by lab 17.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import numpy as np
import onnx

from vklab.errors import ModelError, SetupError

__all__ = ["Reference", "load_onnxruntime"]


def load_onnxruntime() -> ModuleType:
    """Import onnxruntime; SetupError with the line that installs it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise SetupError(f"onnxruntime cannot be imported ({error})",
                         "pip install onnxruntime") from error  # fmt: skip
    return onnxruntime


class Reference:
    """A model in ONNX Runtime on the CPU, without optimisations that change results."""

    def __init__(self, model: str | bytes | onnx.ModelProto) -> None:
        runtime = load_onnxruntime()
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        data = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
        try:
            self._session = runtime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its exceptions share no base but this one
            raise ModelError(f"ONNX Runtime does not load the model: {error}") from error

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))
