"""PyTorch as a runner: eager, replayed from a CUDA graph, or compiled."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vklab.apps.compare.backend import Availability, Refused
from vklab.apps.compare.speed.runners.runner import Case
from vklab.apps.compare.torch import backend
from vklab.errors import SetupError

MODES = ("eager", "graph", "compiled")


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
            torch: Any = backend.load("timed").torch
        except SetupError as error:
            return Availability.of(error)
        has_cuda = torch.cuda.is_available()
        if not has_cuda and (self.mode == "graph" or self.dtype != "float32"):
            return Availability(
                f"torch {torch.__version__} sees no CUDA device",
                "an NVIDIA driver, and a torch built for CUDA",
            )
        if self.mode == "compiled" and not (backend.has_compiler() or shutil.which("gcc")):
            return Availability("torch.compile needs a C++ compiler", "install g++")
        return Availability()

    def prepare(self, case: Case) -> Any:
        """Load the model: a pickled module, or the ONNX graph as a module."""
        if self.dtype == "tfloat32" and self.mode == "compiled":
            raise Refused("the compiled mode is measured in strict float32 and in float16")
        mode = "resident" if self.resident else self.mode
        return backend.load("timed").load(case, mode, self.dtype)
