"""Choose a device for each node, and give the reason: pins, capability, memory or time.

Pure: devices are described, not opened. `cutting` makes stages of the result. Visited by lab 13.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab.base import draw
from vklab.base.names import origin
from vklab.errors import PlanError
from vklab.graph.graph import Graph, Node
from vklab.plan import capability
from vklab.plan.capability import Refusal
from vklab.plan.place import branches, cutting
from vklab.plan.place import costs as all_costs
from vklab.plan.place import search as searches
from vklab.plan.place.costs import DeviceCosts, Forecast, Workload
from vklab.plan.place.search import Proposal, Search
from vklab.types import DeviceInfo

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
    """Work, weights and peak of activations assigned to one device, with its budget.

    `index` is the device's number on this machine, as messages name it; `speed` is "measured" or
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
    """A placement that was compared; `refusal` is the reason why it does not fit, or ""."""

    name: str
    predicted_ns: float
    refusal: str


@dataclass(frozen=True)
class Placement:
    """A device for every node; devices are numbered in the order of the caller's list.

    Attributes:
        devices: the number of each node's device, by name.
        reasons: the reason for each node's device, by node name.
        transfers: the values that move from device to device.
        predicted_ns: the time of one run on all devices.
        single_ns: the time on the best single device that fits; None if none does.
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
        shares = ", ".join(
            f"{load.nodes} nodes on {load.index}: {load.name}" for load in self.loads if load.nodes
        )
        moved = draw.bytes_text(sum(move.size_bytes for move in self.transfers))
        single = "no single device fits"
        if self.single_ns is not None:
            single = f"the best single device {draw.time_text(self.single_ns)}"
        speeds = " and ".join(sorted({load.speed for load in self.loads}))
        return (
            f"placement ({self.policy}): {shares}; {len(self.transfers)} transfers, {moved}; "
            f"{draw.time_text(self.predicted_ns)} predicted from {speeds} speeds, "
            f"{single}"
        )

    def rows(self) -> list[tuple[str, str, str]]:
        """Return node, device and reason of every node, as text."""
        return [
            (node, str(self.loads[number].index), self.reasons[node])
            for node, number in self.devices.items()
        ]

    def _repr_html_(self) -> str:
        return draw.table_html(str(self), ("node", "device", "why"), self.rows())

    def summary(self) -> dict[str, Any]:
        """Return the placement with its predictions, ready for JSON."""
        return {
            "policy": self.policy,
            "predicted_ns": self.predicted_ns,
            "single_ns": self.single_ns,
            "devices": [vars(load) for load in self.loads],
            "nodes": [
                {"name": n, "device": self.loads[d].index, "reason": self.reasons[n]}
                for n, d in self.devices.items()
            ],
            "transfers": [
                {
                    **vars(move),
                    "source": self.loads[move.source].index,
                    "target": self.loads[move.target].index,
                }
                for move in self.transfers
            ],
            "alternatives": [vars(other) for other in self.alternatives],
        }


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
    refusal: Refusal = capability.refusal,
    is_part: bool = False,
    fastest_first: bool = False,
) -> Placement:
    """Choose a device for every node of a shaped graph.

    Args:
        graph: the shaped graph.
        devices: the devices to choose from; arguments number them in this order.
        costs: measured speeds by device number; others are guessed.
        node_ns: measured times by device number, then by node name.
        caps: the most bytes to use, by device number.
        free: the free bytes of each device; without it, as in the device's description.
        pins: device numbers by patterns of node names or operators; the first match applies.
        policy: "cost" for the least predicted time; "greedy" for the first device with room, node
            by node, without regard to liveness or transfers.
        refusal: returns the reason why a device cannot run a node, or "".
        is_part: the graph is part of a model, so a pin may match none of its nodes.
        fastest_first: "greedy" tries devices by their speed, not in the order given.

    Raises PlanError for invalid pins or devices, for a node that no device can run or hold, and if
    no assignment fits.
    """
    pins, caps = pins or {}, caps or {}
    check_policy(policy)
    _check_devices(devices, caps)
    check_pins(graph, devices, {} if is_part else pins)
    load = Workload(graph, devices, costs or {}, refusal, node_ns)
    free = free or [all_costs.budget_bytes(info) for info in devices]
    budgets = [min(caps.get(n, most), most) for n, most in enumerate(free)]
    allowed, reasons = _allowed(load, pins)
    _require_room(load, allowed, budgets)
    search = Search(load, allowed, budgets)
    proposals = list(search.singles)
    if policy == "greedy":
        assigned, why = searches.first_fit(search, fastest_first)
        forecast = load.forecast(assigned)
    else:
        proposals += search.cuts()
        assigned, forecast, why = _cheapest(search, proposals)
    singles = [p[2].total_ns for p in search.singles if search.fits(p[2])]
    counts = Counter(assigned)
    loads = tuple(
        Load(
            info.index,
            info.name,
            load.costs[n].source,
            counts[n],
            forecast.busy_ns[n],
            forecast.weights_bytes[n],
            forecast.peak_bytes[n],
            budgets[n],
        )
        for n, info in enumerate(devices)
    )
    return Placement(
        policy=policy,
        devices={node.name: d for node, d in zip(graph.nodes, assigned, strict=True)},
        reasons={node.name: reasons[p] or why[p] for p, node in enumerate(graph.nodes)},
        transfers=_crossings(load, forecast),
        loads=loads,
        predicted_ns=forecast.total_ns,
        single_ns=min(singles, default=None),
        alternatives=tuple(
            Alternative(name, other.total_ns, _excess(search, other))
            for name, _, other in proposals
        ),
    )


def check_policy(policy: str) -> None:
    """Raise PlanError for an unknown policy."""
    if policy not in POLICIES:
        raise PlanError(f"unknown placement policy {policy!r}; choose from {', '.join(POLICIES)}")


def check_pins(graph: Graph, devices: Sequence[DeviceInfo], pins: Mapping[str, int]) -> None:
    """Raise PlanError for a pin that matches no node or names no device.

    Args:
        graph: the graph whose nodes are pinned.
        devices: the devices that pins number.
        pins: device numbers by patterns of node names or operators.
    """
    for pattern, number in pins.items():
        if number not in range(len(devices)):
            choices = ", ".join(f"{n}: {info.name}" for n, info in enumerate(devices))
            raise PlanError(
                f"place={{{pattern!r}: {number}}}: there is no device {number}; choose "
                f"from {choices}"
            )
        if not any(_matches(node, pattern) for node in graph.nodes):
            names = ", ".join(node.name for node in graph.nodes[:_SHOWN])
            more = f" and {len(graph.nodes) - _SHOWN} more" if len(graph.nodes) > _SHOWN else ""
            raise PlanError(
                f"place={{{pattern!r}: {number}}}: no node has such a name or "
                f"operator; nodes are {names}{more}"
            )


def _matches(node: Node, pattern: str) -> bool:
    # "block1" matches its contents as well: an expanded node, or a module of PyTorch.
    names = (
        (node.name, pattern),
        (node.name, f"{pattern}/*"),
        (node.op_type, pattern),
        (origin(node.name), pattern),
    )
    return any(fnmatch.fnmatchcase(name, wanted) for name, wanted in names)


def _check_devices(devices: Sequence[DeviceInfo], caps: Mapping[int, int]) -> None:
    if not devices:
        raise PlanError("no device to place nodes on; give at least one")
    indices = [info.index for info in devices]
    for info in devices:
        if (count := indices.count(info.index)) > 1:
            raise PlanError(
                f"device {info.index} ({info.name}) is listed {count} times; list it once"
            )
    for number, size in caps.items():
        if number not in range(len(devices)):
            raise PlanError(
                f"memory cap for unknown device {number}; choose from 0 to {len(devices) - 1}"
            )
        if not isinstance(size, (int, np.integer)) or size < 0:
            raise PlanError(
                f"a memory cap of {size!r} for device {number}; give a number of bytes, 0 or more"
            )


def _allowed(load: Workload, pins: Mapping[str, int]) -> tuple[list[list[bool]], list[str]]:
    """Return whether each device may run each node, and the reason where only one device may."""
    numbers = range(len(load.devices))
    allowed = [[not text for text in load.refusals[d]] for d in numbers]
    reasons = [""] * len(load.work)
    for position, node in enumerate(load.graph.nodes):
        refused = {d: load.refusals[d][position] for d in numbers if load.refusals[d][position]}
        texts = [f"device {load.label(d)}: {text}" for d, text in refused.items()]
        if len(texts) == len(numbers):
            raise PlanError(f"no device can run node {node.name!r}: {'; '.join(texts)}")
        if len(texts) == len(numbers) - 1 and texts:
            reasons[position] = f"the only capable device: {'; '.join(texts)}"
        pattern = next((pattern for pattern in pins if _matches(node, pattern)), None)
        if pattern is None:
            continue
        pin = f"place={{{pattern!r}: {load.devices[pins[pattern]].index}}}"
        if not allowed[pins[pattern]][position]:
            raise PlanError(f"{pin}: {load.refusals[pins[pattern]][position]}")
        for d in numbers:
            allowed[d][position] = d == pins[pattern]
        reasons[position] = f"pinned by {pin}"
    return allowed, reasons


def _require_room(
    load: Workload, allowed: Sequence[Sequence[bool]], budgets: Sequence[int]
) -> None:
    for position, node in enumerate(load.graph.nodes):
        able = [d for d in range(len(budgets)) if allowed[d][position]]
        needs = {d: load.node_bytes(position, d) for d in able}
        if all(needs[d] > budgets[d] for d in needs):
            has = "; ".join(
                f"device {load.label(d)} has {budgets[d]} of {need} bytes"
                for d, need in needs.items()
            )
            raise PlanError(f"node {node.name!r} ({node.op_type}) fits nowhere: {has}")


def _excess(search: Search, forecast: Forecast) -> str:
    """Return the reason why a forecast does not fit; "" if it does."""
    needs = zip(forecast.weights_bytes, forecast.peak_bytes, search.budgets, strict=True)
    return "; ".join(
        f"device {search.workload.label(d)} needs {weights + peak} bytes ({weights} of weights, "
        f"{peak} of activations), has {budget}"
        for d, (weights, peak, budget) in enumerate(needs)
        if weights + peak > budget
    )


def _cheapest(
    search: Search, proposals: Sequence[Proposal]
) -> tuple[list[int], Forecast, list[str]]:
    """Return the cheapest proposal that fits, with branches moved where the forecast improves."""
    fitting = [p for p in proposals if search.fits(p[2])]
    if not fitting:
        with contextlib.suppress(PlanError):
            assigned, _ = searches.first_fit(search)
            last = "the first device that fits", assigned, search.workload.forecast(assigned)
            fitting = [last] if search.fits(last[2]) else []
    if not fitting:
        tried = dict.fromkeys(_excess(search, forecast) for _, _, forecast in proposals)
        raise PlanError(
            f"found no placement that fits: {'; '.join(tried)}; raise a memory cap, or add a device"
        )
    name, assigned, forecast = min(fitting, key=lambda p: p[2].total_ns)
    assigned, forecast, moved = branches.improved(search, assigned, forecast)
    beside = f"a branch in parallel with others, moved from: {name}"
    return assigned, forecast, [beside if p in moved else name for p in range(len(assigned))]


def _crossings(load: Workload, forecast: Forecast) -> tuple[Crossing, ...]:
    """Return the transfers between different devices, each value once for each target."""
    moves: dict[tuple[str, int], Crossing] = {}
    for move in cutting.transfers(forecast.stages):
        if move.source is None:
            continue
        source = forecast.stages[move.source].device
        target = forecast.stages[move.target].device
        if source != target:
            time_ns = sum(load.costs[d].move_ns(move.size_bytes) for d in (source, target))
            moves.setdefault(
                (move.value, target), Crossing(move.value, source, target, move.size_bytes, time_ns)
            )
    return tuple(moves.values())
