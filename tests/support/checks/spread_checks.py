"""Check a model that is split over devices: its chunks, what moves between them, and by which way.

Looks at every node, value and pair of chunks, apart from `cutting` and `transfer_paths`;
`spread_hazards` looks at the bytes that a run touches. `plan_checks` has both look at every plan.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vklab.graph.graph import Graph
from vklab.plan.chunk import Chunk, Transfer
from vklab.plan.memory import Slot
from vklab.plan.place import transfer_paths
from vklab.plan.place.transfer_paths import TransferPath
from vklab.plan.plan import Plan
from vklab.types import DeviceInfo

Move = tuple[str, int | None, int]  # a value, the chunk that makes it, the one that reads it
PAST_THE_HOST = (transfer_paths.RING, transfer_paths.RING_COPIED, transfer_paths.DMA_BUF)


def dispatch_counts(plan: Plan) -> dict[str, int]:
    """Return how many dispatches each device runs, by its label."""
    counts: Counter[str] = Counter()
    for chunk in plan.chunks:
        if chunk.is_on_device:
            counts[plan.devices[chunk.device].label] += len(chunk.dispatches)
    return dict(counts)


def ancestors(before: Sequence[set[int]]) -> list[set[int]]:
    """Return, for each number, all that lie before it, however far; itself, if in a circle."""
    found = [set(each) for each in before]
    for middle in range(len(found)):  # after Warshall
        for each in found:
            if middle in each:
                each |= found[middle]
    return found


def is_known(graph: Graph, name: str) -> bool:
    """Tell whether a value is known beforehand."""
    return name in graph.initializers or (
        name in graph.infos and graph.infos[name].constant is not None
    )


def makers(chunks: Sequence[Chunk]) -> dict[str, int]:
    """Return the chunk that makes each value."""
    return {
        name: place
        for place, chunk in enumerate(chunks)
        for node in chunk.graph.nodes
        for name in node.outputs
        if name
    }


def needs(graph: Graph, chunks: Sequence[Chunk]) -> set[Move]:
    """Return what must come from one chunk to another."""
    made = makers(chunks)
    return {
        (name, made[name], place)
        for place, chunk in enumerate(chunks)
        for node in chunk.graph.nodes
        for name in node.reads
        if made.get(name, place) != place and not is_known(graph, name)
    }


# ------------------------------------------------------------------------------ chunks


def chunk_problems(
    graph: Graph, chunks: Sequence[Chunk], devices: Mapping[str, int] | None = None
) -> list[str]:
    """Return where chunks do not do a graph's work: each node once, each edge respected.

    Args:
        devices: the number of the device of each node, by name.
    """
    places = [f"{chunk} is at place {n}" for n, chunk in enumerate(chunks) if chunk.number != n]
    if places:
        return places
    found = [*_node_problems(graph, chunks, devices), *_edge_problems(graph, chunks)]
    above = ancestors([set(chunk.predecessors) for chunk in chunks])
    for chunk in chunks:
        found += [
            *_input_problems(graph, chunks, chunk, above[chunk.number]),
            *_output_problems(graph, chunks, chunk),
        ]
    made = makers(chunks)
    for name in graph.outputs:
        count = sum(name in chunk.graph.outputs for chunk in chunks)
        if name in made and count != 1:
            found.append(f"{count or 'no'} chunk leaves the output {name!r}")
        if name not in (*made, *_names(graph)) and not is_known(graph, name):
            found.append(f"nothing makes the output {name!r}")
    return found


def _node_problems(
    graph: Graph, chunks: Sequence[Chunk], devices: Mapping[str, int] | None
) -> Iterator[str]:
    wanted = Counter(map(str, graph.nodes))
    present = Counter(str(node) for chunk in chunks for node in chunk.graph.nodes)
    for node in (present - wanted).keys() | (wanted - present).keys():
        yield f"the chunks miss nodes, or add some: node {node} is {present[node]} times in them"
        if present[node] > 1:
            yield f"node {node} is in two chunks, or twice in one"
    for chunk in chunks:
        known = {*_names(chunk.graph), *chunk.graph.initializers}
        for node in chunk.graph.nodes:
            if not known.issuperset(node.reads):
                yield f"{chunk}: {node} runs before what it reads"
            known.update(node.outputs)
            if devices is not None and devices[node.name] != chunk.device:
                yield f"{chunk}: {node} is placed on device {devices[node.name]}"


def _edge_problems(graph: Graph, chunks: Sequence[Chunk]) -> Iterator[str]:
    """Yield where waits are not those that values ask for."""
    wanted = needs(graph, chunks)
    above = ancestors([set(chunk.predecessors) for chunk in chunks])
    for chunk in chunks:
        number = chunk.number
        waits = {source for _, source, target in wanted if target == number}
        if sorted(chunk.predecessors) != sorted(waits):
            yield f"{chunk} should wait for {sorted(waits)}"
        if number in above[number]:
            yield f"{chunk} waits for itself, directly or through others"
        if any(other >= number for other in chunk.predecessors):
            yield f"{chunk} waits for a later chunk"


def _input_problems(
    graph: Graph, chunks: Sequence[Chunk], chunk: Chunk, above: set[int]
) -> Iterator[str]:
    made, names = makers(chunks), _names(chunk.graph)
    read = {name for node in chunk.graph.nodes for name in node.reads}
    if len(set(names)) < len(names) or not read.issuperset(names):
        yield f"{chunk} takes in {sorted(set(names) - read)}, which it does not read, or one twice"
    for name in chunk.graph.initializers:
        if not is_known(graph, name):
            yield f"{chunk} takes {name!r} for a constant"
    for name in names:
        source = made.get(name)
        if source is None:
            if name not in _names(graph):
                yield f"nothing makes {name!r}, read by {chunk}"
        elif source == chunk.number:
            yield f"{chunk} reads its own {name!r} from outside"
        elif name not in chunks[source].graph.outputs:
            yield f"{chunks[source]} does not leave {name!r}, read by {chunk}"
        elif source not in above:
            yield f"{chunk} reads {name!r} without waiting for chunk {source}"


def _output_problems(graph: Graph, chunks: Sequence[Chunk], chunk: Chunk) -> Iterator[str]:
    made = {name for node in chunk.graph.nodes for name in node.outputs}
    read = {name for other in chunks if other is not chunk for name in _names(other.graph)}
    for name in chunk.graph.outputs:
        if name not in made:
            yield f"{chunk} leaves {name!r}, which it does not make"
        elif name not in read and name not in graph.outputs:
            yield f"{chunk} leaves {name!r}, which nobody reads"


def _names(graph: Graph) -> list[str]:
    return [info.name for info in graph.inputs]


# ------------------------------------------------------------------------------ moves


def as_cut(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Return chunks with the graphs that they had before the passes."""
    return tuple(replace(chunk, graph=chunk.source or chunk.graph) for chunk in chunks)


def plan_problems(
    plan: Plan,
    pieces: Sequence[Chunk],
    infos: Sequence[DeviceInfo | None],
    devices: Mapping[str, int],
) -> list[str]:
    """Return what is wrong with a plan that nobody has made room for yet.

    Args:
        plan: chunks that are lowered, of the graph that was cut.
        pieces: the same chunks as they were cut.
        infos: what each of them was lowered for.
        devices: the number of the device of each node, by name.
    """
    found = chunk_problems(plan.graph, pieces, devices)
    found = found or [*_missing(plan, pieces), *_own_plans(plan, pieces, infos)]
    return found or [*_bytes(plan), *_unseen(plan)]


def _missing(plan: Plan, pieces: Sequence[Chunk]) -> Iterator[str]:
    wanted = needs(plan.graph, pieces)
    have = Counter((move.value, move.source, move.target) for move in plan.transfers)
    for value, source, target in wanted - have.keys():
        yield f"nothing moves {value!r} from chunk {source} to chunk {target}"
    for (value, source, target), count in have.items():
        if (value, source, target) not in wanted:
            yield f"{value!r} moves from chunk {source} to chunk {target}, which does not want it"
        elif count > 1:
            yield f"{value!r} moves from chunk {source} to chunk {target} {count} times"


def _own_plans(
    plan: Plan, pieces: Sequence[Chunk], infos: Sequence[DeviceInfo | None]
) -> Iterator[str]:
    """Yield where a chunk is not one of the values that were cut, lowered for its device."""
    if len(plan.chunks) != len(pieces):
        yield f"{len(plan.chunks)} chunks are lowered of {len(pieces)}"
    for piece, own, info in zip(pieces, plan.chunks, infos, strict=False):
        if info != plan.devices[piece.device]:
            yield f"{piece} is planned for {info}"
        if (own.number, own.place, own.predecessors) != (
            piece.number,
            piece.place,
            piece.predecessors,
        ):
            yield f"{piece} has become {own}"
        if own.source is not None and own.source.nodes != piece.graph.nodes:
            yield f"{piece} is not what {own} was made of"
        if set(_names(own.graph)) != set(_names(piece.graph)):
            yield f"{piece} is planned to read {_names(own.graph)}"
        if set(own.graph.outputs) != set(piece.graph.outputs):
            yield f"{piece} is planned to leave {own.graph.outputs}"


def ends(plan: Plan, move: Transfer) -> tuple[Slot | None, Slot | None]:
    """Return where a value lies in the chunk that makes it, and in the one that reads it."""
    source, target = plan.chunks[move.source or 0], plan.chunks[move.target]
    return source.output_slots.get(move.value), target.input_slots.get(move.value)


def _stored(plan: Plan, move: Transfer) -> tuple[str, str]:
    source, target = plan.chunks[move.source or 0], plan.chunks[move.target]
    return source.stored[move.value], target.stored[move.value]


def _is_within(plan: Plan, move: Transfer) -> bool:
    return plan.chunks[move.source or 0].device == plan.chunks[move.target].device


def _bytes(plan: Plan) -> Iterator[str]:
    """Yield where the two ends of a move do not have the bytes of the value, as stored there."""
    for move in plan.transfers:
        info = replace(plan.graph.infos[move.value], constant=None)
        if move.size_bytes != info.size_bytes:
            yield f"{move} should move {info.size_bytes} bytes"
        for slot, dtype in zip(ends(plan, move), _stored(plan, move), strict=True):
            size = replace(info, dtype=dtype).size_bytes
            if slot is None or slot.size_bytes != size:
                yield f"{move}: {size} bytes of {dtype} have the place {slot}"
        if _is_within(plan, move) and len(set(_stored(plan, move))) > 1:
            yield f"{move}: one device stores it as {' and '.join(_stored(plan, move))}"


def _unseen(plan: Plan) -> Iterator[str]:
    """Yield what lies past the host though the host must see it."""
    moved = {(move.value, move.target) for move in plan.transfers}
    for chunk in plan.chunks:
        for name, slot in chunk.input_slots.items():
            if (name, chunk.number) not in moved and not slot.arena.startswith("inputs"):
                yield f"{chunk}: the host does not see its input {name!r} at {slot}"
        for name in set(plan.graph.outputs).intersection(chunk.graph.outputs):
            if not chunk.output_slots[name].arena.startswith("outputs"):
                yield f"{chunk}: the host does not see the output {name!r}"
    for move in plan.transfers:
        left, arrives = ends(plan, move)
        is_past = arrives is not None and arrives.arena.startswith("arriving")
        is_left = left is not None and left.arena.startswith("leaving")
        if (is_past or is_left) and len(set(_stored(plan, move))) > 1:
            yield f"{move}: the host must change its bytes, and does not see them"
        if is_left and not is_past and not _is_within(plan, move):
            yield f"{move}: the host must copy it, and does not see it at {left}"


# ------------------------------------------------------------------------------ paths


def path_problems(plan: Plan, paths: Mapping[Transfer, TransferPath]) -> list[str]:
    """Return the moves whose path is not one that both of their ends allow."""
    each = (_path(plan, move, paths.get(move)) for move in plan.transfers)
    return list(itertools.chain.from_iterable(each))


def _path(plan: Plan, move: Transfer, path: TransferPath | None) -> Iterator[str]:
    left, arrives = ends(plan, move)
    if left is None or arrives is None:
        return  # said before
    is_within = _is_within(plan, move)
    told = f"{move} by {path}"
    name = path.name if path else ""
    if name in (transfer_paths.SAME_MEMORY, transfer_paths.SHARED):
        if is_within != (name == transfer_paths.SAME_MEMORY):
            yield f"{told}: between {'chunks of one device' if is_within else 'devices'}"
        info = plan.devices[plan.chunks[move.target].device]
        if left.offset_bytes % (info.limit("minStorageBufferOffsetAlignment") or 1):
            yield f"{told}: nothing can be bound at {left}"
        if name == transfer_paths.SHARED and not left.arena.startswith("outputs"):
            yield f"{told}: it lies at {left}"
    elif name in PAST_THE_HOST:
        if is_within or not arrives.arena.startswith("arriving"):
            yield f"{told}: it arrives at {arrives}"
    elif name == transfer_paths.HOST_COPY:
        if not (left.arena.startswith("outputs") and arrives.arena.startswith("inputs")):
            yield f"{told}: the host does not see it at {left} or {arrives}"
    else:
        yield f"{told}: no such path"
    if name != transfer_paths.HOST_COPY and len(set(_stored(plan, move))) > 1:
        yield f"{told}: it is {' and '.join(_stored(plan, move))} at the ends"
