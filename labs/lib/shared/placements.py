"""Answers that place nodes on two devices, in the place of the runtime's placement.

Visited by labs 12 and 13.
"""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan import capability
from vklab.plan.capability import Refusal
from vklab.plan.place import costs as all_costs
from vklab.plan.place import placement
from vklab.plan.place.costs import Workload
from vklab.plan.place.placement import Placement
from vklab.plan.place.search import Search
from vklab.types import DeviceInfo
from vklab_course.piece import Given, Piece

__all__ = ["Moves", "Times", "cheapest_path", "placement_piece", "prices_of"]

Times = dict[str, tuple[int | None, ...]]
Moves = dict[tuple[str, str], int]
# Asks an answer for the device of each node, and verifies them; None: there is no placement.
Asked = Callable[[Given, Search], Sequence[int] | None]
_REAL = placement.place  # while a piece stands at the seam, the name means the piece
_FOREVER = 1 << 40


def placement_piece(
    identifier: str, own: Callable[[Mapping[str, Any]], Callable[..., Any]], asked: Asked
) -> Piece:
    """Return the piece of an exercise that places nodes on two devices, under any policy.

    Where more devices are there, where the answer finds nothing, and where its placement does not
    fit with the values that are transferred, the runtime's own placement is taken.

    Args:
        identifier: the exercise.
        own: as in `Piece.own`.
        asked: asks an answer, and raises AssertionError for a wrong placement.
    """

    def standing(answer: Given) -> Callable[..., Placement]:
        def place(graph: Graph, devices: Sequence[DeviceInfo], **named: Any) -> Placement:
            placed = asked(answer, _search(graph, devices, **named)) if len(devices) == 2 else None
            names = [glob.escape(node.name) for node in graph.nodes]
            pins = dict(zip(names, map(int, placed or ()), strict=False))
            with contextlib.suppress(PlanError):
                if pins:
                    return _REAL(graph, devices, **{**named, "pins": pins})
            return _REAL(graph, devices, **named)

        return place

    seam = "vklab.plan.place.placement.place"
    return Piece("placement", seam, {identifier: own}, standing, devices=2)


def _search(
    graph: Graph, devices: Sequence[DeviceInfo], *, costs: Any = None, node_ns: Any = None,
    caps: Mapping[int, int] | None = None, free: Sequence[int] | None = None,
    pins: Mapping[str, int] | None = None, refusal: Refusal = capability.refusal, **others: Any,
) -> Search:  # fmt: skip
    """Return what `placement.place` searches, from its arguments."""
    load = Workload(graph, devices, costs or {}, refusal, node_ns)
    free = free or [all_costs.budget_bytes(info) for info in devices]
    budgets = [min((caps or {}).get(n, most), most) for n, most in enumerate(free)]
    return Search(load, placement._allowed(load, pins or {})[0], budgets)


def prices_of(
    load: Workload, is_able: Callable[[int, int], bool], unit_ns: float = 1e3
) -> tuple[Times, Moves]:
    """Return the predicted times of nodes on devices, and of moves from node to node.

    Args:
        load: the workload.
        is_able: tells whether a device, the second argument, can run the node at a position.
        unit_ns: the unit of the times; default: microseconds.
    """
    times: Times = {
        node.name: tuple(
            round(load.times[d][p] / unit_ns) if is_able(p, d) else None
            for d in range(len(load.devices))
        )
        for p, node in enumerate(load.graph.nodes)
    }
    makers = {name: node.name for node in load.graph.nodes for name in node.outputs}
    moves = {
        (makers[name], node.name): round(
            sum(
                costs.move_ns(load.known[name].size_bytes) + costs.submit_ns / 2
                for costs in load.costs
            )
            / unit_ns
        )
        for node in load.graph.nodes
        for name in node.reads
        if name in makers
    }
    return times, moves


def cheapest_path(times: Mapping[str, Sequence[int | None]], moves: Moves) -> dict[str, int]:
    """Return the device of each node by the runtime's cheapest path from device to device.

    The runtime goes through the nodes in order; a change of device costs all moves that it cuts.

    Args:
        times: the time of each node on each device, None where it cannot run; makers come first.
        moves: the time of each move from maker to reader.
    """
    names = list(times)
    changes = np.zeros(len(names))
    for (maker, reader), price in moves.items():
        changes[names.index(maker) + 1 : names.index(reader) + 1] += price
    by_device = list(zip(*times.values(), strict=True))
    devices = range(len(by_device))
    # All that the runtime's function asks of a Search.
    rows: Any = SimpleNamespace(
        allowed=[[time is not None for time in row] for row in by_device],
        nearest=lambda p: min(
            (d for d in devices if by_device[d][p] is not None), key=lambda d: by_device[d][p]
        ),
        workload=SimpleNamespace(work=names, costs=[SimpleNamespace(submit_ns=0.0)] * len(devices)),
        _node_ns=[[_FOREVER if time is None else time for time in row] for row in by_device],
        _cut_ns={(a, b): changes for a in devices for b in devices if a != b},
    )
    return dict(zip(names, Search._cheapest_path(rows), strict=True)) if names else {}
