"""Session: a model loaded on a device. `load` is the door through which everybody comes.

Checks what it is fed, plans on the first use of a shape, replays after that. Visited by all labs.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vklab import settings
from vklab.errors import CheckError, ModelError, SetupError, VklabError
from vklab.graph import bounds, passes, shapes
from vklab.graph.graph import Graph
from vklab.plan.parted import PartedPlan
from vklab.plan.plan import Plan
from vklab.runtime import feeds, kernels, open_devices, parts
from vklab.runtime.check import Comparison
from vklab.runtime.compiled import container, restore
from vklab.runtime.compiled import saved as saves
from vklab.runtime.engine import Device, Engine
from vklab.runtime.profile import Profile, Row, Timing, summarize
from vklab.runtime.reserve import Reserve
from vklab.runtime.weights import Weights
from vklab.types import DeviceInfo, TensorInfo

if TYPE_CHECKING:
    from vklab.graph import onnx_import
    from vklab.runtime import expected

__all__ = ["Session", "load"]


def load(
    model: onnx_import.Model,
    device: int | str | None = None,
    progress: kernels.Progress | None = None,
    *,
    dtype: str | None = None,
    upper_bounds: Mapping[str, int] | None = None,
) -> Session:
    """Load an ONNX model, or one that `vklab compile` made, on a Vulkan device.

    Args:
        model: a path, bytes, or an onnx.ModelProto.
        device: index or part of a name; default the fastest, or VKLAB_DEVICE.
        progress: called as (done, of, kernel) while kernels compile.
        dtype: "float16" to compute a float32 model in half precision, between inputs and outputs
            that stay float32; default as it is. A device that has no float16 takes 32 bits for
            each: same results, nothing saved.
        upper_bounds: the most that open dimensions ever are, by name (INPUT.AXIS where they have
            none): memory for all shapes up to there is reserved once.

    Raises FileNotFoundError, ModelError, UnsupportedOperatorError, PlanError, SetupError.
    """
    saved = saves.read(model) if container.is_compiled(model) else None
    graph = saved.graph if saved else _onnx().onnx_import.load_graph(model)
    opened = open_devices.open_device(device)
    return Session(graph, opened, model, progress, saved, dtype=dtype, upper_bounds=upper_bounds)


class Session:
    """A model on a device, ready to run; close it, or use it in a `with` block.

    What no kernel can do runs on the host. Thread-safe: runs of one session follow each other.
    """

    def __init__(
        self,
        graph: Graph,
        opened: open_devices.OpenDevice,
        model: onnx_import.Model | None,
        progress: kernels.Progress | None = None,
        saved: saves.Saved | None = None,
        *,
        dtype: str | None = None,
        upper_bounds: Mapping[str, int] | None = None,
    ) -> None:
        dtype = saved.dtype if saved and dtype is None else dtype
        passes.require_dtype(dtype or "")
        limits = saved.upper_bounds if saved and upper_bounds is None else upper_bounds
        self.upper_bounds = bounds.resolve(graph.inputs, limits or {})
        self.graph = graph
        given = (*graph.inputs, *graph.initializers.values())
        self._is_half = bool(dtype) or any(info.dtype == "float16" for info in given)
        self._opened: open_devices.OpenDevice | None = opened
        self._model = None if saved else model
        self._weights = Weights(opened)
        self._reserve = Reserve(opened)
        engine = Engine(
            opened, self._weights, progress, dtype or "", self.upper_bounds,
            self._reserve if self.upper_bounds else None,
        )  # fmt: skip
        self._root = restore.root(saved, engine) if saved else parts.Stage(graph, engine)
        self._lock = threading.Lock()
        opened.sessions.add(self)
        try:
            if not saved:  # else it was asked when the model was compiled
                shapes.require_operators(graph)
            self._root.prepare()
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
    def plan(self) -> Plan | PartedPlan:
        """Return the plan of the shapes used last, parted if the host has a part in it.

        Raises ModelError before the first run of a model whose sizes that decides.
        """
        self._require_open()
        path = list(self._root.walk())
        if not path:
            names = ", ".join(shapes.unknown_dims(self.graph)) or "its inputs' values"
            raise ModelError(f"nothing is planned yet: the first run tells the sizes of {names}")
        if len(path) == 1 and path[0].plan and not path[0].part.known:
            return path[0].plan
        return PartedPlan(
            graph=self.graph,
            device=self.device.name,
            parts=tuple(found.part for found in path),
            plans=tuple(found.plan for found in path),
            is_complete=path[-1].rest is None,
        )

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes that all shapes share under upper bounds, weights apart; else 0."""
        return self._reserve.size_bytes

    @property
    def plan_reason(self) -> str:
        """Return why a compiled model was planned here after all; empty if it was not."""
        return self._root.library.reason if isinstance(self._root, restore.SavedPath) else ""

    @property
    def host_reasons(self) -> dict[str, str]:
        """Return why each node that ran on the host last did so; of control nodes, their bodies."""
        self._require_open()
        return self._root.host_reasons()

    @property
    def step_count(self) -> int:
        """Return the dispatches and copies of the last run; 0 if all was known before it."""
        self._require_open()
        return self._root.step_count()

    def __repr__(self) -> str:
        where = self._opened.info if self._opened else "closed"
        return f"Session of {self.graph} on {where}"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_() if any(self._root.walk()) else self.graph._repr_html_()

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
            arrays = feeds.arrays(self.graph.inputs, inputs, self.upper_bounds)
            if int(settings.get("DEBUG")) >= 2:
                print(self._profile(arrays, 1), file=sys.stderr)
            outputs = self._run(arrays)
        if settings.get("CHECK"):
            self._raise_difference(arrays, outputs)
        return outputs

    def _run(self, arrays: Sequence[Any]) -> dict[str, np.ndarray]:
        names = (info.name for info in self.graph.inputs)
        values = dict(zip(names, arrays, strict=True))
        return dict(zip(self.graph.outputs, self._root.run(values), strict=True))

    def reference(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what ONNX Runtime computes on the CPU for the same inputs."""
        return self._expected.outputs(inputs)

    @functools.cached_property
    def _expected(self) -> expected.Expected:
        return _onnx().Expected(self._model, self.graph, self._is_half)

    def check(self, inputs: Mapping[str, np.ndarray], nodes: bool = False) -> Comparison:
        """Run, and compare every output with ONNX Runtime on the CPU.

        Where float16 is stored, errors up to `check.HALF` pass.

        Args:
            nodes: compare what every node makes, and name the first that differs.
        """
        with settings.settings(CHECK=""):
            if nodes:
                return self._check_nodes(inputs)
            outputs = self.run(inputs)
        return self._expected.compare(outputs, inputs)

    def _check_nodes(self, inputs: Mapping[str, np.ndarray]) -> Comparison:
        opened = self._require_open()
        whole = _onnx().node_check.all_values(self.graph)
        with Session(whole, opened, None, dtype=self._root.engine.dtype) as session:
            values = session.run(inputs)
        return self._expected.compare_nodes(values, inputs)

    def _raise_difference(
        self, arrays: Sequence[np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> None:
        wanted = settings.get("CHECK")
        if wanted not in ("outputs", "nodes"):
            raise SetupError(f"VKLAB_CHECK={wanted!r} is not known; use 'outputs' or 'nodes'")
        inputs = {i.name: array for i, array in zip(self.graph.inputs, arrays, strict=True)}
        nodes = wanted == "nodes"
        found = self.check(inputs, nodes) if nodes else self._expected.compare(outputs, inputs)
        if not found.passed:
            raise CheckError(f"{self.device.name} {found}")

    # ------------------------------------------------------------------------------- profiling

    def profile(self, *inputs: Any, repeats: int = 10) -> Profile:
        """Time every dispatch on the device's own clock; inputs as in `run`.

        The figures are medians over `repeats` runs after one that is not counted.
        """
        if repeats < 1:
            raise ValueError(f"repeats={repeats}: at least one run is timed")
        with self._lock:
            self._require_open()
            arrays = feeds.arrays(self.graph.inputs, inputs, self.upper_bounds)
            return self._profile(arrays, repeats)

    def _profile(self, arrays: Sequence[Any], repeats: int) -> Profile:
        self._require_timestamps()
        rows: list[Row] = []
        for found, values in self._steps(arrays):
            if isinstance(found.runner, Device):
                samples = found.runner.time_steps(values, repeats + 1)
                rows += summarize(found.runner.program.plan, samples[1:])
            elif found.runner:
                spent = _host_time(found, values)
                rows.append(Row(found.part.graph.nodes[0].name, str(found.part), (0, 0, 0),
                                spent, 0, 0))  # fmt: skip
        return Profile(self.device.name, tuple(rows), repeats)

    def _steps(self, arrays: Sequence[Any]) -> Iterator[tuple[parts.Found, dict[str, Any]]]:
        """Run once; then yield each part on the way with the values that it found."""
        values = {i.name: array for i, array in zip(self.graph.inputs, arrays, strict=True)}
        self._root.run(values)
        for found in self._root.walk():
            yield found, values

    def time(self, *inputs: Any, repeats: int = 30) -> Timing:
        """Time whole runs, on the host's clock and on the device's; inputs as in `run`.

        The work is recorded as `run` records it; one run before is not counted.
        """
        with self._lock:
            self._require_open()
            arrays = feeds.arrays(self.graph.inputs, inputs, self.upper_bounds)
            self._require_timestamps()
            host_ns, device_ns = [0.0] * repeats, [0.0] * repeats
            for found, values in self._steps(arrays):
                if isinstance(found.runner, Device):
                    samples = found.runner.time_steps(values, repeats + 1, whole=True)[1:]
                else:
                    samples = [[0.0, _host_time(found, values)] for _ in range(repeats)]
                host_ns = [t + h for t, (_, h) in zip(host_ns, samples, strict=True)]
                device_ns = [t + d for t, (d, _) in zip(device_ns, samples, strict=True)]
        return Timing(tuple(host_ns), tuple(device_ns))

    def _require_timestamps(self) -> None:
        if not self._require_open().device.compute_queue.family.timestamp_valid_bits:
            raise SetupError(f"{self.device.name} has no timestamps on its compute queue")

    # --------------------------------------------------------------------------------- closing

    def _require_open(self) -> open_devices.OpenDevice:
        if self._opened is None:
            raise VklabError("this session is closed; load the model again")
        return self._opened

    def close(self) -> None:
        """Free everything this session holds on its device; a second call does nothing."""
        with self._lock:
            self._root.close()
            if self._opened is not None and not self._opened.is_stuck:
                self._reserve.close()
                self._weights.close()
                self._opened.sessions.discard(self)
            self._opened = None

    def __del__(self) -> None:
        opened = getattr(self, "_opened", None)
        if opened is not None:
            opened.forget(self._root, self._reserve, self._weights)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _onnx() -> Any:
    """Load what reads ONNX models and computes the reference; compiled models do without."""
    try:
        from vklab.runtime import expected
    except ImportError as error:
        raise SetupError(f"this needs onnx ({error})", "pip install onnx onnxruntime") from error
    return expected


def _host_time(found: parts.Found, values: dict[str, Any]) -> float:
    start = time.perf_counter_ns()
    if found.runner:
        found.runner.run(values)
    return float(time.perf_counter_ns() - start)
