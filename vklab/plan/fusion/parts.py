"""place_parts: compute a value directly in the part of another value to which it is copied.

A Concat along the outermost axis then costs nothing, however often it grows. Copies stay where
memory would grow: the whole is alive from the first of its parts on. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vklab.plan import memory
from vklab.plan.fusion.flow import Flow
from vklab.plan.fusion.text import codegen
from vklab.types import Dispatch, StridedView, TensorInfo


def place_parts(flow: Flow) -> None:
    """Give values the memory to which they are copied, and remove the copies."""
    copies = [(number, dispatch) for number, dispatch in flow.alive() if _is_copy(dispatch)]
    lives = _lives(flow) if copies else {}
    most = memory.lower_bound(tuple(lives.values()))
    for number, dispatch in copies:
        part, whole = dispatch.tensors_read[0], dispatch.writes[0][1]
        start = _start(flow, dispatch, part, whole)
        if start is None:
            continue
        part_life, whole_life = lives[flow.roots[part.name]], lives[flow.roots[whole.name]]
        longer = replace(
            whole_life,
            first=min(part_life.first, whole_life.first),
            last=max(part_life.last, whole_life.last),
        )
        changed = {**lives, whole_life.name: longer}
        del changed[part_life.name]
        if memory.lower_bound(tuple(changed.values())) <= most:
            _embed(flow, number, part_life.name, whole_life.name, start)
            lives = changed


def _embed(flow: Flow, copy: int, removed: str, root: str, start: int) -> None:
    """Move all values of one root into another, and remove the copy between them.

    Args:
        flow: the dispatches, which are changed.
        copy: the number of the dispatch to remove.
        removed: the root that no longer has memory of its own.
        root: the root that its values move into.
        start: the element of `root` at which they start.
    """
    flow.dispatches[copy] = None
    for known in (flow.readers, flow.writers):
        known[root] = (known.pop(removed, set()) | known.get(root, set())) - {copy}
    inside = [name for name, each in flow.roots.items() if each == removed]
    flow.roots |= dict.fromkeys(inside, root)
    flow.slices |= {name: start + flow.slices.get(name, 0) for name in inside}


def _is_copy(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch copies a whole value, unchanged, into a part of its result."""
    work = dispatch.pointwise
    if work is None or not codegen.is_move(work) or len(work.operands) != 1:
        return False
    (read,), (_, whole) = work.operands, dispatch.writes[0]
    target = StridedView(work.target.strides) if work.target else StridedView.dense(work.shape)
    return (read.info.count, read.info.dtype) == (work.count, whole.dtype) and (
        read.view.is_dense(work.shape) and target.is_dense(work.shape)
    )


def _start(flow: Flow, dispatch: Dispatch, part: TensorInfo, whole: TensorInfo) -> int | None:
    """Return the element of the whole at which a part begins; None if it must be copied."""
    work, root, into = dispatch.pointwise, flow.roots[part.name], flow.roots[whole.name]
    assert work is not None
    start = (work.target.start if work.target else 0) + flow.slices.get(whole.name, 0)
    if root == into or {root, into} & flow.kept or start * flow.width(part) % flow.alignment:
        return None
    alike = all(
        info.dtype == part.dtype and info.count + flow.slices.get(info.name, 0) <= part.count
        for info, _ in _tensors(flow, root)
    )
    ends = [info.count + flow.slices.get(info.name, 0) for info, _ in _tensors(flow, into)]
    written = sum(count for _, count in _tensors(flow, into))
    # Where elements are written twice, computing the part there would change the last writer.
    return start if alike and flow.writers.get(root) and written <= max(ends) else None


def _tensors(flow: Flow, root: str) -> Iterator[tuple[TensorInfo, int]]:
    """Yield the tensors bound to a root's memory, and the elements that are written to each."""
    for number in flow.readers.get(root, set()) | flow.writers.get(root, set()):
        dispatch = flow.dispatches[number]
        assert dispatch is not None
        work = dispatch.pointwise or dispatch.epilogue
        for info in dispatch.tensors_read:
            if flow.roots[info.name] == root:
                yield info, 0
        for _, info in dispatch.writes:
            if flow.roots[info.name] == root:
                yield info, work.count if work else info.count


def _lives(flow: Flow) -> dict[str, memory.Lifetime]:
    """Return the lifetime of each root that is no input, output or weight."""
    lives: dict[str, memory.Lifetime] = {}
    for number, dispatch in flow.alive():
        for info in (*dispatch.tensors_read, *dispatch.tensors_written):
            root, size = flow.roots[info.name], flow.width(info) * info.count
            size = memory.reserved(size + flow.width(info) * flow.slices.get(info.name, 0))
            known = lives.get(root, memory.Lifetime(root, 0, number, number))
            if root not in flow.kept:
                lives[root] = replace(known, size_bytes=max(size, known.size_bytes), last=number)
    return lives
