"""Nodes on several devices: made-up GPUs, and plain rows that stand for the runtime's search.

Visited by lab 13.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from vklab.apps.compare.models import graphs
from vklab.errors import PlanError
from vklab.graph import onnx_import, shapes
from vklab.graph.graph import Graph
from vklab.plan import capability
from vklab.plan.place import placement
from vklab.plan.place import search as searches
from vklab.plan.place.costs import Workload
from vklab.plan.place.placement import Placement
from vklab.plan.place.search import Search
from vklab.plan.tuning import tune
from vklab.types import DeviceInfo
from vklab_course import words
from vklab_course.piece import Given
from vklab_labs.shared import machines
from vklab_labs.shared.placements import (
    Moves,
    Times,
    cheapest_path,
    placement_piece,
    prices_of,
)

__all__ = ["CHEAPEST_CUT", "FEW_CHANGES", "Row", "conv_many", "guarded", "is_number", "place",
           "predicted", "prices", "rows_of", "simulated_gpus", "weights_of",
           "wrong_rows"]  # fmt: skip

Row = tuple[str, int, tuple[int, ...]]  # name, bytes, numbers of the devices that can run it

# The limits of a large GPU. `machine` of another lab leaves most of them out.
LIMITS: Mapping[str, Any] = {
    "maxComputeWorkGroupCount": (1 << 31, 65535, 65535), "maxComputeWorkGroupInvocations": 1024,
    "maxComputeSharedMemorySize": 49152, "maxStorageBufferRange": (4 << 30) - 1,
    "maxPushConstantsSize": 256, "maxMemoryAllocationSize": 4 << 30, "maxBufferSize": 4 << 30,
    "minStorageBufferOffsetAlignment": 16, "minSubgroupSize": 32, "maxSubgroupSize": 32,
}  # fmt: skip


def simulated_gpus(count: int, **changes: Any) -> tuple[DeviceInfo, ...]:
    """Return large GPUs that are not there and differ in nothing but their names: for plans.

    Args:
        count: number of devices.
        changes: other facts of the last one; its `limits` are changes, too.
    """
    card = dataclasses.replace(machines.machine("server")[0], limits=LIMITS)
    gpus = [dataclasses.replace(card, index=n, name=f"GPU {n}") for n in range(count)]
    limits = {**LIMITS, **changes.pop("limits", {})}
    gpus[-1:] = [dataclasses.replace(gpus[-1], limits=limits, **changes)]
    return tuple(gpus)


def conv_many() -> Graph:
    """Return VKML's benchmark with its shapes; large weights are zeros without memory."""
    graph = onnx_import.load_graph(graphs.build("conv_many"))
    light = {
        name: info
        if info.size_bytes < 1 << 10
        else dataclasses.replace(
            info, constant=np.broadcast_to(np.zeros((), info.dtype), info.dims)
        )
        for name, info in graph.initializers.items()
    }
    return shapes.infer(
        dataclasses.replace(graph, initializers=light, infos={**graph.infos, **light})
    )


def place(
    graph: Graph, devices: Sequence[DeviceInfo], caps: Mapping[int, int], policy: str = "cost"
) -> Placement:
    """Place a graph as the runtime does, whose kernels are cut to the limits of each device.

    Args:
        graph: the shaped graph.
        devices: the devices, which need not be there.
        caps: the most bytes to use, by device number.
        policy: "greedy" or "cost".
    """
    refusal = functools.partial(capability.refusal, tune=tune.adapt)
    return placement.place(graph, devices, caps=caps, policy=policy, refusal=refusal)


def prices(
    graph: Graph, devices: Sequence[DeviceInfo], caps: Mapping[int, int]
) -> tuple[dict[str, tuple[int | None, ...]], dict[tuple[str, str], int]]:
    """Return the predicted microseconds of nodes on devices, and of moves from node to node.

    None instead of a time: the node alone needs more than the cap of this device.

    Args:
        graph: the shaped graph.
        devices: the devices; their speeds are guessed from their types.
        caps: the most bytes to use, by device number.
    """
    load = Workload(graph, devices, {})
    return prices_of(load, lambda p, d: load.node_bytes(p, d) <= caps.get(d, 1 << 62))


def predicted(
    graph: Graph, devices: Sequence[DeviceInfo], placed: Mapping[str, int]
) -> tuple[float, tuple[int, ...]]:
    """Return what the runtime predicts for a placement: ms, and the bytes of each device.

    Args:
        graph: the shaped graph.
        devices: the devices; their speeds are guessed from their types.
        placed: the device number of each node.
    """
    forecast = Workload(graph, devices, {}).forecast([placed[n.name] for n in graph.nodes])
    needs = map(sum, zip(forecast.weights_bytes, forecast.peak_bytes, strict=True))
    return forecast.total_ns / 1e6, tuple(needs)


def weights_of(graph: Graph) -> list[Row]:
    """Return the nodes as rows that two devices can run, with the MiB of their weights.

    Args:
        graph: the shaped graph; sizes are rounded up.
    """
    known = graph.initializers
    return [
        (n.name, -(-sum(known[r].size_bytes for r in n.reads if r in known) >> 20), (0, 1))
        for n in graph.nodes
    ]


# ----------------------------------------------------------- the runtime's question, as plain rows


def rows_of(search: Search) -> list[Row]:
    """Return the nodes of the runtime's search as plain rows, with the bytes that each adds.

    These are its weights, results and scratch memory, as on one device: each value counts once.
    """
    numbers, load = range(len(search.allowed)), search.workload
    seen: set[str] = set()
    rows = []
    for position, node in enumerate(load.graph.nodes):
        more = load.touched(node) - seen
        size = max(sum(load.stored_bytes(name, d) for name in more) for d in numbers)
        able = tuple(d for d in numbers if search.allowed[d][position])
        rows.append((node.name, size + load.work[position].scratch_bytes, able))
        seen |= more
    return rows


def guarded(
    place: Callable[[list[Row], list[int]], Any], steps: int = 1000
) -> Callable[..., tuple[list[int], list[str]]]:
    """Return a function with the signature of `first_fit` that asks the student's and verifies.

    Bytes are counted in steps of a share of all memory, rounded up, so that the numbers are small.
    Of each cap, room for four of the largest value is kept back: for values that are transferred.

    Args:
        place: takes rows and caps, returns a device for each row, or None.
        steps: number of steps of all sizes together.
    """

    def first_fit(search: Search, fastest_first: bool = False) -> tuple[list[int], list[str]]:
        placed = _asked(place, search, steps)
        if placed is None:
            raise PlanError("your function finds no placement")
        if wrong := _over(search, placed):
            raise AssertionError(wrong)
        return [int(d) for d in placed], ["the student's placement"] * len(placed)

    return first_fit


def _asked(
    place: Callable[[list[Row], list[int]], Any], search: Search, steps: int = 1000
) -> Sequence[int] | None:
    """Ask for a device of each node, as `guarded` says. Raises AssertionError for wrong ones."""
    rows, load = rows_of(search), search.workload
    values = (name for node in load.graph.nodes for name in node.outputs if name)
    kept = 4 * max((load.known[name].size_bytes for name in values), default=0)
    step = max(1, sum(size for _, size, _ in rows) // steps)
    caps = [max(0, budget - kept) // step for budget in search.budgets]
    small = [(name, -(-size // step), able) for name, size, able in rows]
    placed = place(small, caps)
    if placed is not None and (wrong := wrong_rows(small, caps, placed)):
        raise AssertionError(wrong)
    return None if placed is None else list(placed)


def _over(search: Search, placed: Sequence[int]) -> str:
    """Return which device cannot hold all values of its nodes, transferred ones too; or ""."""
    load = search.workload
    for device, budget in enumerate(search.budgets):
        mine = [node for node, d in zip(load.graph.nodes, placed, strict=True) if d == device]
        touched = {name for node in mine for name in load.touched(node)}
        if sum(load.stored_bytes(name, device) for name in touched) > budget:
            return f"with the values that are transferred, device {device} has no room"
    return ""


def is_number(device: Any) -> bool:
    """Tell whether a value may be the number of a device: an int, NumPy's too, or a bool."""
    return isinstance(device, int | np.integer)


def wrong_rows(rows: Sequence[Row], caps: Sequence[int], placed: Any) -> str:
    """Return what is wrong with a device for each row, as a sentence; "" if nothing is.

    Args:
        rows: name, bytes and able devices of each node.
        caps: the bytes of each device.
        placed: what a student's function returned.
    """
    if not isinstance(placed, list | tuple) or len(placed) != len(rows):
        return f"expected a list of {len(rows)} device numbers"
    used = [0] * len(caps)
    for (name, size, able), device in zip(rows, placed, strict=True):
        if not is_number(device) or device not in range(len(caps)):
            return f"{name} is on device {device!r}; there are devices 0 to {len(caps) - 1}"
        if device not in able:
            return f"{name} is on device {device}, which cannot run it"
        used[device] += size
    over = next((d for d, cap in enumerate(caps) if used[d] > cap), None)
    return "" if over is None else f"device {over} gets {used[over]}, and has room for {caps[over]}"


# ------------------------------------------------------------ the pieces of exercises 1 and 3


def _runtime_first_fit(params: Mapping[str, Any]) -> Callable[..., list[int] | None]:
    """Return the runtime's first fit behind the signature of exercise 1: it counts no changes."""

    def few_changes(nodes: Sequence[Row], caps: Sequence[int]) -> list[int] | None:
        sizes = {name: size for name, size, _ in nodes}
        # All that the runtime's function asks of a Search; a node has one value, of its size.
        load = SimpleNamespace(
            graph=SimpleNamespace(nodes=[SimpleNamespace(name=n, op_type="") for n in sizes]),
            touched=lambda node: {node.name},
            stored_bytes=lambda name, device: sizes[name],
            work=[SimpleNamespace(scratch_bytes=0)] * len(nodes),
            label=str,
        )
        rows: Any = SimpleNamespace(
            workload=load,
            budgets=list(caps),
            allowed=[[d in able for _, _, able in nodes] for d in range(len(caps))],
        )
        try:
            return _REAL(rows)[0]
        except PlanError:
            return None

    return few_changes


def _runtime_path(params: Mapping[str, Any]) -> Callable[..., dict[str, int]]:
    """Return the runtime's cheapest path behind the signature of exercise 3.

    On a chain the path is the cheapest cut; elsewhere it counts moves that a cut does not make.
    """

    def cheapest_cut(times: Times, moves: Moves) -> dict[str, int]:
        return cheapest_path(times, {each: params["price"] + move for each, move in moves.items()})

    return cheapest_cut


def _changing(place: Given, search: Search) -> Sequence[int] | None:
    return _asked(place.value, search)


def _cutting(cut: Given, search: Search) -> Sequence[int]:
    """Ask an answer to exercise 3 about the nodes of a search, in microseconds."""
    times, moves = prices_of(search.workload, lambda p, d: search.allowed[d][p])
    got = cut.value(times, moves)
    assert isinstance(got, dict), f"{words.short(got)} is no dictionary of devices"
    for name, row in times.items():
        assert name in got, f"{name} has no device"
        able = is_number(got[name]) and got[name] in range(len(row))
        assert able, f"{name} is on device {words.short(got[name])}; there are devices 0 and 1"
        assert row[got[name]] is not None, f"{name} is on device {got[name]}, which cannot run it"
    return [got[name] for name in times]


_REAL = searches.first_fit  # while an answer stands there, the name means the answer
FEW_CHANGES = placement_piece("13-1", _runtime_first_fit, _changing)
CHEAPEST_CUT = placement_piece("13-3", _runtime_path, _cutting)
