"""Protocol of a runner, and the files of a model that every runner loads. Imports nothing heavy.

A runner is one runtime in one mode with one dtype. It prepares a case in a child, and what it has
loaded runs on arrays of the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from vklab.apps.compare.backend import Loaded, Runtime

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


class Timed(Loaded, Protocol):
    """A model that a runner has loaded.

    Attributes:
        variant: device and mode in words.
    """

    variant: str

    def device_ns(self, inputs: Arrays, runs: int) -> list[float]:
        """Return the device's own time of some runs; [] if the runtime does not tell."""
        return []


class Runner(Runtime, Protocol):
    """One runtime in one mode with one dtype."""

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

    def prepare(self, case: Case, /) -> Timed:
        """Load the model; raise Refused if this runner cannot take it."""
