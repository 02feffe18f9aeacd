"""Traces of a session's runs: spans of the host and of every device, on the host's clock.

During a trace, a recorder replaces each program. Visited by labs 12 and 18.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.plan.chunk import Chunk
from vklab.runtime.observe import profile, timestamps
from vklab.runtime.observe.timestamps import DeviceClock, Sample
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.plan_cache import Entry, PlanCache
from vklab.runtime.program import Program
from vklab.trace import HOST, Recorder, Span, Trace

__all__ = ["trace_session"]

Names = tuple[str | tuple[int, str], ...]
Values = dict[str, Any]
# The number of the current run or frame; its worker threads inherit the context.
_RUN: contextvars.ContextVar[int] = contextvars.ContextVar("vklab_run", default=0)


def trace_session(
    session: Any, *inputs: Any, repeats: int = 1, steps: bool = True, frames: int = 0,
    in_flight: int = 0,
) -> Trace:  # fmt: skip
    """Record the times of `repeats` runs, with all devices on one clock; inputs as in `run`.

    Args:
        session: the session.
        inputs: one dict of arrays by input name, or the arrays.
        repeats: the number of runs.
        steps: True to time each dispatch, which then runs alone between barriers; False to time
            each submission as a whole, recorded as in a normal run.
        frames: the number of frames to trace instead of runs, submitted as `map` submits them.
        in_flight: the number of frames in flight; default two for each device.
    """
    with profile.timed_arrays(session, inputs) as values:
        if frames or in_flight:
            return _trace_frames(session, values, frames, in_flight, steps)
        return _trace_runs(session.roots[0], values, repeats, steps)


def _trace_runs(root: PlanCache, values: Values, repeats: int, steps: bool) -> Trace:
    """Run once to warm up, then `repeats` times with recorders."""
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: trace at least one run")
    executor = root.executor
    executor.run(root, dict(values))
    notes = _Notes(steps)
    with contextlib.ExitStack() as stack:
        _watch(notes, root, stack)
        for number in range(repeats):
            _numbered(number, lambda given: executor.run(root, given), dict(values))
    return notes.trace()


def _trace_frames(
    session: Any, values: Values, count: int, in_flight: int, steps: bool
) -> Trace:
    """Run frames as `Session.map` does, with recorders, after a warm-up run of each slot."""
    frames, streams = session.new_frames()
    in_flight = streams.room(session, in_flight)
    if count < 1:
        raise ValueError(f"frames={count}: trace at least one frame")
    notes = _Notes(steps)
    with contextlib.ExitStack() as stack:
        stack.callback(frames.close)
        frames.grow(in_flight)
        for slot in frames.slots:
            slot.executor.run(slot.plans, dict(values))
            _watch(notes, slot.plans, stack)
        stack.callback(frames.end)  # before anything is freed, after an interrupt too

        def submit(number: int) -> Any:
            return _numbered(number, frames.submit, dict(values))

        taken = streams.ahead(session.roots, in_flight)
        for _ in streams.in_order(submit, iter(range(count)), taken):
            pass
    return notes.trace(is_queue=True)


def _numbered(number: int, call: Any, values: Values) -> Any:
    token = _RUN.set(number)
    # Without replay every run would record again, and discard the recording with timestamps.
    with settings.settings(DISABLE_REPLAY=False):
        try:
            return call(values)
        finally:
            _RUN.reset(token)


class _Notes:
    """Spans and samples of one trace, shared by all its recorders."""

    def __init__(self, steps: bool) -> None:
        self.steps = steps
        self._home = threading.current_thread()
        self._recorder = Recorder()
        self._samples: list[tuple[int, str, Program, Sample, Names]] = []

    def add(self, name: str, kind: str, start_ns: int, **facts: Any) -> None:
        """Add a span of the host that ends now."""
        thread = threading.current_thread()
        queue = "" if thread is self._home else thread.name.removeprefix("vklab ")
        self._recorder.add(Span(name, kind, HOST, start_ns, Recorder.now(), run=_RUN.get(),
                                queue=queue, **facts))  # fmt: skip

    def see(self, label: str, program: Program, sample: Sample, behind: Names) -> None:
        """Store a sample of a device; `trace` converts it, once all samples calibrate the clock."""
        self._samples.append((_RUN.get(), label, program, sample, behind))

    def trace(self, is_queue: bool = False) -> Trace:
        """Return the trace of all spans.

        Args:
            is_queue: True if each submission of a device also waits for the one before it.
        """
        clocks: dict[str, tuple[OpenDevice, DeviceClock]] = {}
        for _, _, program, sample, _ in self._samples:
            opened = program.opened
            if (name := opened.info.label) not in clocks:
                clocks[name] = opened, DeviceClock(opened.device)
            clocks[name][1].see(sample)
        latest: dict[str, Names] = {}

        def start(noted: tuple[int, str, Program, Sample, Names]) -> int:
            return clocks[noted[2].opened.info.label][1].host_ns(noted[3].ticks[0])

        for run, label, program, sample, behind in sorted(self._samples, key=start):
            name = program.opened.info.label
            clock, behind = clocks[name][1], behind + latest.get(name, ())
            latest[name] = ((run, f"chunk {label}"),) if is_queue else ()
            for span in _device_spans(label, program, sample, clock, behind):
                self._recorder.add(replace(span, run=run))
        words = {
            f"device {opened.info.index}": f"{str(opened.info).partition(' ')[2]}; its clock: "
            + ("calibrated by the driver" if clock.calibrated else "from before and after a run")
            + f", within {clock.deviation_ns / 1e3:.1f} us"
            for opened, clock in clocks.values()
        }
        how = "each alone between barriers" if self.steps else "recorded as in a run"
        return self._recorder.trace({**words, "dispatches": how})


def _device_spans(
    label: str, program: Program, sample: Sample, clock: DeviceClock, behind: Names
) -> Iterator[Span]:
    """Yield the span of one submission on its device, and the spans of its steps if timed."""
    moments = [clock.host_ns(ticks) for ticks in sample.ticks]
    whole = Span(
        f"chunk {label}", "chunk", program.opened.info.label, moments[0], moments[-1],
        queue="compute", chunk=label, after=(f"submit {label}", *behind),
    )  # fmt: skip
    yield whole
    described = profile.steps(program.chunk)
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


class _Sequence:
    """Position of an entry in a run, with the spans that it waits for.

    Attributes:
        before: the entries that it waits for; for a first entry, the last ones of the former run.
    """

    def __init__(self, notes: _Notes) -> None:
        self.notes = notes
        self.before: Sequence[_Sequence] = ()
        self._last: Names = ()

    @property
    def behind(self) -> Names:
        """Return the names of the last spans of all predecessors."""
        return tuple(name for other in self.before for name in other._last)

    def end(self, *names: str) -> None:
        """Store the names of the entry's last spans."""
        self._last = tuple((_RUN.get(), name) for name in names)


def _sequences(notes: _Notes, overlap: Any, count: int) -> Sequence[_Sequence]:
    """Return the positions of entries that run in turn, or as their Overlap schedules them."""
    in_turn = [{number - 1} if number else set() for number in range(count)]
    before = overlap.before if overlap and overlap.overlaps else in_turn
    made = [_Sequence(notes) for _ in before]
    last = [one for number, one in enumerate(made) if not any(number in b for b in before)]
    for one, numbers in zip(made, before, strict=True):
        one.before = [made[number] for number in sorted(numbers)] or last
    return made


def _watch(notes: _Notes, root: PlanCache, stack: contextlib.ExitStack) -> None:
    """Replace the runners of the last run's entries by recorders until the stack is closed."""
    entries = [*root.path()]
    working = [entry for entry in entries if entry.runner]
    overlap = entries[0].overlap if entries else None
    for entry, sequence in zip(working, _sequences(notes, overlap, len(working)), strict=True):
        stack.callback(setattr, entry, "runner", entry.runner)
        stack.callback(setattr, entry, "whole", entry.whole)
        entry.runner = _Recorded(sequence, entry, stack)
        entry.whole = entry.runner if entry.whole is not None else None


class _Recorded:
    """Recorder of an entry's runner: each of its programs is replaced by a _RecordedProgram."""

    def __init__(self, sequence: _Sequence, entry: Entry, stack: contextlib.ExitStack) -> None:
        self.runner = entry.runner
        self._sequence = sequence
        self._chunk = entry.chunks[0]
        self._programs: list[_RecordedProgram] = []
        if isinstance(self.runner, Program):
            self._programs = [_RecordedProgram(sequence, self._chunk, self.runner, stack)]
        elif tasks := getattr(self.runner, "tasks", None):
            self._record_tasks(entry, tasks, stack)

    def _record_tasks(self, entry: Entry, tasks: Any, stack: contextlib.ExitStack) -> None:
        recorded = {
            task: _RecordedProgram(self._sequence, chunk, task.program, stack)
            for chunk, task in zip(entry.chunks, tasks, strict=True)
        }
        self._programs = [*recorded.values()]
        paths = {(move.value, move.target): path for move, path in self.runner.paths.items()}
        for task, one in recorded.items():
            one.behind = tuple(f"chunk {recorded[other].label}" for other in task.behind)
            for name, reader in task.readers:
                target = recorded[reader]
                one.moves[name, reader] = f"{name} to {target.label}"
                one.paths[name, reader] = paths[name, int(target.label)].name
                target.arriving += (one.moves[name, reader],)
            for attribute, new in (("program", one), ("noted", one.moving)):
                stack.callback(setattr, task, attribute, getattr(task, attribute))
                setattr(task, attribute, new)

    @property
    def bodies(self) -> Any:
        """Return the bodies of a control node; raise AttributeError for any other runner."""
        return self.runner.bodies

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once, and record the spans."""
        if isinstance(self.runner, Program):
            self.start(values)
            return self.finish()
        if self._programs:
            made: Mapping[str, Any] = self.runner.run(values)
            for one in self._programs:
                one.see()
            ends = (f"copy out {one.label}" for one in self._programs if one.program.copied_out)
            self._sequence.end(*ends)
            return made
        return self._run_host(values)

    def _run_host(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        label, nodes = str(self._chunk.number), self._chunk.graph.nodes
        node = nodes[0].name if len(nodes) == 1 else f"{len(nodes)} nodes"
        name, start, behind = f"host {label}", Recorder.now(), self._sequence.behind
        made: Mapping[str, Any] = self.runner.run(values)
        self._sequence.notes.add(name, "host", start, node=node, chunk=label, after=behind)
        self._sequence.end(name)
        return made

    def start(self, values: Mapping[str, Any]) -> None:
        """Begin a run of the entry's only program, without waiting."""
        (program,) = self._programs
        program.prepare()
        program.begin(values)

    def finish(self) -> Mapping[str, Any]:
        """Wait for a started run, and return its outputs."""
        (program,) = self._programs
        program.wait()
        outputs = program.copy_out()
        program.see()
        self._sequence.end(f"copy out {program.label}")
        return outputs

    def close(self) -> None:
        """Free the runner."""
        self.runner.close()


class _RecordedProgram:
    """Recorder of a program: timestamps of its submissions, and spans of the host's work.

    Attributes:
        moves: the name of each transfer from this program; `paths` has the name of its path.
        arriving: the names of the transfers to this program.
    """

    def __init__(
        self, sequence: _Sequence, chunk: Chunk, program: Program, stack: contextlib.ExitStack
    ) -> None:
        self.label = str(chunk.number)
        self.program = program
        self.behind: Names = ()
        self.arriving: Names = ()
        self.moves: dict[tuple[str, Any], str] = {}
        self.paths: dict[tuple[str, Any], str] = {}
        self._sequence = sequence
        whole = not sequence.notes.steps
        self._timed = stack.enter_context(timestamps.timed(program, whole))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def see(self) -> None:
        """Store the device's sample of a complete run."""
        self._sequence.notes.see(self.label, self.program, self._timed.sample(), self.behind)

    def begin(self, values: Mapping[str, Any]) -> None:
        """Copy in and submit, with a span for each."""
        with self._noted("copy in"):
            self.program.binding.copy_in(values)
        with self._noted("submit"):
            self.program.submit(self._timed.submission)

    def wait(self) -> None:
        """Wait for the submission, with a span."""
        with self._noted("wait"):
            self.program.wait()

    def copy_out(self) -> dict[str, Any]:
        """Copy the outputs out, with a span."""
        with self._noted("copy out"):
            return self.program.copy_out()

    @contextlib.contextmanager
    def moving(self, value: str, reader: Any) -> Iterator[None]:
        """Record the `with` block as a span: it moves a value to the program that reads it."""
        start = Recorder.now()
        yield
        size = self.program.chunk.output_slots[value].size_bytes
        self._sequence.notes.add(
            self.moves[value, reader], "transfer", start, chunk=self.label, bytes=size,
            after=(f"chunk {self.label}",), path=self.paths[value, reader],
        )  # fmt: skip

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """Record the `with` block as a span: one step of the host around the submission."""
        kind, after, size_bytes = self._facts(what)
        start = Recorder.now()
        yield
        if kind:
            self._sequence.notes.add(f"{what} {self.label}", kind, start, chunk=self.label,
                                     after=after, bytes=size_bytes)  # fmt: skip

    def _facts(self, what: str) -> tuple[str, Names, int]:
        """Return kind, predecessors and bytes of a host step; no kind if it copies nothing."""
        program, label = self.program, self.label
        if what == "copy in":
            slots = program.chunk.input_slots
            size = sum(slots[name].size_bytes for name in program.copied_in)
            return "transfer" if program.copied_in else "", self._sequence.behind, size
        if what == "copy out":
            slots = program.chunk.output_slots
            size = sum(slots[name].size_bytes for name in program.copied_out)
            return "transfer" if program.copied_out else "", (f"chunk {label}",), size
        if what == "submit":
            return "host", (f"copy in {label}", *self.arriving), 0
        return "wait", (f"submit {label}",), 0
