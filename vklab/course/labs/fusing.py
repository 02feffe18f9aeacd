"""Groups of nodes that become one kernel each: what a kernel binds, moves and may hold.

A list of nodes is {name: (operator, names that it reads)}, in topological order; a name that no
node has is an input of the graph. A size is the bytes of a value. Visited by lab 10.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from vklab.course.labs.recorded_graphs import RecordedGraph, irregular, recorded

__all__ = ["EXAMPLE", "POINTWISE", "Drawn", "Masks", "Work", "bert_work",
           "broken_rule", "buffers", "irregular_work", "is_core", "moved", "natural", "of_recorded",
           "open_runs"]  # fmt: skip

Work = Mapping[str, tuple[str, tuple[str, ...]]]
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
            return (f"group {number} has the cores {', '.join(cores)}; a kernel has one at most"
                    if group else f"group {number} is empty")  # fmt: skip
        if len(bound) > most:
            return (f"group {number} binds {len(bound)} buffers ({', '.join(sorted(bound))}); "
                    f"the limit is {most}")  # fmt: skip
    waits = [{place[name] for node in group for name in work[node][1] if name in place} - {number}
             for number, group in enumerate(groups)]  # fmt: skip
    left = set(range(len(groups)))
    while left:
        able = {number for number in left if not waits[number] & left}
        if not able:
            return f"the groups {sorted(left)} wait for each other in a circle"
        left -= able
    return ""


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
    work = {node.outputs[0]: (node.op_type, tuple(dict.fromkeys(node.inputs)))
            for node in graph.nodes}  # fmt: skip
    alias = {value: node.outputs[0] for node in graph.nodes for value in node.outputs}
    work = {made: (op, tuple(dict.fromkeys(alias.get(name, name) for name in reads)))
            for made, (op, reads) in work.items()}  # fmt: skip
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
        self.readers = [sum(bit[node] for node, (_, reads) in work.items() if name in reads)
                        | (name in outputs) << len(bit) for name in self.names]  # fmt: skip
        self.bytes = [sizes[name] for name in self.names]
        self.cores = sum(bit[n] for n, (op, _) in work.items() if is_core(op))
        self.memo = dict[int, int | None]()

    def cost(self, group: int) -> int | None:
        """Return the bytes that the kernel of a group moves; None if the limits forbid it."""
        if group not in self.memo:
            bound, count, total = 0, 0, 0
            for n in _bits(group):
                bound |= self.reads[n] & ~group | (1 << n if self.readers[n] & ~group else 0)
            for n in _bits(bound):
                count, total = count + 1, total + self.bytes[n]
            fits = count <= self.most and (group & self.cores).bit_count() < 2
            self.memo[group] = total if fits else None
        return self.memo[group]

    def merge(self, order: Callable[[list[tuple[int, int, int]]], Sequence[tuple[int, int, int]]]
              ) -> int:  # fmt: skip
        """Merge two groups where that saves bytes, as long as possible; return the bytes.

        order: sorts what may be merged: (bytes saved, number of a group, number of another one).
        """
        groups, memo = [1 << n for n in range(len(self.work))], self.memo
        while True:
            able, costs = [], [self.cost(group) or 0 for group in groups]
            for b, group in enumerate(groups):
                for a in range(b):
                    both = group | groups[a]
                    cost = memo[both] if both in memo else self.cost(both)
                    if cost is not None and cost < costs[a] + costs[b]:
                        able.append((costs[a] + costs[b] - cost, a, b))
            for _, a, b in order(able):
                joined = [*(g for n, g in enumerate(groups) if n not in (a, b)),
                          groups[a] | groups[b]]  # fmt: skip
                if self._can_run(joined):
                    groups = sorted(joined)
                    break
            else:
                return sum(costs)

    def cut(self, order: Sequence[int]) -> int:
        """Return the fewest bytes of groups that are neighbours in an order of the nodes."""
        best = {0: 0}  # number of nodes that are done: fewest bytes
        for start in range(len(order)):
            group = 0
            for stop in range(start, len(order)):
                group |= 1 << order[stop]
                cost = self.cost(group)
                if cost is not None and best[start] + cost < best.get(stop + 1, math.inf):
                    best[stop + 1] = best[start] + cost
        return best[len(order)]

    def shuffle(self, random: np.random.Generator) -> list[int]:
        """Return the numbers of the nodes in a drawn topological order."""
        order, done = list[int](), -1 << len(self.work)
        while len(order) < len(self.work):
            able = [n for n, reads in enumerate(self.reads) if not (done >> n & 1 or reads & ~done)]
            order.append(able[int(random.integers(len(able)))])
            done |= 1 << order[-1]
        return order

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


def natural(masks: Masks, tries: int) -> dict[str, int]:
    """Return the bytes that natural answers move, by their names; `tries` of each random one."""
    random = np.random.default_rng(0)

    def run_of(names: Sequence[str]) -> int:
        taken = {name: masks.work[name] for name in names}
        groups = open_runs(taken, masks.outputs, masks.most, masks.work)
        return moved(masks.work, masks.sizes, masks.outputs, groups)

    def shuffled(able: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        return [able[n] for n in random.permutation(len(able))]

    def one_of_three(able: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        able.sort(key=lambda x: -x[0])
        return shuffled(able[:3]) + able[3:]

    names = list(masks.work)
    return {
        "one node each": moved(masks.work, masks.sizes, masks.outputs, [[n] for n in names]),
        "runs from the top": run_of(names), "runs from the end": run_of(names[::-1]),
        "merge the best pair": masks.merge(lambda able: sorted(able, key=lambda x: -x[0])),
        "merge from the top": masks.merge(lambda able: sorted(able, key=lambda x: x[1:])),
        "merge from the end": masks.merge(lambda able: sorted(able, key=lambda x: x[:0:-1])[::-1]),
        "cut the order": masks.cut(range(len(names))),
        "cut three orders": min(masks.cut(masks.shuffle(random)) for _ in range(3)),
        f"best of {tries} random": min(masks.merge(shuffled) for _ in range(tries)),
        f"best of {tries} good": min(masks.merge(one_of_three) for _ in range(tries)),
    }  # fmt: skip


Drawn = tuple[Work, dict[str, int], tuple[str, ...], int]


def irregular_work(random: np.random.Generator, count: int, reach: int = 8) -> Drawn:
    """Draw element-wise nodes and some cores; values have 1, 2, 4 or 8 bytes.

    Args:
        random: the source of chance.
        count: number of nodes.
        reach: how many nodes back a node may read.
    """
    cores = set(random.choice(range(1, count), count // 6, replace=False).tolist())
    work: dict[str, tuple[str, tuple[str, ...]]] = {}
    for n, wiring in enumerate(irregular(random, count, (1, 2, 2, 2), reach)):
        reads = tuple(f"n{before}" for before in wiring)
        if len(reads) < 2 and random.random() < 0.5 or not reads:
            reads += (f"x{int(random.integers(3))}",)
        ops = ("Softmax", "MatMul") if n in cores else ("Relu", "Add")
        work[f"n{n}"] = ops[len(reads) > 1], reads
    read = dict.fromkeys(name for _, reads in work.values() for name in reads)
    sizes = {name: int(random.choice((1, 2, 4, 8))) for name in {**work, **read}}
    return work, sizes, tuple(name for name in work if name not in read), 4


def bert_work(random: np.random.Generator, count: int) -> Drawn:
    """Return a window of the recorded BERT with other names, another order and drawn sizes."""
    first = int(random.integers(20, 380 - count))
    part = _bert().window(first, first + count).renamed(random).shuffled(random)
    work, sizes, outputs = of_recorded(part)
    return work, {name: int(random.choice((1, 2, 4, 8))) for name in sizes}, outputs, 5


@functools.cache
def _bert() -> RecordedGraph:
    return recorded("bert_base")
