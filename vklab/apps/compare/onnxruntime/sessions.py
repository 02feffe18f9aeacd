"""Sessions of ONNX Runtime: their options, their device, and plugins, which are registered first.

Nothing falls back to another provider silently.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import onnx

from vklab.apps.compare.backend import Refused
from vklab.apps.compare.onnxruntime import models, providers
from vklab.base.endings import MOST_CHARACTERS, one_line
from vklab.errors import SetupError
from vklab.runtime import host

FOLDERS = ("*/lib", "*/bin", "*/bin/x86_64")  # of NVIDIA's wheels for Linux and Windows
ASSIGNMENT = "session.record_ep_graph_assignment_info"
# Providers whose option `device_id` chooses a device.
NUMBERED = {"CUDAExecutionProvider", "DmlExecutionProvider", "MIGraphXExecutionProvider",
            "NvTensorRTRTXExecutionProvider", "TensorrtExecutionProvider"}  # fmt: skip
# What providers say where they find no device.
NO_DEVICE = ("Failed to get a WebGPU adapter", "no CUDA-capable device", "CUDA failure 100",
             "No devices found")  # fmt: skip


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

    ONNX Runtime itself takes the CPU where a library does not load, and says so on stderr only.
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
        raise SetupError(
            f"the library of {row.ep} does not load: {one_line(error)}",
            f"this needs {row.needs or f'a driver of {row.vendor}'}",
        ) from error


class Choices(Protocol):
    """Choices of a session: the attributes of `backend.OnnxRuntime` of the same names."""

    @property
    def provider(self) -> providers.Provider:
        """Return the row of the table."""

    @property
    def variant(self) -> providers.Variant:
        """Return the row of the provider."""

    @property
    def environment(self) -> Path | None:
        """Return the folder of a full build; None for this process."""

    @property
    def optimize(self) -> bool:
        """Return whether optimisations may change rounding."""

    @property
    def device_id(self) -> int:
        """Return the number of the device."""

    @property
    def session(self) -> Mapping[str, str]:
        """Return further options by name."""


def session_options(
    runtime: Any, provider: providers.Provider, optimize: bool = True,
    given: Mapping[str, str] | None = None,
) -> Any:  # fmt: skip
    """Return the options of a session on a provider.

    DirectML's rules: no memory pattern, and nodes one after the other.

    Args:
        runtime: the module onnxruntime.
        provider: row of the table.
        optimize: False keeps the optimisations off that change rounding.
        given: further options by name, as `set_option` takes them; they win.
    """
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if provider.ep == "DmlExecutionProvider":
        options.enable_mem_pattern = False
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry(ASSIGNMENT, "1")
    for name, value in (given or {}).items():
        set_option(runtime, options, name, value)
    return options


def set_option(runtime: Any, options: Any, name: str, value: str) -> None:
    """Set one option of a session; raise Refused for one that ONNX Runtime does not have.

    Args:
        runtime: the module onnxruntime.
        options: a SessionOptions.
        name: an attribute of SessionOptions, or the key of a config entry, which has a dot.
        value: a number, "true" or "false", a member of the option's enumeration, or a text.
    """
    if "." in name:
        options.add_session_config_entry(name, value)
        return
    known = [
        each
        for each in dir(options)
        if not each.startswith("_") and not callable(getattr(options, each))
    ]
    if name not in known:
        raise Refused(f"ONNX Runtime has no session option {name!r}; it has {', '.join(known)}")
    before = getattr(options, name)
    try:
        if isinstance(before, bool):
            made: Any = {"true": True, "false": False, "1": True, "0": False}[value.lower()]
        elif isinstance(before, int | str):
            made = type(before)(value)
        else:
            made = getattr(type(before), value)
        setattr(options, name, made)
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise Refused(
            f"{value!r} is no value of the session option {name!r}, which is {before!r} by default"
        ) from error


def open_session(
    backend: Choices, proto: onnx.ModelProto, folder: Path | None, profile: Path | None = None
) -> Any:
    """Return an InferenceSession on the backend's provider; other providers take no part silently.

    Args:
        backend: provider and options.
        proto: the model.
        folder: folder of external data.
        profile: prefix of the file into which the session writes its profile.
    """
    runtime = host.load_onnxruntime()
    row = backend.provider
    options = session_options(runtime, row, backend.optimize, backend.session)
    if folder is not None:
        options.add_session_config_entry(
            models.FOLDER, os.fsencode(folder).decode("utf-8", "replace")
        )  # whatever the locale
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    data = proto.SerializeToString()
    plugin = plugin_module(row)
    if plugin and not backend.environment and row.ep not in runtime.get_available_providers():
        devices = plugin_devices(runtime, row, plugin)
        if backend.device_id >= len(devices):
            raise Refused(
                f"{row.ep} has no device number {backend.device_id}; it has "
                f"{len(devices)}, counted from 0"
            )
        options.add_provider_for_devices([devices[backend.device_id]], plugin_options(plugin))
        return opened(runtime, row, data, options)
    given = dict(backend.variant.options)
    if row.ep in NUMBERED:
        given["device_id"] = str(backend.device_id)
    elif backend.device_id:
        raise Refused(
            f"{row.ep} does not number its devices; device {backend.device_id} was asked for"
        )
    if row.ep not in runtime.get_available_providers():
        raise Refused(
            f"the onnxruntime {runtime.__version__} of this process has no {row.ep}, "
            f"only {', '.join(runtime.get_available_providers())}"
        )
    require(runtime, row)
    return opened(runtime, row, data, options, providers=[(row.ep, given)])


def opened(
    runtime: Any, row: providers.Provider, model: bytes | str, options: Any, **more: Any
) -> Any:
    """Return a session; raise SetupError where the provider finds no device on this machine.

    Args:
        runtime: the module onnxruntime.
        row: row of the table.
        model: the model's bytes, or the path of its file.
        options: a SessionOptions.
        **more: other arguments of InferenceSession.
    """
    try:
        return runtime.InferenceSession(model, options, enable_fallback=0, **more)
    except Exception as error:  # ONNX Runtime raises RuntimeError and classes of its own
        text = one_line(error, len(str(error)))
        said = [text[text.index(words) :] for words in NO_DEVICE if words in text]
        if said:
            needs = row.needs or f"a driver of {row.vendor}"
            raise SetupError(
                f"{row.ep} finds no device on this machine: {said[0][:MOST_CHARACTERS]}",
                f"this needs {needs}",
            ) from error
        raise


def is_built_in(row: providers.Provider) -> bool:
    """Tell whether the installed build has a provider; SetupError for one that does not load."""
    try:
        return row.ep in host.load_onnxruntime().get_available_providers()
    except Exception as error:  # a broken installation raises anything
        raise SetupError(
            f"onnxruntime cannot be loaded: {error}", "pip install onnxruntime"
        ) from error


def plugin_module(row: providers.Provider) -> str:
    """Return the module of the provider's plugin if it is installed, else ""."""
    modules = [providers.PACKAGES[name].module for name in row.packages]
    return next((name for name in modules if name and importlib.util.find_spec(name)), "")


def plugin_options(module: str) -> dict[str, str]:
    """Return the options without which a plugin does not do what its row says.

    QNN must be told its library, that of the Neural Processing Unit, which also has an emulator
    for x86. OpenVINO computes in bfloat16 where the processor has it, unless float32 is asked for.
    """
    if module == "onnxruntime_ep_openvino":
        return {"load_config": json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "f32"}})}
    ask = getattr(importlib.import_module(module), "get_qnn_htp_path", None)
    return {"backend_path": str(ask())} if ask else {}


def plugin_devices(runtime: Any, row: providers.Provider, module: str) -> list[Any]:
    """Register a plugin and return its devices; raise SetupError if it sees none.

    The plugin is registered under the provider's own name, as some report the name under which
    they were registered.

    Args:
        runtime: the module onnxruntime.
        row: row of the table.
        module: Python module of the plugin.
    """
    path = importlib.import_module(module).get_library_path()
    if row.ep not in {device.ep_name for device in runtime.get_ep_devices()}:
        runtime.register_execution_provider_library(row.ep, path)
    found = [device for device in runtime.get_ep_devices() if device.ep_name == row.ep]
    if not found:
        raise SetupError(
            f"the plugin {module} is registered, but sees no device of this machine",
            f"this needs {row.needs or f'a device of {row.vendor}'}",
        )
    return found
