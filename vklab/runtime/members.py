"""The devices of a session, and what a caller wants of them: one, several for one model, or copies.

Visited by lab 13.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vklab.errors import SetupError
from vklab.graph.graph import Graph
from vklab.plan import spread as spread_plans
from vklab.plan.place import placement
from vklab.plan.place.cutting import Stage
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.runtime import open_devices
from vklab.runtime.engine import DeviceState, Engine
from vklab.runtime.many import calibration
from vklab.runtime.many.transfer_memory import TransferMemory
from vklab.runtime.observe.profile import Profile
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.program import Program
from vklab.runtime.spread import Spread
from vklab.types import DeviceInfo, Dispatch

__all__ = ["SpreadEngine", "PlacementOptions", "engines"]


@dataclass
class SpreadEngine(Engine):
    """What parts share that are spread over several devices.

    Attributes:
        pins: device numbers by patterns of node names.
        caps: the most bytes that may be used of a device, by its number.
        policy: one of `placement.POLICIES`, which may try devices `fastest_first`.
        node_ns: measured times of nodes, by the number of the device.
        most: the plan at the upper bounds: others are placed alike and run in its memory, those
            that fit there. A part behind one of the host has no such plan.
    """

    pins: Mapping[str, int] = field(default_factory=dict)
    caps: Mapping[int, int] = field(default_factory=dict)
    policy: str = "cost"
    fastest_first: bool = False
    node_ns: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    most: SpreadPlan | None = None
    _lender: TransferMemory | None = field(default=None, init=False)

    @property
    def reserve(self) -> None:
        """Return None: stages run at the same time, none in another's memory, bounds or not."""

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes that all shapes share, weights apart."""
        return self._lender.size_bytes if self._lender else 0

    def plan(self, graph: Graph, unavailable: Callable[[Dispatch], str]) -> SpreadPlan:
        """Place a Vulkan part by the speeds that are known, cut it, and plan its stages."""
        placed = self.most.placement if self.most else None
        if placed is None or any(node.name not in placed.devices for node in graph.nodes):
            placed = self._placed(graph, unavailable)
        resident = [member.weights.names for member in self.members]
        made = spread_plans.make(graph, placed, self.infos, self.dtype, unavailable, resident)
        if self.upper_bounds and self.most is None:
            self.most = made
        return made

    def _placed(
        self, graph: Graph, unavailable: Callable[[Dispatch], str]
    ) -> placement.Placement:
        # Weights that this session has there take no more.
        free = [member.opened.allocator.room_bytes() + member.weights.size_bytes
                for member in self.members]  # fmt: skip
        return placement.place(
            graph, self.infos, costs=calibration.all_kept(self.infos), caps=self.caps,
            free=free, node_ns=self.node_ns, pins=self.pins, policy=self.policy,
            unavailable=unavailable, is_part=True, fastest_first=self.fastest_first,
        )  # fmt: skip

    def runner(self, plan: Plan | SpreadPlan) -> Spread:
        """Make what runs a plan."""
        assert isinstance(plan, SpreadPlan), "several devices run plans for several devices"
        opened = [member.opened for member in self.members]
        return Spread(plan, self._program, opened, self._memory(plan, opened))

    def _memory(self, plan: SpreadPlan, opened: Sequence[OpenDevice]) -> TransferMemory:
        """Return memory for a plan: that of the upper bounds if it has room there."""
        if self.most is None or not TransferMemory(self.most, opened).holds(plan):
            return TransferMemory(plan, opened)
        if self._lender is None or not self._lender.lent:
            self._lender = TransferMemory(self.most, opened).fill()
        return TransferMemory(plan, opened, self._lender)

    def _program(self, stage: Stage, plan: Plan, memory: TransferMemory) -> Program:
        member = self.members[stage.device]
        program = self.program(member, plan, memory.reserve(stage), memory.given(stage))
        # Threads that poll for several stages take the interpreter from each other.
        program.polls &= len(memory.plan.stages) == 1
        return program


@dataclass(frozen=True)
class PlacementOptions:
    """What a caller wants of several devices; see `session.load`."""

    place: Mapping[str, int | str] = field(default_factory=dict)
    memory_caps: Mapping[int | str, int] = field(default_factory=dict)
    policy: str | None = None
    profiles: Mapping[int | str, Profile] = field(default_factory=dict)
    replicate: bool = False
    fastest_first: bool = False

    @property
    def splits(self) -> bool:
        """Tell whether it asks for anything of a model that is split."""
        return bool(self.place or self.memory_caps or self.policy or self.profiles)


def engines(
    members: Sequence[DeviceState], wish: PlacementOptions | None, graph: Graph, **common: Any
) -> list[Engine]:
    """Return the engine of a session, or one for every device that has the whole model.

    Args:
        common: fields of Engine that all have.
    """
    wish = wish or PlacementOptions()
    if wish.policy is not None:
        placement.check_policy(wish.policy)
    infos = [member.opened.info for member in members]
    if not wish.replicate and (len(members) > 1 or wish.splits):
        pins = {p: _number(d, infos, "place") for p, d in wish.place.items()}
        placement.check_pins(graph, infos, pins)
        caps = {_number(d, infos, "memory_caps"): size for d, size in wish.memory_caps.items()}
        times = {_number(d, infos, "profiles"): p.node_ns() for d, p in wish.profiles.items()}
        return [SpreadEngine(members, **common, pins=pins, caps=caps, node_ns=times,
                             policy=wish.policy or "cost",
                             fastest_first=wish.fastest_first)]  # fmt: skip
    if wish.splits:
        raise SetupError("place, memory_caps, policy and profiles split a model; with "
                         "replicate=True each device has all of it")  # fmt: skip
    lock = threading.RLock()
    return [Engine((member,), **common, lock=lock) for member in members]


def _number(wanted: int | str, infos: Sequence[DeviceInfo], argument: str) -> int:
    """Return the place of a device among those of a session."""
    indices = [info.index for info in infos]
    info = open_devices.select(wanted)
    if info.index not in indices:
        names = ", ".join(other.label for other in infos)
        raise SetupError(f"{argument} names device {info.index} ({info.name}), which is not among "
                         f"this session's: {names}")  # fmt: skip
    return indices.index(info.index)
