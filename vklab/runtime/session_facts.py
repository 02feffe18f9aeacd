"""SessionFacts: what a session tells of itself: inputs, outputs, devices, plan, host nodes.

The part of `session.Session` that runs nothing. Visited by lab 00.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vklab.errors import ModelError, VklabError
from vklab.graph import shapes
from vklab.graph.graph import Graph
from vklab.plan.plan import Plan
from vklab.runtime import open_devices, plan_cache
from vklab.runtime.device_state import DeviceState
from vklab.runtime.host_nodes import HostNodes
from vklab.runtime.plan_cache import PlanCache
from vklab.types import DeviceInfo, TensorInfo

__all__ = ["SessionFacts"]


class SessionFacts:
    """Properties of a session; `session.Session` adds loading, running and closing.

    Attributes:
        graph: the imported model.
        roots: the root plan caches; one, or one for each replica.
        states: the devices, with the session's memory on each.
    """

    graph: Graph
    roots: list[PlanCache]
    states: Sequence[DeviceState]
    _opened: open_devices.OpenDevice | None

    def require_open(self) -> open_devices.OpenDevice:
        """Return the first device; raise VklabError if the session is closed."""
        if self._opened is None:
            raise VklabError("this session is closed; load the model again")
        return self._opened

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

    @property
    def host_reasons(self) -> dict[str, str]:
        """Return why each host node of the last run is on the host, nodes of bodies included."""
        self.require_open()
        return plan_cache.host_reasons(self.roots[0])

    @property
    def host_nodes(self) -> HostNodes:
        """Return the nodes that run on the host, as far as they are planned, with the reasons."""
        self.require_open()
        return self.roots[0].executor.host_nodes(self.roots[0])

    @property
    def step_count(self) -> int:
        """Return the number of dispatches and copies of the last run; 0 if all was constant."""
        self.require_open()
        return sum(len(chunk.steps) for chunk in plan_cache.all_chunks(self.roots[0]))

    def __repr__(self) -> str:
        if self._opened is None:
            return f"Session of {self.graph}, closed"
        where = ", ".join(map(str, self.devices))
        host = self.host_nodes
        more = f"; {host.count} on the host" if host.nodes else ""
        return f"Session of {self.graph} on {where}{more}"

    def _repr_html_(self) -> str:
        is_planned = any(self.roots[0].path())
        return self.plan._repr_html_() if is_planned else self.graph._repr_html_()
