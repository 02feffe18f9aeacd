"""PyTorch as a backend: eager and compiled, on the CPU and on each kind of GPU.

torch itself is imported by `modules`, in the process of the backend.
"""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from vklab.apps.compare import backend
from vklab.apps.compare.backend import Availability, Dtypes, ModelSource, Refused
from vklab.base.endings import one_line
from vklab.errors import SetupError

# Kind of device -> words, and the command that installs a torch for it.
DEVICES: dict[str, tuple[str, str]] = {
    "cpu": ("CPU", "pip install torch"),
    "cuda": ("NVIDIA or AMD GPU", "pip install torch, the build for CUDA or ROCm, on a machine "
             "with such a GPU"),
    "mps": ("Apple GPU by Metal", "pip install torch on macOS with Apple silicon"),
    "xpu": ("Intel GPU", "pip install torch, the build for XPU, on a machine with an Intel GPU"),
}  # fmt: skip
NO_SOURCE = (
    "PyTorch needs the model's source: give MODULE:FUNCTION, a function that returns the "
    "nn.Module and the tuple of its example tensors"
)


@dataclass(frozen=True)
class Torch:
    """PyTorch on one kind of device.

    Attributes:
        kind: key of DEVICES.
        compiled: whether torch.compile comes first.
        dtype: "float32", "tfloat32" (products with 10 bits of mantissa, on CUDA) or "float16".
    """

    kind: str
    compiled: bool = False
    dtype: str = "float32"
    packages: tuple[str, ...] = ("torch",)
    runs_parts = False  # of an ONNX graph

    @property
    def name(self) -> str:
        """Return the name of the row."""
        how = "compiled" if self.compiled else "eager"
        return f"torch-{self.kind}-{how}-{'tf32' if self.dtype == 'tfloat32' else self.dtype}"

    @property
    def device(self) -> str:
        """Return the kind of device in words."""
        return DEVICES[self.kind][0]

    @property
    def dtypes(self) -> Dtypes:
        """Return the dtypes of weights, arithmetic and sums."""
        weights = "float16" if self.dtype == "float16" else "float32"
        return Dtypes(weights, self.dtype, "float32")

    def available(self) -> Availability:
        """Tell whether torch is here and knows such a device."""
        line = DEVICES[self.kind][1]
        if importlib.util.find_spec("torch") is None:
            return Availability("torch is not installed", line)
        try:
            reason = load_modules().missing(self.kind)
        except SetupError as error:
            return Availability(str(error).splitlines()[0], line)
        except Exception as error:  # a driver of the device may raise anything
            return Availability(f"torch cannot be used: {one_line(error)}", line)
        return Availability(reason, line if reason else "")

    def prepare(self, source: ModelSource) -> Any:
        """Make the module by its factory and move it to the device."""
        if not source.factory:
            raise Refused(NO_SOURCE)
        return load_modules().Loaded(source, self.kind, self.compiled, self.dtype)


def every() -> tuple[Torch, ...]:
    """Return the rows of all kinds of devices."""
    rows = [Torch(kind, compiled) for kind in DEVICES for compiled in (False, True)]
    return (*rows, Torch("cuda", False, "tfloat32"), Torch("cuda", False, "float16"))


def has_compiler() -> bool:
    """Tell whether there is a C++ compiler, which torch.compile needs on the CPU."""
    return bool(shutil.which("c++") or shutil.which("g++"))


def load(module: str) -> ModuleType:
    """Import a module of this folder that imports torch; SetupError with the command to install."""
    return backend.load_package(f"vklab.apps.compare.torch.{module}", "torch", "pip install torch")


def load_modules() -> ModuleType:
    """Import `modules`, what parity does with a torch module."""
    return load("modules")
