"""Groups of nodes that become one kernel each: what a kernel binds, moves and may hold.

A list of nodes is {name: (operator, names that it reads)}, in topological order; a name that no
node has is an input of the graph. A size is the bytes of a value. Visited by lab 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from vklab_labs.shared.recorded_graphs import RecordedGraph

__all__ = ["EXAMPLE", "POINTWISE", "Masks", "Work", "broken_rule", "buffers", "is_core", "moved",
           "natural", "next_groups", "of_recorded", "open_runs"]  # fmt: skip

Work = Mapping[str, tuple[str, tuple[str, ...]]]
Pair = tuple[int, int, int]  # bytes saved, number of a group, number of another one
# Element by element, or the same elements at other places; all other operators are cores.
POINTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Relu", "Tanh", "Erf", "Neg", "Cast",
                       "Clip", "Where", "And", "Identity", "Reshape", "Transpose", "Concat",
                       "Split"})  # fmt: skip
# The example of the lab's pictures.
_WORK: Work = {
    "a": ("Relu", ("x",)), "b": ("Add", ("a", "y")), "c": ("Add", ("b", "z")),
    "d": ("Add", ("a", "c")), "e": ("Relu", ("a",)), "f": ("MatMul", ("a", "e")),
}  # fmt: skip
_SIZES = {"x": 8, "y": 8, "z": 2, "a": 8, "b": 1, "c": 4, "d": 8, "e": 4, "f": 1}
EXAMPLE = _WORK, _SIZES, ("d", "f"), 4


def is_core(op: str) -> bool:
    """Tell whether an operator has a kernel of its own, of which a group may have one."""
    return op not in POINTWISE


def buffers(work: Work, outputs: Collection[str], group: Collection[str]) -> set[str]:
    """Return the values that the kernel of a group binds: read from outside, or seen outside.

    Args:
        work: the nodes.
        outputs: the outputs of the graph.
        group: the names of the group.
    """
    inside = set(group)
    reads = {name for node in inside for name in work[node][1]} - inside
    seen = {name for node, (_, names) in work.items() if node not in inside for name in names}
    return reads | (inside & (seen | set(outputs)))


def moved(
    work: Work, sizes: Mapping[str, int], outputs: Collection[str], groups: Sequence[Sequence[str]]
) -> int:
    """Return the bytes that the kernels of all groups read and write.

    Args:
        work: the nodes.
        sizes: bytes of each value.
        outputs: the outputs of the graph.
        groups: the names of each group.
    """
    return sum(sizes[name] for group in groups for name in buffers(work, outputs, group))


def broken_rule(
    work: Work, outputs: Collection[str], most: int, groups: Sequence[Sequence[str]]
) -> str:
    """Return a sentence about the first rule that groups break, or "".

    Args:
        work: the nodes.
        outputs: the outputs of the graph.
        most: most buffers of a group.
        groups: the names of each group.
    """
    place = {node: number for number, group in enumerate(groups) for node in group}
    for node in {**work, **place}:
        times = sum(list(group).count(node) for group in groups)
        if times != (node in work):
            return f"{node} is in {times} groups, expected {int(node in work)}"
    for number, group in enumerate(groups):
        cores = [node for node in group if is_core(work[node][0])]
        bound = buffers(work, outputs, group)
        if not group or len(cores) > 1:
            return (
                f"group {number} has the cores {', '.join(cores)}; a kernel has one at most"
                if group
                else f"group {number} is empty"
            )
        if len(bound) > most:
            return (
                f"group {number} binds {len(bound)} buffers ({', '.join(sorted(bound))}); "
                f"the limit is {most}"
            )
    waits = [
        {place[name] for node in group for name in work[node][1] if name in place} - {number}
        for number, group in enumerate(groups)
    ]
    left = set(range(len(groups)))
    while left:
        able = {number for number in left if not waits[number] & left}
        if not able:
            return f"the groups {sorted(left)} wait for each other in a circle"
        left -= able
    return ""


def next_groups(
    work: Work, outputs: Collection[str], most: int, done: Collection[str]
) -> list[list[str]]:
    """Return the groups that can be the next kernel: within the limits, nothing else to wait for.

    Args:
        work: the nodes.
        outputs: the outputs of the graph.
        most: most buffers of a group.
        done: the nodes that have run.
    """
    groups, left = [list[str]()], {name for name in work if name not in done}
    for name in work:
        if name in left:
            op, reads = work[name]
            groups += [
                [*group, name]
                for group in groups
                if not left.intersection(reads) - {*group}
                and not (is_core(op) and any(is_core(work[n][0]) for n in group))
            ]
    return [group for group in groups[1:] if len(buffers(work, outputs, group)) <= most]


def open_runs(
    work: Work, outputs: Collection[str], most: int, whole: Work | None = None
) -> list[list[str]]:
    """Return groups of neighbours: begin a new one where the open one may not take a node.

    Args:
        work: the nodes in the order in which they are taken.
        outputs: the outputs of the graph.
        most: most buffers of a group.
        whole: the nodes in topological order, where `work` has another one.
    """
    groups: list[list[str]] = []
    for node in work:
        longer = [*groups[-1], node] if groups else [node]
        cores = sum(is_core(work[name][0]) for name in longer)
        if groups and cores < 2 and len(buffers(whole or work, outputs, longer)) <= most:
            groups[-1] = longer
        else:
            groups.append([node])
    return groups


def of_recorded(graph: RecordedGraph) -> tuple[Work, dict[str, int], tuple[str, ...]]:
    """Return nodes, sizes and outputs of a recorded graph; each node is named like its value."""
    work = {
        node.outputs[0]: (node.op_type, tuple(dict.fromkeys(node.inputs))) for node in graph.nodes
    }
    alias = {value: node.outputs[0] for node in graph.nodes for value in node.outputs}
    work = {
        made: (op, tuple(dict.fromkeys(alias.get(name, name) for name in reads)))
        for made, (op, reads) in work.items()
    }
    sizes = {name: graph.size_bytes(name) for name in graph.shapes if alias.get(name, name) == name}
    for node in graph.nodes:
        sizes[node.outputs[0]] = sum(map(graph.size_bytes, node.outputs))
    return work, sizes, tuple(dict.fromkeys(alias[name] for name in graph.outputs))


class Masks:
    """Nodes and values as bits of a number, so that many groups can be tried."""

    def __init__(self, work: Work, sizes: Mapping[str, int], outputs: Collection[str],
                 most: int) -> None:  # fmt: skip
        """Number the values: nodes first, then inputs.

        Args:
            work: the nodes.
            sizes: bytes of each value.
            outputs: the outputs of the graph.
            most: most buffers of a group.
        """
        self.work, self.sizes, self.outputs, self.most = work, sizes, outputs, most
        read = (name for _, reads in work.values() for name in reads)
        self.names = list(dict.fromkeys([*work, *read]))
        bit = {name: 1 << n for n, name in enumerate(self.names)}
        self.reads = [sum(bit[name] for name in reads) for _, reads in work.values()]
        self.readers = [
            sum(bit[node] for node, (_, reads) in work.items() if name in reads)
            | (name in outputs) << len(bit)
            for name in self.names
        ]
        self.bytes = [sizes[name] for name in self.names]
        self.cores = sum(bit[n] for n, (op, _) in work.items() if is_core(op))
        self.memo = dict[int, int | None]()

    def bound(self, group: int) -> int:
        """Return the values that the kernel of a group binds."""
        bound, left = 0, group
        while left:
            low = left & -left
            left ^= low
            n = low.bit_length() - 1
            bound |= self.reads[n] & ~group
            if self.readers[n] & ~group:
                bound |= low
        return bound

    def cost(self, group: int) -> int | None:
        """Return the bytes that the kernel of a group moves; None if the limits forbid it."""
        if group not in self.memo:
            bound = self.bound(group)
            fits = bound.bit_count() <= self.most and (group & self.cores).bit_count() < 2
            self.memo[group] = sum(self.bytes[n] for n in _bits(bound)) if fits else None
        return self.memo[group]

    def merge(self, order: Callable[[list[Pair]], Sequence[Pair]]) -> int:
        """Merge two groups where that saves bytes, as long as possible; return the bytes.

        order: sorts the pairs of groups that may be merged.
        """
        groups, memo = [1 << n for n in range(len(self.work))], self.memo
        while True:
            able, costs = [], [self.cost(group) or 0 for group in groups]
            bound = [*map(self.bound, groups)]
            for b, group in enumerate(groups):
                for a in range(b):
                    if not bound[a] & bound[b]:
                        continue  # nothing to save
                    both = group | groups[a]
                    cost = memo[both] if both in memo else self.cost(both)
                    if cost is not None and cost < costs[a] + costs[b]:
                        able.append((costs[a] + costs[b] - cost, a, b))
            for _, a, b in order(able):
                joined = [
                    *(g for n, g in enumerate(groups) if n not in (a, b)),
                    groups[a] | groups[b],
                ]
                if self._can_run(joined):
                    groups = sorted(joined)
                    break
            else:
                return sum(costs)

    def cut(self, order: Sequence[int]) -> int:
        """Return the fewest bytes of groups that are neighbours in an order of the nodes."""
        best, memo = {0: 0}, self.memo  # number of nodes that are done: fewest bytes
        for start in range(len(order)):
            group = cores = 0
            for stop in range(start, len(order)):
                node = 1 << order[stop]
                cores += bool(node & self.cores)
                if cores > 1:
                    break
                group |= node
                cost = memo[group] if group in memo else self.cost(group)
                if cost is not None and best[start] + cost < best.get(stop + 1, math.inf):
                    best[stop + 1] = best[start] + cost
        return best[len(order)]

    def shuffle(self, random: np.random.Generator) -> list[int]:
        """Return the numbers of the nodes in a drawn topological order."""
        order, done = list[int](), -1 << len(self.work)
        while len(order) < len(self.work):
            able = [n for n, reads in enumerate(self.reads) if not (done >> n & 1 or reads & ~done)]
            order.append(able[int(random.random() * len(able))])
            done |= 1 << order[-1]
        return order

    def move_nodes(self, order: list[int]) -> int:
        """Move one node to another place while that helps the best cut; return the bytes."""
        best, tried = self.cut(order), 0
        while tried < len(order):
            node = order[tried]
            others = [n for n in order if n != node]
            first = 1 + max(
                (others.index(n) for n in _bits(self.reads[node]) if n in others), default=-1
            )
            last = min(
                (others.index(n) for n in _bits(self.readers[node]) if n in others),
                default=len(others),
            )
            for place in range(first, last + 1):
                other = [*others[:place], node, *others[place:]]
                cost = self.cut(other)
                if cost < best:
                    order, best, tried = other, cost, -1
                    break
            tried += 1
        return best

    def _can_run(self, groups: list[int]) -> bool:
        done, left = -1 << len(self.work), groups
        needs = {group: self._needs(group) for group in groups}
        while left:
            able = [group for group in left if not needs[group] & ~done]
            if not able:
                return False
            done, left = done | sum(able), [group for group in left if group not in able]
        return True

    def _needs(self, group: int) -> int:
        reads = 0
        for n in _bits(group):
            reads |= self.reads[n]
        return reads & ~group


def _bits(number: int) -> Iterator[int]:
    while number:
        yield (number & -number).bit_length() - 1
        number &= number - 1


def natural(masks: Masks, tries: int, moves: bool = True) -> Iterator[tuple[str, int]]:
    """Yield names of natural answers and the bytes that they move, the quick ones first.

    Args:
        masks: the nodes.
        tries: how often each random merge is repeated; ten times as many orders are cut.
        moves: whether single nodes are moved, too; that takes longest.
    """
    random = np.random.default_rng(0)

    def run_of(names: Sequence[str]) -> int:
        taken = {name: masks.work[name] for name in names}
        groups = open_runs(taken, masks.outputs, masks.most, masks.work)
        return moved(masks.work, masks.sizes, masks.outputs, groups)

    def shuffled(able: list[Pair]) -> list[Pair]:
        return [able[n] for n in random.permutation(len(able))]

    def most_saved(able: list[Pair]) -> list[Pair]:
        return sorted(able, key=lambda x: -x[0])

    def any_best(able: list[Pair]) -> list[Pair]:
        return most_saved(shuffled(able))

    def one_of_three(able: list[Pair]) -> list[Pair]:
        able = most_saved(able)
        return shuffled(able[:3]) + able[3:]

    names = list(masks.work)
    numbers = list(range(len(names)))
    yield "one node each", moved(masks.work, masks.sizes, masks.outputs, [[n] for n in names])
    yield "runs from the top", run_of(names)
    yield "runs from the end", run_of(names[::-1])
    yield "merge the best pair", masks.merge(most_saved)
    yield "merge from the top", masks.merge(lambda able: sorted(able, key=lambda x: x[1:]))
    yield "merge from the end", masks.merge(lambda able: sorted(able, key=lambda x: x[:0:-1])[::-1])
    yield "cut the order", masks.cut(numbers)
    yield "cut random orders", min(masks.cut(masks.shuffle(random)) for _ in range(10 * tries))
    for name, order in (
        ("good pairs", one_of_three),
        ("best pairs, random ties", any_best),
        ("random pairs", shuffled),
    ):
        yield name, min(masks.merge(order) for _ in range(tries))
    if moves:
        yield "move single nodes", masks.move_nodes(numbers)
