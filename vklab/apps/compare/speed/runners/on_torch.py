"""PyTorch as a runner: eager, replayed from a CUDA graph, or compiled."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from vklab.apps.compare.backend import Availability, Refused
from vklab.apps.compare.speed.runners.runner import Case
from vklab.errors import SetupError

__all__ = ["MODES", "Torch", "load_torch"]

MODES = ("eager", "graph", "compiled")


def load_torch() -> ModuleType:
    """Import torch, or raise SetupError with the command that installs it."""
    try:
        import torch
    except ImportError as error:
        raise SetupError(f"torch cannot be imported ({error})", "pip install torch") from error
    loaded: ModuleType = torch
    return loaded


@dataclass(frozen=True)
class Torch:
    """PyTorch on the GPU, or on the CPU where it sees no GPU.

    Attributes:
        name: name of the runner.
        mode: one of MODES.
        dtype: "float32" (strict: no TF32), "tfloat32" or "float16".
        resident: "cuda" for a graph on tensors that stay on the GPU, without copies; else "".
    """

    name: str
    mode: str = "eager"
    dtype: str = "float32"
    resident: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    environment: Path | None = None
    on_gpu = True

    def takes(self, case: Case) -> bool:
        """Tell that all models are measured, but compiled long chains."""
        return self.mode != "compiled" or case.name not in ("chain_add_1000", "chain_add_10000")

    def available(self) -> Availability:
        """Tell whether torch and what the mode needs are here."""
        try:
            torch = load_torch()
        except SetupError as error:
            return Availability(str(error).split(" to repair: ")[0], error.repair)
        has_cuda = torch.cuda.is_available()
        if not has_cuda and (self.mode == "graph" or self.dtype != "float32"):
            return Availability(f"torch {torch.__version__} sees no CUDA device",
                                "an NVIDIA driver, and a torch built for CUDA")  # fmt: skip
        if self.mode == "compiled" and not (shutil.which("c++") or shutil.which("g++")
                                            or shutil.which("gcc")):  # fmt: skip
            return Availability("torch.compile needs a C++ compiler", "install g++")
        return Availability()

    def prepare(self, case: Case) -> Any:
        """Load the model: a pickled module, or the ONNX graph as a module."""
        modules = importlib.import_module("vklab.apps.compare.speed.runners.torch_modules")
        if self.dtype == "tfloat32" and self.mode == "compiled":
            raise Refused("the compiled mode is measured in strict float32 and in float16")
        return modules.load(case, "resident" if self.resident else self.mode, self.dtype)
