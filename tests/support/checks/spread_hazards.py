"""Find what chunks of a split model, in flight at the same time, do to each other's bytes.

Takes from what runs a plan the places that it bound and the order that it gave its scheduler, and
looks at every pair of events. The slots of rings, and dma-bufs, are no events: a move holds its
path's lock, and has waited for the fence of each of its copies when it returns (test_ring.py), so
nothing of it is in flight beside another, and a move as a whole is an event here.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from support.checks import spread_checks
from support.checks.hazards import Shadow, Span, written
from vklab.plan.barriers import Copy
from vklab.plan.chunk import Chunk
from vklab.plan.memory import Slot

Event = tuple[str, int, str]  # what happens, of which chunk, and with which value
Touch = tuple[str, Slot]

_alive: weakref.WeakSet[Any] = weakref.WeakSet()  # what runs plans: each is a frame
_lock = threading.Lock()
_watched: list[type] = []


class Touched(NamedTuple):
    """The bytes that an event reads and writes, with the names of the values there."""

    reads: list[tuple[str, Span]]
    writes: list[tuple[str, Span]]


def steps_of(chunk: Chunk) -> tuple[list[Touch], list[Touch]]:
    """Return what all steps of a chunk read and write, by its own slots."""
    reads: list[Touch] = []
    writes: list[Touch] = []
    for step in chunk.steps:
        if isinstance(step, Copy):
            reads.append((step.name, step.source))
            writes.append((step.name, step.target))
            continue
        slots = chunk.memory.slots
        reads += [(info.name, slots[info.name]) for _, info in step.reads]
        writes += [(i.name, written(step, i, slots[i.name])) for _, i in step.writes]
    return reads, writes


class Frame:
    """One run of what runs a plan: its events, what each touches, and which comes before which.

    Args:
        group: a `many.split.ChunkGroup`, of real programs or of such as tests make.
    """

    def __init__(self, group: Any) -> None:
        self.plan, self._tasks = group.plan, group.tasks
        self._memory, self._order = group._memory, group._order
        self._devices = [chunk.device for chunk in self.plan.chunks]
        self._same = dict(self._imports())
        self._lost: list[str] = []
        self.events: dict[Event, Touched] = {}
        self.after: dict[Event, list[Event]] = {}
        for number in range(len(self._tasks)):
            self._add_chunk(number)
        for number in range(len(self._tasks)):
            for other in self._order.dependents[number]:
                self._let(("end", number, ""), ("copy in", other, ""))
            for other in self._order.followers[number]:
                self._let(("copy in", number, ""), ("copy in", other, ""))
                # Of one queue, and only behind the barrier that begins what reads foreign places.
                if self._devices[number] == self._devices[other] and self._has_barrier(other):
                    self._let(("run", number, ""), ("run", other, ""))

    def _has_barrier(self, number: int) -> bool:
        return bool(self._tasks[number].program._given)

    def _imports(self) -> Iterator[tuple[tuple[int, Any], tuple[int, Any]]]:
        """Yield buffers of one device that are memory of another's."""
        for (number, arena, device), buffer in self._memory._imports.items():
            lies = self._memory._pools[number].buffers[arena]
            yield (device, buffer.handle), (self._devices[number], lies.handle)

    def span(self, number: int, slot: Slot) -> Span:
        """Return the bytes that a chunk binds for a slot, whoever else sees them."""
        handle, start = self._tasks[number].program._buffer_at(slot)
        buffer = self._devices[number], handle
        return self._same.get(buffer, buffer), start, start + slot.size_bytes

    def _spans(self, number: int, touched: list[Touch]) -> list[tuple[str, Span]]:
        each = ((name, self.span(number, slot)) for name, slot in touched if slot.size_bytes)
        return list(dict.fromkeys(each))

    def _add(self, event: Event, reads: Any = (), writes: Any = ()) -> None:
        self.events[event] = Touched(list(reads), list(writes))
        self.after[event] = []

    def _let(self, first: Event, second: Event) -> None:
        self.after[first].append(second)

    def _add_chunk(self, number: int) -> None:
        """Add what happens to a chunk, one thing after another."""
        task = self._tasks[number]
        chunk = task.program.chunk
        given = [(name, chunk.input_slots[name]) for name in task.program.copied_in]
        self._add(("copy in", number, ""), (), self._spans(number, given))
        reads, writes = steps_of(chunk)
        self._add(("run", number, ""), self._spans(number, reads), self._spans(number, writes))
        chain: list[Event] = [("copy in", number, ""), ("run", number, "")]
        for name, reader in task.readers:
            other = self._tasks.index(reader)
            source = self.span(number, chunk.output_slots[name])
            target = self.span(other, reader.program.chunk.input_slots[name])
            chain.append((f"move to chunk {other}", number, name))
            # What lies where it was left is not moved, be it read there or not.
            moves = name not in reader.program._given and source[1] < source[2]
            is_past = reader.program.chunk.input_slots[name].arena.startswith("arriving")
            if moves and is_past and (name, reader) not in task.moves:
                self._lost.append(f"nothing takes {name!r} from chunk {number} to chunk {other}")
            self._add(chain[-1], [(name, source)] * moves, [(name, target)] * moves)
        for name in task.program.copied_out:
            chain.append(("copy out", number, name))
            self._add(chain[-1], self._spans(number, [(name, chunk.output_slots[name])]))
        chain.append(("end", number, ""))
        self._add(chain[-1])
        for first, second in zip(chain, chain[1:], strict=False):
            self._let(first, second)

    # -------------------------------------------------------------------------- what is wrong

    def in_order(self) -> list[Event]:
        """Return the events in an order that waits allow, as far as there is one."""
        counts = dict.fromkeys(self.events, 0)
        for others in self.after.values():
            for other in others:
                counts[other] += 1
        found = [event for event, count in counts.items() if not count]
        for event in found:  # grows on the way
            for other in self.after[event]:
                counts[other] -= 1
                if not counts[other]:
                    found.append(other)
        return found

    def problems(self) -> list[str]:
        """Return the pairs of events that nothing orders, and values that are not where read."""
        order = self.in_order()
        if len(order) < len(self.events):
            return ["events wait for each other in a circle"]
        later: dict[Event, int] = {}  # the events behind each, one bit for each place
        places = {event: place for place, event in enumerate(order)}
        for event in reversed(order):
            later[event] = 0
            for other in self.after[event]:
                later[event] |= later[other] | 1 << places[other]
        found = list(self._lost)
        for first, second, told in self._meetings():
            is_ordered = later[first] >> places[second] & 1 or later[second] >> places[first] & 1
            if not is_ordered:
                found.append(f"{told}, and nothing orders them")
        return found + list(self._arrivals(order))

    def _meetings(self) -> Iterator[tuple[Event, Event, str]]:
        """Yield each pair of events that touches bytes in common, one of them writing."""
        touches: dict[Any, list[tuple[Event, bool, str, Span]]] = {}
        for event, touched in self.events.items():
            for writes, each in enumerate(touched):
                for name, span in each:
                    touches.setdefault(span[0], []).append((event, bool(writes), name, span))
        for each in touches.values():
            writing = [touch for touch in each if touch[1]]
            if len({touch[0] for touch in each}) == 1:
                continue
            for one in writing:
                for other in each:
                    is_once = one[0] != other[0] and not (other[1] and _late(one, other))
                    if is_once and one[3][1] < other[3][2] and other[3][1] < one[3][2]:
                        first, second = (one, other) if _late(other, one) else (other, one)
                        yield first[0], second[0], _told(first, second)

    def _arrivals(self, order: list[Event]) -> Iterator[str]:
        """Yield the reads that do not find what was made for them, in one of the orders.

        Where no pair is unordered, all orders do the same.
        """
        numbers: dict[object, int] = {}
        touched = [(span, e) for e, t in self.events.items() for _, span in t.reads + t.writes]
        chunks = [task.program.chunk for task in self._tasks]
        slots = [
            (n, slot)
            for n, each in enumerate(chunks)
            for slot in (*each.input_slots.values(), *each.output_slots.values())
        ]
        spans = [self.span(number, slot) for number, slot in slots]
        shadow = Shadow([*spans, *(span for span, _ in touched)])
        made = spread_checks.makers(spread_checks.as_cut(self.plan.chunks))

        def tag(name: str, maker: int | None) -> int:
            key = (None, name) if maker is None else (maker, chunks[maker].output_slots[name])
            return numbers.setdefault(key, len(numbers))

        def wrong(name: str, span: Span, maker: int | None) -> bool:
            is_empty = span[1] == span[2]
            return not is_empty and shadow.runs(span) != ((0, tag(name, maker)),)

        for event in order:
            what, number, name = event
            chunk = chunks[number]
            if what == "run":
                for name, slot in chunk.input_slots.items():
                    if wrong(name, self.span(number, slot), made.get(name)):
                        yield f"chunk {number} finds other bytes than {name!r} at {slot}"
            elif name and wrong(name, self.span(number, chunk.output_slots[name]), number):
                yield f"chunk {number}: {what} finds other bytes than {name!r}"
            for name, span in self.events[event].writes:
                maker = None if what == "copy in" else number
                shadow.part(span)[:] = -2 - number if what == "run" else tag(name, maker)
            for name in chunk.graph.outputs if what == "run" else ():
                shadow.part(self.span(number, chunk.output_slots[name]))[:] = tag(name, number)


def _late(one: tuple[Event, bool, str, Span], other: tuple[Event, bool, str, Span]) -> bool:
    return one[0][1] > other[0][1] or (one[0][1] == other[0][1] and one[0] > other[0])


def _told(first: tuple[Event, bool, str, Span], second: tuple[Event, bool, str, Span]) -> str:
    kind = f"{'write' if second[1] else 'read'} after {'write' if first[1] else 'read'}"
    return (
        f"{kind}: chunk {first[0][1]} ({first[0][0]}) {first[2]!r}, "
        f"chunk {second[0][1]} ({second[0][0]}) {second[2]!r}"
    )


def run_problems(group: Any) -> list[str]:
    """Return what is wrong with the paths of values, and with chunks in flight at the same time."""
    paths = group._memory.paths
    found = spread_checks.path_problems(group.plan, paths) + Frame(group).problems()
    with _lock:
        for other in _alive:
            # Of those with one list of runs, none begins before the last one has ended.
            if other._memory.runs is not group._memory.runs and _buffers(group) & _buffers(other):
                found.append("two that may run at the same time have memory in common")
        _alive.add(group)
    return found


def _buffers(group: Any) -> set[int]:
    return {id(b) for pool in group._memory._pools.values() for b in pool.buffers.values()}


def watch(report: Callable[[Callable[[], list[str]]], None]) -> None:
    """Check what runs a split model as soon as it has its memory and its order.

    Args:
        report: takes what finds problems; raises if it finds some.
    """
    runtime: Any = sys.modules.get("vklab.runtime.many.split")  # not without a driver
    if runtime is None or runtime.ChunkGroup in _watched:
        return
    _watched.append(runtime.ChunkGroup)
    init = runtime.ChunkGroup.__init__

    @functools.wraps(init)
    def checked(group: Any, *given: Any, **named: Any) -> None:
        init(group, *given, **named)
        try:
            report(lambda: run_problems(group))
        except BaseException:
            group.close()
            raise

    runtime.ChunkGroup.__init__ = checked
