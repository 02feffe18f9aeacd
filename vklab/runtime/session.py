"""Session: a model loaded on a device; `loading.load` makes one.

A session checks its inputs, plans a shape at its first use and replays the plan later. Methods for
profiling and for many frames are in other modules, imported when used. Visited by all labs.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vklab import settings
from vklab.base import catalogue, forking
from vklab.base.late import Door, PropertyDoor
from vklab.errors import ModelError, VklabError
from vklab.graph import bounds, shapes
from vklab.graph.graph import Graph
from vklab.plan.options import Options
from vklab.plan.plan import Plan
from vklab.runtime import feeds, kernels, open_devices
from vklab.runtime.device_state import DeviceState
from vklab.runtime.executor import Executor
from vklab.runtime.observe import tuned
from vklab.runtime.plan_cache import PlanCache
from vklab.types import DeviceInfo, TensorInfo

if TYPE_CHECKING:
    from vklab.base.trace import Trace
    from vklab.graph import onnx_import
    from vklab.runtime.bound.binding import DeviceBinding
    from vklab.runtime.observe.compare import Comparison
    from vklab.runtime.observe.host_nodes import HostNodes
    from vklab.runtime.observe.profile import Profile, Timing

Outputs = dict[str, np.ndarray]


def _warn_of_host(warned: threading.Event, root: PlanCache) -> None:
    """Warn of nodes on the host, once for each session: `warned` is set then."""
    if not warned.is_set():
        warned.set()
        catalogue.step("warn of the host")(root)


class Session:
    """A model on one device or several, ready to run; close it, or use it in a `with` block.

    Nodes without a kernel run on the host. Thread-safe: `run` calls of one session are serialized;
    submitted frames are in flight concurrently.

    Args:
        graph: the imported model.
        opened: the device or devices.
        model: the original model, for the reference; None for a compiled model or a Graph.
        progress: called as (done, of, kernel) while kernels compile.
        saved: a `compiled.saved.Saved`, for a compiled model.
        dtype: as in `load`.
        upper_bounds: as in `load`.
        options: a `many.device_options.DeviceOptions`, for several devices; None for one.

    Attributes:
        roots: the root of each tree of plans: one, or one for each replica.
        states: the devices, with the session's memory on each.
        at_close: functions to call when the session closes.
    """

    def __init__(
        self,
        graph: Graph,
        opened: open_devices.OpenDevice | Sequence[open_devices.OpenDevice],
        model: onnx_import.Model | None,
        progress: kernels.Progress | None = None,
        saved: Any = None,
        *,
        dtype: str | None = None,
        upper_bounds: Mapping[str, int] | None = None,
        options: Any = None,
    ) -> None:
        used = tuple(opened) if isinstance(opened, Sequence) else (opened,)
        dtype = saved.dtype if saved and dtype is None else dtype
        limits = saved.upper_bounds if saved and upper_bounds is None else upper_bounds
        self.upper_bounds = bounds.resolve(graph.inputs, limits or {})
        self.graph = graph
        self.model = None if saved or isinstance(model, Graph) else model
        made = Options(dtype or "", self.upper_bounds)
        self.is_split = options is not None and options.is_split(len(used))
        if self.is_split:
            made = replace(made, placement=options.placement([each.info for each in used]))
        self.states = tuple(map(DeviceState, used))
        self._lock = threading.Lock()
        self._owner = forking.owner()
        self._frames, self._last_inputs = None, []  # type: Any, list[Any]
        self.at_close: list[Callable[[], None]] = []
        self.roots = self._caches(made, progress, saved)
        self._opened: open_devices.OpenDevice | None = used[0]
        for each in used:
            each.sessions.add(self)
        try:
            if not saved:  # a compiled model was checked when it was compiled
                shapes.require_operators(graph)
            self.roots[0].prepare()
            self.roots[0].executor.tell_host(self.roots[0])
        except BaseException:
            self.close()
            raise

    def _caches(
        self, options: Options, progress: kernels.Progress | None, saved: Any
    ) -> list[PlanCache]:
        """Return the root plan cache; with replicas, one for each device."""
        groups = [self.states] if self.is_split else [(state,) for state in self.states]
        split = catalogue.step("split devices") if self.is_split else None
        root: Callable[..., PlanCache] = PlanCache
        if saved:
            root = functools.partial(catalogue.step("restore plans"), saved)
        elif self.graph.defaults:
            root = catalogue.step("override defaults")
        lock = threading.RLock()
        # No method of the session: a session that is forgotten must not be kept by its executors.
        on_host = functools.partial(_warn_of_host, threading.Event())
        caches = []
        for states in groups:
            infos = tuple(state.opened.info for state in states)
            splitter = split(states, bool(self.upper_bounds)) if split else None
            if splitter:
                splitter.check(self.graph, options.placement)
            executor = Executor(
                states,
                bool(self.upper_bounds),
                progress,
                splitter,
                lock,
                on_host,
                [tuned.kept(info) for info in infos],
            )
            caches.append(root(Plan(self.graph, infos, options, rest=self.graph), executor))
        return caches

    # ------------------------------------------------------------------------------ looking in

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Return name, dtype and shape of every input; open dimensions are names."""
        return self.graph.inputs

    @property
    def defaults(self) -> tuple[TensorInfo, ...]:
        """Return the further inputs that a run may set, which have an initializer as default."""
        return self.graph.defaults

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs, in the graph's order."""
        return self.graph.outputs

    @property
    def device(self) -> DeviceInfo:
        """Return the first device of this session."""
        return self.require_open().info

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """Return all devices of this session."""
        self.require_open()
        return tuple(state.opened.info for state in self.states)

    @property
    def plan(self) -> Plan:
        """Return the plan of the shapes used last.

        Raises ModelError before the first run of a model with unknown sizes.
        """
        self.require_open()
        entries = list(self.roots[0].path())
        if not entries:
            names = ", ".join(shapes.unknown_dims(self.graph)) or "its inputs' values"
            raise ModelError(f"nothing is planned yet: the first run tells the sizes of {names}")
        paths = [entry.runner.paths for entry in entries if hasattr(entry.runner, "paths")]
        merged = {move: path for each in paths for move, path in each.items()}
        return replace(entries[-1].plan, paths=merged)

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes reserved for all shapes, without weights; 0 without upper bounds."""
        return self.roots[0].executor.reserved_bytes

    @property
    def plan_reason(self) -> str:
        """Return why a compiled model had to be planned again here; empty if it had not."""
        return str(getattr(self.roots[0], "reason", ""))

    # Properties in other modules: functions whose parameter is the session.
    host_reasons = PropertyDoor[dict[str, str]]("vklab.runtime.last_run", "host_reasons")
    step_count = PropertyDoor[int]("vklab.runtime.last_run", "step_count")
    host_nodes: PropertyDoor[HostNodes] = PropertyDoor(
        "vklab.runtime.observe.host_nodes", "of_session"
    )
    metadata = PropertyDoor[dict[str, Any]]("vklab.runtime.observe.outputs", "metadata")
    output_infos = PropertyDoor[tuple[TensorInfo, ...]]("vklab.runtime.observe.outputs", "infos")

    def __repr__(self) -> str:
        if self._opened is None:
            return f"Session of {self.graph}, closed"
        where = ", ".join(map(str, self.devices))
        host = self.host_nodes
        more = f"; {host.count} on the host" if host.nodes else ""
        return f"Session of {self.graph} on {where}{more}"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_() if any(self.roots[0].path()) else self.graph._repr_html_()

    # --------------------------------------------------------------------------------- running

    def run(self, *inputs: Any, outputs: Sequence[str] | None = None) -> Outputs:
        """Run the model once.

        Args:
            inputs: one dict of arrays by input name, or the arrays in the graph's order; tensors
                of other libraries are read through DLPack. A dict may also override `defaults`.
            outputs: the outputs to return; the others are not copied. Default: all of them.

        Returns the outputs by name, in the graph's order, or in that of `outputs`. Raises
        ModelError for a wrong name, dtype or shape.
        """
        if outputs is not None:
            return self._run_chosen(inputs, outputs)
        with self._lock:
            if self._opened is None:  # saves a call in each run
                self.require_open()
            values = feeds.arrays(self.graph, inputs, self.upper_bounds, self._last_inputs)
            if int(settings.get("DEBUG")) >= 2:
                print(catalogue.step("profile once")(self.roots[0], dict(values)), file=sys.stderr)
            root = self.roots[0]
            made = dict(root.executor.run(root, dict(values)))  # run adds to its `values`
        if settings.get("CHECK"):
            self.require_equal(values, 0, made)
        return made

    def arrays(self, inputs: tuple[Any, ...]) -> dict[str, Any]:
        """Return the checked inputs of a run by name; `inputs` as `run` takes them."""
        return feeds.arrays(self.graph, inputs, self.upper_bounds)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Block other runs of the session inside the `with`; raise VklabError if it is closed."""
        with self._lock:
            self.require_open()
            yield

    def frames(self) -> Any:
        """Return the session's frames in flight, created at their first use."""
        if self._frames is None:  # checked without the lock, which a long run may have taken
            with self.exclusive():
                if self._frames is None:
                    self._frames = catalogue.step("frames in flight")(
                        self.roots, self._closables(), catalogue.step("profile once")
                    )
        return self._frames

    # Methods in other modules: functions whose first parameter is the session.
    _run_chosen = Door[Outputs]("vklab.runtime.bound.chosen", "run")
    bind: Door[DeviceBinding] = Door("vklab.runtime.bound.binding", "bind")
    submit = Door[Future[Outputs]]("vklab.runtime.many.streams", "submit")
    run_async = Door[Coroutine[Any, Any, Outputs]]("vklab.runtime.many.streams", "run_async")
    map = Door[Iterator[Outputs]]("vklab.runtime.many.streams", "map_items")
    profile: Door[Profile] = Door("vklab.runtime.observe.profile", "profile")
    time: Door[Timing] = Door("vklab.runtime.observe.profile", "time_runs")
    trace: Door[Trace] = Door("vklab.runtime.observe.tracing", "trace_session")
    reference = Door[Outputs]("vklab.runtime.observe.reference", "outputs")
    check: Door[Comparison] = Door("vklab.runtime.observe.reference", "check")
    __reduce_ex__ = Door[Any]("vklab.runtime.observe.given", "refuse_copy")
    require_equal = Door[None]("vklab.runtime.observe.reference", "require_equal")

    # --------------------------------------------------------------------------------- closing

    def require_open(self) -> open_devices.OpenDevice:
        """Return the first device; raise VklabError if the session is closed or inherited."""
        if self._opened is None:
            forking.require_own(self._owner, "this session")
            raise VklabError("this session is closed; load the model again")
        return self._opened

    def _closables(self) -> tuple[open_devices.Closable, ...]:
        return (*self.roots, *self.states)

    def close(self) -> None:
        """Wait for frames in flight, and free all resources; a second call does nothing.

        A frame that still runs on the host after the time limit frees its resources at its end.
        """
        if self._frames is not None:
            self._frames.end()
        with self._lock:
            is_free = self._frames is None or self._frames.close()
            if self._frames is None and self._opened:
                for part in self._closables():
                    part.close()
            for state in self.states:
                if not is_free and self._opened:
                    state.opened.forget(self._frames)
                state.opened.sessions.discard(self)
            self._opened = None
        while self.at_close:
            self.at_close.pop()()

    def abandon(self) -> None:
        """Forget all resources in a forked child; another thread may have held the lock."""
        self._lock = threading.Lock()
        self._opened = self._frames = None

    def __del__(self) -> None:
        if getattr(self, "_opened", None) is not None:
            parts = self._closables() if self._frames is None else (self._frames,)
            if self._frames is not None:
                self._frames.stop()
            for state in self.states:  # the first device that is closed frees them all
                state.opened.forget(*parts)

    def __enter__(self) -> Session:
        self.require_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
