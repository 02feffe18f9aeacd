"""Protocols of runtimes and backends, and the records that their users share; no heavy imports.

A backend is one runtime on one device with one set of dtypes. It says whether it can run here,
prepares one model, and the prepared model runs inputs. What it returns is judged elsewhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vklab.errors import ModelError, SetupError

# Of a row: "wrong" of the benchmark alone, "recorded" of parity alone.
STATUSES = ("ran", "wrong", "absent", "refused", "crashed", "timeout", "failed", "recorded")


class Refused(ModelError):
    """An available backend cannot take this model: the row says "refused" and the reason."""


@dataclass(frozen=True)
class Dtypes:
    """Dtypes of a backend, in the words of NumPy.

    Attributes:
        weights: dtype in which the weights are stored, for example "float16".
        arithmetic: dtype in which products and activations are computed.
        sums: dtype of long sums (of a convolution, of a matrix product); "" if nobody says.
    """

    weights: str
    arithmetic: str
    sums: str


@dataclass(frozen=True)
class Availability:
    """Whether a backend can run here. It can if `reason` is empty.

    Attributes:
        reason: one sentence that says what is missing.
        install: the command or the step that would install it.
    """

    reason: str = ""
    install: str = ""

    @classmethod
    def of(cls, error: SetupError) -> Availability:
        """Return the answer that something is missing, with the error's own repair."""
        return cls(str(error).split(" to repair: ")[0], error.repair)

    def __bool__(self) -> bool:
        """Tell whether the backend can run here."""
        return not self.reason


@dataclass(frozen=True)
class ModelSource:
    """One model in all the forms that exist.

    Attributes:
        name: short name for the report.
        factory: "module:function", the PyTorch source. It returns a pair: the nn.Module in
            eval mode and the tuple of its example tensors. Empty if there is none.
        onnx: the ONNX file, given or exported from the factory.
        package: the .mlpackage or .mlmodel, given or converted.
        named: whether the catalogue builds the ONNX file of this name.
    """

    name: str
    factory: str = ""
    onnx: Path | None = None
    package: Path | None = None
    named: bool = False

    def require_onnx(self) -> Path:
        """Return the ONNX file; raise Refused if the model has none."""
        if self.onnx is None:
            raise Refused(
                f"{self.name} has no ONNX form; give an .onnx file, or its PyTorch "
                "source as MODULE:FUNCTION, which is exported"
            )
        return self.onnx


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of a quantised model by the names of the float32 model's values.

    Attributes:
        values: step of each quantised activation.
        weights: steps of each quantised weight, in a shape that broadcasts to it.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """Answer of one backend, read back from its process.

    Attributes:
        outputs: the model's outputs by name.
        layers: values of layers by ONNX value name (or fx name); empty unless asked for.
        nodes: nodes that each provider really executed.
        versions: version by package.
        latencies_ns: time of each measured run.
        size_bytes: bytes of the model as this backend stores it.
    """

    outputs: dict[str, np.ndarray]
    layers: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    latencies_ns: tuple[int, ...] = ()
    size_bytes: int = 0


class Loaded(Protocol):
    """A model that a runtime has loaded."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Return the model's outputs, by name, on the host."""

    def close(self) -> None:
        """Free what the model owns."""


class Runtime(Protocol):
    """Common part of a backend of parity and a runner of the benchmark: all that a child needs.

    They stay two protocols above it. Parity asks a model for nodes and layers, the benchmark for
    the device's time and for the least load; no runtime answers all of these questions.
    """

    @property
    def name(self) -> str:
        """Unique name, by which a command chooses it."""

    def available(self) -> Availability:
        """Tell whether it can run here, else the reason and the install line."""

    def prepare(self, model: Any, /) -> Any:
        """Return the model as Loaded; raise Refused if this runtime cannot take it."""


class Prepared(Loaded, Protocol):
    """A model that one backend has loaded."""

    @property
    def nodes(self) -> Mapping[str, int]:
        """Nodes that each provider really executes; empty if the backend has no nodes."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the model as this backend stores it."""

    def layers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return values of layers by name; {} if this backend cannot show them."""


@runtime_checkable
class Backend(Runtime, Protocol):
    """One runtime on one device with one set of dtypes, named as "onnxruntime-cpu-float16"."""

    @property
    def device(self) -> str:
        """Device in words, for example "llvmpipe (LLVM 15.0.7)"."""

    @property
    def dtypes(self) -> Dtypes:
        """Dtypes of weights, arithmetic and sums."""

    def prepare(self, source: ModelSource, /) -> Prepared:
        """Load the model; raise Refused if this backend cannot take it in any of its forms."""


@dataclass(frozen=True)
class Row:
    """One row of the parity report: the keys of its JSON form.

    Attributes:
        backend: name of the backend.
        device: device in words.
        dtypes: how it computes.
        status: one of STATUSES.
        reason: why it is absent, refused, crashed, timed out or failed; "" if it ran and passed.
        install: the command that installs an absent backend, and the one that fills its row.
        nodes: nodes by provider.
        max_abs_error: largest absolute error of all outputs against the oracle; None if none.
        passed: whether all outputs lie within the tolerance; None if it did not run.
        first_layer: name of the first layer out of tolerance; None if none or not asked.
        latency_us: as `timing.latency_us` returns it; None if not measured.
        bytes: bytes of the model as this backend stores it.
        recorded: provenance of a recorded result; None if it ran here.
    """

    backend: str
    device: str
    dtypes: Dtypes
    status: str
    reason: str = ""
    install: str = ""
    nodes: Mapping[str, int] = field(default_factory=dict)
    max_abs_error: float | None = None
    passed: bool | None = None
    first_layer: str | None = None
    latency_us: Mapping[str, float] | None = None
    bytes: int | None = None
    recorded: Mapping[str, Any] | None = None


def load_package(module: str, words: str, install: str) -> ModuleType:
    """Import a module; raise SetupError if it, or a library of it, is missing or does not load.

    Args:
        module: its full name: of a package, or of a module of ours that imports one at its top.
        words: the package in the error's sentence.
        install: the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # a library that does not load
        raise SetupError(f"{words} cannot be imported ({error})", install) from error
