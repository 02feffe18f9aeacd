"""Search for cheap assignments of nodes to devices: walks and cuts along the order of nodes.

Proposes and predicts; `branches` moves what may run beside others, `placement` chooses.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vklab.errors import PlanError
from vklab.plan.place.costs import Forecast, Workload

__all__ = ["Check", "Proposal", "Search", "first_fit"]

RUN_NODES = 40_000  # gone through to tell whether runs fit a device
STATE_NODES = 150_000  # nodes by states, above which devices are tried in a few orders only
# Cuts that are forecast, by the nodes that each one looks at.
CUT_NODES, MOST_CUTS = 40_000, 12
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
        budgets, seen = list(self.budgets), {tuple(walk), *(tuple(p[1]) for p in self.singles)}
        for _ in range(4):
            over: Sequence[int] = ()
            for cut in self._cuts(budgets):
                if tuple(cut) in seen:
                    continue
                seen.add(tuple(cut))
                forecast = self.workload.forecast(cut)
                excess = forecast.excess_bytes(self.budgets)
                if any(excess):
                    over = over or excess
                    continue
                order = (str(self.workload.devices[d].index) for d, _ in itertools.groupby(cut))
                yield f"cheapest cut, devices in the order {', '.join(order)}", cut, forecast
            if not over:
                return
            budgets = [b - more for b, more in zip(budgets, over, strict=True)]

    def fits(self, forecast: Forecast) -> bool:
        """Tell whether every device has the memory."""
        return not any(forecast.excess_bytes(self.budgets))

    @functools.cached_property
    def fastest(self) -> list[int]:
        """Return the devices by the time they would take for all nodes."""
        times = self.workload.times
        return sorted(range(len(times)), key=lambda d: (sum(times[d]), d))

    @functools.cached_property
    def _states(self) -> list[tuple[int, list[int]]]:
        """Return devices for a run, and the states before it; -1 is the beginning.

        In all states together every device has at most one run, in whatever order; where that is
        too much to go through, in three orders.
        """
        numbers = range(len(self.allowed))
        if (len(numbers) << (len(numbers) - 1)) * len(self.workload.work) > STATE_NODES:
            orders = (self.fastest, self.fastest[::-1], list(numbers))
            return [(d, [-1, *range(n * len(order), n * len(order) + step)])
                    for n, order in enumerate(orders) for step, d in enumerate(order)]  # fmt: skip
        found: list[tuple[int, list[int]]] = []
        at: dict[tuple[tuple[int, ...], int], int] = {}
        for used in (u for size in numbers for u in itertools.combinations(numbers, size + 1)):
            for device in used:
                rest = tuple(d for d in used if d != device)
                at[used, device] = len(found)
                found.append((device, [at[rest, d] for d in rest] or [-1]))
        return found

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

    @functools.cached_property
    def _cut_ns(self) -> dict[tuple[int, int], np.ndarray]:
        """Return, for two devices, what changing from one to the other costs before each node.

        That is what moves, and what is not fused.
        """
        load, live = self.workload, np.array(self._live_bytes[: len(self.workload.work)], float)
        split = np.array([maker == place - 1 for place, maker in enumerate(load.joined)])
        return {
            (a, b): split * np.array(load.apart_ns[b]) + load.costs[b].submit_ns
            + live / load.costs[a].link_bytes_per_ns + live / load.costs[b].link_bytes_per_ns
            for a, b in itertools.permutations(range(len(self.allowed)), 2)
        }  # fmt: skip

    def _walk(self) -> list[int]:
        """Return the cheapest way along the nodes that may change device anywhere."""
        times, numbers = self._node_ns, range(len(self.allowed))
        changes = {pair: costs.tolist() for pair, costs in self._cut_ns.items()}
        best = [self.workload.costs[d].submit_ns for d in numbers]
        came: list[list[int]] = []
        for place in range(len(self.workload.work)):
            steps = [
                min((best[s] + (changes[s, d][place] if s != d else 0.0), s != d, s)
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

    def _cuts(self, budgets: Sequence[int]) -> list[list[int]]:
        """Return the cheapest assignments in which each device has at most one run.

        best[s][p]: the cost of the first p nodes if the last run is that of state s.
        """
        count = len(self.workload.work)
        most = max(3, min(MOST_CUTS, CUT_NODES // max(1, count)))
        checks = [self._run_checks(d, budget) for d, budget in enumerate(budgets)]
        best: list[np.ndarray] = []
        came: list[list[tuple[int, int]]] = []
        for device, before in self._states:
            ways = np.full((len(before), count + 1), np.inf)
            for row, state in enumerate(before):
                if state < 0:
                    ways[row, 0] = self.workload.costs[device].submit_ns
                else:
                    ways[row, 1:count] = best[state][1:count]
                    ways[row, 1:count] += self._cut_ns[self._states[state][0], device][1:]
            picks = ways.argmin(0)
            ends, starts = self._ended(device, checks[device], ways.min(0).tolist())
            best.append(np.array(ends))
            came.append([(q, before[picks[q]]) for q in starts])
        last = sorted((costs[count], state) for state, costs in enumerate(best))
        return [self._traced(came, state) for cost, state in last[:most] if cost < INFINITE]

    def _traced(self, came: Sequence[Sequence[tuple[int, int]]], state: int) -> list[int]:
        found: list[int] = []
        end = len(self.workload.work)
        while end:
            start, before = came[state][end]
            found = [self._states[state][0]] * (end - start) + found
            state, end = before, start
        return [d if self.allowed[d][p] else self.nearest(p) for p, d in enumerate(found)]

    def _ended(
        self, device: int, checks: tuple[Check, Check], enter: Sequence[float]
    ) -> tuple[list[float], list[int]]:
        """Return the least cost of a run that ends before each node, and where it starts.

        Args:
            checks: those of `_run_checks`.
            enter: the cost of all before a run that starts at a node.
        """
        sums = [0.0, *itertools.accumulate(self._node_ns[device])]
        fits, is_over = checks
        window: deque[int] = deque()  # starts by rising cost: the minimum is at the left
        ends, starts = [INFINITE], [-1]
        for p in range(1, len(enter)):
            cost = enter[p - 1] - sums[p - 1]
            while window and enter[window[-1]] - sums[window[-1]] >= cost:
                window.pop()
            window.append(p - 1)
            while window and is_over(window[0], p):
                window.popleft()
            q = next((q for q in window if fits(q, p)), -1)
            ends.append(enter[q] - sums[q] + sums[p] if q >= 0 else INFINITE)
            starts.append(q)
        return ends, starts

    def _run_checks(self, device: int, budget: int) -> tuple[Check, Check]:
        """Return what tells whether nodes from one up to another fit, and whether no more will.

        Runs are gone through as long as that takes no ages; then weights alone decide.
        """
        load = self.workload
        if sum(load.stored_bytes(name, device) for name in load.known) <= budget:
            return (lambda start, end: True), (lambda start, end: False)
        first = self._starts(device, budget)
        left = RUN_NODES

        @functools.cache
        def fits(start: int, end: int) -> bool:
            nonlocal left
            left -= end - start
            return left < 0 or self._run_bytes(start, end, device) <= budget

        return fits, lambda start, end: start < first[end - 1]

    def _run_bytes(self, start: int, end: int, device: int) -> int:
        load, spans = self.workload, self._spans
        places = [p for p in range(start, end) if self.allowed[device][p]]
        nodes = [load.graph.nodes[p] for p in places]
        touched = {name for node in nodes for name in (*node.reads, *node.outputs) if name}
        outer = {n for n in touched & spans.keys() if spans[n][0] < start or spans[n][1] >= end}
        weights = (load.stored_bytes(n, device) for n in touched if load.is_known(n))
        return sum(weights) + load.peak_bytes(nodes, outer, device)

    def _starts(self, device: int, budget: int) -> list[int]:
        """Return, for a run up to each node, the first start from which its weights fit."""
        load, here = self.workload, self.allowed[device]
        read = [{name for name in node.reads if here[place] and load.is_known(name)}
                for place, node in enumerate(load.graph.nodes)]  # fmt: skip
        uses: Counter[str] = Counter()
        held = start = 0
        found = []
        for place, names in enumerate(read):
            held += sum(load.stored_bytes(name, device) for name in names if not uses[name])
            uses.update(names)
            while held > budget and start <= place:
                uses.subtract(read[start])
                gone = (name for name in read[start] if not uses[name])
                held -= sum(load.stored_bytes(name, device) for name in gone)
                start += 1
            found.append(start)
        return found


def first_fit(search: Search, fastest_first: bool = False) -> tuple[list[int], list[str]]:
    """Return each node on the first device with room for its weights and all it ever makes.

    Devices are tried as they were given, or by the time they would take for everything.

    Source: VKML, which starts over at the first device for every node.
    """
    load = search.workload
    held: list[set[str]] = [set() for _ in search.budgets]
    left = list(search.budgets)
    order = search.fastest if fastest_first else range(len(left))
    assigned: list[int] = []
    why: list[str] = []
    for place, node in enumerate(load.graph.nodes):
        touched = load.touched(node)
        full: list[str] = []
        for device in (d for d in order if search.allowed[d][place]):
            more = touched - held[device]
            need = sum(load.stored_bytes(n, device) for n in more) + load.work[place].scratch_bytes
            if need <= left[device]:
                held[device] |= more
                left[device] -= need
                assigned.append(device)
                why.append("; ".join(["the first that fits", *full]))
                break
            full.append(f"device {load.label(device)} has {left[device]} of {need} bytes left")
        else:
            raise PlanError(f"node {node.name!r} ({node.op_type}) fits nowhere behind those "
                            f"before it: {'; '.join(full)}")  # fmt: skip
    return assigned, why
