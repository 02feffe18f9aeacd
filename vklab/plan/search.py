"""Search for cheap assignments of nodes to devices: along the order of nodes, and by branches.

Proposes and predicts; what is chosen, and why, is said by `placement`.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vklab.plan.costs import Forecast, Workload

__all__ = ["Proposal", "Search"]

# Forecasts of moved branches, by the nodes that each one looks at: a few seconds in all.
FORECAST_NODES, MOST_FORECASTS = 60_000, 48
INFINITE = float("inf")
# What it is called, the place of a device for each node, and what that would take.
Proposal = tuple[str, list[int], Forecast]


@dataclass(frozen=True)
class Search:
    """Where nodes may go: `allowed` and `budgets` by the place of the device."""

    workload: Workload
    allowed: Sequence[Sequence[bool]]
    budgets: Sequence[int]

    @functools.cached_property
    def singles(self) -> tuple[Proposal, ...]:
        """Return each device that may run every node, alone."""
        wholes = ((d, [d] * len(here)) for d, here in enumerate(self.allowed) if all(here))
        return tuple((f"all on device {d}", whole, self.workload.forecast(whole))
                     for d, whole in wholes)  # fmt: skip

    def cuts(self) -> Iterator[Proposal]:
        """Yield what several devices might do: a walk that ignores memory, and runs that fit it."""
        if len(self.allowed) == 1:
            return
        walk = self._walk()
        yield "cheapest walk from device to device", walk, self.workload.forecast(walk)
        for order in self._orders():
            yield from self._cuts(order)

    def fits(self, forecast: Forecast) -> bool:
        """Tell whether every device has the memory."""
        return not any(forecast.excess_bytes(self.budgets))

    def _orders(self) -> list[tuple[int, ...]]:
        numbers = tuple(range(len(self.allowed)))
        if len(numbers) <= 3:
            return list(itertools.permutations(numbers))
        fastest = tuple(sorted(numbers, key=lambda d: (sum(self.workload.times[d]), d)))
        return list(dict.fromkeys([fastest, fastest[::-1], numbers]))

    def _cuts(self, order: Sequence[int]) -> Iterator[Proposal]:
        """Yield the cheapest cut for one order, with budgets shrunk until it really fits."""
        budgets = list(self.budgets)
        for _ in range(4):
            cut = self._cut(order, budgets)
            if cut is None:
                return
            forecast = self.workload.forecast(cut)
            excess = forecast.excess_bytes(self.budgets)
            if not any(excess):
                yield f"cheapest cut for the order {', '.join(map(str, order))}", cut, forecast
                return
            budgets = [b - over for b, over in zip(budgets, excess, strict=True)]

    # ----------------------------------------------------------------------- along the order

    @functools.cached_property
    def _node_ns(self) -> list[list[float]]:
        """Return each node's time; where it is not allowed, that of a visit to another device."""
        load, numbers = self.workload, range(len(self.allowed))
        found = [list(times) for times in load.times]
        for place, node in enumerate(load.graph.nodes):
            if all(self.allowed[d][place] for d in numbers):
                continue
            names = (*node.reads, *filter(None, node.outputs))
            moved = sum(load.known[n].size_bytes for n in names if not load.is_known(n))
            other = self.nearest(place)
            there, costs = load.times[other][place], load.costs[other]
            for d in numbers:
                if not self.allowed[d][place]:
                    here = load.costs[d]
                    visit = costs.submit_ns + costs.move_ns(moved)
                    found[d][place] = there + visit + here.submit_ns + here.move_ns(moved)
        return found

    def nearest(self, place: int) -> int:
        """Return the fastest device that may run a node."""
        times = self.workload.times
        return min((d for d in range(len(times)) if self.allowed[d][place]),
                   key=lambda d: (times[d][place], d))  # fmt: skip

    @functools.cached_property
    def _live_bytes(self) -> list[int]:
        """Return the bytes that are made before each node and read from there on."""
        load = self.workload
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for place, node in enumerate(load.graph.nodes):
            for name in node.reads:
                last[name] = place
            first.update(dict.fromkeys(filter(None, node.outputs), place))
        change = [0] * (len(load.work) + 1)
        for name, made in first.items():
            if name in last and not load.is_known(name):
                change[made + 1] += load.known[name].size_bytes
                change[last[name] + 1] -= load.known[name].size_bytes
        return list(itertools.accumulate(change))

    def _switch_ns(self, source: int, target: int, count: int) -> float:
        costs = self.workload.costs
        moved = costs[source].move_ns(count) + costs[target].move_ns(count)
        return moved + costs[target].submit_ns

    def _walk(self) -> list[int]:
        """Return the cheapest way along the nodes that may change device anywhere."""
        times, live, numbers = self._node_ns, self._live_bytes, range(len(self.allowed))
        best = [self.workload.costs[d].submit_ns for d in numbers]
        came: list[list[int]] = []
        for place in range(len(self.workload.work)):
            steps = [
                min((best[s] + (self._switch_ns(s, d, live[place]) if s != d else 0.0), s != d, s)
                    for s in numbers) for d in numbers
            ]  # fmt: skip
            came.append([step[2] for step in steps])
            best = [steps[d][0] + times[d][place] for d in numbers]
        device = min(numbers, key=lambda d: (best[d], d))
        way = []
        for place in reversed(range(len(came))):
            way.append(device if self.allowed[device][place] else self.nearest(place))
            device = came[place][device]
        return way[::-1]

    def _cut(self, order: Sequence[int], budgets: Sequence[int]) -> list[int] | None:
        """Return the cheapest assignment in which each device has at most one run, in this order.

        best[s][p]: the cost of the first p nodes if the last run is on the s-th device.
        """
        count, live, times = len(self.workload.work), self._live_bytes, self._node_ns
        best: list[list[float]] = []
        came: list[list[tuple[int, int]]] = []
        for step, device in enumerate(order):
            sums = [0.0, *itertools.accumulate(times[device])]
            starts = self._starts(device, budgets[device])
            enter = [(self.workload.costs[device].submit_ns if q == 0 else INFINITE, -1)
                     for q in range(count + 1)]  # fmt: skip
            for before in range(step):
                for q in range(1, count):
                    cost = best[before][q] + self._switch_ns(order[before], device, live[q])
                    enter[q] = min(enter[q], (cost, before))
            window: deque[int] = deque()  # starts by rising cost: the minimum is at the left
            ends, ways = [INFINITE], [(-1, -1)]
            for p in range(1, count + 1):
                cost = enter[p - 1][0] - sums[p - 1]
                while window and enter[window[-1]][0] - sums[window[-1]] >= cost:
                    window.pop()
                window.append(p - 1)
                while window and window[0] < starts[p - 1]:
                    window.popleft()
                q = window[0] if window else -1
                ends.append(enter[q][0] - sums[q] + sums[p] if window else INFINITE)
                ways.append((q, enter[q][1] if window else -1))
            best.append(ends)
            came.append(ways)
        step = min(range(len(order)), key=lambda s: (best[s][count], s))
        if best[step][count] == INFINITE:
            return None
        found: list[int] = []
        end = count
        while end:
            start, before = came[step][end]
            found = [order[step]] * (end - start) + found
            step, end = before, start
        return [d if self.allowed[d][p] else self.nearest(p) for p, d in enumerate(found)]

    def _starts(self, device: int, budget: int) -> list[int]:
        """Return, for a run up to each node, the first node at which it may start to fit."""
        load, nodes = self.workload, self.workload.graph.nodes
        live = self._live_bytes
        held: Counter[str] = Counter()
        peaks: deque[tuple[int, int]] = deque()  # (place, bytes), falling
        weights, start = 0, 0
        found = []
        for place, node in enumerate(nodes):
            if self.allowed[device][place]:
                for name in filter(load.is_known, node.reads):
                    held[name] += 1
                    weights += load.stored_bytes(name, device) if held[name] == 1 else 0
                made = sum(load.stored_bytes(n, device) for n in node.outputs
                           if n and n not in load.roots)  # fmt: skip
                peak = live[place] + made + load.work[place].scratch_bytes
                while peaks and peaks[-1][1] <= peak:
                    peaks.pop()
                peaks.append((place, peak))
            while start <= place and weights + (peaks[0][1] if peaks else 0) > budget:
                if self.allowed[device][start]:
                    for name in filter(load.is_known, nodes[start].reads):
                        held[name] -= 1
                        weights -= load.stored_bytes(name, device) if held[name] == 0 else 0
                start += 1
                while peaks and peaks[0][0] < start:
                    peaks.popleft()
            found.append(start)
        return found

    # ------------------------------------------------------------------------------ branches

    def improved(
        self, assigned: Sequence[int], forecast: Forecast
    ) -> tuple[list[int], Forecast, set[int]]:
        """Move branches to other devices as long as that pays; return which nodes moved, too."""
        load, numbers = self.workload, range(len(self.allowed))
        order, spans = _branches(load)
        now, moved = list(assigned), set[int]()
        spent = [0.0, *itertools.accumulate(load.times[now[p]][p] for p in order)]
        gains = []
        for start, end in spans:
            inside = spent[end] - spent[start]
            gains.append((min(inside, spent[-1] - inside), start, end))
        cheapest = min(costs.submit_ns for costs in load.costs)
        tries = max(4, min(MOST_FORECASTS, FORECAST_NODES // max(1, len(now))))
        for gain, start, end in sorted(gains, key=lambda g: (-g[0], g[1], g[2])):
            for device in numbers:
                trial = list(now)
                for place in order[start:end]:
                    if self.allowed[device][place]:
                        trial[place] = device
                if trial == now or gain <= cheapest or tries == 0:
                    continue
                tries -= 1
                found = load.forecast(trial)
                if found.total_ns < forecast.total_ns and self.fits(found):
                    moved |= {p for p in order[start:end] if trial[p] != now[p]}
                    now, forecast = trial, found
        return now, forecast, moved


def _branches(load: Workload) -> tuple[list[int], list[tuple[int, int]]]:
    """Return nodes in an order, and the spans of it that are branches.

    A branch is all that lies behind a node and behind none of its siblings: a subtree of the tree
    of dominators (Cooper, Harvey, Kennedy 2001), under a node with several children.
    """
    nodes = load.graph.nodes
    makers = {name: p for p, node in enumerate(nodes) for name in node.outputs if name}
    above: list[int] = []  # the closest node that every way to a node passes, or -1
    depth: list[int] = []
    children: dict[int, list[int]] = {-1: []}
    for place, node in enumerate(nodes):
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
        children[place] = []
        children[meet].append(place)
    order: list[int] = []
    begins: dict[int, int] = {}
    spans: list[tuple[int, int]] = []
    stack = [(child, False) for child in reversed(children[-1])]
    while stack:
        place, is_done = stack.pop()
        if is_done:
            if len(children[above[place]]) > 1:
                spans.append((begins[place], len(order)))
            continue
        begins[place] = len(order)
        order.append(place)
        stack.append((place, True))
        stack += [(child, False) for child in reversed(children[place])]
    return order, spans
