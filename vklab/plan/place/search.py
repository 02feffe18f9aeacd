"""Search for cheap assignments of nodes to devices: paths and cuts along the order of nodes.

Proposes and predicts; `branches` moves parallel branches, `placement` chooses. Visited by lab 13.
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

RUN_NODES = 40_000  # nodes visited to decide whether runs fit a device
STATE_NODES = 150_000  # nodes times states, above which only a few device orders are tried
# Limits on forecasts of cuts, in nodes and in number.
CUT_NODES, MOST_CUTS = 40_000, 12
INFINITE = float("inf")
# A name for people, the device number of each node, and the forecast of that.
Proposal = tuple[str, list[int], Forecast]
RunCheck = Callable[[int, int], bool]


@dataclass(frozen=True)
class Search:
    """Devices for each node: `allowed` by device, then node; `budgets` in bytes by device."""

    workload: Workload
    allowed: Sequence[Sequence[bool]]
    budgets: Sequence[int]

    @functools.cached_property
    def singles(self) -> tuple[Proposal, ...]:
        """Return one proposal for each device that may run all nodes alone."""
        wholes = ((d, [d] * len(here)) for d, here in enumerate(self.allowed) if all(here))
        load = self.workload
        return tuple(
            (f"all on device {load.label(d)}", whole, load.forecast(whole)) for d, whole in wholes
        )

    def cuts(self) -> Iterator[Proposal]:
        """Yield proposals for several devices: a path that ignores memory, and runs that fit it."""
        if len(self.allowed) == 1:
            return
        path = self._cheapest_path()
        yield "cheapest path from device to device", path, self.workload.forecast(path)
        budgets, seen = list(self.budgets), {tuple(path), *(tuple(p[1]) for p in self.singles)}
        for _ in range(4):
            over = [0] * len(budgets)
            for cut in self._cuts(budgets):
                if tuple(cut) in seen:
                    continue
                seen.add(tuple(cut))
                forecast = self.workload.forecast(cut)
                excess = forecast.excess_bytes(self.budgets)
                if any(excess):
                    over = [max(pair) for pair in zip(over, excess, strict=True)]
                    continue
                order = (str(self.workload.devices[d].index) for d, _ in itertools.groupby(cut))
                yield f"cheapest cut, devices in the order {', '.join(order)}", cut, forecast
            if not any(over):
                return
            budgets = [b - more for b, more in zip(budgets, over, strict=True)]

    def fits(self, forecast: Forecast) -> bool:
        """Tell whether every device has enough memory for its share."""
        return not any(forecast.excess_bytes(self.budgets))

    @functools.cached_property
    def fastest(self) -> list[int]:
        """Return the devices, sorted by the time that each needs for all nodes."""
        times = self.workload.times
        return sorted(range(len(times)), key=lambda d: (sum(times[d]), d))

    @functools.cached_property
    def _states(self) -> list[tuple[int, list[int]]]:
        """Return for each state its device and its predecessor states; -1 is the beginning.

        A state is the set of devices used so far and the last of them, so that each device has one
        run at most, in any order. Where these are too many, devices come in three fixed orders.

        Source: Held and Karp 1962, dynamic programming over subsets.
        """
        numbers = range(len(self.allowed))
        if (len(numbers) << (len(numbers) - 1)) * len(self.workload.work) > STATE_NODES:
            orders = (self.fastest, self.fastest[::-1], list(numbers))
            return [
                (d, [-1, *range(n * len(order), n * len(order) + step)])
                for n, order in enumerate(orders)
                for step, d in enumerate(order)
            ]
        states: list[tuple[int, list[int]]] = []
        at: dict[tuple[tuple[int, ...], int], int] = {}
        for used in (u for size in numbers for u in itertools.combinations(numbers, size + 1)):
            for device in used:
                rest = tuple(d for d in used if d != device)
                at[used, device] = len(states)
                states.append((device, [at[rest, d] for d in rest] or [-1]))
        return states

    # ----------------------------------------------------------------------- along the order

    @functools.cached_property
    def _node_ns(self) -> list[list[float]]:
        """Return each node's time by device, with its transfers of graph inputs and outputs.

        Where a device is not allowed, the time includes a visit to the nearest one that is.
        """
        load, numbers = self.workload, range(len(self.allowed))
        total = [list(times) for times in load.times]
        unread, ends = {info.name for info in load.graph.inputs}, set(load.graph.outputs)
        for position, node in enumerate(load.graph.nodes):
            outer = (unread & set(node.reads)) | (ends & set(node.outputs))
            unread -= outer
            moved = sum(load.known[name].size_bytes for name in outer)
            for d in numbers:
                total[d][position] += load.costs[d].move_ns(moved)
            if all(self.allowed[d][position] for d in numbers):
                continue
            names = (*node.reads, *filter(None, node.outputs))
            moved = sum(load.known[n].size_bytes for n in names if not load.is_known(n))
            other = self.nearest(position)
            there = load.times[other][position]
            for d in numbers:
                if not self.allowed[d][position]:
                    visit = self._switch_ns(d, other, moved) + self._switch_ns(other, d, 0)
                    total[d][position] = there + visit
        return total

    def nearest(self, position: int) -> int:
        """Return the fastest device that may run the node at a position."""
        times = self.workload.times
        return min(
            (d for d in range(len(times)) if self.allowed[d][position]),
            key=lambda d: (times[d][position], d),
        )

    @functools.cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        """Return for each value that moves the positions of its maker and of its last reader.

        Graph inputs are made at -1; graph outputs are read after the last node.
        """
        load, nodes = self.workload, self.workload.graph.nodes
        made = {info.name: -1 for info in load.graph.inputs}
        made |= {name: p for p, node in enumerate(nodes) for name in node.outputs if name}
        last = {name: position for position, node in enumerate(nodes) for name in node.reads}
        last |= dict.fromkeys(load.graph.outputs, len(nodes))
        return {n: (made[n], last[n]) for n in made if n in last and not load.is_known(n)}

    @functools.cached_property
    def _live_bytes(self) -> list[int]:
        """Return the bytes alive before each node: made earlier, and read there or later."""
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
        """Return for each pair of devices the ns that a change between them costs before each node.

        The cost is that of transfers, of a submission, and of fusions lost.
        """
        load, live = self.workload, np.array(self._live_bytes[: len(self.workload.work)], float)
        split = np.array([maker == position - 1 for position, maker in enumerate(load.joined)])
        return {
            (a, b): split * np.array(load.apart_ns[b])
            + load.costs[b].submit_ns
            + live / load.costs[a].link_bytes_per_ns
            + live / load.costs[b].link_bytes_per_ns
            for a, b in itertools.permutations(range(len(self.allowed)), 2)
        }

    def _cheapest_path(self) -> list[int]:
        """Return the cheapest assignment in node order that may change device anywhere.

        Source: Viterbi 1967, the shortest path through a trellis.
        """
        times, numbers = self._node_ns, range(len(self.allowed))
        changes = {pair: costs.tolist() for pair, costs in self._cut_ns.items()}
        best = [self.workload.costs[d].submit_ns for d in numbers]
        previous: list[list[int]] = []
        for position in range(len(self.workload.work)):
            steps = [
                min(
                    (best[s] + (changes[s, d][position] if s != d else 0.0), s != d, s)
                    for s in numbers
                )
                for d in numbers
            ]
            previous.append([step[2] for step in steps])
            best = [steps[d][0] + times[d][position] for d in numbers]
        device = min(numbers, key=lambda d: (best[d], d))
        path = []
        for position in reversed(range(len(previous))):
            path.append(device if self.allowed[device][position] else self.nearest(position))
            device = previous[position][device]
        return path[::-1]

    def _cuts(self, budgets: Sequence[int]) -> list[list[int]]:
        """Return the cheapest assignments in which each device has at most one run.

        The table best[s][p] holds the cost of the first p nodes if the last run is of state s.
        """
        count = len(self.workload.work)
        most = max(3, min(MOST_CUTS, CUT_NODES // max(1, count)))
        checks = [self._run_checks(d, budget) for d, budget in enumerate(budgets)]
        best: list[np.ndarray] = []
        previous: list[list[tuple[int, int]]] = []
        for device, before in self._states:
            entries = np.full((len(before), count + 1), np.inf)
            for row, state in enumerate(before):
                if state < 0:
                    entries[row, 0] = self.workload.costs[device].submit_ns
                else:
                    entries[row, 1:count] = best[state][1:count]
                    entries[row, 1:count] += self._cut_ns[self._states[state][0], device][1:]
            picks = entries.argmin(0)
            ends, starts = self._ended(device, checks[device], entries.min(0).tolist())
            best.append(np.array(ends))
            previous.append([(q, before[picks[q]]) for q in starts])
        last = sorted((costs[count], state) for state, costs in enumerate(best))
        return [self._traced(previous, state) for cost, state in last[:most] if cost < INFINITE]

    def _traced(self, previous: Sequence[Sequence[tuple[int, int]]], state: int) -> list[int]:
        assigned: list[int] = []
        end = len(self.workload.work)
        while end:
            start, before = previous[state][end]
            assigned = [self._states[state][0]] * (end - start) + assigned
            state, end = before, start
        return [d if self.allowed[d][p] else self.nearest(p) for p, d in enumerate(assigned)]

    def _ended(
        self, device: int, checks: tuple[RunCheck, RunCheck], enter: Sequence[float]
    ) -> tuple[list[float], list[int]]:
        """Return the least cost of a run that ends before each node, and the start of that run.

        Args:
            checks: the result of `_run_checks`.
            enter: for each node the cost of all earlier nodes if a run starts there.
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

    def _run_checks(self, device: int, budget: int) -> tuple[RunCheck, RunCheck]:
        """Return two checks of a run (start, end): whether it fits, and whether its weights do not.

        After RUN_NODES nodes the first check accepts every run: weights alone decide.
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
        nodes = [load.graph.nodes[p] for p in range(start, end) if self.allowed[device][p]]
        touched = {name for node in nodes for name in (*node.reads, *node.outputs) if name}
        outer = {n for n in touched & spans.keys() if spans[n][0] < start or spans[n][1] >= end}
        weights = (load.stored_bytes(n, device) for n in touched if load.is_known(n))
        return sum(weights) + load.peak_bytes(nodes, outer, device)

    def _starts(self, device: int, budget: int) -> list[int]:
        """Return for each node the first start of a run up to it whose weights fit."""
        load, here = self.workload, self.allowed[device]
        read = [
            {name for name in node.reads if here[position] and load.is_known(name)}
            for position, node in enumerate(load.graph.nodes)
        ]
        uses: Counter[str] = Counter()
        resident = start = 0
        starts = []
        for position, names in enumerate(read):
            resident += sum(load.stored_bytes(name, device) for name in names if not uses[name])
            uses.update(names)
            while resident > budget and start <= position:
                uses.subtract(read[start])
                gone = (name for name in read[start] if not uses[name])
                resident -= sum(load.stored_bytes(name, device) for name in gone)
                start += 1
            starts.append(start)
        return starts


def first_fit(search: Search, fastest_first: bool = False) -> tuple[list[int], list[str]]:
    """Assign each node to the first device with room for its weights and all its values.

    Returns the device of each node and the reason. Devices are tried in their given order, or by
    their time for all nodes. Raises PlanError for a node that no device has room for.

    Source: Johnson 1974, first fit; VKML places nodes in this way.
    """
    load = search.workload
    resident: list[set[str]] = [set() for _ in search.budgets]
    left = list(search.budgets)
    order = search.fastest if fastest_first else range(len(left))
    assigned: list[int] = []
    why: list[str] = []
    for position, node in enumerate(load.graph.nodes):
        touched = load.touched(node)
        full: list[str] = []
        for device in (d for d in order if search.allowed[d][position]):
            more = touched - resident[device]
            need = sum(load.stored_bytes(n, device) for n in more)
            need += load.work[position].scratch_bytes
            if need <= left[device]:
                resident[device] |= more
                left[device] -= need
                assigned.append(device)
                why.append("; ".join(["the first device that fits", *full]))
                break
            full.append(
                f"device {load.label(device)} has {left[device]} bytes left of "
                f"{search.budgets[device]}, the node needs {need}"
            )
        else:
            raise PlanError(
                f"node {node.name!r} ({node.op_type}) fits nowhere after the "
                f"nodes before it: {'; '.join(full)}"
            )
    return assigned, why
