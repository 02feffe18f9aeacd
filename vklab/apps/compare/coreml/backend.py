"""Core ML itself as backends, one row for each choice of compute units; macOS only.

The row of a program that vklab executes, on any system, is in `on_vulkan.py`. Written
against a stand-in for coremltools, and not tried on a Mac.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab.apps.compare.backend import Availability, Dtypes, ModelSource, Refused
from vklab.apps.compare.coreml import inspect, units
from vklab.errors import SetupError

NO_PACKAGE = (
    "a Core ML row needs a package: give an .mlpackage or .mlmodel, or the PyTorch "
    "source as MODULE:FUNCTION, which is converted"
)


@dataclass(frozen=True)
class CoreML:
    """Core ML with one choice of compute units.

    Attributes:
        units: a key of `inspect.UNITS`.
    """

    units: str
    package_form = "float16"  # of `packages.FORMS`, for a factory

    @property
    def name(self) -> str:
        """Return the name of the row."""
        return f"coreml-{self.units.lower().replace('_', '-')}"

    @property
    def device(self) -> str:
        """Return the permitted units; Core ML does not say which it used."""
        return f"Core ML, {self.units}"

    @property
    def dtypes(self) -> Dtypes:
        """Return the dtypes: the loaded package decides; Core ML says nothing of its sums."""
        return Dtypes("package", "package", "unknown")

    def available(self) -> Availability:
        """Tell whether this is macOS with coremltools."""
        try:
            units.tools()
        except SetupError as error:
            return Availability(str(error).splitlines()[0], error.repair)
        return Availability()

    def prepare(self, source: ModelSource) -> Loaded:
        """Load the package on these units."""
        if source.package is None:
            raise Refused(NO_PACKAGE)
        facts = inspect.inspect(source.package)
        model = units.tools().load(str(source.package), self.units)
        return Loaded(model, facts.size_bytes, inspect.computes_in(source.package))


class Loaded:
    """A model that Core ML has loaded.

    Args:
        model: an MLModel.
        size_bytes: bytes of the package.
        dtype: as `inspect.computes_in` returns it.
    """

    def __init__(self, model: Any, size_bytes: int, dtype: str) -> None:
        self._model, self.size_bytes = model, size_bytes
        self.dtypes = Dtypes(dtype, dtype, "unknown")
        self.nodes: dict[str, int] = {}  # Core ML tells its plan, not what it executed

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        made = self._model.predict(dict(inputs))
        return {name: np.asarray(value) for name, value in made.items()}

    def layers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return nothing: Core ML shows no values between operators."""
        return {}

    def close(self) -> None:
        """Free the model."""
        self._model = None


def every() -> tuple[CoreML, ...]:
    """Return the rows of all choices of units."""
    return tuple(CoreML(name) for name in inspect.UNITS)
