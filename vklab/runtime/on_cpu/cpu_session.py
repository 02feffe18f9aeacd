"""Sessions of ONNX Runtime on the CPU; the only module that imports onnxruntime.

It needs no onnx, so that the process of references starts quickly.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from vklab.base import forking
from vklab.errors import ModelError, SetupError
from vklab.runtime.on_cpu.typed_session import TypedSession

_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"


def load_onnxruntime() -> ModuleType:
    """Import onnxruntime, or raise SetupError with the command that installs it."""
    # Its telemetry sends usage data, and its thread blocks the end of a forked child.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise SetupError(
            f"onnxruntime cannot be imported ({error})", "pip install onnxruntime"
        ) from error
    return onnxruntime


_sessions: weakref.WeakSet[Any] = weakref.WeakSet()


def open_session(model: bytes, options: Any) -> TypedSession:
    """Return a session on the CPU."""
    runtime = load_onnxruntime()
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    _sessions.add(session)
    return TypedSession(session, runtime)


def _keep_inherited() -> None:
    """Keep a child from ending inherited sessions: that waits for threads of the parent."""
    for session in list(_sessions):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


forking.in_child(_keep_inherited)


class CpuReference:
    """A model in ONNX Runtime on the CPU, without optimisations that change results.

    Args:
        model: the serialized model.
        folder: the folder of its external data; None for none.
    """

    def __init__(self, model: bytes, folder: Path | None = None) -> None:
        runtime = load_onnxruntime()
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        # Extended fusions change rounding; in quantized models by a whole quantization step.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        if folder is not None:
            # ONNX Runtime reads the bytes of UTF-8 that the system has, whatever the locale.
            utf8 = os.fsencode(folder).decode("utf-8", "replace")
            options.add_session_config_entry(_EXTERNAL_FOLDER, utf8)
        try:
            self._session = open_session(model, options)
        except Exception as error:  # ONNX Runtime's exceptions share no other base class
            raise ModelError(f"ONNX Runtime cannot load the model: {error}") from error

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        names = self._session.outputs
        return dict(zip(names, self._session.run(names, inputs), strict=True))


def load(state: dict[Any, Any], number: int, model: bytes, folder: Path | None) -> None:
    """Load a model in the process of references.

    Args:
        state: the dict of the process.
        number: the number of the model.
        model: the serialized model.
        folder: the folder of its external data; None for none.
    """
    state[number] = CpuReference(model, folder)
