"""Check the chunks that one extension adds to a plan: what they wait for, and what they read.

`plan_checks` has this look at every extension; written apart from `vklab.plan.plan`.
"""

from __future__ import annotations

from collections.abc import Iterator

from vklab.plan.plan import Plan


def extension_problems(before: Plan, after: Plan) -> list[str]:
    """Return what is wrong with the chunks that one extension adds to a plan, or with their order.

    What waits for a chunk is decided by `predecessors` alone: each maker of an input is before its
    reader, however far; and chunks that use memory of devices do not meet those of an extension
    before, as programs of one session share memory.
    """
    first = len(before.chunks)
    if after.needs:
        is_same = after.chunks == before.chunks and len(after.needs) > len(before.needs)
        return [] if is_same else ["values are needed, and the plan has changed"]
    found = []
    if len(after.chunks) <= first or any(
        one is not other for one, other in zip(before.chunks, after.chunks, strict=False)
    ):
        found.append("the plan has not grown, or chunks of it have changed")
    for place, chunk in enumerate(after.chunks):
        if chunk.number != place:
            found.append(f"{chunk} is at place {place}")
        if any(not 0 <= number < place for number in chunk.predecessors):
            found.append(f"{chunk} waits for a later chunk")
    return found or [*_reading(after, first), *_sharing(after, first), *_moving(after, first)]


def _above(plan: Plan) -> list[int]:
    """Return, for each chunk, all that come before it, however far: one bit for each."""
    found: list[int] = []
    for chunk in plan.chunks:
        found.append(0)
        for number in chunk.predecessors:
            found[-1] |= found[number] | 1 << number
    return found


def _reading(after: Plan, first: int) -> Iterator[str]:
    above = _above(after)
    left = {name: chunk.number for chunk in after.chunks for name in chunk.graph.outputs}
    graph = after.graph
    given = {*(info.name for info in graph.inputs), *graph.captures, *graph.initializers}
    for chunk in after.chunks[first:]:
        for name in (info.name for info in chunk.graph.inputs):
            if name in left and not above[chunk.number] >> left[name] & 1:
                yield f"{chunk} reads {name!r} without waiting for chunk {left[name]}"
            elif name not in left and name not in given:
                yield f"nothing makes {name!r}, read by {chunk}"
    for name in after.live:
        if name not in left and name not in given:
            yield f"the rest reads {name!r}, which no chunk leaves"


def _sharing(after: Plan, first: int) -> Iterator[str]:
    above = _above(after)
    earlier = [chunk.number for chunk in after.chunks[:first] if chunk.kind != "host"]
    for chunk in after.chunks[first:]:
        missing = [number for number in earlier if not above[chunk.number] >> number & 1]
        if chunk.kind != "host" and missing:
            yield f"{chunk} does not wait for chunks {missing}, whose memory it may use"


def _moving(after: Plan, first: int) -> Iterator[str]:
    for move in after.transfers:
        source, target = move.source, move.target
        if target < first:
            continue
        if source is None or not 0 <= source < target < len(after.chunks):
            yield f"{move} leads nowhere"
        elif source < first:
            yield f"{move} leads from one extension into another"
        elif move.value not in after.chunks[source].graph.outputs:
            yield f"{move}: chunk {source} does not leave it"
        elif move.value not in (info.name for info in after.chunks[target].graph.inputs):
            yield f"{move}: chunk {target} does not read it"
