"""Traced runs of a session: spans of the host and of every device, on the host's clock.

Visited by labs 12 and 18.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.runtime import profile
from vklab.runtime.engine import Device
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.parts import Found, Stage
from vklab.runtime.record import Program
from vklab.runtime.spread import Chunk, Spread
from vklab.runtime.timed import DeviceClock, Sample, Timed
from vklab.trace import HOST, Recorder, Span, Trace

__all__ = ["trace"]

Names = tuple[str | tuple[int, str], ...]
Run = Callable[[dict[str, Any]], Mapping[str, Any]]


def trace(root: Stage, values: dict[str, Any], repeats: int, steps: bool) -> Trace:
    """Run once, then `repeats` times with notes of all that happens."""
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: at least one run is traced")
    values = dict(values)
    root.run(values)
    notes = _Notes(steps)
    # A command buffer that every run records anew would take the notes' own recording with it.
    with contextlib.ExitStack() as stack, settings.settings(DISABLE_REPLAY=False):
        runs = [
            (found, _part(notes, number, found, stack)) for number, found in enumerate(root.walk())
        ]
        for notes.run in range(repeats):
            for found, run in runs:
                values |= found.part.known
                values |= run(values)
    return notes.trace()


class _Notes:
    """What the parts of a traced session share.

    Attributes:
        run: the number of the run under way.
        last: what the part before ended with.
    """

    def __init__(self, steps: bool) -> None:
        self.steps = steps
        self.run = 0
        self.last: Names = ()
        self._recorder = Recorder()
        self._clocks: dict[str, tuple[OpenDevice, DeviceClock]] = {}
        self._samples: list[tuple[int, str, Program, Sample]] = []

    def add(self, name: str, kind: str, start_ns: int, end_ns: int, **facts: Any) -> None:
        """Note something that the host did."""
        self._recorder.add(Span(name, kind, HOST, start_ns, end_ns, run=self.run, **facts))

    def see(self, label: str, program: Program, sample: Sample) -> None:
        """Note what a device did, for when its clock is known as well as it will be."""
        opened = program.opened
        found = self._clocks.setdefault(_name(opened), (opened, DeviceClock(opened.device)))
        found[1].see(sample)
        self._samples.append((self.run, label, program, sample))

    def trace(self) -> Trace:
        """Return all spans."""
        for run, label, program, sample in self._samples:
            _, clock = self._clocks[_name(program.opened)]
            for span in _device_spans(label, program, sample, clock):
                self._recorder.add(replace(span, run=run))
        words = {
            f"device {opened.info.index}": f"{str(opened.info).partition(' ')[2]}; its clock: "
            + ("calibrated by the driver" if clock.calibrated else "from before and after a run")
            + f", within {clock.deviation_ns / 1e3:.1f} us"
            for opened, clock in self._clocks.values()
        }
        how = "each alone between barriers" if self.steps else "recorded as in a run"
        return self._recorder.trace({**words, "dispatches": how})


def _name(opened: OpenDevice) -> str:
    return f"{opened.info.index}: {opened.info.name}"


def _device_spans(
    label: str, program: Program, sample: Sample, clock: DeviceClock
) -> Iterator[Span]:
    """Yield the spans of one submission on its device: the whole, and its steps if noted."""
    moments = [clock.host_ns(ticks) for ticks in sample.ticks]
    whole = Span(
        f"chunk {label}", "chunk", _name(program.opened), moments[0], moments[-1],
        queue="compute", chunk=label, after=(f"submit {label}",),
    )  # fmt: skip
    yield whole
    described = profile.steps(program.plan)
    if len(moments) != len(described) + 1:
        return
    before: Names = ()
    for step, (node, kernel, _, size_bytes, _) in enumerate(described):
        name = f"{label}.{step} {kernel}"
        yield replace(
            whole, name=name, kind="dispatch", start_ns=moments[step], end_ns=moments[step + 1],
            node=node, kernel=kernel, bytes=size_bytes, after=before,
        )  # fmt: skip
        before = (name,)


def _part(notes: _Notes, number: int, found: Found, stack: contextlib.ExitStack) -> Run:
    """Return what runs a part, and notes what it does."""
    if isinstance(found.runner, Device):
        return _device_part(notes, str(number), found.runner, stack)
    if isinstance(found.runner, Spread):
        return _spread_part(notes, str(number), found.runner, stack)
    return _host_part(notes, str(number), found)


def _host_part(notes: _Notes, label: str, found: Found) -> Run:
    name, nodes = f"host {label}", found.part.graph.nodes
    node = nodes[0].name if len(nodes) == 1 else f"{len(nodes)} nodes"

    def run(values: dict[str, Any]) -> Mapping[str, Any]:
        if found.runner is None:
            return {}
        start = Recorder.now()
        made = found.runner.run(values)
        notes.add(name, "host", start, Recorder.now(), node=node, chunk=label, after=notes.last)
        notes.last = ((notes.run, name),)
        return made

    return run


def _device_part(
    notes: _Notes, label: str, runner: Device, stack: contextlib.ExitStack
) -> Run:
    work = stack.enter_context(runner.program.timed(whole=not notes.steps))
    plan = runner.program.plan
    read, written = (sum(slot.size_bytes for slot in slots.values())
                     for slots in (plan.input_slots, plan.output_slots))  # fmt: skip

    def run(values: dict[str, Any]) -> Mapping[str, Any]:
        s = work.run(runner.arrays(values))
        given, submitted, left = f"copy in {label}", f"submit {label}", f"copy out {label}"
        notes.add(given, "transfer", s.begun_ns, s.submitting_ns, bytes=read, chunk=label,
                  after=notes.last)  # fmt: skip
        notes.add(submitted, "host", s.submitting_ns, s.submitted_ns, chunk=label, after=(given,))
        notes.add(f"wait {label}", "wait", s.submitted_ns, s.done_ns, chunk=label,
                  after=(submitted,))  # fmt: skip
        notes.add(left, "transfer", s.done_ns, s.ended_ns, bytes=written, chunk=label,
                  after=(f"chunk {label}",))  # fmt: skip
        notes.see(label, runner.program, s)
        notes.last = ((notes.run, left),)
        return s.outputs

    return run


def _spread_part(notes: _Notes, label: str, runner: Spread, stack: contextlib.ExitStack) -> Run:
    labels = {id(chunk): f"{label}.{n}" for n, chunk in enumerate(runner.chunks)}
    moves = {
        (name, id(reader)): f"{name} to {labels[id(reader)]}"
        for chunk in runner.chunks for name, reader in chunk.readers
    }  # fmt: skip
    paths = {
        (move.value, id(runner.chunks[move.target])): runner.plan.path(move).name
        for move in runner.plan.transfers
    }
    watched = [
        _Watched(notes, chunk, labels, moves, paths, set(runner.plan.graph.outputs), stack)
        for chunk in runner.chunks
    ]

    def run(values: dict[str, Any]) -> Mapping[str, Any]:
        for one in watched:
            one.after = notes.last
        made = runner.run(values)
        for one in watched:
            notes.see(one.label, one.chunk.program, one.work.sample(0, 0, {}))
        notes.last = tuple((notes.run, f"copy out {one.label}") for one in watched if one.kept)
        return made

    return run


class _Watched:
    """A chunk of a spread part: what is submitted has timestamps, and what it does is noted."""

    def __init__(
        self, notes: _Notes, chunk: Chunk, labels: Mapping[int, str],
        moves: Mapping[tuple[str, int], str], paths: Mapping[tuple[str, int], str],
        outputs: set[str], stack: contextlib.ExitStack,
    ) -> None:  # fmt: skip
        self.chunk = chunk
        self.label = labels[id(chunk)]
        self.after: Names = ()
        self._notes = notes
        self._moves, self._paths = moves, paths
        plan = chunk.program.plan
        arriving = {name for name, reader in moves if reader == id(chunk)}
        self.given = [name for name in plan.input_slots if name not in arriving]
        self.kept = [name for name in plan.output_slots if name in outputs]
        self._arriving = tuple(moves[name, id(chunk)] for name in arriving)
        self.work: Timed = stack.enter_context(chunk.program.timed(whole=not notes.steps))
        stack.callback(chunk.watch, None, None)
        chunk.watch(self.work.submission, self.noted)

    @contextlib.contextmanager
    def noted(self, what: str, reader: Chunk | None = None) -> Iterator[None]:
        """Note the block: a step of the chunk, or the value that it moves to a reader."""
        start = Recorder.now()
        yield
        kind, after, size_bytes = self._facts(what, reader)
        if kind:
            name = self._moves[what, id(reader)] if reader else f"{what} {self.label}"
            self._notes.add(name, kind, start, Recorder.now(), chunk=self.label, after=after,
                            bytes=size_bytes, queue=threading.current_thread().name,
                            path=self._paths.get((what, id(reader)), ""))  # fmt: skip

    def _facts(self, what: str, reader: Chunk | None) -> tuple[str, Names, int]:
        """Return kind, predecessors and bytes of something done; no kind if it was nothing."""
        plan, label = self.chunk.program.plan, self.label
        done: Names = (f"chunk {label}",)
        if reader:
            return "transfer", done, plan.output_slots[what].size_bytes
        if what == "copy in":
            size = sum(plan.input_slots[name].size_bytes for name in self.given)
            return "transfer" if self.given else "", self.after, size
        if what == "copy out":
            size = sum(plan.output_slots[name].size_bytes for name in self.kept)
            return "transfer" if self.kept else "", done, size
        if what == "submit":
            return "host", (f"copy in {label}", *self._arriving), 0
        return "wait", (f"submit {label}",), 0
