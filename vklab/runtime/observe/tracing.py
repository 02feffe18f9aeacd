"""Traced runs of a session: spans of the host and of every device, on the host's clock.

What runs a part is replaced, for a while, by what notes what it does. Visited by labs 12 and 18.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.runtime import overlap
from vklab.runtime.engine import Device, Runner, Work
from vklab.runtime.many import streams
from vklab.runtime.many.frames import Frames
from vklab.runtime.observe import profile
from vklab.runtime.observe.timestamps import DeviceClock, Sample
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.parts import Found, Stage
from vklab.runtime.program import Program
from vklab.runtime.spread import Chunk, Spread
from vklab.trace import HOST, Recorder, Span, Trace

__all__ = ["frames", "trace"]

Names = tuple[str | tuple[int, str], ...]
Values = dict[str, Any]
# The run, or frame, that is under way here: threads that work for it have its context.
_RUN: contextvars.ContextVar[int] = contextvars.ContextVar("vklab_run", default=0)


def trace(root: Stage, values: Values, repeats: int, steps: bool) -> Trace:
    """Run once, then `repeats` times with notes of all that happens."""
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: at least one run is traced")
    root.run(dict(values))
    notes = _Notes(steps)
    with contextlib.ExitStack() as stack:
        _watch(notes, root, stack)
        for number in range(repeats):
            _numbered(number, root.run, dict(values))
    return notes.trace()


def frames(
    roots: Sequence[Stage], values: Values, count: int, in_flight: int, steps: bool
) -> Trace:
    """Run frames as `Session.map` does, each place warm, with notes of all that happens."""
    if count < 1:
        raise ValueError(f"frames={count}: at least one frame is traced")
    notes, places = _Notes(steps), Frames(roots)
    with contextlib.ExitStack() as stack:
        stack.callback(places.close)
        places.grow(in_flight)
        for slot in places.slots:
            slot.stage.run(dict(values))
            _watch(notes, slot.stage, stack)
        stack.callback(places.end)  # after an interrupt, too, before anything is freed

        def submit(number: int) -> Any:
            return _numbered(number, places.submit, dict(values))

        for _ in streams.in_order(submit, iter(range(count)), streams.ahead(roots, in_flight)):
            pass
    return notes.trace(is_queue=True)


def _numbered(number: int, call: Any, values: Values) -> Any:
    token = _RUN.set(number)
    # A command buffer that every run records anew would take the notes' own recording with it.
    with settings.settings(DISABLE_REPLAY=False):
        try:
            return call(values)
        finally:
            _RUN.reset(token)


class _Notes:
    """What all that is watched shares."""

    def __init__(self, steps: bool) -> None:
        self.steps = steps
        self._home = threading.current_thread()
        self._recorder = Recorder()
        self._samples: list[tuple[int, str, Program, Sample, Names]] = []

    def add(self, name: str, kind: str, start_ns: int, **facts: Any) -> None:
        """Note something that the host did until now."""
        thread = threading.current_thread()
        queue = "" if thread is self._home else thread.name.removeprefix("vklab ")
        self._recorder.add(Span(name, kind, HOST, start_ns, Recorder.now(), run=_RUN.get(),
                                queue=queue, **facts))  # fmt: skip

    def see(self, label: str, program: Program, sample: Sample, behind: Names) -> None:
        """Note what a device did, for when its clock is known as well as it will be."""
        self._samples.append((_RUN.get(), label, program, sample, behind))

    def trace(self, is_queue: bool = False) -> Trace:
        """Return all spans.

        Args:
            is_queue: what a device did waited for what it did before, of whatever frame.
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
    """Yield the spans of one submission on its device: the whole, and its steps if noted."""
    moments = [clock.host_ns(ticks) for ticks in sample.ticks]
    whole = Span(
        f"chunk {label}", "chunk", program.opened.info.label, moments[0], moments[-1],
        queue="compute", chunk=label, after=(f"submit {label}", *behind),
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


class _Way:
    """The way of one part through the runs: it begins after what others ended with last.

    Attributes:
        before: the parts that it waits for; of the first, those that ended the run before.
    """

    def __init__(self, notes: _Notes) -> None:
        self.notes = notes
        self.before: Sequence[_Way] = ()
        self._last: Names = ()

    @property
    def behind(self) -> Names:
        """Return what all that it waits for ended with."""
        return tuple(name for way in self.before for name in way._last)

    def end(self, *names: str) -> None:
        """Note what the part ended with."""
        self._last = tuple((_RUN.get(), name) for name in names)


def _ways(notes: _Notes, path: overlap.Path | None, count: int) -> Sequence[_Way]:
    """Return the ways of parts that run in turn, or as soon as their path lets them."""
    in_turn = [{number - 1} if number else set() for number in range(count)]
    before = path.before if path and path.overlaps else in_turn
    ways = [_Way(notes) for _ in before]
    last = [way for number, way in enumerate(ways) if not any(number in b for b in before)]
    for way, numbers in zip(ways, before, strict=True):
        way.before = [ways[number] for number in sorted(numbers)] or last
    return ways


def _watch(notes: _Notes, root: Stage, stack: contextlib.ExitStack) -> None:
    """Replace what runs the parts found last by what notes what it does, until the stack ends."""
    taken = [(str(number), found, found.runner) for number, found in enumerate(root.walk())]
    working = [(label, found, runner) for label, found, runner in taken if runner]
    path = taken[0][1].path if taken else None
    for (label, found, runner), way in zip(working, _ways(notes, path, len(working)), strict=True):
        stack.callback(setattr, found, "runner", runner)
        if isinstance(runner, Device):
            found.runner = _Device(way, label, runner, stack)
        elif isinstance(runner, Spread):
            found.runner = _Spread(way, label, runner, stack)
        else:
            found.runner = _Host(way, label, found, runner)


class _Host(Runner):
    """A part on the host."""

    def __init__(self, way: _Way, label: str, found: Found, runner: Runner) -> None:
        nodes = found.part.graph.nodes
        self._way, self._label, self._runner = way, label, runner
        self._node = nodes[0].name if len(nodes) == 1 else f"{len(nodes)} nodes"

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        way, name, start = self._way, f"host {self._label}", Recorder.now()
        behind = way.behind
        made = self._runner.run(values)
        way.notes.add(name, "host", start, node=self._node, chunk=self._label, after=behind)
        way.end(name)
        return made

    def close(self) -> None:
        self._runner.close()


class _Device(Device):
    """A part that is one program."""

    def __init__(
        self, way: _Way, label: str, device: Device, stack: contextlib.ExitStack
    ) -> None:
        super().__init__(device.program)
        self._way = way
        self._watched = _Watched(way, label, self, stack)

    def finish(self) -> Mapping[str, Any]:
        outputs = super().finish()
        self._watched.see()
        self._way.end(f"copy out {self._watched.label}")
        return outputs


class _Spread(Runner):
    """A part on several devices: each of its chunks is watched."""

    def __init__(
        self, way: _Way, label: str, runner: Spread, stack: contextlib.ExitStack
    ) -> None:
        self._way, self._runner = way, runner
        watched = {chunk: _Watched(way, f"{label}.{number}", chunk, stack)
                   for number, chunk in enumerate(runner.chunks)}  # fmt: skip
        self._watched = watched.values()
        for chunk, one in watched.items():
            one.behind = tuple(f"chunk {watched[other].label}" for other in chunk.behind)
            for name, reader in chunk.readers:
                one.moves[name, reader] = f"{name} to {watched[reader].label}"
                watched[reader].arriving += (one.moves[name, reader],)
        for move in runner.plan.transfers:
            source, target = runner.chunks[move.source or 0], runner.chunks[move.target]
            watched[source].paths[move.value, target] = runner.plan.path(move).name

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        made = self._runner.run(values)
        for one in self._watched:
            one.see()
        self._way.end(*(f"copy out {one.label}" for one in self._watched if one.work.kept))
        return made

    def close(self) -> None:
        self._runner.close()


class _Watched:
    """A program whose submissions have timestamps, and what is done around them.

    Attributes:
        moves: the name of each move from here, by value and reader; `paths` says how it is made.
        arriving: those to this program.
    """

    def __init__(self, way: _Way, label: str, work: Work, stack: contextlib.ExitStack) -> None:
        self.label = label
        self.work = work
        self.behind: Names = ()
        self.arriving: Names = ()
        self.moves: dict[tuple[str, Chunk], str] = {}
        self.paths: dict[tuple[str, Chunk], str] = {}
        self._way = way
        self._timed = stack.enter_context(work.program.timed(whole=not way.notes.steps))
        stack.callback(work.watch, None, None)
        work.watch(self._timed.submission, self.noted)

    def see(self) -> None:
        """Note what the device did in the run that is complete."""
        self._way.notes.see(self.label, self.work.program, self._timed.sample(), self.behind)

    @contextlib.contextmanager
    def noted(self, what: str, reader: Chunk | None = None) -> Iterator[None]:
        """Note the block: a step around the program, or the value that it moves to a reader."""
        kind, after, size_bytes = self._facts(what, reader)
        start = Recorder.now()
        yield
        if kind:
            name = self.moves[what, reader] if reader else f"{what} {self.label}"
            path = self.paths.get((what, reader), "") if reader else ""
            self._way.notes.add(name, kind, start, chunk=self.label, after=after, bytes=size_bytes,
                                path=path)  # fmt: skip

    def _facts(self, what: str, reader: Chunk | None) -> tuple[str, Names, int]:
        """Return kind, predecessors and bytes of something done; no kind if it was nothing."""
        plan, label = self.work.program.plan, self.label
        done: Names = (f"chunk {label}",)
        if reader:
            return "transfer", done, plan.output_slots[what].size_bytes
        if what == "copy in":
            size = sum(plan.input_slots[name].size_bytes for name in self.work.given)
            return "transfer" if self.work.given else "", self._way.behind, size
        if what == "copy out":
            size = sum(plan.output_slots[name].size_bytes for name in self.work.kept)
            return "transfer" if self.work.kept else "", done, size
        if what == "submit":
            return "host", (f"copy in {label}", *self.arriving), 0
        return "wait", (f"submit {label}",), 0
