"""Shared libraries of ONNX Runtime's providers, loaded before a session asks for them.

ONNX Runtime takes the CPU where a provider's library does not load, and says so on stderr only.
Here that is the reason of the row.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path
from typing import Any

from vklab.apps.compare.onnxruntime import providers
from vklab.base.endings import one_line
from vklab.errors import SetupError

FOLDERS = ("*/lib", "*/bin", "*/bin/x86_64")  # of NVIDIA's wheels for Linux and Windows


def preload_nvidia(runtime: Any) -> None:
    """Load CUDA and cuDNN from NVIDIA's wheels, such as those that torch brings.

    ONNX Runtime searches beside itself only, and a peer has a folder of its own.
    """
    found = importlib.util.find_spec("nvidia")
    for root in (found.submodule_search_locations or ()) if found else ():
        for pattern in FOLDERS:
            for folder in sorted(Path(root).glob(pattern)):
                runtime.preload_dlls(directory=str(folder))


def require(runtime: Any, row: providers.Provider) -> None:
    """Load the library of a provider; raise SetupError with what the system's loader says.

    Nothing is asked where the provider is a part of ONNX Runtime's own library, nor on Windows,
    where ONNX Runtime searches other folders than ctypes.

    Args:
        runtime: the module onnxruntime.
        row: row of the table.
    """
    if row.vendor == "NVIDIA":
        preload_nvidia(runtime)
    folder = Path(getattr(runtime, "__file__", None) or ".").parent / "capi"
    library = folder / f"libonnxruntime_providers_{row.key}.so"
    if os.name != "posix" or not library.exists():
        return
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(library))
    except OSError as error:
        raise SetupError(f"the library of {row.ep} does not load: {one_line(error)}",
                         f"this needs {row.needs or f'a driver of {row.vendor}'}"
                         ) from error  # fmt: skip
