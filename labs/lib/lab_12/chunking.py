"""Cuts of a placed graph into chunks: links, circles, a cutter with a bug, and the runtime's plans.

A node is (name, device, names of the nodes whose results it reads); a cut is a list of chunks
(device, names of its nodes). Visited by lab 12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import vklab
from vklab.graph import graph as graphs
from vklab.graph import onnx_import
from vklab.graph.graph import Graph
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.options import Options, PlacementOptions
from vklab.plan.place import cutting
from vklab.runtime.many import scheduler
from vklab.types import TensorInfo
from vklab_course import words
from vklab_course.data import data
from vklab_course.piece import Given, Piece
from vklab_course.swap import swap
from vklab_labs.shared import recorded_graphs

__all__ = ["BRANCHES", "CHUNKS", "CUT", "as_chunks", "circles", "cut_by", "draw_placed",
           "draw_tempting", "fill", "flaw", "graph_flaw", "join_inputs", "node_facts",
           "planned_on_two", "predecessors", "real_completions"]  # fmt: skip

Node = tuple[str, int, Sequence[str]]
Groups = Sequence[tuple[int, Sequence[str]]]
Before = list[list[int]]
BRANCHES: Sequence[Node] = (("a", 0, ()), ("b", 0, ("a",)), ("c", 1, ("a",)), ("e", 0, ("b",)),
                            ("d", 1, ("c",)), ("f", 0, ("e", "d")))  # fmt: skip
CUT = "vklab.plan.place.cutting.cut"


def predecessors(nodes: Iterable[Node], groups: Groups) -> Before:
    """Return for each chunk the numbers of the chunks that it reads from."""
    home = {name: number for number, (_, names) in enumerate(groups) for name in names}
    found = [set[int]() for _ in groups]
    for name, _, reads in nodes:
        found[home[name]] |= {home[read] for read in reads} - {home[name]}
    return [sorted(numbers) for numbers in found]


def fill(nodes: Iterable[Node], done: Iterable[str], device: int) -> list[str]:
    """Return the nodes of a device that can run now, those that can run after these, and so on.

    Args:
        nodes: the placed graph.
        done: names of the nodes that have run.
        device: the device.
    """
    have, found = set(done), list[str]()
    while able := [
        name
        for name, place, reads in nodes
        if place == device and name not in have and have.issuperset(reads)
    ]:
        have.update(able)
        found += able
    return found


def circles(before: Sequence[Iterable[int]]) -> list[list[int]]:
    """Return the groups of chunks that all wait for each other, directly or through others."""

    def waits_for(number: int) -> set[int]:
        seen, waiting = set[int](), [*before[number]]
        for other in waiting:  # grows in the loop
            if other not in seen:
                seen.add(other)
                waiting += before[other]
        return seen

    every = range(len(before))
    waits = [waits_for(number) for number in every]
    found = {
        tuple(other for other in every if other in waits[number] and number in waits[other])
        for number in every
        if number in waits[number]
    }
    return sorted(map(list, found))


def flaw(nodes: Sequence[Node], chunks: Any, with_links: bool = False) -> str:
    """Return what is wrong with chunks (device, names, waits, arrivals); "" if nothing is.

    Args:
        nodes: the placed graph.
        chunks: what an answer returned.
        with_links: look at waits and arrivals, too.
    """
    if not (
        isinstance(chunks, list | tuple)
        and all(
            isinstance(chunk, list | tuple)
            and len(chunk) == 4
            and all(isinstance(part, list | tuple | set) for part in chunk[1:])
            and all(type(name) is str for name in chunk[1])
            for chunk in chunks
        )
    ):
        got = words.short(chunks)
        return (
            "expected a list of chunks (device, names, waits, arrivals), the last three as "
            f"lists; got {got}"
        )
    device_of = {name: device for name, device, _ in nodes}
    times = Counter(name for _, names, _, _ in chunks for name in names)
    for name in {**device_of, **times}:
        if times[name] != (name in device_of):
            return f"{name} is in {times[name]} chunks, expected {int(name in device_of)}"
    for number, (device, names, _, _) in enumerate(chunks):
        if not names:
            return f"chunk {number} is empty"
        for name in names:
            if device_of[name] != device:
                got = words.short(device)
                return f"{name} belongs to device {device_of[name]}; chunk {number} is of {got}"
    before = predecessors(nodes, [(device, list(names)) for device, names, _, _ in chunks])
    for number, others in enumerate(before):
        if others and others[-1] > number:
            return f"chunk {number} reads from chunk {others[-1]}, which comes later"
    return _links_flaw(nodes, chunks, before) if with_links else ""


def _links_flaw(nodes: Sequence[Node], chunks: Any, before: Sequence[Sequence[int]]) -> str:
    device_of = {name: device for name, device, _ in nodes}
    reads_of = {name: reads for name, _, reads in nodes}
    for number, (device, names, waits, arrivals) in enumerate(chunks):
        if len(waits) != len(before[number]) or {*waits} != {*before[number]}:
            return f"chunk {number} waits for {before[number]}, got {words.short(waits)}"
        come = sorted(
            {read for name in names for read in reads_of[name] if device_of[read] != device}
        )
        if len(arrivals) != len(come) or {*arrivals} != {*come}:
            got = words.short(arrivals)
            return f"chunk {number} gets {come} from other devices, each once; got {got}"
    return ""


def graph_flaw(nodes: Any, most: int, devices: int) -> str:
    """Return what is wrong with a placed graph in an order that works; "" if nothing is.

    Args:
        nodes: what an answer gave.
        most: how many nodes it may have.
        devices: how many devices there are.
    """
    if not (
        isinstance(nodes, list | tuple)
        and 0 < len(nodes) <= most
        and all(
            isinstance(node, list | tuple)
            and len(node) == 3
            and type(node[0]) is str
            and isinstance(node[1], int | np.integer)
            and type(node[1]) is not bool
            and 0 <= node[1] < devices
            and isinstance(node[2], list | tuple)
            for node in nodes
        )
    ):
        wanted = f"1 to {most} nodes (name, device 0 to {devices - 1}, names that it reads)"
        return f"expected {wanted}, got {words.short(nodes)}"
    known: set[str] = set()
    for name, _, reads in nodes:
        if name in known:
            return f"two nodes are called {name}"
        for read in reads:
            if type(read) is not str or read not in known:
                return f"{name} reads {words.short(read)}, which no earlier node writes"
        known.add(name)
    return ""


def join_inputs(nodes: Sequence[Node]) -> list[tuple[int, list[str]]]:
    """Cut a placed graph: a node joins the chunk of an input on the same device.

    If there is no such input, the node begins a new chunk.
    """
    device_of = {name: device for name, device, _ in nodes}
    home: dict[str, int] = {}
    groups: list[tuple[int, list[str]]] = []
    for name, device, reads in nodes:
        same = [read for read in reads if device_of[read] == device]
        home[name] = home[same[0]] if same else len(groups)
        if not same:
            groups.append((device, []))
        groups[home[name]][1].append(name)
    return groups


def draw_placed(
    random: np.random.Generator, devices: int, count: int, network: str = ""
) -> list[Node]:
    """Return nodes of a recorded network or of an irregular wiring, with devices drawn in runs.

    Args:
        random: the source of chance.
        devices: the number of devices.
        count: the number of nodes.
        network: the recorded network; "" for an irregular wiring with several roots.
    """
    if network:
        graph = recorded_graphs.recorded(network).renamed(random).part(random, count)
        wired = [(node, reads) for node, reads in graph.predecessors().items()]
    else:
        names = [f"n{n}" for n in random.permutation(count)]
        wired = [
            (names[n], tuple(names[other] for other in reads if random.random() < 0.7))
            for n, reads in enumerate(recorded_graphs.irregular(random, count))
        ]
    device: dict[str, int] = {}
    for name, reads in wired:
        stays = reads and random.random() < 0.55
        device[name] = device[reads[0]] if stays else int(random.integers(devices))
    return [(name, device[name], reads) for name, reads in wired]


def draw_tempting(random: np.random.Generator) -> list[Node]:
    """Return nodes for three devices: most of one device wait for nothing, its others come late.

    Args:
        random: the source of chance.
    """
    late, *others = random.permutation(3).tolist()
    nodes = [
        (name, others[k % 2] if device == late and k < 8 else device, reads)
        for k, (name, device, reads) in enumerate(draw_placed(random, 3, 20))
    ]
    return [*((f"f{n}", late, ()) for n in range(8)), *nodes]


def node_facts(graph: Graph, devices: Mapping[str, int]) -> list[Node]:
    """Return the nodes of a runtime graph as plain data; constants make no edge."""
    makers = {
        value: node.name
        for node in graph.nodes
        for value in node.outputs
        if value and not _is_known(graph, value)
    }
    return [
        (
            node.name,
            devices[node.name],
            tuple(dict.fromkeys(makers[value] for value in node.reads if value in makers)),
        )
        for node in graph.nodes
    ]


def _is_known(graph: Graph, value: str) -> bool:
    info = graph.infos.get(value)
    return value in graph.initializers or (info is not None and info.constant is not None)


def as_chunks(graph: Graph, devices: Mapping[str, int], groups: Groups) -> tuple[Chunk, ...]:
    """Return a cut as the runtime's chunks, after verifying it.

    Args:
        graph: the shaped graph.
        devices: the device of each node, by name.
        groups: the cut.

    Raises AssertionError with a sentence for a wrong cut.
    """
    nodes = node_facts(graph, devices)
    listed = [name for _, names in groups for name in names]
    assert sorted(listed) == sorted(devices), "every node must be in exactly one chunk"
    for device, names in groups:
        alien = [name for name in names if devices[name] != device]
        assert not alien, f"a chunk of device {device} holds {alien[0]}"
    for number, others in enumerate(predecessors(nodes, groups)):
        late = [other for other in others if other > number]
        assert not late, f"chunk {number} reads from chunk {late[0]}, which comes later"
    position = {node.name: at for at, node in enumerate(graph.nodes)}
    positions = [sorted(position[name] for name in names) for _, names in groups]
    return cutting.as_stages(graph, positions, [devices[node.name] for node in graph.nodes])


def cut_by(build_chunks: Callable[[list[Node]], Any]) -> Callable[..., tuple[Chunk, ...]]:
    """Return a function with the signature of `cut` that asks an answer, and verifies its chunks.

    The answer may ignore `early`, the large values that should leave at once.
    """

    def cut(
        graph: Graph, devices: Mapping[str, int], early: frozenset[str] = frozenset()
    ) -> tuple[Chunk, ...]:
        nodes = node_facts(graph, devices)
        chunks = build_chunks(nodes)
        wrong = flaw(nodes, chunks)
        assert not wrong, wrong
        return as_chunks(graph, devices, [chunk[:2] for chunk in chunks])

    return cut


def planned_on_two(
    pins: Mapping[str, Mapping[str, int]], replacement: Callable[..., Any] | None = None
) -> list[tuple[str, int, int, int]]:
    """Return (model, chunks, transfers, submissions in a row on one device) of each plan.

    The second device is a copy of the first on paper, so the plans are made and never run.

    Args:
        pins: for each model the device of its nodes, by pattern of node names or operators.
        replacement: a function in place of `cut`.
    """
    one = vklab.devices()[0]
    infos = one, replace(one, index=1, name=f"{one.name}, a copy")
    rows = []
    for name, places in pins.items():
        graph = (
            recorded_graphs.runtime_graph(name)
            if name in recorded_graphs.NAMES
            else onnx_import.load_graph(data(name))
        )
        inputs = {
            info.name: replace(
                info, shape=tuple(dim if isinstance(dim, int) else 2 for dim in info.shape)
            )
            for info in graph.inputs
        }
        options = Options(placement=PlacementOptions(pins=places))
        with swap(CUT, replacement or cutting.cut):
            plan = plans.make_plan(graph, inputs, infos, options)
        rows.append(
            (
                name,
                len(plan.chunks),
                len(plan.transfers),
                sum(
                    one.place == other.place
                    for one, other in zip(plan.chunks, plan.chunks[1:], strict=False)
                ),
            )
        )
    return rows


class _Noted:
    """A job that does nothing but note its end."""

    def __init__(self, number: int, ended: list[int]) -> None:
        self.name, self._number, self._ended = f"chunk {number}", number, ended

    def start(self) -> None:
        """Begin nothing."""

    def finish(self) -> None:
        """Note the end."""
        self._ended.append(self._number)


def real_completions(before: Sequence[Sequence[int]]) -> list[int]:
    """Return the order in which the runtime's scheduler completes chunks that do nothing.

    Raises PlanError if chunks wait for each other in a circle.
    """
    ended: list[int] = []
    worker = scheduler.DeviceWorker("lab 12")
    try:
        jobs = [_Noted(number, ended) for number in range(len(before))]
        scheduler.Run(scheduler.Order(before), jobs, [worker] * len(jobs)).go(10.0)
    finally:
        worker.close()
    return ended


# ------------------------------------------------------------------- the piece of exercise 1

_REAL = cutting.cut  # while a piece stands at the seam, the name means the piece


def _runtime_chunks(params: Mapping[str, Any]) -> Callable[..., list[tuple[Any, ...]]]:
    """Return the runtime's `cut` behind the signature of exercise 1.

    It makes chunks that start early, and not the fewest.
    """

    def build_chunks(nodes: Sequence[Node]) -> list[tuple[Any, ...]]:
        made = {name: TensorInfo(name, "float32", (1,)) for name, _, _ in nodes}
        plain = [graphs.Node(name, "", tuple(reads), (name,)) for name, _, reads in nodes]
        ordered = graphs.topological_order(plain, ())
        read = {name for _, _, reads in nodes for name in reads}
        outputs = tuple(name for name in made if name not in read)
        graph = Graph("plain", 17, ordered, (), outputs, {}, made)
        device_of = {name: int(device) for name, device, _ in nodes}  # or True, or NumPy's
        return [
            (
                chunk.device,
                [node.name for node in chunk.graph.nodes],
                list(chunk.predecessors),
                [i.name for i in chunk.graph.inputs if device_of[i.name] != chunk.device],
            )
            for chunk in _REAL(graph, device_of)
        ]

    return build_chunks


def _one_each(
    graph: Graph, devices: Mapping[str, int], early: frozenset[str] = frozenset()
) -> tuple[Chunk, ...]:
    return as_chunks(graph, devices, [(devices[node.name], [node.name]) for node in graph.nodes])


def _cutting(build: Given) -> Callable[..., tuple[Chunk, ...]]:
    return cut_by(build.value)


CHUNKS = Piece(
    "chunks",
    CUT,
    {"12-1": _runtime_chunks},
    _cutting,
    _one_each,
    devices=2,
    load={"policy": "greedy", "memory_caps": {0: 60_000}},
)
