"""ONNX Runtime as a backend: one class for all of its providers.

Decides which provider really executes each node. ONNX Runtime replaces a provider that fails by the
CPU and says so on stderr only; here that is refused.
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

from vklab.apps.compare import peers as environments
from vklab.apps.compare.backend import Availability, Dtypes, ModelSource
from vklab.apps.compare.onnxruntime import models, nodes, providers, sessions
from vklab.errors import SetupError
from vklab.graph import onnx_import
from vklab.runtime import host

# The name of the device's memory by provider; the others read and write that of the CPU.
MEMORIES = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "cuda",
            "NvTensorRTRTXExecutionProvider": "cuda", "DmlExecutionProvider": "dml",
            "MIGraphXExecutionProvider": "rocm"}  # fmt: skip
FULL_BUILD = "full build"
NARROW = "weights have 7 bits, as this CPU adds 8-bit products in 16 bits"
EMULATED = "Qualcomm's library emulates its processor on x86; its times say nothing"


class Bound:
    """One set of inputs in the device's memory, and memory for the outputs that they give.

    Source: ONNX Runtime, "I/O Binding"

    Args:
        session: an InferenceSession.
        inputs: arrays by input name; they are copied once.
        provider: name of the execution provider.
        device_id: number of its device.
    """

    def __init__(
        self, session: Any, inputs: Mapping[str, np.ndarray], provider: str, device_id: int
    ) -> None:
        values = host.load_onnxruntime().OrtValue
        memory = MEMORIES.get(provider, "cpu")
        self._session, self._binding = session, session.io_binding()
        self._names = [output.name for output in session.get_outputs()]
        for name, array in inputs.items():
            value = values.ortvalue_from_numpy(np.ascontiguousarray(array), memory, device_id)
            self._binding.bind_ortvalue_input(name, value)
        for name in self._names:
            self._binding.bind_output(name, memory, device_id)
        self.run()  # makes the outputs, in which later runs write again
        for name, value in zip(self._names, self._binding.get_outputs(), strict=True):
            self._binding.bind_ortvalue_output(name, value)

    def run(self) -> None:
        """Compute the outputs, and wait for them."""
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()

    def outputs(self) -> dict[str, np.ndarray]:
        """Return copies of the outputs by name on the host."""
        copies = self._binding.copy_outputs_to_cpu()
        return dict(zip(self._names, copies, strict=True))


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
        session: options of the session by name, as `sessions.set_option` takes them.
    """

    name: str
    provider: providers.Provider
    variant: providers.Variant
    environment: Path | None = None
    calibration: Mapping[str, np.ndarray] = field(default_factory=dict)
    optimize: bool = True
    device_id: int = 0
    session: Mapping[str, str] = field(default_factory=dict)
    binds = True  # inputs and outputs can stay in the memory of its device

    @property
    def device(self) -> str:
        """Return the hardware in words."""
        number = f", number {self.device_id}" if self.device_id else ""
        return f"{self.provider.device}{number}"

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
            return Availability(
                f"{row.ep} exists for {' and '.join(row.systems)}, and this is {here}",
                f"on {row.systems[0]}: {line}{needs}",
            )
        if self.environment:
            return Availability()  # its own process imports it, and says what fails
        if sessions.plugin_module(row):
            return Availability()
        try:
            if sessions.is_built_in(row) and _is_carrier(row):
                return Availability()
        except SetupError as error:
            return Availability.of(error)
        return Availability(f"the installed onnxruntime has no {row.ep}", line + needs)

    def prepare(self, source: ModelSource) -> Session:
        """Load the model's ONNX form on the provider."""
        proto, folder = onnx_import.load_proto(source.require_onnx())
        proto = host.readable(proto)
        if self.variant.name == "int8":
            proto = models.to_int8(proto, folder, self.calibration)
        elif self.variant.weights == "float16":
            proto = models.to_float16(proto, folder)
        return Session(self, proto, folder)


def every(peers: Path | None = None) -> tuple[OnnxRuntime, ...]:
    """Return the rows of all providers; `peers` has a folder for each full build.

    Without it, that of vklab's cache is taken.
    """
    made = []
    for row in providers.PROVIDERS:
        owned = [
            name
            for name in row.packages
            if providers.PACKAGES[name].kind == FULL_BUILD and name != "onnxruntime"
        ]
        environment = next(
            filter(None, (environments.environment(name, peers) for name in owned)), None
        )
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
        self._session: Any = sessions.open_session(
            backend, proto, folder, Path(self._profile.name) / "profile"
        )
        self._nodes: dict[str, int] = {}
        self.note = _note(backend)
        self.steps = models.steps_of(proto) if backend.variant.name == "int8" else None
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
        session = sessions.open_session(self._backend, tapped, self._folder)
        names = [output.name for output in session.get_outputs()]
        values = dict(zip(names, session.run(names, dict(inputs)), strict=True))
        if self._backend.variant.name != "int8":
            return values
        plain = [output.name for output in self._proto.graph.output]
        return models.layer_values(values, plain)

    def bind(self, inputs: Mapping[str, np.ndarray]) -> Bound:
        """Return a run whose inputs and outputs stay in the memory of the provider's device."""
        row = self._backend.provider
        return Bound(self._session, inputs, row.ep, self._backend.device_id)

    def close(self) -> None:
        """Free the session."""
        self._session = None
        self._profile.cleanup()


def _is_carrier(row: providers.Provider) -> bool:
    """Tell whether the row's own package is installed, for a provider that two packages carry."""
    rivals = [each for each in providers.PROVIDERS if each.ep == row.ep]
    return (
        len(rivals) == 1
        or importlib.util.find_spec("onnxruntime") is not None
        and any(_is_installed(name) for name in row.packages)
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
