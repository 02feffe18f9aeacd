"""Recorded runners: they run an entry as its own runner does, and note every step.

Visited by lab 12.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vklab.base.trace import Recorder
from vklab.plan.chunk import Chunk
from vklab.runtime.observe import timestamps
from vklab.runtime.observe.notes import RUN, Names, Notes
from vklab.runtime.plan_cache import Entry
from vklab.runtime.program import Program


class RunOrder:
    """Position of an entry in a run, with the spans that it waits for.

    Attributes:
        before: the entries that it waits for; for a first entry, the last ones of the former run.
    """

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.before: Sequence[RunOrder] = ()
        self._last: Names = ()

    @property
    def behind(self) -> Names:
        """Return the names of the last spans of all predecessors."""
        return tuple(name for other in self.before for name in other._last)

    def end(self, *names: str) -> None:
        """Store the names of the entry's last spans."""
        self._last = tuple((RUN.get(), name) for name in names)


class RecordedRunner:
    """Recorder of an entry's runner: each of its programs is replaced by a RecordedProgram.

    Args:
        sequence: the entry's order among the others.
        entry: the entry.
        stack: restores the programs when it closes.
    """

    def __init__(self, sequence: RunOrder, entry: Entry, stack: contextlib.ExitStack) -> None:
        self.runner = entry.runner
        self._sequence = sequence
        self._chunk = entry.chunks[0]
        self._programs: list[RecordedProgram] = []
        if isinstance(self.runner, Program):
            self._programs = [RecordedProgram(sequence, self._chunk, self.runner, stack)]
        elif tasks := getattr(self.runner, "tasks", None):
            self._record_tasks(entry, tasks, stack)

    def _record_tasks(self, entry: Entry, tasks: Any, stack: contextlib.ExitStack) -> None:
        recorded = {
            task: RecordedProgram(self._sequence, chunk, task.program, stack)
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


class RecordedProgram:
    """Recorder of a program: timestamps of its submissions, and spans of the host's work.

    Attributes:
        moves: the name of each transfer from this program; `paths` has the name of its path.
        arriving: the names of the transfers to this program.

    Args:
        sequence: the entry's order among the others.
        chunk: the chunk, which numbers the spans.
        program: the program.
        stack: frees the timestamps when it closes.
    """

    def __init__(
        self, sequence: RunOrder, chunk: Chunk, program: Program, stack: contextlib.ExitStack
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
            self.moves[value, reader],
            "transfer",
            start,
            chunk=self.label,
            bytes=size,
            after=(f"chunk {self.label}",),
            path=self.paths[value, reader],
        )

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """Record the `with` block as a span: one step of the host around the submission."""
        kind, after, size_bytes = self._facts(what)
        start = Recorder.now()
        yield
        if kind:
            self._sequence.notes.add(
                f"{what} {self.label}", kind, start, chunk=self.label, after=after, bytes=size_bytes
            )

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
