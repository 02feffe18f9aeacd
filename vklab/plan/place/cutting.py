"""Cut a graph whose nodes have devices into stages: runs of nodes that one device does in one go.

Knows which stage waits for which, and what moves between them; not where nodes belong
(`placement`) nor when a stage starts (`runtime/scheduler.py`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan.chunk import Chunk, Transfer
from vklab.types import TensorInfo

__all__ = ["cut", "transfers"]


def cut(
    graph: Graph, devices: Mapping[str, int], early: frozenset[str] = frozenset()
) -> tuple[Chunk, ...]:
    """Return the stages of a shaped graph, predecessors first.

    Nodes share a stage if they share a device, lie behind equally many changes of device and
    before equally many, and are connected or wait for the same stages: so no stage waits for
    itself, and no other device waits for work that it does not need.

    Args:
        devices: the device number of every node, by name.
        early: values that end a stage, so that they leave while the device goes on.
    """
    for node in graph.nodes:
        if node.name not in devices:
            raise PlanError(f"node {node.name!r} ({node.op_type}) has no device")
    numbers = [devices[node.name] for node in graph.nodes]
    edges = _edges(graph)
    before = _changes(edges, numbers)
    # The same walk from the end: edges turned round, numbers counted from the last node.
    last = len(numbers) - 1
    back = sorted((last - reader, last - maker) for maker, reader in edges)
    after = _changes(back, numbers[::-1])[::-1]
    keys = list(zip(before, (-count for count in after), numbers, strict=True))
    groups = _merged(_components(keys, edges), keys, edges)
    ends = {n for n, node in enumerate(graph.nodes) if not early.isdisjoint(node.outputs)}
    groups = [piece for group in groups for piece in _pieces(group, ends)]
    order = sorted(range(len(groups)), key=lambda g: (keys[groups[g][0]], groups[g]))
    return _stages(graph, [groups[g] for g in order], numbers, edges)


def transfers(stages: Sequence[Chunk]) -> tuple[Transfer, ...]:
    """Return what moves into each stage: one transfer a value and reader."""
    makers = {name: stage.number for stage in stages for name in stage.graph.outputs}
    return tuple(
        Transfer(info.name, makers.get(info.name), stage.number, info.size_bytes)
        for stage in stages for info in stage.graph.inputs
    )  # fmt: skip


def _edges(graph: Graph) -> list[tuple[int, int]]:
    """Return (maker, reader) by place in the graph; values known beforehand join nothing."""
    makers = {
        name: place for place, node in enumerate(graph.nodes) for name in node.outputs
        if name and not _is_known(graph, name)
    }  # fmt: skip
    return [
        (makers[name], place) for place, node in enumerate(graph.nodes) for name in node.reads
        if name in makers
    ]  # fmt: skip


def _is_known(graph: Graph, name: str) -> bool:
    info = graph.infos.get(name)
    return name in graph.initializers or (info is not None and info.constant is not None)


def _changes(edges: Iterable[tuple[int, int]], devices: Sequence[int]) -> list[int]:
    """Return, for each node, the most changes of device on a way to it."""
    counts = [0] * len(devices)
    for maker, reader in edges:  # in an order in which makers are done
        count = counts[maker] + (devices[maker] != devices[reader])
        counts[reader] = max(counts[reader], count)
    return counts


def _components(
    keys: Sequence[tuple[int, int, int]], edges: Iterable[tuple[int, int]]
) -> list[list[int]]:
    """Return nodes of equal key that edges connect, each group in order."""
    parents = list(range(len(keys)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    for maker, reader in edges:
        if keys[maker] == keys[reader]:
            parents[root(reader)] = root(maker)
    groups: dict[int, list[int]] = {}
    for place in range(len(keys)):
        groups.setdefault(root(place), []).append(place)
    return list(groups.values())


def _merged(
    groups: list[list[int]],
    keys: Sequence[tuple[int, int, int]],
    edges: Sequence[tuple[int, int]],
) -> list[list[int]]:
    """Join groups of equal key that wait for the same groups and free the same: nobody loses."""
    while True:
        waits, frees = _neighbours(groups, edges, len(keys))
        alike: dict[object, list[int]] = {}
        for number, group in enumerate(groups):
            signature = keys[group[0]], frozenset(waits[number]), frozenset(frees[number])
            alike.setdefault(signature, []).extend(group)
        if len(alike) == len(groups):
            return groups
        groups = [sorted(group) for group in alike.values()]


def _pieces(group: Sequence[int], ends: Container[int]) -> Iterator[list[int]]:
    """Yield a group, in order, up to each of the ends in it."""
    piece = []
    for place in group:
        piece.append(place)
        if place in ends or place == group[-1]:
            yield piece
            piece = []


def _neighbours(
    groups: Sequence[Sequence[int]], edges: Iterable[tuple[int, int]], count: int
) -> tuple[list[set[int]], list[set[int]]]:
    """Return, for each group, those that it waits for and those that wait for it."""
    group_of = [0] * count
    for number, group in enumerate(groups):
        for place in group:
            group_of[place] = number
    waits: list[set[int]] = [set() for _ in groups]
    frees: list[set[int]] = [set() for _ in groups]
    for maker, reader in edges:
        source, target = group_of[maker], group_of[reader]
        if source != target:
            waits[target].add(source)
            frees[source].add(target)
    return waits, frees


def _stages(
    graph: Graph,
    groups: Sequence[Sequence[int]],
    devices: Sequence[int],
    edges: Sequence[tuple[int, int]],
) -> tuple[Chunk, ...]:
    waits, frees = _neighbours(groups, edges, len(devices))
    known: dict[str, TensorInfo] = {**graph.infos, **{info.name: info for info in graph.inputs}}
    known.update(graph.initializers)
    readers: dict[str, set[int]] = {}
    for number, group in enumerate(groups):
        for place in group:
            for name in graph.nodes[place].reads:
                readers.setdefault(name, set()).add(number)

    def leaves(name: str, number: int) -> bool:
        others = readers.get(name, set()) - {number}
        return name in graph.outputs or (bool(others) and not _is_known(graph, name))

    stages = []
    for number, group in enumerate(groups):
        nodes = tuple(graph.nodes[place] for place in group)
        made = dict.fromkeys(name for node in nodes for name in node.outputs if name)
        foreign = dict.fromkeys(name for n in nodes for name in n.reads if name not in made)
        part = replace(
            graph,
            nodes=nodes,
            inputs=tuple(known[name] for name in foreign if not _is_known(graph, name)),
            outputs=tuple(name for name in made if leaves(name, number)),
            initializers={name: known[name] for name in foreign if _is_known(graph, name)},
            captures=(),
        )
        device = devices[group[0]]
        stages.append(Chunk(device, part, number, tuple(sorted(waits[number]))))
    return tuple(stages)
