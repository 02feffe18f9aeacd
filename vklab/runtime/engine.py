"""What the parts of a session run on, and what runs one: a program, or the host.

Visited by lab 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from vklab import settings
from vklab.errors import SetupError
from vklab.plan.partition import Part
from vklab.plan.plan import Plan
from vklab.runtime import dump
from vklab.runtime.kernels import Kernel, Progress
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.record import Program
from vklab.runtime.reserve import Reserve
from vklab.runtime.weights import Weights
from vklab.shader import compiler
from vklab.types import DeviceInfo

__all__ = ["KEPT_PROGRAMS", "Device", "Engine", "Host", "Runner", "host"]

KEPT_PROGRAMS = 8
# In shared memory a program costs its plan and a command buffer only.
KEPT_IN_RESERVE = 64


class Runner(Protocol):
    """What runs a part: a mapping of its inputs in, a mapping of its outputs out."""

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once."""

    def close(self) -> None:
        """Free what it holds."""


@dataclass
class Engine:
    """What all parts of a session share: the device, its weights, how progress is told.

    Attributes:
        upper_bounds: the most that open dimensions ever are; `reserve` is then all memory.
        shaders: kernels of a compiled model, used before any is compiled.
    """

    opened: OpenDevice
    weights: Weights
    progress: Progress | None = None
    dtype: str = ""
    upper_bounds: Mapping[str, int] = field(default_factory=dict)
    reserve: Reserve | None = None
    kernels: dict[tuple[object, ...], Kernel] = field(default_factory=dict)
    shaders: Mapping[compiler.Variant, compiler.Shader] = field(default_factory=dict)

    @property
    def info(self) -> DeviceInfo:
        """Return the device that is planned for."""
        return self.opened.info

    def runner(self, plan: Plan) -> Runner | None:
        """Make what runs a plan."""
        dump.report(plan)
        program = Program(
            self.opened, plan, self.weights, self.progress, self.reserve, self.kernels
        )
        return Device(program)

    @property
    def kept(self) -> int:
        """Return how many plans a stage keeps."""
        return int(settings.get("KEPT_PLANS")) or (
            KEPT_IN_RESERVE if self.reserve else KEPT_PROGRAMS
        )


class Device:
    """Run a Vulkan part by its program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._names = [info.name for info in program.plan.graph.inputs]

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once."""
        return self.program.run([values[name] for name in self._names])

    def time_steps(
        self, values: Mapping[str, Any], repeats: int, whole: bool = False
    ) -> list[list[float]]:
        """Time its steps or the whole, as `Program.time_steps` does."""
        return self.program.time_steps(repeats, [values[n] for n in self._names], whole)

    def close(self) -> None:
        """Free everything but the weights."""
        self.program.close()


class Host:
    """Run a host part in ONNX Runtime or onnx.reference."""

    def __init__(self, part: Part) -> None:
        self.part = host(next(iter(part.reasons.values()), "")).HostPart(part.graph)

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once."""
        return self.part.run(values)

    def close(self) -> None:
        """Hold nothing."""


def host(reason: str = "") -> Any:
    """Return the module that runs parts on the host: models without such parts do without it."""
    try:
        from vklab.runtime import host
    except ImportError as error:
        raise SetupError(f"parts of this model run on the host, in ONNX Runtime ({error}); "
                         f"why they do: {reason or 'they depend on sizes'}",
                         "pip install onnx onnxruntime") from error  # fmt: skip
    return host
