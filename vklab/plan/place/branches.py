"""Move branches of a placed graph to other devices, where they run in parallel with the rest.

The cuts of `search` follow the order of nodes and never keep two devices busy at once; branches
do. Visited by lab 13.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from vklab.graph.graph import Graph
from vklab.plan.place.costs import Forecast
from vklab.plan.place.search import Search

# Limits on forecasts of moved branches, in nodes and in number: a few seconds in all.
FORECAST_NODES, MOST_FORECASTS = 40_000, 48
LEAST_GAIN = 0.01  # share of the total time; forecasts are no more exact


def improved(
    search: Search, assigned: Sequence[int], forecast: Forecast
) -> tuple[list[int], Forecast, set[int]]:
    """Move branches to other devices as long as the forecast improves.

    Args:
        search: the devices allowed for each node, and their budgets.
        assigned: the device of each node to start from.
        forecast: the forecast of that assignment.

    Returns the assignment, its forecast and the positions of the moved nodes.
    """
    load, numbers = search.workload, range(len(search.allowed))
    order, spans = branches(load.graph)
    now, moved = list(assigned), set[int]()
    spent = [0.0, *itertools.accumulate(load.times[now[p]][p] for p in order)]
    gains = []
    for start, end in spans:
        inside = spent[end] - spent[start]
        gains.append((-min(inside, spent[-1] - inside), start, end))
    least = min(costs.submit_ns for costs in load.costs)
    trials = (
        (order[start:end], device)
        for gain, start, end in sorted(gains)
        if -gain > least
        for device in numbers
    )
    tries = max(4, min(MOST_FORECASTS, FORECAST_NODES // max(1, len(now))))
    for positions, device in trials:
        changed = {p for p in positions if search.allowed[device][p] and now[p] != device}
        if not changed:
            continue
        trial = [device if p in changed else d for p, d in enumerate(now)]
        predicted = load.forecast(trial)
        if predicted.total_ns < forecast.total_ns * (1 - LEAST_GAIN) and search.fits(predicted):
            now, forecast, moved = trial, predicted, moved | changed
        tries -= 1
        if not tries:
            break
    return now, forecast, moved


def branches(graph: Graph) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the nodes in an order, and the spans of that order that are branches.

    A branch is a subtree of the dominator tree under a node with several children: all paths from
    the inputs to its nodes pass through its first node.

    Source: Cooper, Harvey and Kennedy 2001, immediate dominators.
    """
    nodes = graph.nodes
    makers = {name: p for p, node in enumerate(nodes) for name in node.outputs if name}
    parents: list[int] = []  # the immediate dominator of each node, or -1
    depth: list[int] = []
    for node in nodes:
        meet: int | None = None
        for name in node.reads:
            other = makers.get(name)
            if other is None:
                continue
            meet = other if meet is None else meet
            while meet not in (other, -1):
                if other == -1 or depth[meet] >= depth[other]:
                    meet = parents[meet]
                else:
                    other = parents[other]
        meet = -1 if meet is None else meet
        parents.append(meet)
        depth.append(0 if meet == -1 else depth[meet] + 1)
    return _traversed(parents)


def _traversed(parents: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the nodes of a tree in preorder, and the spans of the subtrees that have siblings.

    Args:
        parents: the parent of each node, which has a smaller number, or -1.
    """
    siblings = Counter(parents)
    sizes = [1] * len(parents)
    for position, parent in reversed([*enumerate(parents)]):
        if parent >= 0:
            sizes[parent] += sizes[position]
    starts: list[int] = []
    free = {-1: 0}  # where the next child begins
    for position, parent in enumerate(parents):
        starts.append(free[parent])
        free[position] = free[parent] + 1
        free[parent] += sizes[position]
    order = sorted(range(len(parents)), key=starts.__getitem__)
    return order, [
        (start, start + size)
        for start, size, parent in zip(starts, sizes, parents, strict=True)
        if siblings[parent] > 1
    ]
