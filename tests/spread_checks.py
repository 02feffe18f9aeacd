"""Check a model that is split over devices: its stages, what moves between them, and by which way.

Looks at every node, value and pair of stages, apart from `vklab.plan.place.cutting` and `routes`;
`spread_hazards` looks at the bytes that a run touches. `plan_checks` has both look at every plan.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vklab.graph.graph import Graph
from vklab.plan.memory import Slot
from vklab.plan.place import transfer_paths
from vklab.plan.place.cutting import Stage, Transfer
from vklab.plan.spread import SpreadPlan

Move = tuple[str, int | None, int]  # a value, the stage that makes it, the one that reads it
PAST_THE_HOST = (transfer_paths.RING, transfer_paths.RING_COPIED, transfer_paths.DMA_BUF)


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


def makers(stages: Sequence[Stage]) -> dict[str, int]:
    """Return the stage that makes each value."""
    return {name: place for place, stage in enumerate(stages)
            for node in stage.graph.nodes for name in node.outputs if name}  # fmt: skip


def needs(graph: Graph, stages: Sequence[Stage]) -> set[Move]:
    """Return what must come from one stage to another."""
    made = makers(stages)
    return {
        (name, made[name], place)
        for place, stage in enumerate(stages) for node in stage.graph.nodes for name in node.reads
        if made.get(name, place) != place and not is_known(graph, name)
    }  # fmt: skip


# ------------------------------------------------------------------------------ stages


def stage_problems(
    graph: Graph, stages: Sequence[Stage], devices: Mapping[str, int] | None = None
) -> list[str]:
    """Return where stages do not do a graph's work: each node once, each edge respected.

    Args:
        devices: the number of the device of each node, by name.
    """
    places = [f"{stage} is at place {n}" for n, stage in enumerate(stages) if stage.number != n]
    if places:
        return places
    found = [*_node_problems(graph, stages, devices), *_edge_problems(graph, stages)]
    above = ancestors([set(stage.predecessors) for stage in stages])
    for stage in stages:
        found += [*_input_problems(graph, stages, stage, above[stage.number]),
                  *_output_problems(graph, stages, stage)]  # fmt: skip
    made = makers(stages)
    for name in graph.outputs:
        count = sum(name in stage.graph.outputs for stage in stages)
        if name in made and count != 1:
            found.append(f"{count or 'no'} stage leaves the output {name!r}")
        if name not in (*made, *_names(graph)) and not is_known(graph, name):
            found.append(f"nothing makes the output {name!r}")
    return found


def _node_problems(
    graph: Graph, stages: Sequence[Stage], devices: Mapping[str, int] | None
) -> Iterator[str]:
    wanted = Counter(map(str, graph.nodes))
    present = Counter(str(node) for stage in stages for node in stage.graph.nodes)
    for node in (present - wanted).keys() | (wanted - present).keys():
        yield f"the stages miss nodes, or add some: node {node} is {present[node]} times in them"
        if present[node] > 1:
            yield f"node {node} is in two stages, or twice in one"
    for stage in stages:
        known = {*_names(stage.graph), *stage.graph.initializers}
        for node in stage.graph.nodes:
            if not known.issuperset(node.reads):
                yield f"{stage}: {node} runs before what it reads"
            known.update(node.outputs)
            if devices is not None and devices[node.name] != stage.device:
                yield f"{stage}: {node} is placed on device {devices[node.name]}"


def _edge_problems(graph: Graph, stages: Sequence[Stage]) -> Iterator[str]:
    """Yield where waits are not those that values ask for, or not mirrored."""
    wanted = needs(graph, stages)
    above = ancestors([set(stage.predecessors) for stage in stages])
    for stage in stages:
        number = stage.number
        waits = {source for _, source, target in wanted if target == number}
        frees = {other.number for other in stages if number in other.predecessors}
        if sorted(stage.predecessors) != sorted(waits):
            yield f"{stage} should wait for {sorted(waits)}"
        if sorted(stage.dependents) != sorted(frees):
            yield f"{stage} should free {sorted(frees)}, frees {sorted(stage.dependents)}"
        if number in above[number]:
            yield f"{stage} waits for itself, directly or through others"
        if any(other >= number for other in stage.predecessors):
            yield f"{stage} waits for a later stage"


def _input_problems(
    graph: Graph, stages: Sequence[Stage], stage: Stage, above: set[int]
) -> Iterator[str]:
    made, names = makers(stages), _names(stage.graph)
    read = {name for node in stage.graph.nodes for name in node.reads}
    if len(set(names)) < len(names) or not read.issuperset(names):
        yield f"{stage} takes in {sorted(set(names) - read)}, which it does not read, or one twice"
    for name in stage.graph.initializers:
        if not is_known(graph, name):
            yield f"{stage} takes {name!r} for a constant"
    for name in names:
        source = made.get(name)
        if source is None:
            if name not in _names(graph):
                yield f"nothing makes {name!r}, read by {stage}"
        elif source == stage.number:
            yield f"{stage} reads its own {name!r} from outside"
        elif name not in stages[source].graph.outputs:
            yield f"{stages[source]} does not leave {name!r}, read by {stage}"
        elif source not in above:
            yield f"{stage} reads {name!r} without waiting for stage {source}"


def _output_problems(graph: Graph, stages: Sequence[Stage], stage: Stage) -> Iterator[str]:
    made = {name for node in stage.graph.nodes for name in node.outputs}
    read = {name for other in stages if other is not stage for name in _names(other.graph)}
    for name in stage.graph.outputs:
        if name not in made:
            yield f"{stage} leaves {name!r}, which it does not make"
        elif name not in read and name not in graph.outputs:
            yield f"{stage} leaves {name!r}, which nobody reads"


def _names(graph: Graph) -> list[str]:
    return [info.name for info in graph.inputs]


# ------------------------------------------------------------------------------ moves


def plan_problems(plan: SpreadPlan) -> list[str]:
    """Return what is wrong with a plan that nobody has made room for yet."""
    found = stage_problems(plan.graph, plan.stages, plan.placement.devices)
    found = found or [*_missing(plan), *_own_plans(plan)]
    return found or [*_bytes(plan), *_unseen(plan)]


def _missing(plan: SpreadPlan) -> Iterator[str]:
    wanted = needs(plan.graph, plan.stages)
    have = Counter((move.value, move.source, move.target) for move in plan.transfers)
    for value, source, target in wanted - have.keys():
        yield f"nothing moves {value!r} from stage {source} to stage {target}"
    for (value, source, target), count in have.items():
        if (value, source, target) not in wanted:
            yield f"{value!r} moves from stage {source} to stage {target}, which does not want it"
        elif count > 1:
            yield f"{value!r} moves from stage {source} to stage {target} {count} times"


def _own_plans(plan: SpreadPlan) -> Iterator[str]:
    """Yield where the plan of a stage is not one of its values on its device."""
    if len(plan.plans) != len(plan.stages):
        yield f"{len(plan.plans)} plans for {len(plan.stages)} stages"
    for stage, own in zip(plan.stages, plan.plans, strict=False):
        if own.device != plan.devices[stage.device].name:
            yield f"{stage} is planned for {own.device}"
        if set(_names(own.graph)) != set(_names(stage.graph)):
            yield f"{stage} is planned to read {_names(own.graph)}"
        if set(own.graph.outputs) != set(stage.graph.outputs):
            yield f"{stage} is planned to leave {own.graph.outputs}"


def ends(plan: SpreadPlan, move: Transfer) -> tuple[Slot | None, Slot | None]:
    """Return where a value lies in the stage that makes it, and in the one that reads it."""
    source, target = plan.plans[move.source or 0], plan.plans[move.target]
    return source.output_slots.get(move.value), target.input_slots.get(move.value)


def _stored(plan: SpreadPlan, move: Transfer) -> tuple[str, str]:
    source, target = plan.plans[move.source or 0], plan.plans[move.target]
    return source.stored[move.value], target.stored[move.value]


def _is_within(plan: SpreadPlan, move: Transfer) -> bool:
    return plan.stages[move.source or 0].device == plan.stages[move.target].device


def _bytes(plan: SpreadPlan) -> Iterator[str]:
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


def _unseen(plan: SpreadPlan) -> Iterator[str]:
    """Yield what lies past the host though the host must see it."""
    moved = {(move.value, move.target) for move in plan.transfers}
    for stage, own in zip(plan.stages, plan.plans, strict=True):
        for name, slot in own.input_slots.items():
            if (name, stage.number) not in moved and not slot.arena.startswith("inputs"):
                yield f"{stage}: the host does not see its input {name!r} at {slot}"
        for name in set(plan.graph.outputs).intersection(own.graph.outputs):
            if not own.output_slots[name].arena.startswith("outputs"):
                yield f"{stage}: the host does not see the output {name!r}"
    for move in plan.transfers:
        left, arrives = ends(plan, move)
        is_past = arrives is not None and arrives.arena.startswith("arriving")
        is_left = left is not None and left.arena.startswith("leaving")
        if (is_past or is_left) and len(set(_stored(plan, move))) > 1:
            yield f"{move}: the host must change its bytes, and does not see them"
        if is_left and not is_past and not _is_within(plan, move):
            yield f"{move}: the host must copy it, and does not see it at {left}"


# ------------------------------------------------------------------------------ ways


def path_problems(plan: SpreadPlan) -> list[str]:
    """Return the moves whose way is not one that both of their ends allow."""
    return list(itertools.chain.from_iterable(_way(plan, move) for move in plan.transfers))


def _way(plan: SpreadPlan, move: Transfer) -> Iterator[str]:
    left, arrives = ends(plan, move)
    if left is None or arrives is None:
        return  # said before
    path, is_within = plan.paths.get(move), _is_within(plan, move)
    told = f"{move} by {path}"
    name = path.name if path else ""
    if name in (transfer_paths.SAME_MEMORY, transfer_paths.SHARED):
        if is_within != (name == transfer_paths.SAME_MEMORY):
            yield f"{told}: between {'stages of one device' if is_within else 'devices'}"
        info = plan.devices[plan.stages[move.target].device]
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
        yield f"{told}: no such way"
    if name != transfer_paths.HOST_COPY and len(set(_stored(plan, move))) > 1:
        yield f"{told}: it is {' and '.join(_stored(plan, move))} at the ends"
