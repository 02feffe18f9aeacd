"""Recorded runners: they run an entry as its own runner does, and note every step.

Visited by labs 12 and 18.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vklab.plan.chunk import Chunk
from vklab.runtime.observe import timestamps
from vklab.runtime.observe.notes import RUN, Names, Notes
from vklab.runtime.plan_cache import Entry
from vklab.runtime.program import Program
from vklab.trace import Recorder

__all__ = ["RecordedProgram", "RecordedRunner", "RunOrder"]


class RunOrder:
    """The place of an entry in the runs: it begins after what others ended with last.

    Attributes:
        before: the entries that it waits for; of the first, those that ended the run before.
    """

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.before: Sequence[RunOrder] = ()
        self._last: Names = ()

    @property
    def behind(self) -> Names:
        """Return the names of the spans with which all predecessors ended."""
        return tuple(name for other in self.before for name in other._last)

    def end(self, *names: str) -> None:
        """Note the spans with which the entry ended."""
        self._last = tuple((RUN.get(), name) for name in names)


class RecordedRunner:
    """The runner of an entry, with notes: its programs have recorders in their place."""

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
        """Return the bodies of a control node; AttributeError for all others."""
        return self.runner.bodies

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once, with notes."""
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
        """Begin a run of the only program, without waiting."""
        (program,) = self._programs
        program.prepare()
        program.begin(values)

    def finish(self) -> Mapping[str, Any]:
        """Wait for a run that was started."""
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
    """A program whose submissions have timestamps, and the host's steps around it.

    Attributes:
        moves: the name of each transfer from here, by value and reader; `paths` tells its path.
        arriving: the names of transfers to this program.
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
        """Note what the device did in the run that is complete."""
        self._sequence.notes.see(self.label, self.program, self._timed.sample(), self.behind)

    def begin(self, values: Mapping[str, Any]) -> None:
        """Copy in and submit."""
        with self._noted("copy in"):
            self.program.binding.copy_in(values)
        with self._noted("submit"):
            self.program.submit(self._timed.submission)

    def wait(self) -> None:
        """Wait for what was submitted."""
        with self._noted("wait"):
            self.program.wait()

    def copy_out(self) -> dict[str, Any]:
        """Copy the outputs out."""
        with self._noted("copy out"):
            return self.program.copy_out()

    @contextlib.contextmanager
    def moving(self, value: str, reader: Any) -> Iterator[None]:
        """Note the block, which moves a value to the program that reads it."""
        start = Recorder.now()
        yield
        size = self.program.chunk.output_slots[value].size_bytes
        self._sequence.notes.add(
            self.moves[value, reader], "transfer", start, chunk=self.label, bytes=size,
            after=(f"chunk {self.label}",), path=self.paths[value, reader],
        )  # fmt: skip

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """Note the block: a step around the program."""
        kind, after, size_bytes = self._facts(what)
        start = Recorder.now()
        yield
        if kind:
            self._sequence.notes.add(f"{what} {self.label}", kind, start, chunk=self.label,
                                     after=after, bytes=size_bytes)  # fmt: skip

    def _facts(self, what: str) -> tuple[str, Names, int]:
        """Return kind, predecessors and bytes of a step; no kind if there was nothing to do."""
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
