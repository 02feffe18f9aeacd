"""Spread one device chunk over several devices: place its nodes, cut it, lower each piece."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from vklab.graph.graph import Graph
from vklab.plan.capability import Refusal
from vklab.plan.chunk import Chunk, Transfer
from vklab.plan.options import Facts, Options
from vklab.plan.place import cutting, placement, transfer_paths
from vklab.plan.place.placement import Placement
from vklab.types import DeviceInfo


def split(
    graph: Graph,
    devices: Sequence[DeviceInfo],
    options: Options,
    facts: Facts,
    lower: Callable[[Chunk, Collection[str]], Chunk],
    refusal: Refusal,
) -> tuple[tuple[Chunk, ...], tuple[Transfer, ...], Placement]:
    """Return the chunks of a shaped graph on several devices, and what moves between them.

    Args:
        graph: the nodes that go to devices, with an info for every value.
        devices: by their numbers in the plan.
        options: of the plan.
        facts: of the machine.
        lower: gives a chunk its dispatches and memory, told which values the host never sees.
        refusal: returns the reason why a device cannot run a node, or "".
    """
    wanted, placed = options.placement, facts.placement
    if placed is None or any(node.name not in placed.devices for node in graph.nodes):
        placed = placement.place(
            graph,
            devices,
            costs=facts.costs,
            node_ns=wanted.node_ns,
            caps=wanted.caps,
            free=facts.free_bytes or None,
            pins=wanted.pins,
            policy=wanted.policy or placement.POLICIES[0],
            refusal=refusal,
            is_part=True,
            fastest_first=wanted.fastest_first,
        )
    numbers = placed.devices
    pieces = cutting.cut(graph, numbers, transfer_paths.early(graph, numbers, devices))
    moves = tuple(m for m in cutting.transfers(pieces) if m.source is not None)
    unseen = transfer_paths.unseen(graph, pieces, moves, devices)
    return tuple(lower(piece, unseen) for piece in pieces), moves, placed
