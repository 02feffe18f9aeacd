"""Lower one device chunk: dispatches, kernels, memory and barriers from its rewritten graph.

lowering -> cuts of dispatches whose tensors exceed maxStorageBufferRange -> fusion -> tuning ->
storage -> limits -> arenas -> barriers. Visited by labs 10 and 11.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from vklab.graph.graph import Graph
from vklab.plan import arenas, barriers, fusion, limits, lowering, storage
from vklab.plan.arenas import Arenas
from vklab.plan.barriers import Access, Barrier, Copy, Step
from vklab.plan.chunk import Chunk
from vklab.plan.lowering import Lowered
from vklab.plan.memory import Slot
from vklab.plan.options import Facts
from vklab.plan.tuning import in_place, kept, layers, split_ranges, tune
from vklab.types import DeviceInfo


def lower(chunk: Chunk, info: DeviceInfo, facts: Facts, unseen: Collection[str] = ()) -> Chunk:
    """Return a device chunk with dispatches, memory and barriers; passes are not run.

    Args:
        chunk: its graph is rewritten already, and has an info for every value.
        info: the device.
        facts: as in `plan.make_plan`.
        unseen: inputs and outputs that the host neither writes nor reads; empty for one device.

    Raises PlanError if the device cannot run the chunk.
    """
    graph = chunk.graph
    lowered = kept.lowered(_dispatches, unseen, chunk, info, facts)
    lowered, arranged, steps, found = _arranged(graph, lowered, info, unseen)
    return replace(
        chunk,
        steps=steps,
        nodes=(
            *(c.name for c in arranged.copies_in),
            *lowered.nodes,
            *(c.name for c in arranged.copies_out),
        ),
        barriers=found,
        memory=arranged.memory,
        input_slots=arranged.input_slots,
        output_slots=arranged.output_slots,
        constants=lowered.constants,
        stored={
            name: storage.stored_dtype(graph.infos[name].dtype, info)
            for name in (*(i.name for i in graph.inputs), *graph.outputs)
        },
        trims=lowered.trims,
    )


def _dispatches(chunk: Chunk, info: DeviceInfo, facts: Facts) -> Lowered:
    """Return a chunk's dispatches, fused and tuned, which no binding of memory changes."""
    graph = chunk.graph
    unfused = lowering.with_exact_division(lowering.lower(graph), info)
    in_place.require_taken(graph, unfused)
    unfused = split_ranges.apply(unfused, info)
    lowered = _finished(fusion.fuse(graph, unfused, info), info, facts, chunk)
    # A fused kernel is generated text (a `fragment`), which requires a compiler. Without one,
    # the chunk runs unfused, with stock kernels.
    if any(facts.kernel_refusal(dispatch) for dispatch in lowered.dispatches if dispatch.fragment):
        lowered = _finished(unfused, info, facts, chunk)
    limits.check(lowered.dispatches, info)
    return lowered


def _finished(lowered: Lowered, info: DeviceInfo, facts: Facts, chunk: Chunk) -> Lowered:
    """Return dispatches with kernels tuned for a device, in dtypes that it supports."""
    tuned = tune.tune(lowered, info, facts, chunk.device, chunk.graph.outputs)
    return storage.adapt(fusion.write(tuned), info)


def _arranged(
    graph: Graph, lowered: Lowered, info: DeviceInfo, unseen: Collection[str]
) -> tuple[Lowered, Arenas, tuple[Step, ...], tuple[Barrier, ...]]:
    """Return dispatches in their final order, their arenas, the steps, and their barriers."""
    arranged = arenas.arrange(graph, lowered, info, unseen, in_place.owners)
    steps: tuple[Step, ...] = (*arranged.copies_in, *lowered.dispatches, *arranged.copies_out)
    found = _barriers(steps, arranged)
    layered = layers.grouped(lowered, arranged, len(found))
    if layered is not lowered:
        again = arenas.arrange(graph, layered, info, unseen, in_place.owners)
        fewer: tuple[Step, ...] = (*again.copies_in, *layered.dispatches, *again.copies_out)
        larger = again.memory.arena_bytes > layers.room_bytes(lowered, arranged, info)
        if not larger and len(left := _barriers(fewer, again)) < len(found):
            return layered, again, fewer, left
    return lowered, arranged, steps, found


def _barriers(steps: Sequence[Step], arranged: Arenas) -> tuple[Barrier, ...]:
    return barriers.find_barriers([access(step, arranged.memory.slots) for step in steps])


def access(step: Step, slots: Mapping[str, Slot]) -> Access:
    """Return what a step reads and writes, in bytes."""
    if isinstance(step, Copy):
        return Access("transfer", (step.source,), (step.target,))
    reads, writes = tuple(slots[info.name] for _, info in step.reads), []
    for _, info in step.writes:
        first, size = lowering.written_bytes(step, info)
        slot = slots[info.name]
        writes.append(
            slot if size == info.size_bytes else Slot(slot.arena, slot.offset_bytes + first, size)
        )
    return Access("compute_shader", reads, tuple(writes))
