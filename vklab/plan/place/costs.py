"""Estimate the costs of nodes on devices: time by a roofline, bytes by liveness.

Rates are measured where a calibration exists, else guessed from the type of device. `placement`
chooses devices by these costs; results do not depend on them. Visited by lab 13.
"""

from __future__ import annotations

import heapq
import itertools
import math
import operator
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from vklab import settings
from vklab.errors import ModelError
from vklab.graph import operator_cache, shapes
from vklab.graph.graph import Graph, Node
from vklab.ops import registry
from vklab.plan import capability, memory, storage
from vklab.plan.capability import Refusal
from vklab.plan.chunk import Chunk
from vklab.plan.memory import Lifetime
from vklab.plan.place import cutting
from vklab.types import DeviceInfo, Dispatch, size_bytes

_WIDTH = 1024  # widest workgroup of the measured CPU device; narrower ones are slower
_DENSE_ROWS = 4  # rows of results per invocation from which on a product counts as dense


@dataclass(frozen=True)
class DeviceCosts:
    """Speed of a device: rates per nanosecond, and the cost of launches and submissions.

    Attributes:
        flops_per_ns: in dense products, where an operand serves several results.
        thin_flops_per_ns: in all other kernels.
        launch_ns: for a dispatch with its barrier.
        link_bytes_per_ns: between its memory and the host's; devices are linked through the host.
        submit_ns: for one more stage: its submission, and the wait for it.
        is_measured: whether measured on this device, rather than guessed from its type.
    """

    bytes_per_ns: float
    flops_per_ns: float
    thin_flops_per_ns: float
    launch_ns: float
    link_bytes_per_ns: float
    submit_ns: float
    is_measured: bool = False

    @property
    def source(self) -> str:
        """Return the origin of the numbers, "measured" or "guessed", as plans show it."""
        return "measured" if self.is_measured else "guessed"

    def move_ns(self, count: int) -> float:
        """Return the time to move bytes between the device and the host."""
        return count / self.link_bytes_per_ns


# Bytes, flops and thin flops per ns, ns per launch, bytes per ns to the host, ns per submission.
_GUESSES = {
    "discrete": DeviceCosts(700.0, 10_000.0, 2_000.0, 2_500.0, 12.0, 40_000.0),
    "integrated": DeviceCosts(40.0, 1_000.0, 200.0, 5_000.0, 10.0, 60_000.0),
    "cpu": DeviceCosts(8.0, 8.0, 0.5, 30_000.0, 4.0, 100_000.0),
}


def estimate(info: DeviceInfo) -> DeviceCosts:
    """Guess the speed of a device from its type, and of a CPU from the width of its workgroups."""
    guess = _GUESSES.get(info.type, _GUESSES["integrated"])
    width = info.limit("maxComputeWorkGroupInvocations") if info.is_cpu else _WIDTH
    share = min(1.0, width / _WIDTH)
    return replace(
        guess,
        flops_per_ns=guess.flops_per_ns * share,
        thin_flops_per_ns=guess.thin_flops_per_ns * share,
    )


def budget_bytes(info: DeviceInfo) -> int:
    """Return the bytes that can still be allocated in the device-local heaps of a device."""
    share = float(settings.get("MEMORY_LIMIT"))
    free = (
        int(heap.budget_bytes * share) - heap.usage_bytes
        for heap in info.heaps
        if heap.device_local
    )
    return sum(max(0, count) for count in free)


@dataclass(frozen=True)
class NodeWork:
    """Launches and scratch memory that a node needs on any device.

    A launch is its dense flops, thin flops and bytes. `views` pairs the number of an output that
    needs no memory with that of the input whose memory it shares.
    """

    launches: tuple[tuple[float, float, int], ...] = ()
    scratch_bytes: int = 0
    views: tuple[tuple[int, int], ...] = ()
    is_pointwise: bool = False

    @classmethod
    def of(cls, graph: Graph, node: Node) -> NodeWork:
        """Return the work of a node's dispatches; an operator without dispatches is no work."""
        try:
            result, _ = shapes.apply_node(graph, node, graph.infos)
        except ModelError:
            return cls()
        if not isinstance(result, registry.Result):
            return cls()
        return cls(
            tuple((*_flops(d), d.size_bytes) for d in result.dispatches),
            sum(info.size_bytes for info in result.scratch),
            result.views,
            bool(result.dispatches) and all(d.pointwise for d in result.dispatches),
        )

    def time_ns(self, costs: DeviceCosts, fused_bytes: int = 0) -> float:
        """Return the time on a device: launches, and the slower of memory traffic and arithmetic.

        `fused_bytes` are saved by fusion into the maker of an operand, as is the launch then.
        Source: Williams, Waterman and Patterson 2009, the roofline model.
        """
        launch = 0.0 if fused_bytes else costs.launch_ns
        return sum(
            launch
            + max(
                max(0, moved - fused_bytes) / costs.bytes_per_ns,
                dense / costs.flops_per_ns + thin / costs.thin_flops_per_ns,
            )
            for dense, thin, moved in self.launches
        )


def _flops(dispatch: Dispatch) -> tuple[float, float]:
    """Return the dense and the thin flops of a dispatch, idle invocations of workgroups included.

    A product with one column occupies as many invocations as one with a workgroup's columns.
    """
    constants = dispatch.constant_values
    if not {"LANES", "BLOCKS", "WORKGROUP", "COLUMNS"} <= constants.keys():
        return 0.0, float(dispatch.flops)
    rows = constants["LANES"] * constants["BLOCKS"]
    columns = constants["WORKGROUP"] * constants["COLUMNS"]
    covered = math.prod(dispatch.workgroups) * columns * rows
    flops = dispatch.flops * covered / max(1, sum(info.count for _, info in dispatch.writes))
    return (flops, 0.0) if rows >= _DENSE_ROWS else (0.0, flops)


@dataclass(frozen=True)
class Forecast:
    """Predicted time and memory of an assignment of nodes; tuples have an item per device."""

    total_ns: float
    busy_ns: tuple[float, ...]
    weights_bytes: tuple[int, ...]
    peak_bytes: tuple[int, ...]
    stages: tuple[Chunk, ...]

    def excess_bytes(self, budgets: Sequence[int]) -> tuple[int, ...]:
        """Return the bytes by which each device exceeds its budget."""
        needs = zip(self.weights_bytes, self.peak_bytes, budgets, strict=True)
        return tuple(max(0, weights + peak - budget) for weights, peak, budget in needs)


class Workload:
    """A shaped graph and its devices, with times, sizes and refusals computed once.

    Attributes:
        times: ns by device, then by node; `refusals` likewise, the reason or "".
        joined: the maker that each node is fused with, or -1; `apart_ns` is the time saved by it.

    Args:
        graph: the shaped graph.
        devices: in the order that numbers them.
        costs: measured speeds by device number; others are guessed.
        refusal: returns the reason why a device cannot run a node, or "".
        node_ns: measured times by device number, then by node name.
    """

    def __init__(
        self,
        graph: Graph,
        devices: Sequence[DeviceInfo],
        costs: Mapping[int, DeviceCosts],
        refusal: Refusal = capability.refusal,
        node_ns: Mapping[int, Mapping[str, float]] | None = None,
    ) -> None:
        self.graph = graph
        self.devices = tuple(devices)
        self.costs = [costs.get(n) or estimate(info) for n, info in enumerate(devices)]
        self.work: list[NodeWork] = []
        self.refusals: list[list[str]] = [[] for _ in devices]
        self._ask(refusal)
        self.known = {**graph.infos, **{i.name: i for i in graph.inputs}, **graph.initializers}
        self.roots: dict[str, str] = {}
        for node, work in zip(graph.nodes, self.work, strict=True):
            for view, read in work.views:
                source = node.inputs[read]
                if view < len(node.outputs):
                    self.roots[node.outputs[view]] = self.roots.get(source, source)
        self._bytes: list[dict[str, int]] = [{} for _ in devices]
        fused = self._fused()
        self.joined = [maker for maker, _ in fused]
        alone = [[work.time_ns(speed) for work in self.work] for speed in self.costs]
        self.times = [
            list(
                map(
                    NodeWork.time_ns,
                    self.work,
                    itertools.repeat(speed),
                    (count for _, count in fused),
                )
            )
            for speed in self.costs
        ]
        self.apart_ns = [
            list(map(operator.sub, *pair)) for pair in zip(alone, self.times, strict=True)
        ]
        # All CPU devices share the same cores: they never run in parallel.
        first = next((d for d, info in enumerate(devices) if info.is_cpu), 0)
        self._lanes = [first if info.is_cpu else d for d, info in enumerate(devices)]
        self._positions = {node.name: position for position, node in enumerate(graph.nodes)}
        for device, given in (node_ns or {}).items():
            if given.keys() & self._positions.keys():  # else they belong to another part
                # Nodes without a time were fused with nodes that have one.
                self.times[device] = [given.get(node.name, 0.0) for node in graph.nodes]

    def _ask(self, refusal: Refusal) -> None:
        """Collect the work of each node and the refusals of each device; once for equal nodes."""
        graph = self.graph
        known: dict[Hashable, NodeWork] = {}
        for node in graph.nodes:
            inputs = [graph.infos[name] if name else None for name in node.inputs]
            key = operator_cache.key(graph, node, inputs)
            key = (key, tuple(map(bool, node.outputs))) if key else node.name
            if key in known:
                self.work.append(known[key])
                texts = [""] * len(self.devices)
            else:
                self.work.append(NodeWork.of(graph, node))
                texts = [refusal(graph, node, i) for i in self.devices]
                if not any(texts):  # a refusal names the node
                    known[key] = self.work[-1]
            for refusals, text in zip(self.refusals, texts, strict=True):
                refusals.append(text)

    def _fused(self) -> list[tuple[int, int]]:
        """Return for each node the maker that fusion joins it to and the bytes saved; else (-1, 0).

        A value with one reader, which works element by element, is never stored.
        """
        makers = {n: p for p, node in enumerate(self.graph.nodes) for n in node.outputs}
        readers, ends = self.graph.readers(), set(self.graph.outputs)
        fused = []
        for node, work in zip(self.graph.nodes, self.work, strict=True):
            joins = (
                (2 * self.known[name].size_bytes, -makers[name])
                for name in node.reads
                if name in makers
                and len(readers[name]) == 1
                and name not in ends
                and self.work[makers[name]].launches
            )
            is_fused = work.is_pointwise and not settings.get("DISABLE_FUSION")
            saved, maker = max(joins, default=(0, 1)) if is_fused else (0, 1)
            fused.append((-maker, saved))
        return fused

    def label(self, device: int) -> str:
        """Return the number of a device on this machine and its name, for messages."""
        return f"{self.devices[device].index} ({self.devices[device].name})"

    def is_known(self, name: str) -> bool:
        """Tell whether a value is a weight, or was folded into a constant."""
        return self.known[name].constant is not None or name in self.graph.initializers

    def stored_bytes(self, name: str, device: int) -> int:
        """Return the bytes of a value as a device stores it."""
        sizes, value = self._bytes[device], self.known[name]
        if name not in sizes:
            stored = storage.stored_dtype(value.dtype, self.devices[device])
            sizes[name] = size_bytes(stored, value.shape)
        return sizes[name]

    def touched(self, node: Node) -> set[str]:
        """Return the values whose memory a node reads or writes."""
        return {self.roots.get(n, n) for n in (*node.reads, *filter(None, node.outputs))}

    def node_bytes(self, position: int, device: int) -> int:
        """Return the least memory that a device needs for one node: its values and scratch."""
        names = self.touched(self.graph.nodes[position])
        return self.work[position].scratch_bytes + sum(self.stored_bytes(n, device) for n in names)

    def forecast(self, assigned: Sequence[int]) -> Forecast:
        """Predict the time and memory of an assignment, which has a device number for each node.

        A stage starts when its device is free and its inputs have arrived through the host.
        """
        devices = {n.name: d for n, d in zip(self.graph.nodes, assigned, strict=True)}
        cut = cutting.cut(self.graph, devices)
        total, busy = self._simulate(cut)
        weights, peaks = [0] * len(self.devices), [0] * len(self.devices)
        uploaded: set[tuple[int, str]] = set()
        for stage in cut:
            part = stage.graph
            ends = {*(info.name for info in part.inputs), *part.outputs}
            peaks[stage.device] += self.peak_bytes(part.nodes, ends, stage.device)
            for name in part.initializers:
                if (stage.device, name) not in uploaded:
                    uploaded.add((stage.device, name))
                    weights[stage.device] += self.stored_bytes(name, stage.device)
        return Forecast(total, tuple(busy), tuple(weights), tuple(peaks), cut)

    def _simulate(self, cut: Sequence[Chunk]) -> tuple[float, list[float]]:
        busy, free = [0.0] * len(self.devices), [0.0] * len(self.devices)
        waiting = [len(stage.predecessors) for stage in cut]
        arrival = [0.0] * len(cut)
        queue, end = [(0.0, stage.number) for stage in cut if not stage.predecessors], 0.0
        dependents = [[s.number for s in cut if n in s.predecessors] for n in range(len(cut))]
        while queue:
            ready, number = heapq.heappop(queue)
            stage = cut[number]
            device, costs = stage.device, self.costs[stage.device]
            moved = sum(info.size_bytes for info in stage.graph.inputs)
            left = sum(self.known[name].size_bytes for name in stage.graph.outputs)
            inside = {self._positions[node.name] for node in stage.graph.nodes}
            split = (p for p in inside if self.joined[p] >= 0 and self.joined[p] not in inside)
            spent = costs.submit_ns + costs.move_ns(moved + left)
            spent += math.fsum(self.times[device][p] for p in inside)
            spent += math.fsum(self.apart_ns[device][p] for p in split)
            lane = self._lanes[device]
            free[lane] = max(ready, free[lane]) + spent
            busy[device] += spent
            end = max(end, free[lane])
            for dependent in dependents[number]:
                arrival[dependent] = max(arrival[dependent], free[lane])
                waiting[dependent] -= 1
                if waiting[dependent] == 0:
                    heapq.heappush(queue, (arrival[dependent], dependent))
        return end, busy

    def peak_bytes(self, nodes: Sequence[Node], ends: Collection[str], device: int) -> int:
        """Return the peak memory of a run of nodes, without weights.

        Args:
            nodes: the nodes in the order in which they run.
            ends: inputs and outputs of the run, which are alive all the time.
            device: the number of the device, which decides how values are stored.
        """
        last: dict[str, int] = {}
        for step, node in enumerate(nodes):
            for name in (*node.reads, *filter(None, node.outputs)):
                last[self.roots.get(name, name)] = step
        lives = [
            Lifetime(name, self.stored_bytes(name, device), step, last[name], 1)
            for step, node in enumerate(nodes)
            for name in node.outputs
            if name and name not in self.roots and name not in ends
        ]
        scratch = (self.work[self._positions[node.name]].scratch_bytes for node in nodes)
        lives += [Lifetime("", size, step, step, 1) for step, size in enumerate(scratch) if size]
        fixed = sum(self.stored_bytes(name, device) for name in ends)
        return memory.lower_bound(lives) + fixed
