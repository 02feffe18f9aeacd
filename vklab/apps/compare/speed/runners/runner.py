"""Protocol of a runner, and the files of a model that every runner loads. Imports nothing heavy.

A runner is one runtime in one mode with one dtype. It loads a case in a child, and what it loads
runs on arrays of the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vklab.apps.compare.backend import Availability

__all__ = ["Arrays", "Case", "Loaded", "Runner"]

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One model with its inputs and its expected outputs, as files.

    Attributes:
        name: name of the model.
        onnx: the ONNX file.
        inputs: an .npz file with an array for each input.
        expected: an .npz file with the outputs of ONNX Runtime on the CPU, in float32.
        module: the same model as a pickled PyTorch module; None if PyTorch runs the ONNX graph.
        flops: floating-point operations of the products and convolutions.
        bytes: bytes of weights, inputs and outputs in float32, each counted once.
        on_device: whether rows are compared by device time, because the copies of large inputs and
            outputs would hide the kernels.
    """

    name: str
    onnx: Path
    inputs: Path
    expected: Path
    module: Path | None = None
    flops: int = 0
    bytes: int = 0
    on_device: bool = False


class Loaded(Protocol):
    """A model that a runner has loaded."""

    @property
    def variant(self) -> str:
        """Return device and mode in words."""

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Return the outputs by name; arrays of the host in and out."""

    def device_ns(self, inputs: Arrays, runs: int) -> list[float]:
        """Return the device's own time of some runs; [] if the runtime does not tell."""

    def close(self) -> None:
        """Free the model."""


class Runner(Protocol):
    """One runtime in one mode with one dtype."""

    @property
    def name(self) -> str:
        """Unique name; `--runner` matches it."""

    @property
    def dtype(self) -> str:
        """Dtype of products: a key of `tolerances.TABLE`."""

    @property
    def environment(self) -> Path | None:
        """Folder of the packages, if they conflict with those of this process."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of the child."""

    @property
    def on_gpu(self) -> bool:
        """Tell whether the runner uses the device of vklab, so that its floor is the same."""

    def takes(self, case: Case) -> bool:
        """Tell whether the runner measures this model at all."""

    def available(self) -> Availability:
        """Tell whether the runner can run here, else the reason and the install line."""

    def load(self, case: Case) -> Any:
        """Load the model; raise Refused if this runner cannot take it."""
