"""Check every plan that a test makes by what its steps do to bytes, apart from what planned it.

`install` puts the check behind what lowers a chunk, and those of split models behind what plans and
what runs them; tests/conftest.py does that before any test is read, and `support.runs.child` in the
processes that tests start.
Written apart from `vklab.plan`: who wrote which bytes last is tracked on shadows of memory, once as
the lowered dispatches say, where no two values share bytes, and once as the plan says.
"""

from __future__ import annotations

import atexit
import bisect
import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from support.checks import extension_checks, spread_checks, spread_hazards, template_checks
from support.checks.hazards import Shadow, Span, conflict, ordered, shares_bytes, work_of, written
from vklab.graph.graph import Graph
from vklab.plan import arenas
from vklab.plan import plan as plans
from vklab.plan.barriers import Access, Barrier, Copy
from vklab.plan.chunk import Chunk
from vklab.plan.lowering import Lowered
from vklab.plan.memory import Slot
from vklab.plan.place import split as splits
from vklab.plan.plan import Plan
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# Steps up to which a plan is checked; larger ones are counted as such.
MOST_STEPS = 20_000
STAGES = ("compute_shader", "transfer", "host")

counts = {"checked": 0, "too large": 0, "extended": 0, "from templates": 0, "split": 0,
          "split and run": 0}  # fmt: skip
problems: list[str] = []  # of the test that runs
_local = threading.local()


# ------------------------------------------------------------------------------ barriers


def arrivals(barriers: Sequence[Barrier], steps: int) -> Callable[[int, str], list[int]]:
    """Return a function of a step and its stage: from where on each stage sees what it did.

    A barrier carries on what its source stages did, and what was made visible to them.
    """
    never = steps + 1
    sorted_barriers = sorted(barriers, key=lambda barrier: barrier.before)
    subsets = range(1 << len(STAGES))
    bits = [
        tuple(sum(1 << STAGES.index(stage) for stage in stages) for stages in (b.source, b.target))
        for b in sorted_barriers
    ]
    # after[k][known]: the answers for what some stages know before barrier k
    after = [[[never] * len(STAGES) for _ in subsets]]
    for barrier, (source, target) in zip(sorted_barriers[::-1], bits[::-1], strict=True):
        later = after[-1]
        after.append(
            [
                [
                    barrier.before if target >> stage & 1 else rest
                    for stage, rest in enumerate(later[known | target])
                ]
                if known & source
                else later[known]
                for known in subsets
            ]
        )
    after.reverse()
    places = [barrier.before for barrier in sorted_barriers]
    return lambda step, stage: after[bisect.bisect_right(places, step)][1 << STAGES.index(stage)]


def span_of(slot: Slot) -> Span:
    return slot.arena, slot.offset_bytes, slot.offset_bytes + slot.size_bytes


def order_problems(
    work: Sequence[Access], barriers: Sequence[Barrier], host_reads: Sequence[Slot] = ()
) -> list[str]:
    """Return what `hazards.hazards` would, of each step the first, and idle barriers.

    For each byte is known from where on all that wrote it, or read it, is seen by each stage.
    """
    written = {slot.arena for item in work for slot in item.writes}
    touched = [
        [[slot for slot in slots if slot.arena in written] for slots in (w.reads, w.writes)]
        for w in work
    ]
    spans = [span_of(slot) for each in touched for slots in each for slot in slots]
    spans += [span_of(slot) for slot in host_reads]
    stages = len(STAGES)
    shadow = Shadow(spans, 2 * stages + 2)  # writes by stage, reads by stage, last write, last read
    arrive = arrivals(barriers, len(work))
    places = {barrier.before for barrier in barriers}
    found = [] if len(places) == len(barriers) else ["two barriers in one place"]
    latest = 0
    for step, (item, (reads, writes)) in enumerate(zip(work, touched, strict=True)):
        stage = STAGES.index(item.stage)
        parts = [(shadow.part(span_of(slot)), 0) for slot in reads]
        parts += [(shadow.part(span_of(slot)), 1) for slot in writes]
        parts = [(part, writing) for part, writing in parts if len(part)]
        meets = any(
            part[:, stage : stage + writing * stages + 1 : stages].max() > step
            for part, writing in parts
        )
        if meets:
            found.append(_pair(step, work, barriers))
        if step in places:
            recent = max(
                (
                    int(part[:, 2 * stages : 2 * stages + 1 + writing].max())
                    for part, writing in parts
                ),
                default=-1,
            )
            if recent < latest:
                found.append(f"the barrier before step {step} separates nothing")
            latest = step
        seen = arrive(step, item.stage)
        for part, writing in parts:
            columns = slice(0, stages) if writing else slice(stages, 2 * stages)
            np.maximum(part[:, columns], seen, out=part[:, columns])
            part[:, -2 if writing else -1] = step
    for slot in host_reads:
        part = shadow.part(span_of(slot))
        if len(part) and part[:, STAGES.index("host")].max() > len(work):
            found.append(f"the host reads {slot} before it sees what was written")
    return found


def _pair(step: int, work: Sequence[Access], barriers: Sequence[Barrier]) -> str:
    first = next(
        i
        for i in range(step)
        if conflict(work[i], work[step]) and not ordered(i, step, work, barriers)
    )
    return f"step {first} and step {step}: {conflict(work[first], work[step])}"


# ------------------------------------------------------------------------------ values


def value_problems(chunk: Chunk, lowered: Lowered) -> list[str]:
    """Return the reads of a chunk that find other bytes than where each value has its own."""
    return _Values(chunk, lowered).problems()


class _Values:
    """Who wrote which bytes: `wanted` by values that are kept apart, `real` by a chunk's slots."""

    def __init__(self, chunk: Chunk, lowered: Lowered) -> None:
        self._chunk, self._lowered = chunk, lowered
        self._steps = chunk.steps
        infos = [i for d in lowered.dispatches for _, i in d.reads + d.writes]
        ends = [(lowered.roots[n], 0, s.size_bytes) for n, s in chunk.output_slots.items()]
        givens = [(name, 0, slot.size_bytes) for name, slot in chunk.input_slots.items()]
        parts = [(d, info) for d in lowered.dispatches for _, info in d.writes]
        self._wanted = Shadow(
            [*map(self._own, infos), *ends, *givens, *(_part(*each, self._own) for each in parts)]
        )
        spans = [self._placed(info) for info in infos]
        spans += [_part(*each, self._placed) for each in parts]
        slots = [*chunk.input_slots.values(), *chunk.output_slots.values()]
        copies = [step for step in self._steps if isinstance(step, Copy)]
        spans += [span_of(s) for s in (*slots, *(c.source for c in copies))]
        for copy in copies:  # what is apart in its source is apart where it goes
            (source, first, last), (target, begin, _) = span_of(copy.source), span_of(copy.target)
            spans.append(span_of(copy.target))
            spans += [
                (target, start - first + begin, stop - first + begin)
                for arena, start, stop in spans
                if arena == source and first <= start and stop <= last
            ]
        self._real = Shadow(spans)
        known = [*chunk.input_slots, *(n for n in lowered.constants if n in chunk.memory.slots)]
        for number, name in enumerate(dict.fromkeys(known)):
            slot = chunk.input_slots.get(name) or chunk.memory.slots[name]
            for shadow, span in (
                (self._wanted, (name, 0, slot.size_bytes)),
                (self._real, span_of(slot)),
            ):
                with contextlib.suppress(KeyError):  # nobody reads it
                    shadow.part(span)[:] = -2 - number

    def _own(self, info: TensorInfo) -> Span:
        start = self._lowered.slices.get(info.name, 0) * np.dtype(info.dtype).itemsize
        return self._lowered.roots[info.name], start, start + info.size_bytes

    def _placed(self, info: TensorInfo) -> Span:
        slot = self._chunk.memory.slots[info.name]
        return slot.arena, slot.offset_bytes, slot.offset_bytes + info.size_bytes

    def problems(self) -> list[str]:
        """Return what differs."""
        wanted: dict[int, list[tuple[tuple[int, int], ...]]] = {}
        numbers: dict[int, int] = {}
        for number, dispatch in enumerate(self._lowered.dispatches):
            numbers[id(dispatch)] = number << 8
            wanted[id(dispatch)] = [self._wanted.runs(self._own(i)) for _, i in dispatch.reads]
            for place, (_, info) in enumerate(dispatch.writes):
                part = self._wanted.part(_part(dispatch, info, self._own))
                part[:] = numbers[id(dispatch)] + place
        done = [id(step) for step in self._steps if isinstance(step, Dispatch)]
        if sorted(done) != sorted(numbers):
            return ["the chunk does not run each dispatch once"]
        found: list[str] = []
        for step in self._steps:
            if isinstance(step, Copy):
                self._copy(step)
                continue
            found += _meetings(step, self._placed, self._own)
            for (_, info), runs in zip(step.reads, wanted[id(step)], strict=True):
                if self._real.runs(self._placed(info)) != runs:
                    found.append(f"{step}: {info.name} has been overwritten, or is not there yet")
                elif any(number == -1 for _, number in runs):
                    found.append(f"{step}: nobody makes {info.name}")
            for place, (_, info) in enumerate(step.writes):
                part = self._real.part(_part(step, info, self._placed))
                part[:] = numbers[id(step)] + place
        for name, slot in self._chunk.output_slots.items():
            kept = self._wanted.runs((self._lowered.roots[name], 0, slot.size_bytes))
            if self._real.runs(span_of(slot)) != kept:
                found.append(f"output {name} is overwritten, or not there")
        return found

    def _copy(self, copy: Copy) -> None:
        runs = self._real.runs(span_of(copy.source))
        ends = [*(start for start, _ in runs[1:]), copy.source.size_bytes]
        arena, first, _ = span_of(copy.target)
        for (start, number), end in zip(runs, ends, strict=True):
            self._real.part((arena, first + start, first + end))[:] = number


def _meetings(
    dispatch: Dispatch, placed: Callable[[TensorInfo], Span], own: Callable[[TensorInfo], Span]
) -> list[str]:
    """Return the operands of one dispatch that share bytes though they may not."""
    found = []
    for number, (_, info) in enumerate(dispatch.writes):
        slot = written(dispatch, info, _slot(placed(info)), number)
        for binding, other in (*dispatch.reads, *dispatch.writes[:number]):
            itself = own(info) == own(other)
            replaced = binding in dispatch.in_place and placed(info) == placed(other)
            if not (itself or replaced) and shares_bytes([slot], [_slot(placed(other))]):
                found.append(f"{dispatch}: {info.name} is written over {other.name}")
    return found


def _part(dispatch: Dispatch, info: TensorInfo, place: Callable[[TensorInfo], Span]) -> Span:
    """Return what a dispatch writes of a tensor, wherever that is."""
    return span_of(written(dispatch, info, _slot(place(info))))


def _slot(span: Span) -> Slot:
    return Slot(span[0], span[1], span[2] - span[1])


# ------------------------------------------------------------------------------ every plan


def check(chunk: Chunk, lowered: Lowered) -> list[str]:
    """Return what is wrong with a chunk for dispatches in the order in which they are meant."""
    if not chunk.steps:
        return [] if not lowered.dispatches else ["nothing is run"]
    if len(chunk.steps) > MOST_STEPS:
        counts["too large"] += 1
        counts["checked"] -= 1
        return []
    return [*value_problems(chunk, lowered), *order_problems(*work_of(chunk))]


@contextlib.contextmanager
def unchecked(reason: str) -> Iterator[None]:
    """Let a test make a plan that is wrong on purpose; the reason is for who reads the test."""
    assert reason
    before = getattr(_local, "reason", "")
    _local.reason = reason
    try:
        yield
    finally:
        _local.reason = before


def _report(kind: str, found: Callable[[], list[str]]) -> None:
    """Fail the test that runs for what is found, unless it plans wrongly on purpose."""
    if not getattr(_local, "reason", ""):
        counts[kind] += 1
        new = found()
        problems.extend(new)
        assert not new, "\n".join(new)


def install() -> None:
    """Check whatever is planned from now on; what is wrong fails the test that runs."""
    lower, arrange, cut = plans.lower_rewritten, arenas.arrange, splits.split
    extend = plans.extend

    @functools.wraps(arrange)
    def listen(graph: Any, lowered: Lowered, *others: Any, **named: Any) -> arenas.Arenas:
        _local.lowered = [*getattr(_local, "lowered", []), lowered]
        return arrange(graph, lowered, *others, **named)

    @functools.wraps(lower)
    def checked(chunk: Chunk, info: DeviceInfo, *others: Any, **named: Any) -> Chunk:
        _local.lowered = []
        made = lower(chunk, info, *others, **named)
        _report("checked", lambda: check(made, _local.lowered[0]))
        _local.infos = [*getattr(_local, "infos", []), info]
        return made

    @functools.wraps(cut)
    def split(
        graph: Graph, devices: Any, options: Any, facts: Any, lower: Any, refusal: Any
    ) -> Any:
        spread_hazards.watch(functools.partial(_report, "split and run"))
        pieces: list[Chunk] = []
        infos: list[DeviceInfo | None] = []

        def noted(piece: Chunk, unseen: Any) -> Chunk:
            _local.infos = []
            made: Chunk = lower(piece, unseen)
            pieces.append(piece)
            infos.append(_local.infos[0] if len(_local.infos) == 1 else None)
            return made

        chunks, moves, placed = cut(graph, devices, options, facts, noted, refusal)
        plan = Plan(graph, tuple(devices), options, chunks, moves, placement=placed)
        _report("split", lambda: spread_checks.plan_problems(plan, pieces, infos, placed.devices))
        return chunks, moves, placed

    @functools.wraps(extend)
    def extended(plan: Plan, *others: Any, **named: Any) -> Plan:
        made = extend(plan, *others, **named)
        _report("extended", lambda: extension_checks.extension_problems(plan, made))
        return made

    template_checks.install(
        functools.partial(_report, "from templates"), unchecked, lambda: _local.lowered[0], check
    )
    arenas.arrange, plans.lower_rewritten, splits.split = listen, checked, split
    plans.extend = extended


def install_in_child() -> None:
    """Check the plans of this process: it ends with 1 if one was wrong, though that was caught."""

    def tell() -> None:
        if problems:
            print("plans that are wrong:", *problems, sep="\n", file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(1)

    atexit.register(tell)
    install()
