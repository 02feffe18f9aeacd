"""Session: a model loaded on a device. `load` is the door through which everybody comes.

Checks what it is fed, plans on the first use of a shape, replays after that. Visited by all labs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vklab import settings
from vklab.errors import ModelError, VklabError
from vklab.graph import bounds, passes, shapes
from vklab.graph.graph import Graph
from vklab.plan.parted import PartedPlan
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.runtime import checked, engine, feeds, kernels, members, open_devices, parts
from vklab.runtime.compiled import container, restore
from vklab.runtime.compiled import saved as saves
from vklab.runtime.many import frames, streams
from vklab.runtime.observe import profile as profiles
from vklab.runtime.observe import tracing
from vklab.runtime.observe.profile import Profile, Timing
from vklab.trace import Trace
from vklab.types import DeviceInfo, TensorInfo

if TYPE_CHECKING:
    from vklab.graph import onnx_import

__all__ = ["Session", "load"]


def load(
    model: onnx_import.Model,
    device: int | str | None = None,
    progress: kernels.Progress | None = None,
    *,
    devices: Sequence[int | str] | str | None = None,
    place: Mapping[str, int | str] | None = None,
    memory_caps: Mapping[int | str, int] | None = None,
    policy: str | None = None,
    profiles: Mapping[int | str, Profile] | None = None,
    replicate: bool = False,
    dtype: str | None = None,
    upper_bounds: Mapping[str, int] | None = None,
) -> Session:
    """Load an ONNX model, or one that `vklab compile` made, on a Vulkan device, or on several.

    Args:
        model: a path, bytes, or an onnx.ModelProto.
        device: index or part of a name; default the fastest, or VKLAB_DEVICE.
        progress: called as (done, of, kernel) while kernels compile.
        devices: "all", or several of what `device` may be: the model is split over them.
        place: devices by patterns of node names ("layer3*"), for nodes that must be there.
        memory_caps: the most bytes of device memory that may be planned, by device.
        policy: "cost", the least predicted time (default), or "greedy", the first with room: of
            the devices in the order given, of "all" in that of their speed.
        profiles: `profile` of the model on a device alone, by device: times to place by.
        replicate: each device gets the whole model; frames (`submit`, `map`) go to any of them.
        dtype: "float16" to compute a float32 model in half precision; inputs and outputs stay
            float32. A device without it takes 32 bits for each: same results, nothing saved.
        upper_bounds: the most that open dimensions ever are, by name (INPUT.AXIS where they have
            none): memory for all shapes up to there is reserved once.

    Raises FileNotFoundError, ModelError, UnsupportedOperatorError, PlanError, SetupError.
    """
    saved = saves.read(model) if container.is_compiled(model) else None
    graph = saved.graph if saved else checked.onnx().onnx_import.load_graph(model)
    wish = members.PlacementOptions(place or {}, memory_caps or {}, policy, profiles or {},
                                    replicate, fastest_first=isinstance(devices, str))
    return Session(graph, open_devices.open_all(device, devices), model, progress, saved,
                   dtype=dtype, upper_bounds=upper_bounds, wish=wish)  # fmt: skip


class Session(streams.Streaming, checked.Checked):
    """A model on one device or several, ready to run; close it, or use it in a `with` block.

    What no kernel can do runs on the host. Thread-safe: runs of one session follow each other;
    frames that are submitted are in flight together.
    """

    def __init__(
        self,
        graph: Graph,
        opened: open_devices.OpenDevice | Sequence[open_devices.OpenDevice],
        model: onnx_import.Model | None,
        progress: kernels.Progress | None = None,
        saved: saves.Saved | None = None,
        *,
        dtype: str | None = None,
        upper_bounds: Mapping[str, int] | None = None,
        wish: members.PlacementOptions | None = None,
    ) -> None:
        dtype = saved.dtype if saved and dtype is None else dtype
        passes.require_dtype(dtype or "")
        limits = saved.upper_bounds if saved and upper_bounds is None else upper_bounds
        self.upper_bounds = bounds.resolve(graph.inputs, limits or {})
        self.graph = graph
        given = (*graph.inputs, *graph.initializers.values())
        self._is_half = bool(dtype) or any(info.dtype == "float16" for info in given)
        used = tuple(opened) if isinstance(opened, Sequence) else (opened,)
        self._model = None if saved else model
        self._members = tuple(map(engine.DeviceState, used))
        self._weights = self._members[0].weights
        engines = members.engines(
            self._members, wish, graph, progress=progress, dtype=dtype or "",
            upper_bounds=self.upper_bounds,
        )  # fmt: skip
        roots = [restore.root(saved, each) if saved else parts.Stage(graph, each)
                 for each in engines]  # fmt: skip
        self._roots, self._root = roots, roots[0]
        self._lock = threading.Lock()
        self._frames = frames.Frames(roots, (*roots, *self._members))
        self._opened: open_devices.OpenDevice | None = used[0]
        for each in used:
            each.sessions.add(self)
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
        self._require_open()
        return tuple(member.opened.info for member in self._members)

    @property
    def plan(self) -> Plan | SpreadPlan | PartedPlan:
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
            device=self._name(0),
            parts=tuple(found.part for found in path),
            plans=tuple(found.plan for found in path),
            is_complete=path[-1].rest is None,
        )

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes that all shapes share under upper bounds, weights apart; else 0."""
        return self._root.engine.reserved_bytes

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
        plans = [found.plan for found in self._root.walk_all() if found.plan]
        return sum(len(plan.dispatches) + len(plan.copies) for plan in plans)

    def __repr__(self) -> str:
        where = ", ".join(map(str, self.devices)) if self._opened else "closed"
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
            values = self._fed(inputs)
            if int(settings.get("DEBUG")) >= 2:
                print(self._profile(dict(values), 1), file=sys.stderr)
            outputs = self._run(values)
        if settings.get("CHECK"):
            self._require_equal(values, 0, outputs)
        return outputs

    def _run(self, values: frames.Values, lane: int = 0) -> frames.Outputs:
        made = self._roots[lane].run(dict(values))  # which takes up all that is made on the way
        return dict(zip(self.graph.outputs, made, strict=True))

    def _fed(self, inputs: tuple[Any, ...]) -> frames.Values:
        return feeds.arrays(self.graph.inputs, inputs, self.upper_bounds)

    def _run_on(self, lane: int, inputs: Mapping[str, np.ndarray]) -> frames.Outputs:
        with self._lock:
            self._require_open()
            return self._run(self._fed((inputs,)), lane)

    # ------------------------------------------------------------------------------- profiling

    def profile(self, *inputs: Any, repeats: int = 10) -> Profile:
        """Time every dispatch on the device's own clock; inputs as in `run`.

        The figures are medians over `repeats` runs after one that is not counted.
        """
        if repeats < 1:
            raise ValueError(f"repeats={repeats}: at least one run is timed")
        with self._timed(inputs) as values:
            return self._profile(values, repeats)

    def _profile(self, values: dict[str, Any], repeats: int) -> Profile:
        return Profile(self._name(0), profiles.rows(self._root, values, repeats), repeats)

    def time(self, *inputs: Any, repeats: int = 30) -> Timing:
        """Time whole runs, on the host's clock and on the device's; inputs as in `run`.

        The work is recorded as `run` records it; one run before is not counted.
        """
        with self._timed(inputs) as values:
            return profiles.whole(self._root, values, repeats)

    def trace(self, *inputs: Any, repeats: int = 1, steps: bool = True, frames: int = 0,
              in_flight: int = 0) -> Trace:  # fmt: skip
        """Note when everything happens in `repeats` runs, on one clock; inputs as in `run`.

        Args:
            frames: trace so many frames instead, as `map` runs them, `in_flight` at a time.
            steps: time each dispatch, which then runs alone between barriers; else only the
                whole of what is submitted, recorded as `run` records it.
        """
        with self._timed(inputs) as values:
            if frames or in_flight:
                return tracing.frames(self._roots, values, frames, self._room(in_flight), steps)
            return tracing.trace(self._root, values, repeats, steps)

    @contextlib.contextmanager
    def _timed(self, inputs: tuple[Any, ...]) -> Iterator[frames.Values]:
        with self._lock:
            self._require_open()
            for member in self._members:
                member.opened.require_clock()
            yield self._fed(inputs)

    # --------------------------------------------------------------------------------- closing

    def _require_open(self) -> open_devices.OpenDevice:
        if self._opened is None:
            raise VklabError("this session is closed; load the model again")
        return self._opened

    def close(self) -> None:
        """Wait for frames in flight, and free everything; a second call does nothing.

        Where the host is still at work on a frame when devices would have given up, what the
        frame uses is freed when it ends.
        """
        self._frames.end()
        with self._lock:
            is_free = self._frames.close()
            for member in self._members:
                if not is_free and self._opened:
                    member.opened.forget(self._frames)
                member.opened.sessions.discard(self)
            self._opened = None

    def __del__(self) -> None:
        if getattr(self, "_opened", None) is not None:
            self._frames.stop()
            for member in self._members:  # the first device to be closed frees all
                member.opened.forget(self._frames)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
