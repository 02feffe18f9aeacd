"""The host's own runtime: ONNX Runtime on the CPU, the slower truth that results are held to.

The only module that imports onnxruntime. Visited by lab 17.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
from onnx import helper

from vklab.errors import ModelError, SetupError

__all__ = ["Reference", "load_onnxruntime"]

_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"


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

    def __init__(self, proto: onnx.ModelProto, folder: Path | None = None) -> None:
        runtime = load_onnxruntime()
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        if folder is not None:
            options.add_session_config_entry(_EXTERNAL_FOLDER, str(folder))
        # onnx writes newer IR versions than ONNX Runtime reads; what changed is not in use here.
        oldest = helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
        readable = onnx.ModelProto()
        readable.CopyFrom(proto)
        readable.ir_version = min(proto.ir_version, max(oldest, 8))
        try:
            self._session = runtime.InferenceSession(
                readable.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its exceptions share no base but this one
            raise ModelError(f"ONNX Runtime does not load the model: {error}") from error

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))
