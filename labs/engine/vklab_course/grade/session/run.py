"""Run of one submission: its cells in a sandboxed kernel, its exercises judged outside.

A kernel that dies or hangs is replaced; the cells before are executed again, without the one that
killed it, and the next exercise goes on.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vklab_course import words
from vklab_course.children import child
from vklab_course.children.kernel_answers import KernelAnswers
from vklab_course.counting.observe import PINNED
from vklab_course.definition.case import Case
from vklab_course.definition.codec import CodecError
from vklab_course.definition.draw import draw, public_cases
from vklab_course.definition.exercise import Exercise
from vklab_course.grade.sandbox.base import Sandbox
from vklab_course.grade.session.kernel import GradedKernel, KernelEnded
from vklab_course.grade.session.marks import MESSAGES, PartsAnswers, RemoteAnswers, entry, marked
from vklab_course.limits import LimitReached

__all__ = ["Job", "Run", "expression_of"]

# Processor time of a cell; an answer has its exercise's seconds. The wall limits are generous.
CELL_S, WALL_FACTOR = 60.0, 4.0
ANSWER_FACTOR, ANSWER_SPARE_S = 2.0, 2.0
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Job:
    """Instructions of a session, from a file that only its process can read.

    Attributes:
        exercises: the definitions by id.
        secret: text that seeds the cases; "" for the public cases.
        skipped: exercises that were skipped before the submission was read, with the reason.
        times: processor seconds of the reference's answers by exercise, where known.
        wall_seconds: time limit of the whole session.
        cell_seconds: processor time of one cell.
        spare_seconds: time that a piece of work may wait beside four times its processor time.
        sandbox: where the submission's code runs.
        private: folder outside the sandbox.
    """

    exercises: Mapping[str, Exercise]
    secret: str
    sandbox: Sandbox
    private: Path
    skipped: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    wall_seconds: float = 900.0
    cell_seconds: float = CELL_S
    spare_seconds: float = 20.0


class Run:
    """State of one submission: its kernel, the cells executed so far, and the results."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.kernel: GradedKernel | None = None
        self.sources: list[str] = []
        self.problems: dict[str, str] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.cells: dict[str, dict[str, str]] = {}
        self.cpu_seconds, self.starts = 0.0, 0
        self.ends = time.monotonic() + job.wall_seconds

    # ---------------------------------------------------------------------------------- cells

    def execute(self, cell: Mapping[str, Any], run: Callable[[], None]) -> None:
        """Execute a cell of the submission by nbval; record ran, raised, or how the kernel ended.

        Args:
            cell: the cell.
            run: nbval's execution of the cell.
        """
        identifier = str(cell.get("metadata", {}).get("vklab", {}).get("id", ""))
        key, status, said = str(cell.get("id", "")), "ran", ""
        try:
            self._execute(run)
            self.sources.append(cell["source"])
        except KernelEnded as ended:
            status, said = ended.status, f"the cell {ended}"
        except Exception as error:
            status, said = "raised", _last_line(error)
            self.sources.append(cell["source"])
            if self.kernel is not None and not self.kernel.is_alive():
                status = "error"
                self.sources.pop()
        self.cells[key] = {"status": status, "message": said}
        if said and identifier:
            self.problems[identifier] = said
            self._statuses(identifier, status)

    def _execute(self, run: Callable[[], None]) -> None:
        """Execute a cell; once more, in a fresh kernel, if an earlier answer may have hurt it."""
        kernel = self.living()
        try:
            self._allow(kernel, self.job.cell_seconds)
            run()
        except KernelEnded:
            if not kernel.asked:
                raise
            self._allow(self.living(), self.job.cell_seconds)
            run()

    def _statuses(self, identifier: str, status: str) -> None:
        self.cells[f"exercise {identifier}"] = {"status": status, "message": ""}

    def living(self) -> GradedKernel:
        """Return a kernel with every cell so far; replace one that has ended."""
        if self.kernel is not None and self.kernel.is_alive():
            return self.kernel
        self.end()
        while True:
            self._check_clock()
            self.starts += 1
            kernel = GradedKernel(self.job.sandbox, self.job.private / f"kernel-{self.starts}")
            self.kernel = kernel
            source = ""
            try:
                for source in self.sources:
                    self._allow(kernel, self.job.cell_seconds)
                    kernel.run(source)
                return kernel
            except KernelEnded:
                self.sources.remove(source)  # it ran once, and ends its kernel now
                self.end()

    def _allow(self, kernel: GradedKernel, cpu_seconds: float) -> None:
        wall = WALL_FACTOR * cpu_seconds + self.job.spare_seconds
        kernel.allow(cpu_seconds, max(1.0, min(wall, self.ends - time.monotonic())))

    def _check_clock(self) -> None:
        if time.monotonic() > self.ends:
            raise KernelEnded("timeout", "was not run: the submission's time limit had passed")
        if self.starts > 5 + sum(2 + len(one.parts) for one in self.job.exercises.values()):
            raise KernelEnded("error", "was not run: the submission ended too many kernels")

    def end(self) -> None:
        """End the kernel."""
        if self.kernel is not None:
            self.cpu_seconds += self.kernel.watch.cpu_seconds()
            self.kernel.end()
        self.kernel = None

    # -------------------------------------------------------------------------------- checks

    def check(self, cell: Mapping[str, Any]) -> None:
        """Judge the exercise of a check cell; nothing of the cell is executed."""
        identifier = str(cell["metadata"]["vklab"]["id"])
        exercise = self.job.exercises.get(identifier)
        if exercise is None or not exercise.marked or identifier in self.results:
            return
        began, used = time.monotonic(), self._used()
        try:
            result = self._result(exercise, expression_of(cell["source"]))
        except Exception as error:  # of a definition: it must not cost the other exercises
            said = f"the check could not be completed ({type(error).__name__}: {error})"
            result = entry(exercise, "error", said[:500])
        except LimitReached as limit:
            result = entry(exercise, "error", f"the check of your answer did not end: {limit}")
        result["seconds"] = round(time.monotonic() - began, 3)
        result["cpu_seconds"] = round(self._used() - used, 3)
        self.results[identifier] = result

    def _used(self) -> float:
        return self.cpu_seconds + (self.kernel.watch.cpu_seconds() if self.kernel else 0.0)

    def _result(self, exercise: Exercise, expression: str) -> dict[str, Any]:
        if exercise.id in self.job.skipped:
            return entry(exercise, "skipped", self.job.skipped[exercise.id])
        if exercise.takes == "text":
            return entry(exercise, "needs_hand_marking", "")
        cases = draw(exercise, self.job.secret) if self.job.secret else public_cases(exercise)
        ask = self._remote(exercise, expression, 1)
        try:
            answers: Any = ask()
            result = self._judged(exercise, answers, cases)
            late = answers.late
        except KernelEnded as ended:
            result, late = entry(exercise, ended.status, f"your answer {ended}"), False
            if exercise.takes != "kernel":
                result = self._judged(exercise, PartsAnswers(ask), cases)
        if late:
            self.end()  # once more, alone: a fresh kernel, and twice the time
            answers = PartsAnswers(self._remote(exercise, expression, 2))
            result = self._judged(exercise, answers, cases)
            self.end()  # what is still running must not hurt the next exercise
        problem = self.problems.get(exercise.id)
        if problem and result["status"] not in ("passed", "partial"):
            result["messages"] = [
                f"the cell of the answer did not run: {problem}"[:1000],
                *result["messages"],
            ][:MESSAGES]
            how = self.cells.get(f"exercise {exercise.id}", {}).get("status", "")
            if how in ("timeout", "out_of_memory") and result["status"] == "error":
                result["status"] = how
        return result

    def _remote(
        self, exercise: Exercise, expression: str, times: int
    ) -> Callable[[], RemoteAnswers]:
        """Return a function that gives the answer in a living kernel, with its limits of time."""
        seconds = times * max(exercise.seconds, 10 * self.job.times.get(exercise.id, 0.0))

        def remote() -> RemoteAnswers:
            kernel = self.living()
            self._allow(kernel, ANSWER_FACTOR * seconds + ANSWER_SPARE_S)
            return RemoteAnswers(
                lambda request: kernel.ask(request, expression),
                seconds,
                "value" if exercise.takes == "kernel" else "",
            )

        return remote

    def _judged(self, exercise: Exercise, answers: Any, cases: list[Case]) -> dict[str, Any]:
        if exercise.takes == "kernel":
            answers = _Text(answers, self.job)
        try:
            return marked(exercise, answers, cases)
        except (CodecError, ValueError, RecursionError) as error:
            self.end()
            return entry(exercise, "error", f"what came back cannot be read: {error}")


class _Text:
    """A kernel's text from the notebook, judged on a device in a second sandbox."""

    def __init__(self, remote: RemoteAnswers, job: Job) -> None:
        self.remote, self.job = remote, job

    @property
    def missing(self) -> str:
        return self.remote.missing

    def ask(self, exercise: Exercise, cases: Any) -> Any:
        """Fetch the text once, then dispatch it on every case."""
        (text,), printed = self.remote.ask(exercise, [Case()])
        if text.how != "returned" or type(text.value) is not str:
            how = text.how if text.how == "not_attempted" else "refused"
            said = text.message or "the answer is no text of a kernel"
            return [type(text)(how, message=said)] * len(cases), ""
        with child.started_by(self.job.sandbox, self.job.private / "device"):
            answers = KernelAnswers(text.value[:1_000_000], variables=PINNED)
            return answers.ask(exercise, cases)[0], printed


def expression_of(source: str) -> str:
    """Return the answer that a check cell of the release names: `f` of `check("03-2", f)`."""
    for node in ast.walk(ast.parse(source)):
        is_check = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("check")
        if is_check and isinstance(node, ast.Call) and len(node.args) > 1:
            return ast.unparse(node.args[1])
    return "None"


def _last_line(error: Exception) -> str:
    text = str(getattr(error, "inner_traceback", None) or error)
    lines = [line for line in ANSI.sub("", text).splitlines() if line.strip()]
    return words.whole((lines[-1] if lines else type(error).__name__)[:500])
