"""Cut a graph whose nodes have devices into stages: sets of nodes that a device runs together.

Finds the dependences of stages and the values that move between them; devices are chosen by
`placement`, and the scheduler of the runtime starts stages. Visited by labs 12 and 13.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan.chunk import Chunk, Transfer
from vklab.types import TensorInfo


def cut(
    graph: Graph, devices: Mapping[str, int], early: frozenset[str] = frozenset()
) -> tuple[Chunk, ...]:
    """Return the stages of a shaped graph, predecessors first.

    Nodes share a stage if they share a device, have equally many changes of device before and
    after them, and are connected or wait for the same stages: so no stage waits for itself, and no
    device waits for work that it does not need.

    Args:
        graph: the graph, its nodes in topological order.
        devices: the device number of every node, by name.
        early: values that end a stage, so that they are transferred while the device continues.

    Raises PlanError for a node without a device.
    """
    for node in graph.nodes:
        if node.name not in devices:
            raise PlanError(f"node {node.name!r} ({node.op_type}) has no device; assign one")
    numbers = [devices[node.name] for node in graph.nodes]
    edges = _edges(graph)
    before = _changes(edges, numbers)
    # The same traversal from the end: edges reversed, nodes numbered from the last one.
    last = len(numbers) - 1
    back = sorted((last - reader, last - maker) for maker, reader in edges)
    after = _changes(back, numbers[::-1])[::-1]
    keys = list(zip(before, (-count for count in after), numbers, strict=True))
    groups = _merged(_components(keys, edges), keys, edges)
    ends = {n for n, node in enumerate(graph.nodes) if not early.isdisjoint(node.outputs)}
    groups = [piece for group in groups for piece in _pieces(group, ends)]
    order = sorted(range(len(groups)), key=lambda g: (keys[groups[g][0]], groups[g]))
    return _stages(graph, [groups[g] for g in order], numbers, edges)


def as_stages(
    graph: Graph, groups: Sequence[Sequence[int]], devices: Sequence[int]
) -> tuple[Chunk, ...]:
    """Return groups of nodes as stages; no group may wait for a later one.

    Args:
        graph: the shaped graph.
        groups: positions of nodes, each group in node order.
        devices: the device number of every node, by position.
    """
    return _stages(graph, groups, devices, _edges(graph))


def transfers(stages: Sequence[Chunk]) -> tuple[Transfer, ...]:
    """Return the transfers into each stage: one for each value and reading stage."""
    makers = {name: stage.number for stage in stages for name in stage.graph.outputs}
    return tuple(
        Transfer(info.name, makers.get(info.name), stage.number, info.size_bytes)
        for stage in stages
        for info in stage.graph.inputs
    )


def _edges(graph: Graph) -> list[tuple[int, int]]:
    """Return (maker, reader) as positions of nodes; constants make no edge."""
    makers = {
        name: position
        for position, node in enumerate(graph.nodes)
        for name in node.outputs
        if name and not _is_known(graph, name)
    }
    return [
        (makers[name], position)
        for position, node in enumerate(graph.nodes)
        for name in node.reads
        if name in makers
    ]


def _is_known(graph: Graph, name: str) -> bool:
    info = graph.infos.get(name)
    return name in graph.initializers or (info is not None and info.constant is not None)


def _changes(edges: Iterable[tuple[int, int]], devices: Sequence[int]) -> list[int]:
    """Return for each node the most changes of device on any path to it."""
    counts = [0] * len(devices)
    for maker, reader in edges:  # in topological order: the counts of makers are final
        count = counts[maker] + (devices[maker] != devices[reader])
        counts[reader] = max(counts[reader], count)
    return counts


def _components(
    keys: Sequence[tuple[int, int, int]], edges: Iterable[tuple[int, int]]
) -> list[list[int]]:
    """Return the connected components of nodes with equal keys, each in node order.

    Source: Tarjan and van Leeuwen 1984, union-find with path halving.
    """
    parents = list(range(len(keys)))

    def root(position: int) -> int:
        while parents[position] != position:
            parents[position] = parents[parents[position]]
            position = parents[position]
        return position

    for maker, reader in edges:
        if keys[maker] == keys[reader]:
            parents[root(reader)] = root(maker)
    groups: dict[int, list[int]] = {}
    for position in range(len(keys)):
        groups.setdefault(root(position), []).append(position)
    return list(groups.values())


def _merged(
    groups: list[list[int]],
    keys: Sequence[tuple[int, int, int]],
    edges: Sequence[tuple[int, int]],
) -> list[list[int]]:
    """Merge groups with equal keys, predecessors and dependents: no stage then waits longer."""
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
    """Yield the pieces of a group, each of which stops at one of the ends."""
    piece = []
    for position in group:
        piece.append(position)
        if position in ends or position == group[-1]:
            yield piece
            piece = []


def _neighbours(
    groups: Sequence[Sequence[int]], edges: Iterable[tuple[int, int]], count: int
) -> tuple[list[set[int]], list[set[int]]]:
    """Return for each group its predecessors and its dependents."""
    group_of = [0] * count
    for number, group in enumerate(groups):
        for position in group:
            group_of[position] = number
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
        for position in group:
            for name in graph.nodes[position].reads:
                readers.setdefault(name, set()).add(number)

    def leaves(name: str, number: int) -> bool:
        others = readers.get(name, set()) - {number}
        return name in graph.outputs or (bool(others) and not _is_known(graph, name))

    stages = []
    for number, group in enumerate(groups):
        nodes = tuple(graph.nodes[position] for position in group)
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
