"""Which device each node runs on, with the reason for each: pins, capability, memory, time.

Pure: devices are described, not opened. The cut into stages is made by `stages`. Visited by lab 13.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab import draw
from vklab.errors import PlanError
from vklab.graph.graph import Graph, Node
from vklab.plan.place import branches, cutting
from vklab.plan.place import costs as all_costs
from vklab.plan.place import search as searches
from vklab.plan.place.costs import DeviceCosts, Forecast, Workload
from vklab.plan.place.search import Proposal, Search
from vklab.types import DeviceInfo, Dispatch

__all__ = ["POLICIES", "Alternative", "Crossing", "Load", "Placement", "check_pins", "check_policy",
           "place"]  # fmt: skip

POLICIES = ("cost", "greedy")
_SHOWN = 10


@dataclass(frozen=True)
class Crossing:
    """A value that moves from one device to another, through the host."""

    value: str
    source: int
    target: int
    size_bytes: int
    predicted_ns: float


@dataclass(frozen=True)
class Load:
    """What one device is given: work, weights and activations at their peak, beside its budget.

    `index` is the device's number on this machine, which messages name; `speed` is "measured" or
    "guessed".
    """

    index: int
    name: str
    speed: str
    nodes: int
    predicted_ns: float
    weights_bytes: int
    peak_bytes: int
    budget_bytes: int


@dataclass(frozen=True)
class Alternative:
    """A placement that was weighed; `refusal` says why it cannot be had."""

    name: str
    predicted_ns: float
    refusal: str


@dataclass(frozen=True)
class Placement:
    """A device for every node. Devices are numbered as they were given.

    Attributes:
        devices: the number of each node's device, by name.
        reasons: why each node is there.
        transfers: the values that cross from device to device.
        predicted_ns: of one run, all devices together.
        single_ns: the same on the best single device that fits; None where none does.
    """

    policy: str
    devices: Mapping[str, int]
    reasons: Mapping[str, str]
    transfers: tuple[Crossing, ...]
    loads: tuple[Load, ...]
    predicted_ns: float
    single_ns: float | None
    alternatives: tuple[Alternative, ...]

    def __str__(self) -> str:
        shares = ", ".join(f"{load.nodes} nodes on {load.index}: {load.name}"
                           for load in self.loads if load.nodes)  # fmt: skip
        moved = draw.bytes_text(sum(move.size_bytes for move in self.transfers))
        single = "no single device fits"
        if self.single_ns is not None:
            single = f"the best single device {draw.time_text(self.single_ns)}"
        speeds = " and ".join(sorted({load.speed for load in self.loads}))
        return (f"placement ({self.policy}): {shares}; {len(self.transfers)} transfers, {moved}; "
                f"{draw.time_text(self.predicted_ns)} predicted from {speeds} speeds, "
                f"{single}")  # fmt: skip

    def rows(self) -> list[tuple[str, str, str]]:
        """Return node, device and reason, as text."""
        return [(node, str(self.loads[number].index), self.reasons[node])
                for node, number in self.devices.items()]  # fmt: skip

    def _repr_html_(self) -> str:
        return draw.table_html(str(self), ("node", "device", "why"), self.rows())

    def summary(self) -> dict[str, Any]:
        """Return the decision with its numbers, ready for JSON."""
        return {
            "policy": self.policy,
            "predicted_ns": self.predicted_ns,
            "single_ns": self.single_ns,
            "devices": [vars(load) for load in self.loads],
            "nodes": [{"name": n, "device": self.loads[d].index, "reason": self.reasons[n]}
                      for n, d in self.devices.items()],
            "transfers": [
                {**vars(move), "source": self.loads[move.source].index,
                 "target": self.loads[move.target].index}
                for move in self.transfers
            ],
            "alternatives": [vars(other) for other in self.alternatives],
        }  # fmt: skip


def place(
    graph: Graph,
    devices: Sequence[DeviceInfo],
    *,
    costs: Mapping[int, DeviceCosts] | None = None,
    node_ns: Mapping[int, Mapping[str, float]] | None = None,
    caps: Mapping[int, int] | None = None,
    free: Sequence[int] | None = None,
    pins: Mapping[str, int] | None = None,
    policy: str = "cost",
    unavailable: Callable[[Dispatch], str] = lambda dispatch: "",
    is_part: bool = False,
    fastest_first: bool = False,
) -> Placement:
    """Choose a device for every node of a shaped graph.

    Args:
        costs: measured speeds, by the place of the device; others are guessed.
        node_ns: measured times of nodes, by the place of the device and the name of the node.
        caps: the most bytes to use of a device, by its place.
        free: the bytes free on each device; else what drivers said when it was described.
        pins: device numbers by patterns of names or operators of nodes; the first match counts.
        policy: "cost" for the least predicted time; "greedy" for the first device with room, node
            by node, with no thought of liveness or transfers.
        unavailable: tells why a kernel cannot be had on this machine.
        fastest_first: "greedy" tries devices by their speed, not as they are given.
        is_part: pins may be meant for nodes of other parts; see `check_pins`.

    Raises PlanError for bad pins and devices, for a node that no device can run or hold, and where
    no assignment fits.
    """
    pins, caps = pins or {}, caps or {}
    check_policy(policy)
    _check_devices(devices, caps)
    check_pins(graph, devices, {} if is_part else pins)
    load = Workload(graph, devices, costs or {}, unavailable, node_ns)
    free = free or [all_costs.budget_bytes(info) for info in devices]
    budgets = [min(caps.get(n, most), most) for n, most in enumerate(free)]
    allowed, reasons = _allowed(load, pins)
    _require_room(load, allowed, budgets)
    search = Search(load, allowed, budgets)
    proposals = list(search.singles)
    if policy == "greedy":
        assigned, why = searches.first_fit(search, fastest_first)
        found = load.forecast(assigned)
    else:
        proposals += search.cuts()
        assigned, found, why = _cheapest(search, proposals)
    singles = [p[2].total_ns for p in search.singles if search.fits(p[2])]
    counts = Counter(assigned)
    loads = tuple(
        Load(info.index, info.name, load.costs[n].source, counts[n], found.busy_ns[n],
             found.weights_bytes[n], found.peak_bytes[n], budgets[n])
        for n, info in enumerate(devices)
    )  # fmt: skip
    return Placement(
        policy=policy,
        devices={node.name: d for node, d in zip(graph.nodes, assigned, strict=True)},
        reasons={node.name: reasons[p] or why[p] for p, node in enumerate(graph.nodes)},
        transfers=_crossings(load, found),
        loads=loads,
        predicted_ns=found.total_ns,
        single_ns=min(singles, default=None),
        alternatives=tuple(Alternative(name, other.total_ns, _excess(search, other))
                           for name, _, other in proposals),
    )  # fmt: skip


def check_policy(policy: str) -> None:
    """Raise PlanError for a policy that there is not."""
    if policy not in POLICIES:
        raise PlanError(f"no policy {policy!r}; there are {', '.join(POLICIES)}")


def check_pins(graph: Graph, devices: Sequence[DeviceInfo], pins: Mapping[str, int]) -> None:
    """Raise PlanError for a pin on no node of the graph, or on no device."""
    for pattern, number in pins.items():
        if number not in range(len(devices)):
            there = ", ".join(f"{n}: {info.name}" for n, info in enumerate(devices))
            raise PlanError(f"place={{{pattern!r}: {number}}}: there is no device {number}; there "
                            f"are {there}")  # fmt: skip
        if not any(_matches(node, pattern) for node in graph.nodes):
            names = ", ".join(node.name for node in graph.nodes[:_SHOWN])
            more = f" and {len(graph.nodes) - _SHOWN} more" if len(graph.nodes) > _SHOWN else ""
            raise PlanError(f"place={{{pattern!r}: {number}}}: no node has such a name or "
                            f"operator; there are {names}{more}")  # fmt: skip


def _matches(node: Node, pattern: str) -> bool:
    # "block1" means what is inside as well: a node that was expanded, or a module of PyTorch.
    names = ((node.name, pattern), (node.name, f"{pattern}/*"), (node.op_type, pattern))
    return any(fnmatch.fnmatchcase(name, wanted) for name, wanted in names)


def _check_devices(devices: Sequence[DeviceInfo], caps: Mapping[int, int]) -> None:
    if not devices:
        raise PlanError("no device to place nodes on")
    indices = [info.index for info in devices]
    for info in devices:
        if (count := indices.count(info.index)) > 1:
            raise PlanError(f"device {info.index} ({info.name}) is listed {count} times")
    for number, size in caps.items():
        if number not in range(len(devices)):
            raise PlanError(f"a memory cap for device {number}; there are 0 to {len(devices) - 1}")
        if not isinstance(size, (int, np.integer)) or size < 0:
            raise PlanError(f"a memory cap of {size!r} for device {number}: a number of bytes, "
                            "please")  # fmt: skip


def _allowed(load: Workload, pins: Mapping[str, int]) -> tuple[list[list[bool]], list[str]]:
    """Return which devices may run which nodes, and the reason where that leaves no choice."""
    numbers = range(len(load.devices))
    allowed = [[not text for text in load.refusals[d]] for d in numbers]
    reasons = [""] * len(load.work)
    for place, node in enumerate(load.graph.nodes):
        refused = {d: load.refusals[d][place] for d in numbers if load.refusals[d][place]}
        texts = [f"device {load.label(d)}: {text}" for d, text in refused.items()]
        if len(texts) == len(numbers):
            raise PlanError(f"no device can run node {node.name!r}: {'; '.join(texts)}")
        if len(texts) == len(numbers) - 1 and texts:
            reasons[place] = f"the only one that can: {'; '.join(texts)}"
        pattern = next((pattern for pattern in pins if _matches(node, pattern)), None)
        if pattern is None:
            continue
        pin = f"place={{{pattern!r}: {load.devices[pins[pattern]].index}}}"
        if not allowed[pins[pattern]][place]:
            raise PlanError(f"{pin}: {load.refusals[pins[pattern]][place]}")
        for d in numbers:
            allowed[d][place] = d == pins[pattern]
        reasons[place] = f"pinned by {pin}"
    return allowed, reasons


def _require_room(
    load: Workload, allowed: Sequence[Sequence[bool]], budgets: Sequence[int]
) -> None:
    for place, node in enumerate(load.graph.nodes):
        needs = {d: load.node_bytes(place, d) for d in range(len(budgets)) if allowed[d][place]}
        if all(needs[d] > budgets[d] for d in needs):
            has = "; ".join(f"device {load.label(d)} has {budgets[d]} of {need} bytes"
                            for d, need in needs.items())  # fmt: skip
            raise PlanError(f"node {node.name!r} ({node.op_type}) fits nowhere: {has}")


def _excess(search: Search, forecast: Forecast) -> str:
    """Return why a forecast does not fit; "" if it does."""
    needs = zip(forecast.weights_bytes, forecast.peak_bytes, search.budgets, strict=True)
    return "; ".join(
        f"device {search.workload.label(d)} needs {weights + peak} bytes ({weights} of weights, "
        f"{peak} of activations), has {budget}"
        for d, (weights, peak, budget) in enumerate(needs) if weights + peak > budget
    )  # fmt: skip


def _cheapest(
    search: Search, proposals: Sequence[Proposal]
) -> tuple[list[int], Forecast, list[str]]:
    """Return the cheapest proposal that fits, with branches moved where that pays."""
    fitting = [p for p in proposals if search.fits(p[2])]
    if not fitting:
        with contextlib.suppress(PlanError):
            assigned, _ = searches.first_fit(search)
            last = "the first that fits", assigned, search.workload.forecast(assigned)
            fitting = [last] if search.fits(last[2]) else []
    if not fitting:
        tried = dict.fromkeys(_excess(search, forecast) for _, _, forecast in proposals)
        raise PlanError(f"the model fits nowhere: {'; '.join(tried)}")
    name, assigned, forecast = min(fitting, key=lambda p: p[2].total_ns)
    assigned, forecast, moved = branches.improved(search, assigned, forecast)
    beside = f"a branch beside others, moved from: {name}"
    return assigned, forecast, [beside if p in moved else name for p in range(len(assigned))]


def _crossings(load: Workload, found: Forecast) -> tuple[Crossing, ...]:
    """Return what moves between different devices, each value once for each target."""
    moves: dict[tuple[str, int], Crossing] = {}
    for move in cutting.transfers(found.stages):
        if move.source is None:
            continue
        source, target = found.stages[move.source].device, found.stages[move.target].device
        if source != target:
            time_ns = sum(load.costs[d].move_ns(move.size_bytes) for d in (source, target))
            moves.setdefault((move.value, target), Crossing(
                move.value, source, target, move.size_bytes, time_ns))
    return tuple(moves.values())  # fmt: skip
