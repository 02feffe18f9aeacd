"""Session: a model loaded on a device. `load` is the door through which everybody comes.

Checks what it is fed, plans on the first use of a shape, replays after that. Visited by all labs.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import CheckError, ModelError, SetupError, VklabError
from vklab.graph import onnx_import, shapes
from vklab.graph.graph import Graph
from vklab.plan import plan as plans
from vklab.plan.plan import Plan
from vklab.runtime import check, feeds, host, kernels, open_devices
from vklab.runtime.profile import Profile, Timing, summarize
from vklab.runtime.record import Program
from vklab.runtime.weights import Weights
from vklab.types import DeviceInfo, TensorInfo

__all__ = ["Session", "load"]

KEPT_PROGRAMS = 8


def load(
    model: onnx_import.Model,
    device: int | str | None = None,
    progress: kernels.Progress | None = None,
) -> Session:
    """Load an ONNX model on a Vulkan device.

    Args:
        model: a path, bytes, or an onnx.ModelProto.
        device: index or part of a name; default the fastest, or VKLAB_DEVICE.
        progress: called as (done, of, kernel) while kernels compile.

    Raises FileNotFoundError, ModelError, UnsupportedOperatorError, PlanError, SetupError.
    """
    proto, folder = onnx_import.load_proto(model)
    graph = onnx_import.from_proto(proto, folder)
    return Session(graph, open_devices.open_device(device), model, progress)


class Session:
    """A model on a device, ready to run; close it, or use it in a `with` block.

    Thread-safe: runs of one session follow each other.
    """

    def __init__(
        self,
        graph: Graph,
        opened: open_devices.OpenDevice,
        model: onnx_import.Model,
        progress: kernels.Progress | None = None,
    ) -> None:
        self.graph = graph
        self._opened: open_devices.OpenDevice | None = opened
        self._model = model
        self._progress = progress
        self._reference: host.Reference | None = None
        self._weights = Weights(opened)
        self._programs: OrderedDict[tuple[tuple[int, ...], ...], Program] = OrderedDict()
        self._lock = threading.Lock()
        self._current: Program | None = None
        opened.sessions.add(self)
        try:
            shapes.require_operators(graph)
            if not shapes.unknown_dims(graph):
                self._program(tuple(info.dims for info in graph.inputs))
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------------------ looking in

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Return name, dtype and shape of every input; open dimensions are names."""
        return self.graph.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs, in the graph's order."""
        return self.graph.outputs

    @property
    def device(self) -> DeviceInfo:
        """Return the device this session runs on."""
        return self._require_open().info

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """Return all devices this session runs on."""
        return (self.device,)

    @property
    def plan(self) -> Plan:
        """Return the plan of the shapes used last; ModelError before the first run of a model
        with open dimensions.
        """
        self._require_open()
        if self._current is None:
            names = ", ".join(shapes.unknown_dims(self.graph))
            raise ModelError(f"nothing is planned yet: the first run tells the sizes of {names}")
        return self._current.plan

    def __repr__(self) -> str:
        where = self._opened.info if self._opened else "closed"
        return f"Session of {self.graph} on {where}"

    def _repr_html_(self) -> str:
        return self._current.plan._repr_html_() if self._current else self.graph._repr_html_()

    # --------------------------------------------------------------------------------- running

    def run(self, *inputs: Any) -> dict[str, np.ndarray]:
        """Run the model once.

        Args:
            inputs: one dict from input names to arrays, or the arrays in the graph's order.

        Returns the outputs by name, in the graph's order. Raises ModelError for a wrong name,
        dtype or shape.
        """
        with self._lock:
            self._require_open()
            arrays = feeds.arrays(self.graph.inputs, inputs)
            program = self._program(tuple(array.shape for array in arrays))
            if int(settings.get("DEBUG")) >= 2:
                self._print_profile(program, arrays)
            outputs = program.run(arrays)
        if settings.get("CHECK"):
            self._raise_difference(arrays, outputs)
        return outputs

    def _program(self, key: tuple[tuple[int, ...], ...]) -> Program:
        """Return the program for input shapes: planned and recorded once, then kept a while."""
        program = self._programs.get(key)
        if program is None:
            opened = self._require_open()
            sizes = feeds.open_sizes(self.graph.inputs, key)
            plan = plans.plan_model(self.graph, sizes, opened.info)
            if int(settings.get("DEBUG")) >= 1:
                print(plan, file=sys.stderr)
            _dump(plan)
            program = Program(opened, plan, self._weights, self._progress)
            self._programs[key] = program
            if len(self._programs) > KEPT_PROGRAMS:
                self._programs.popitem(last=False)[1].close()
        elif len(self._programs) > 1:
            self._programs.move_to_end(key)
        self._current = program
        return program

    def reference(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what ONNX Runtime computes on the CPU for the same inputs."""
        if self._reference is None:
            self._reference = host.Reference(*onnx_import.load_proto(self._model))
        return self._reference.run(inputs)

    def check(self, inputs: Mapping[str, np.ndarray]) -> check.Comparison:
        """Run, and compare every output with ONNX Runtime on the CPU."""
        with settings.settings(CHECK=""):
            outputs = self.run(inputs)
        return check.compare(outputs, self.reference(inputs))

    def _raise_difference(
        self, arrays: Sequence[np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> None:
        wanted = settings.get("CHECK")
        if wanted != "outputs":
            raise SetupError(f"VKLAB_CHECK={wanted!r} is not known; use 'outputs'")
        inputs = {i.name: array for i, array in zip(self.graph.inputs, arrays, strict=True)}
        comparison = check.compare(outputs, self.reference(inputs))
        if not comparison.passed:
            raise CheckError(f"{self.device.name} {comparison}")

    # ------------------------------------------------------------------------------- profiling

    def profile(self, *inputs: Any, repeats: int = 10) -> Profile:
        """Time every dispatch on the device's own clock; inputs as in `run`.

        The figures are medians over `repeats` runs after one that is not counted.
        """
        if repeats < 1:
            raise ValueError(f"repeats={repeats}: at least one run is timed")
        with self._lock:
            arrays = feeds.arrays(self.graph.inputs, inputs)
            return self._profile(self._program(tuple(a.shape for a in arrays)), arrays, repeats)

    def _profile(
        self, program: Program, arrays: Sequence[np.ndarray], repeats: int
    ) -> Profile:
        self._require_timestamps(program)
        if not program.plan.chunks:
            return Profile(program.plan.device, (), repeats)
        samples = program.time_steps(repeats + 1, arrays)
        return summarize(program.plan, samples[1:])

    def time(self, *inputs: Any, repeats: int = 30) -> Timing:
        """Time whole runs, on the host's clock and on the device's; inputs as in `run`.

        The work is recorded as `run` records it; one run before is not counted.
        """
        with self._lock:
            arrays = feeds.arrays(self.graph.inputs, inputs)
            program = self._program(tuple(array.shape for array in arrays))
            self._require_timestamps(program)
            samples = program.time_steps(repeats + 1, arrays, whole=True)[1:]
        device_ns, host_ns = zip(*samples, strict=True)
        return Timing(host_ns, device_ns)

    def _require_timestamps(self, program: Program) -> None:
        if not program.opened.device.compute_queue.family.timestamp_valid_bits:
            raise SetupError(f"{self.device.name} has no timestamps on its compute queue")

    def _print_profile(self, program: Program, arrays: Sequence[np.ndarray]) -> None:
        print(self._profile(program, arrays, 1), file=sys.stderr)

    # --------------------------------------------------------------------------------- closing

    def _require_open(self) -> open_devices.OpenDevice:
        if self._opened is None:
            raise VklabError("this session is closed; load the model again")
        return self._opened

    def close(self) -> None:
        """Free everything this session holds on its device; a second call does nothing."""
        with self._lock:
            self._current = None
            while self._programs:
                self._programs.popitem()[1].close()
            if self._opened is not None and not self._opened.is_stuck:
                self._weights.close()
                self._opened.sessions.discard(self)
            self._opened = None

    def __del__(self) -> None:
        opened = getattr(self, "_opened", None)
        if opened is not None:
            opened.forget(*self._programs.values(), self._weights)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _dump(plan: Plan) -> None:
    """Write the plan as text into the folder of the DUMP switch, beside the SPIR-V."""
    folder = str(settings.get("DUMP"))
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        lines = ["\t".join(row) for row in plan.rows()]
        shapes_text = "_".join("x".join(map(str, i.shape)) for i in plan.graph.inputs)
        name = "".join(c if c.isalnum() else "_" for c in plan.graph.name)[:40]
        target = Path(folder) / f"plan-{name}-{shapes_text}.txt"
        target.write_text("\n".join([str(plan), *lines, ""]), encoding="utf-8")
