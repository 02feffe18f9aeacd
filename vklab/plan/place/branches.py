"""Move branches of a placed graph to other devices, where they run beside the rest.

A cut along the order of nodes never gives two devices work at once; this does. See `search`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from vklab.graph.graph import Graph
from vklab.plan.place.costs import Forecast
from vklab.plan.place.search import Search

__all__ = ["branches", "improved"]

# Forecasts of moved branches, by the nodes that each one looks at: a few seconds in all.
FORECAST_NODES, MOST_FORECASTS = 40_000, 48
LEAST_GAIN = 0.01  # forecasts are not good enough to believe in less


def improved(
    search: Search, assigned: Sequence[int], forecast: Forecast
) -> tuple[list[int], Forecast, set[int]]:
    """Move branches to other devices as long as that pays; return which nodes moved, too."""
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
        (order[start:end], device) for gain, start, end in sorted(gains) if -gain > least
        for device in numbers
    )  # fmt: skip
    tries = max(4, min(MOST_FORECASTS, FORECAST_NODES // max(1, len(now))))
    for places, device in trials:
        changed = {p for p in places if search.allowed[device][p] and now[p] != device}
        if not changed:
            continue
        trial = [device if p in changed else d for p, d in enumerate(now)]
        found = load.forecast(trial)
        if found.total_ns < forecast.total_ns * (1 - LEAST_GAIN) and search.fits(found):
            now, forecast, moved = trial, found, moved | changed
        tries -= 1
        if not tries:
            break
    return now, forecast, moved


def branches(graph: Graph) -> tuple[list[int], list[tuple[int, int]]]:
    """Return nodes in an order, and the spans of it that are branches.

    A branch is all that lies behind a node and behind none of its siblings: a subtree of the tree
    of dominators (Cooper, Harvey, Kennedy 2001), under a node with several children.
    """
    nodes = graph.nodes
    makers = {name: p for p, node in enumerate(nodes) for name in node.outputs if name}
    above: list[int] = []  # the closest node that every way to a node passes, or -1
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
                    meet = above[meet]
                else:
                    other = above[other]
        meet = -1 if meet is None else meet
        above.append(meet)
        depth.append(0 if meet == -1 else depth[meet] + 1)
    return _walked(above)


def _walked(above: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the nodes of a tree, each before all below it, and the spans of those with siblings.

    Args:
        above: the parent of each node, which has a smaller number, or -1.
    """
    siblings = Counter(above)
    sizes = [1] * len(above)
    for place, parent in reversed([*enumerate(above)]):
        if parent >= 0:
            sizes[parent] += sizes[place]
    starts: list[int] = []
    free = {-1: 0}  # where the next child begins
    for place, parent in enumerate(above):
        starts.append(free[parent])
        free[place] = free[parent] + 1
        free[parent] += sizes[place]
    order = sorted(range(len(above)), key=starts.__getitem__)
    return order, [(start, start + size) for start, size, parent
                   in zip(starts, sizes, above, strict=True) if siblings[parent] > 1]
