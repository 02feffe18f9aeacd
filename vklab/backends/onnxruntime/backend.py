"""ONNX Runtime as a backend: one class for all of its providers.

Decides the session's options, and which provider really executes each node. ONNX Runtime replaces
a provider that fails by the CPU and says so on stderr only; here that is refused.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from vklab.backends.backend import Availability, Dtypes, ModelSource, Refused
from vklab.backends.onnxruntime import models, nodes, providers
from vklab.graph import onnx_import
from vklab.runtime import host

__all__ = ["OnnxRuntime", "Session", "every", "open_session", "plugin_devices", "plugin_options",
           "session_options"]  # fmt: skip

FULL_BUILD = "full build"
NARROW = "weights have 7 bits, as this CPU adds 8-bit products in 16 bits"
EMULATED = "Qualcomm's library emulates its processor on x86; its times say nothing"
ASSIGNMENT = "session.record_ep_graph_assignment_info"


@dataclass(frozen=True)
class OnnxRuntime:
    """One provider of ONNX Runtime with one choice of dtypes.

    Attributes:
        name: unique name of the backend.
        provider: row of `providers.PROVIDERS`.
        variant: row of the provider.
        environment: folder of another set of packages, for a full build; None for this one.
        calibration: inputs that fix the ranges of an int8 model; random ones if it is empty.
        optimize: False switches the optimisations off that change rounding.
        device_id: number of the device among those of the provider.
    """

    name: str
    provider: providers.Provider
    variant: providers.Variant
    environment: Path | None = None
    calibration: Mapping[str, np.ndarray] = field(default_factory=dict)
    optimize: bool = True
    device_id: int = 0

    @property
    def device(self) -> str:
        """Return the hardware in words."""
        return self.provider.device

    @property
    def dtypes(self) -> Dtypes:
        """Return the dtypes of weights, arithmetic and sums."""
        return Dtypes(self.variant.weights, self.variant.arithmetic, self.variant.sums)

    @property
    def widens_float16(self) -> bool:
        """Tell whether the provider turns float16 into float32 when it loads a model."""
        return self.provider.key == "cpu"

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the packages whose versions belong to a result."""
        return ("onnxruntime", *self.provider.packages)

    def calibrated(self, inputs: Mapping[str, np.ndarray]) -> OnnxRuntime:
        """Return this backend with the inputs that fix the ranges of an int8 model."""
        return dataclasses.replace(self, calibration=dict(inputs))

    def available(self) -> Availability:
        """Tell whether the provider is here, else the reason and the install line."""
        row, here = self.provider, providers.system()
        line = providers.install_line(row.packages[0])
        needs = f" (needs {row.needs})" if row.needs else ""
        if here not in row.systems:
            return Availability(f"{row.ep} exists for {' and '.join(row.systems)}, and this is "
                                f"{here}", f"on {row.systems[0]}: {line}{needs}")  # fmt: skip
        if self.environment:
            return Availability()  # its own process imports it, and says what fails
        if _plugin(row):
            return Availability()
        try:
            listed = host.load_onnxruntime().get_available_providers()
        except Exception as error:  # a broken installation raises anything
            return Availability(f"onnxruntime cannot be loaded: {error}", "pip install onnxruntime")
        if row.ep in listed and _is_carrier(row):
            return Availability()
        return Availability(f"the installed onnxruntime has no {row.ep}", line + needs)

    def prepare(self, source: ModelSource) -> Session:
        """Load the model's ONNX form on the provider."""
        proto, folder = onnx_import.load_proto(source.require_onnx())
        proto = models.readable(proto)
        if self.variant.name == "int8":
            proto = models.to_int8(proto, folder, self.calibration)
        elif self.variant.weights == "float16":
            proto = models.to_float16(proto, folder)
        return Session(self, proto, folder)


def every(peers: Path | None = None) -> tuple[OnnxRuntime, ...]:
    """Return the rows of all providers; `peers` has a folder for each full build."""
    made = []
    for row in providers.PROVIDERS:
        owned = [name for name in row.packages if providers.PACKAGES[name].kind == FULL_BUILD
                 and name != "onnxruntime"]  # fmt: skip
        folders = [peers / name for name in owned] if peers else []
        environment = next((folder for folder in folders if folder.is_dir()), None)
        for variant in row.variants:
            name = f"onnxruntime-{row.key}-{variant.name}"
            made.append(OnnxRuntime(name, row, variant, environment))
    return tuple(made)


class Session:
    """A model in ONNX Runtime on one provider, without a silent fallback.

    Args:
        backend: provider and options.
        proto: the model, already in the backend's dtype.
        folder: folder of external data.
    """

    def __init__(self, backend: OnnxRuntime, proto: onnx.ModelProto, folder: Path | None) -> None:
        self._backend, self._proto, self._folder = backend, proto, folder
        self._profile = tempfile.TemporaryDirectory(prefix="vklab-profile-")
        self._session: Any = open_session(backend, proto, folder,
                                          Path(self._profile.name) / "profile")  # fmt: skip
        self._nodes: dict[str, int] = {}
        self.note = _note(backend)
        self.size_bytes = models.size_bytes(proto, folder)
        self.versions = {"onnxruntime": host.load_onnxruntime().__version__}

    @property
    def nodes(self) -> Mapping[str, int]:
        """Return the nodes that each provider executed in the first run; {} before it."""
        return self._nodes

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name; the first run also counts nodes by provider."""
        names = [output.name for output in self._session.get_outputs()]
        values = self._session.run(names, dict(inputs))
        if not self._nodes:
            self._count()
        return dict(zip(names, values, strict=True))

    def _count(self) -> None:
        """End the profile of the first run, and refuse a session whose provider did nothing.

        One session serves for all: a second one of the same provider may run on the CPU.
        """
        executed = nodes.from_profile(Path(self._session.end_profiling()))
        assigned = nodes.from_assignment(self._session)
        self._nodes, note = nodes.agreed(assigned, executed)
        self.note = "; ".join(filter(None, [self.note, note]))
        nodes.require(self._backend.provider.ep, self._nodes)

    def layers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the values of all nodes by name, from a second session in which all are outputs.

        Taps keep fusions from happening and move results, so the plain run is the one judged.
        """
        if self._backend.variant.weights != "float32":
            tapped = models.tapped(self._proto, floats_only=True)
        else:
            tapped = models.tapped(self._proto)
        session = open_session(self._backend, tapped, self._folder)
        names = [output.name for output in session.get_outputs()]
        values = dict(zip(names, session.run(names, dict(inputs)), strict=True))
        if self._backend.variant.name != "int8":
            return values
        plain = [output.name for output in self._proto.graph.output]
        return models.layer_values(values, plain)

    def close(self) -> None:
        """Free the session."""
        self._session = None
        self._profile.cleanup()


def _is_carrier(row: providers.Provider) -> bool:
    """Tell whether the row's own package is installed, for a provider that two packages carry."""
    rivals = [each for each in providers.PROVIDERS if each.ep == row.ep]
    return len(rivals) == 1 or importlib.util.find_spec("onnxruntime") is not None and any(
        _is_installed(name) for name in row.packages
    )


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _note(backend: OnnxRuntime) -> str:
    """Return what a reader must know of a row: an emulator, or the ranges of int8."""
    if backend.provider.key == "qnn" and platform.machine().lower() in ("x86_64", "amd64"):
        return EMULATED
    if backend.variant.name != "int8":
        return ""
    ranges = "these inputs" if backend.calibration else "random inputs"
    narrow = f"; {NARROW}" if models.saturates() else ""
    return f"ranges of int8 are those of {ranges}{narrow}"


def session_options(runtime: Any, provider: providers.Provider, optimize: bool = True) -> Any:
    """Return the options of a session on a provider.

    DirectML's rules: no memory pattern, and nodes one after the other.

    Args:
        runtime: the module onnxruntime.
        provider: row of the table.
        optimize: False keeps the optimisations off that change rounding.
    """
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if provider.ep == "DmlExecutionProvider":
        options.enable_mem_pattern = False
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry(ASSIGNMENT, "1")
    return options


def open_session(
    backend: OnnxRuntime, proto: onnx.ModelProto, folder: Path | None, profile: Path | None = None
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
    options = session_options(runtime, row, backend.optimize)
    if folder is not None:
        options.add_session_config_entry(models.FOLDER, str(folder))
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    data = proto.SerializeToString()
    plugin = _plugin(row)
    if plugin and not backend.environment and row.ep not in runtime.get_available_providers():
        devices = plugin_devices(runtime, row, plugin)
        options.add_provider_for_devices([devices[backend.device_id]], plugin_options(plugin))
        return runtime.InferenceSession(data, options, enable_fallback=0)
    given = dict(backend.variant.options)
    if row.ep in ("CUDAExecutionProvider", "DmlExecutionProvider"):
        given["device_id"] = str(backend.device_id)
    if row.ep not in runtime.get_available_providers():
        raise Refused(f"the onnxruntime {runtime.__version__} of this process has no {row.ep}, "
                      f"only {', '.join(runtime.get_available_providers())}")  # fmt: skip
    return runtime.InferenceSession(data, options, providers=[(row.ep, given)], enable_fallback=0)


def _plugin(row: providers.Provider) -> str:
    """Return the module of the provider's plugin if it is installed, else ""."""
    modules = [providers.PACKAGES[name].module for name in row.packages]
    return next((name for name in modules if name and importlib.util.find_spec(name)), "")


def plugin_options(module: str) -> dict[str, str]:
    """Return the options without which a plugin executes nothing: QNN must be told its library.

    Its library of the Neural Processing Unit also has an emulator for x86.
    """
    ask = getattr(importlib.import_module(module), "get_qnn_htp_path", None)
    return {"backend_path": str(ask())} if ask else {}


def plugin_devices(runtime: Any, row: providers.Provider, module: str) -> list[Any]:
    """Register a plugin and return its devices; raise Refused if it sees none.

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
        raise Refused(f"the plugin {module} is registered, but sees no device of this machine: "
                      f"{row.needs or row.vendor} is needed")  # fmt: skip
    return found
