"""Search for cheap assignments of nodes to devices: walks and cuts along the order of nodes.

Proposes and predicts; `branches` moves what may run beside others, `placement` chooses.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vklab.errors import PlanError
from vklab.plan.costs import Forecast, Workload

__all__ = ["Check", "Proposal", "Search", "first_fit"]

# Nodes gone through to tell whether runs fit, for one device in one order.
RUN_NODES = 20_000
ALL_ORDERS_NODES = 2_000  # above, of three devices and more only some orders are tried
INFINITE = float("inf")
# What it is called, the place of a device for each node, and what that would take.
Proposal = tuple[str, list[int], Forecast]
Check = Callable[[int, int], bool]


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
        load = self.workload
        return tuple((f"all on device {load.label(d)}", whole, load.forecast(whole))
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
        if len(numbers) == 2 or (len(numbers) == 3 and len(self.workload.work) <= ALL_ORDERS_NODES):
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
                indices = ", ".join(str(self.workload.devices[d].index) for d in order)
                yield f"cheapest cut, devices in the order {indices}", cut, forecast
                return
            budgets = [b - over for b, over in zip(budgets, excess, strict=True)]

    # ----------------------------------------------------------------------- along the order

    @functools.cached_property
    def _node_ns(self) -> list[list[float]]:
        """Return each node's time, with what it moves from and to the host.

        Where it is not allowed, that of a visit to another device.
        """
        load, numbers = self.workload, range(len(self.allowed))
        found = [list(times) for times in load.times]
        unread, ends = {info.name for info in load.graph.inputs}, set(load.graph.outputs)
        for place, node in enumerate(load.graph.nodes):
            outer = (unread & set(node.reads)) | (ends & set(node.outputs))
            unread -= outer
            moved = sum(load.known[name].size_bytes for name in outer)
            for d in numbers:
                found[d][place] += load.costs[d].move_ns(moved)
            if all(self.allowed[d][place] for d in numbers):
                continue
            names = (*node.reads, *filter(None, node.outputs))
            moved = sum(load.known[n].size_bytes for n in names if not load.is_known(n))
            other = self.nearest(place)
            there = load.times[other][place]
            for d in numbers:
                if not self.allowed[d][place]:
                    visit = self._switch_ns(d, other, moved) + self._switch_ns(other, d, 0)
                    found[d][place] = there + visit
        return found

    def nearest(self, place: int) -> int:
        """Return the fastest device that may run a node."""
        times = self.workload.times
        return min((d for d in range(len(times)) if self.allowed[d][place]),
                   key=lambda d: (times[d][place], d))  # fmt: skip

    @functools.cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        """Return, for each value that moves, the node that makes it and the last that reads it.

        What comes from outside is made at -1, what leaves is read at the end.
        """
        load, nodes = self.workload, self.workload.graph.nodes
        made = {info.name: -1 for info in load.graph.inputs}
        made |= {name: place for place, node in enumerate(nodes) for name in node.outputs if name}
        last = {name: place for place, node in enumerate(nodes) for name in node.reads}
        last |= dict.fromkeys(load.graph.outputs, len(nodes))
        return {n: (made[n], last[n]) for n in made if n in last and not load.is_known(n)}

    @functools.cached_property
    def _live_bytes(self) -> list[int]:
        """Return the bytes that nodes make before each node, for others from there on."""
        count = len(self.workload.work)
        change = [0] * (count + 2)
        for name, (made, last) in self._spans.items():
            if made >= 0 and last < count:
                change[made + 1] += self.workload.known[name].size_bytes
                change[last + 1] -= self.workload.known[name].size_bytes
        return list(itertools.accumulate(change))

    def _switch_ns(self, source: int, target: int, count: int) -> float:
        costs = self.workload.costs
        moved = costs[source].move_ns(count) + costs[target].move_ns(count)
        return moved + costs[target].submit_ns

    def _cut_ns(self, source: int, target: int, place: int) -> float:
        """Return the cost of changing device before a node: what moves, and what is not fused."""
        load = self.workload
        apart = load.apart_ns[target][place] if load.joined[place] == place - 1 else 0.0
        return self._switch_ns(source, target, self._live_bytes[place]) + apart

    def _walk(self) -> list[int]:
        """Return the cheapest way along the nodes that may change device anywhere."""
        times, numbers = self._node_ns, range(len(self.allowed))
        best = [self.workload.costs[d].submit_ns for d in numbers]
        came: list[list[int]] = []
        for place in range(len(self.workload.work)):
            steps = [
                min((best[s] + (self._cut_ns(s, d, place) if s != d else 0.0), s != d, s)
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
        count, times = len(self.workload.work), self._node_ns
        best: list[list[float]] = []
        came: list[list[tuple[int, int]]] = []
        for step, device in enumerate(order):
            sums = [0.0, *itertools.accumulate(times[device])]
            fits, is_over = self._run_checks(device, budgets[device])
            enter = [(self.workload.costs[device].submit_ns if q == 0 else INFINITE, -1)
                     for q in range(count + 1)]  # fmt: skip
            for before in range(step):
                for q in range(1, count):
                    cost = best[before][q] + self._cut_ns(order[before], device, q)
                    enter[q] = min(enter[q], (cost, before))
            window: deque[int] = deque()  # starts by rising cost: the minimum is at the left
            ends, ways = [INFINITE], [(-1, -1)]
            for p in range(1, count + 1):
                cost = enter[p - 1][0] - sums[p - 1]
                while window and enter[window[-1]][0] - sums[window[-1]] >= cost:
                    window.pop()
                window.append(p - 1)
                while window and is_over(window[0], p):
                    window.popleft()
                q = next((q for q in window if fits(q, p)), -1)
                ends.append(enter[q][0] - sums[q] + sums[p] if q >= 0 else INFINITE)
                ways.append((q, enter[q][1] if q >= 0 else -1))
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

    def _run_checks(self, device: int, budget: int) -> tuple[Check, Check]:
        """Return what tells whether nodes from one up to another fit, and whether no more will.

        Bounds decide most; between them a run is gone through, as long as that takes no ages.
        """
        never, surely = self._starts(device, budget, 1), self._starts(device, budget, 3)
        left = RUN_NODES

        def fits(start: int, end: int) -> bool:
            nonlocal left
            if start >= surely[end - 1]:
                return True
            left -= end - start
            return left > 0 and self._run_bytes(start, end, device) <= budget

        def is_over(start: int, end: int) -> bool:
            return start < (never if left > 0 else surely)[end - 1]

        return fits, is_over

    def _run_bytes(self, start: int, end: int, device: int) -> int:
        load, spans = self.workload, self._spans
        places = [p for p in range(start, end) if self.allowed[device][p]]
        nodes = [load.graph.nodes[p] for p in places]
        touched = {name for node in nodes for name in (*node.reads, *node.outputs) if name}
        outer = {n for n in touched & spans.keys() if spans[n][0] < start or spans[n][1] >= end}
        weights = (load.stored_bytes(n, device) for n in touched if load.is_known(n))
        return sum(weights) + load.peak_bytes(nodes, outer, device)

    def _starts(self, device: int, budget: int, times: int) -> list[int]:
        """Return, for a run up to each node, the first start that fits by a bound.

        Args:
            times: how often the peak is counted: once is too little, thrice is enough for the
                values at both ends of the run, too.
        """
        load, nodes = self.workload, self.workload.graph.nodes
        live, outside = self._live_bytes, {info.name for info in load.graph.inputs}
        held: Counter[str] = Counter()
        peaks: deque[tuple[int, int]] = deque()  # (place, bytes), falling
        weights, start = 0, 0
        found = []
        for place, node in enumerate(nodes):
            if self.allowed[device][place]:
                for name in filter(load.is_known, node.reads):
                    held[name] += 1
                    weights += load.stored_bytes(name, device) if held[name] == 1 else 0
                more = outside.intersection(node.reads).union(node.outputs) - load.roots.keys()
                made = sum(load.stored_bytes(name, device) for name in more if name)
                peak = live[place] + made + load.work[place].scratch_bytes
                while peaks and peaks[-1][1] <= peak:
                    peaks.pop()
                peaks.append((place, peak))
            while start <= place and weights + (times * peaks[0][1] if peaks else 0) > budget:
                if self.allowed[device][start]:
                    for name in filter(load.is_known, nodes[start].reads):
                        held[name] -= 1
                        weights -= load.stored_bytes(name, device) if held[name] == 0 else 0
                start += 1
                while peaks and peaks[0][0] < start:
                    peaks.popleft()
            found.append(start)
        return found


def first_fit(search: Search) -> tuple[list[int], list[str]]:
    """Return each node on the first device with room for its weights and all it ever makes.

    Source: VKML, which starts over at the first device for every node.
    """
    load = search.workload
    held: list[set[str]] = [set() for _ in search.budgets]
    used = [0] * len(held)
    assigned: list[int] = []
    why: list[str] = []
    for place, node in enumerate(load.graph.nodes):
        touched = {load.roots.get(n, n) for n in (*node.reads, *filter(None, node.outputs))}
        full: list[str] = []
        for device, budget in enumerate(search.budgets):
            if not search.allowed[device][place]:
                continue
            more = touched - held[device]
            need = sum(load.stored_bytes(n, device) for n in more) + load.work[place].scratch_bytes
            if used[device] + need <= budget:
                held[device] |= more
                used[device] += need
                assigned.append(device)
                why.append("; ".join(["the first that fits", *full]))
                break
            full.append(f"device {load.label(device)} has {budget - used[device]} of {need} bytes "
                        "left")  # fmt: skip
        else:
            raise PlanError(f"node {node.name!r} ({node.op_type}) fits nowhere behind those "
                            f"before it: {'; '.join(full)}")  # fmt: skip
    return assigned, why
