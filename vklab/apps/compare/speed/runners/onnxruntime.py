"""ONNX Runtime as a runner: on the CPU, on CUDA with and without a graph, on WebGPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.compare.backend import Availability, Refused
from vklab.apps.compare.onnxruntime import nodes, providers, sessions
from vklab.apps.compare.speed.runners.runner import Arrays, Case, Timed
from vklab.errors import SetupError
from vklab.runtime import host


@dataclass(frozen=True)
class OnnxRuntime:
    """One execution provider, as the table of providers has it.

    Attributes:
        name: name of the runner.
        provider: row of the table.
        variant: row of the provider, with its dtype and options.
        environment: folder of the provider's package.
        graph: whether runs are replayed from a CUDA graph.
    """

    name: str
    provider: providers.Provider
    variant: providers.Variant
    environment: Path | None = None
    graph: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """Return the dtype of products."""
        return self.variant.arithmetic

    @property
    def package(self) -> str:
        """Return the package that carries the provider."""
        return self.provider.packages[0]

    @property
    def on_gpu(self) -> bool:
        """Tell whether the provider uses the GPU."""
        return self.provider.key != "cpu"

    def takes(self, case: Case) -> bool:
        """Tell that every model is measured."""
        return True

    def available(self) -> Availability:
        """Tell whether the installed build has the provider."""
        install = "pip install onnxruntime"
        if self.package != "onnxruntime":
            install = "vklab bench peers"
        try:
            if sessions.is_built_in(self.provider):
                return Availability()
        except SetupError as error:
            return Availability(Availability.of(error).reason, install)
        needed = " and ".join(filter(None, [self.package, self.provider.needs]))
        reason = f"the installed onnxruntime has no {self.provider.ep}; it needs {needed}"
        return Availability(reason, install)

    def prepare(self, case: Case) -> SessionModel:
        """Load the model on the provider."""
        return CapturedModel(self, case) if self.graph else SessionModel(self, case)


class SessionModel(Timed):
    """A session of ONNX Runtime.

    Args:
        runner: the provider.
        case: the model.
    """

    def __init__(self, runner: OnnxRuntime, case: Case) -> None:
        runtime = host.load_onnxruntime()
        row, graph = runner.provider, {"enable_cuda_graph": "1"} if runner.graph else {}
        sessions.require(runtime, row)
        options = sessions.session_options(runtime, row)
        chosen: list[Any] = [(row.ep, {**runner.variant.options, **graph})]
        chosen += [nodes.CPU] if runner.on_gpu else []
        self._session: Any = sessions.opened(
            runtime, row, str(case.onnx), options, providers=chosen
        )
        self._names = [output.name for output in self._session.get_outputs()]
        self.versions = {runner.package: runtime.__version__}
        self.variant = _assigned(self._session, row.ep)

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        return dict(zip(self._names, self._session.run(self._names, dict(inputs)), strict=True))

    def close(self) -> None:
        """Free the session."""
        self._session = None


class CapturedModel(SessionModel):
    """A session whose runs are replayed from a CUDA graph, with memory bound to it.

    Args:
        runner: the provider.
        case: the model.
    """

    def __init__(self, runner: OnnxRuntime, case: Case) -> None:
        super().__init__(runner, case)
        if "on the CPU" in self.variant:
            raise Refused(f"a CUDA graph holds no nodes of the CPU: {self.variant}")
        self._bound: Any = None
        self._values: dict[str, Any] = {}
        with np.load(case.expected) as expected:
            self._results = {name: expected[name] for name in self._names}

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Return the outputs by name; the first run captures the graph."""
        if self._bound is None:
            self._bind(inputs)
        for name, array in inputs.items():
            self._values[name].update_inplace(array)
        self._session.run_with_iobinding(self._bound)
        return {name: self._values[name].numpy() for name in self._names}

    def _bind(self, inputs: Arrays) -> None:
        runtime = host.load_onnxruntime()
        self._bound = self._session.io_binding()
        for name, array in inputs.items():
            self._values[name] = runtime.OrtValue.ortvalue_from_numpy(array, "cuda", 0)
            self._bound.bind_ortvalue_input(name, self._values[name])
        for name, array in self._results.items():  # a graph's addresses must not change
            self._values[name] = runtime.OrtValue.ortvalue_from_shape_and_type(
                array.shape, array.dtype, "cuda", 0
            )
            self._bound.bind_ortvalue_output(name, self._values[name])

    def close(self) -> None:
        """Free the session and its memory."""
        self._bound, self._values = None, {}
        super().close()


def _assigned(session: Any, provider: str) -> str:
    """Return the nodes of each provider in words; raise Refused if the provider has none."""
    if provider not in session.get_providers():
        raise Refused(
            f"ONNX Runtime could not start {provider}, which found no device or no "
            f"library that it accepts, and fell back to {session.get_providers()[0]}"
        )
    counts = nodes.from_assignment(session)
    if counts and not counts.get(provider):
        raise Refused(f"ONNX Runtime gave no node to {provider}")
    on_cpu = counts.get(nodes.CPU, 0) if provider != nodes.CPU else 0
    return provider.removesuffix("ExecutionProvider") + (
        f", {on_cpu} nodes on the CPU" if on_cpu else ""
    )
