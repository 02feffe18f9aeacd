"""Backends that misbehave, for tests of the parity report; children import this module.

The model is y = relu(x w), z = y + 1, with float32 x [2, 3] and w [3, 4]; tests build it, so that
children need not import onnx.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from support.runs.waits import hang
from vklab.apps.compare.backend import Availability, Dtypes, ModelSource, Refused
from vklab.errors import SetupError

FLOAT32 = Dtypes("float32", "float32", "float32")
WEIGHT = np.random.default_rng(7).standard_normal((3, 4)).astype(np.float32)


@dataclass(frozen=True)
class Strange:
    """A NumPy backend with one defect, by its name."""

    name: str
    device: str = "NumPy"
    dtypes: Dtypes = FLOAT32

    def available(self) -> Availability:
        """Return what the defect asks for."""
        if self.name == "missing":
            return Availability("the package strange is not installed", "pip install strange")
        if self.name == "crashes-asked":
            os.kill(os.getpid(), signal.SIGSEGV)
        return Availability()

    def prepare(self, source: ModelSource) -> Prepared:
        """Load nothing, or fail."""
        if self.name == "refuses":
            raise Refused("node 'relu' (Relu) is not supported")
        if self.name == "library":
            raise SetupError("libstrange.so cannot be loaded", "apt install libstrange")
        return Prepared(self.name)


class Prepared:
    """The model in NumPy, with a defect."""

    def __init__(self, defect: str) -> None:
        self._defect, self._runs = defect, 0
        self.nodes, self.size_bytes = {"NumPy": 3}, 48

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs, or misbehave."""
        self._runs += 1
        defect = self._defect
        if defect == "crashes":
            os.write(2, b"strange: illegal memory access\n")
            os.kill(os.getpid(), signal.SIGSEGV)
        if defect == "exits":
            os._exit(3)
        if defect == "hangs" or (defect == "hangs-later" and self._runs > 1):
            hang()
        if defect == "raises":
            raise RuntimeError("out of strange memory")
        if defect == "prints":
            print("hello from the driver", flush=True)
            os.write(1, b"\x00\x01 not a message")
        return self._outputs(inputs["x"])

    def _outputs(self, x: np.ndarray) -> dict[str, np.ndarray]:
        y = np.maximum(x @ WEIGHT, 0)
        if self._defect == "nan":
            y[0, 0] = np.nan
        if self._defect == "wrong":
            y = y * np.float32(1.01)
        if self._defect == "random":
            y = y + np.float32(1e-7) * np.float32(self._runs)
        made = {"y": y, "z": y + 1}
        if self._defect == "order":
            return {"z": made["z"], "y": made["y"]}
        if self._defect == "dtype":
            return {name: array.astype(np.float16) for name, array in made.items()}
        if self._defect == "names":
            return {"Y:0": made["y"][:, :2], "z": made["z"]}
        return made

    def layers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return nothing: it shows no layers."""
        return {}

    def close(self) -> None:
        """Free nothing."""
