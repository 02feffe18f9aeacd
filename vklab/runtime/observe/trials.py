"""Programs of one model with different kernels, timed in turn: the candidates of `tuning`.

With timestamps each dispatch has a time of its own, so that one program tries a candidate of every
class of products. Without them whole runs are timed, and a program tries one candidate.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from vklab.errors import OutOfMemoryError, PlanError, ShaderError, VulkanError
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.options import Facts
from vklab.plan.tuning import candidates
from vklab.plan.tuning.problems import Problem
from vklab.plan.tuning.tiles import Choice
from vklab.runtime import kernels
from vklab.runtime.buffers import BufferPool
from vklab.runtime.observe import timestamps
from vklab.runtime.program import Program
from vklab.types import DeviceInfo, Dispatch

# Passes over all candidates, the fewest of which a choice is made, and whole runs at the end.
MOST_PASSES, LEAST_PASSES, WHOLE_RUNS = 20, 3, 20
# Passes that leave out slow choices: those beyond NEAR times the fastest, and beyond MOST_NEAR.
SCREENING, NEAR, MOST_NEAR = 2, 1.5, 6
# Seconds of runs before the first sample, for the clocks of a GPU to settle.
WARM_S = 1.0
# Parts of the time limit: until when programs are made, and until when candidates are timed.
MAKING, TIMING = 0.5, 0.85
# Called as (done, of, what is done).
Advance = Callable[[int, int, str], None]
Choices = Mapping[str, Choice]


class Whole(NamedTuple):
    """Whole runs with the expected choices (before) and with the fastest ones (after).

    Attributes:
        before_ns: the median time; 0 if none was measured.
        after_ns: the median time.
        is_slower: True if the shortest run became longer, too.
        difference: the largest difference of an output, as a share of its largest element.
    """

    before_ns: float = 0.0
    after_ns: float = 0.0
    is_slower: bool = False
    difference: float = 0.0


class Survey(Mapping[str, Choice]):
    """Choices by class, all of them the expected one, that note which classes are asked for."""

    def __init__(self) -> None:
        self.problems: dict[str, Problem] = {}

    def __getitem__(self, problem: Any) -> Choice:
        self.problems.setdefault(problem, problem)
        return candidates.EXPECTED

    def __iter__(self) -> Iterator[str]:
        return iter(self.problems)

    def __len__(self) -> int:
        return 1 + len(self.problems)  # never empty: a plan without choices asks for none


@dataclass
class Trial:
    """Programs of a model with one choice for each class, and the times of its classes.

    Attributes:
        choices: the choice of every class.
        parts: each device chunk's program with its input values.
        timed: the recordings with timestamps; empty for the host's clock.
    """

    choices: dict[str, Choice]
    parts: list[tuple[Program, Mapping[str, Any]]] = field(default_factory=list)
    timed: list[timestamps.Timed] = field(default_factory=list)

    def record(self, stack: contextlib.ExitStack, whole: bool = False) -> None:
        """Record the programs with timestamps, until the stack closes."""
        self.timed = [
            stack.enter_context(timestamps.timed(program, whole)) for program, _ in self.parts
        ]

    def run(self) -> tuple[float, dict[str, float]]:
        """Run once; return the time of all steps, and of the dispatches of each class."""
        total, by_class = 0.0, dict[str, float]()
        for number, (program, values) in enumerate(self.parts):
            program.prepare()
            program.binding.copy_in(values)
            begun = time.perf_counter_ns()
            program.submit(self.timed[number].submission if self.timed else None)
            program.wait()
            if not self.timed:
                total += time.perf_counter_ns() - begun
                continue
            spans = self.timed[number].sample().step_ns
            total += sum(spans)
            for step, span in zip(program.chunk.steps, spans, strict=False):
                if isinstance(step, Dispatch) and step.measured:
                    by_class[step.measured] = by_class.get(step.measured, 0.0) + span
        return total, by_class

    def outputs(self) -> list[np.ndarray]:
        """Run once, and return the outputs of all programs."""
        found: list[np.ndarray] = []
        for program, values in self.parts:
            found += program.run(values).values()
        return found

    def steps(self) -> Iterator[tuple[str, Dispatch]]:
        """Yield the node and the dispatch of every product that has a class."""
        for program, _ in self.parts:
            chunk = program.chunk
            for node, step in zip(chunk.nodes, chunk.steps, strict=True):
                if isinstance(step, Dispatch) and step.measured:
                    yield node, step


class Trials:
    """All trials of one session, in one pool of buffers, on one device.

    Args:
        session: the session; its other runs are blocked.
        values: the inputs by name.
        limit_s: the seconds that all measurements may take.
        progress: called after each step.
        compiling: called as (done, of, kernel) while kernels compile.
    """

    def __init__(
        self, session: Any, values: dict[str, Any], limit_s: float, progress: Advance,
        compiling: kernels.Progress | None,
    ) -> None:  # fmt: skip
        self.state = session.states[0]
        self.info: DeviceInfo = self.state.opened.info
        self.begun, self.limit_s = time.monotonic(), limit_s
        self.progress, self.compiling = progress, compiling
        self.stack = contextlib.ExitStack()
        self.pool = BufferPool(self.state.opened)
        self.stack.callback(self.pool.close)
        root = session.roots[0]
        root.executor.run_in_turn(root, root.find(values), values)
        runners = [entry.runner for entry in root.path()]
        self.chunks = [each.chunk for each in runners if isinstance(each, Program)]
        self.values = values
        self.trials: list[Trial] = []
        self.notes: dict[str, None] = {}
        # For each class and choice the times of its dispatches, one for each pass.
        self.samples: dict[tuple[str, Choice], list[float]] = defaultdict(list)
        self.tried: dict[str, set[Choice]] = defaultdict(set)
        self.passes = 0

    @property
    def has_clock(self) -> bool:
        """Tell whether the device has timestamps; else whole runs are timed by the host's clock."""
        return bool(self.state.opened.device.compute_queue.family.timestamp_valid_bits)

    def is_late(self, part: float) -> bool:
        """Tell whether a part of the time limit has passed."""
        return time.monotonic() - self.begun > part * self.limit_s

    def survey(self) -> dict[str, list[Choice]]:
        """Return the choices to measure for each class of the model."""
        survey = Survey()
        for chunk in self.chunks:
            self.lowered(chunk, survey)
        tables = {
            name: candidates.choices(each, self.info) for name, each in survey.problems.items()
        }
        return {name: table for name, table in tables.items() if len(table) > 1}

    def lowered(self, chunk: Chunk, choices: Choices) -> Chunk:
        """Return a chunk as a new session with these choices would lower it."""
        # One entry for each device number, up to that of the chunk.
        resident = (frozenset[str](),) * (chunk.device + 1)
        each = (choices,) * (chunk.device + 1)
        facts = Facts(resident, each, kernel_refusal=kernels.unavailable)
        return plans.lower_rewritten(chunk, self.info, facts)

    def add(self, choices: dict[str, Choice]) -> Trial | None:
        """Make the programs for some choices; None, with a note, if the device cannot."""
        trial = Trial(choices)
        try:
            for chunk in self.chunks:
                program = Program(
                    self.state, self.lowered(chunk, choices), self.pool, self.compiling
                )
                self.stack.callback(program.close)
                trial.parts.append((program, self.values))
        except (OutOfMemoryError, PlanError, ShaderError, VulkanError) as error:
            if not self.trials:
                raise
            self.notes[f"some candidates could not be made: {error}"] = None
            return None
        self.trials.append(trial)
        return trial

    def measure(self, tables: Mapping[str, Sequence[Choice]]) -> None:
        """Time all choices of each class, then those near the fastest again, more often.

        Args:
            tables: the choices of each class, the expected one first.
        """
        # A CPU runs slow choices for seconds: once is enough to leave them out.
        self._time(self._make(tables, MAKING), 0 if self.info.is_cpu else SCREENING, 0)
        near = {name: self._near(name) for name in tables}
        self.samples.clear()
        self._time(self._make(near, TIMING), MOST_PASSES)

    def _near(self, name: str) -> list[Choice]:
        """Return the choices of a class that come near the fastest, the expected one first."""
        shortest = {
            choice: min(times) for (each, choice), times in self.samples.items() if each == name
        }
        limit = NEAR * min(shortest.values(), default=0.0)
        near = [choice for choice, time_ns in shortest.items() if choice[0] and time_ns <= limit]
        return [candidates.EXPECTED, *sorted(near, key=lambda each: shortest[each])[:MOST_NEAR]]

    def _make(self, tables: Mapping[str, Sequence[Choice]], part: float) -> list[Trial]:
        """Return trials of these choices, that of the expected ones first.

        Args:
            tables: the choices of each class, the expected one first.
            part: the part of the time limit after which only one more is made.
        """
        wanted = list(_assignments(tables, self.has_clock))
        made = [self.trials[0] if self.trials else self.add(wanted[0])]
        for number, choices in enumerate(wanted[1:], 2):
            if number > 2 and self.is_late(part):
                self.notes[
                    f"the time limit left out {len(wanted) - number + 1} of {len(wanted)} "
                    "programs; raise --limit for more candidates"
                ] = None
                break
            made.append(self.add(choices))
            self.progress(number, len(wanted), "making programs")
        return [trial for trial in made if trial]

    def _time(self, trials: Sequence[Trial], passes: int, warming: int = 1) -> None:
        """Time trials in turn, pass after pass.

        Args:
            trials: the trials.
            passes: the passes after the first one.
            warming: the number of passes at the beginning whose times do not count.
        """
        with contextlib.ExitStack() as stack:
            if self.has_clock:
                for trial in trials:
                    trial.record(stack)
            settled = time.monotonic() + min(WARM_S, self.limit_s / 20)
            while not self.info.is_cpu and time.monotonic() < settled:
                trials[0].run()
            for number in range(passes + 1):
                # Every second pass goes backwards, so that drifting clocks favour no candidate.
                for trial in trials[:: -1 if number % 2 else 1]:
                    if number > 1 and self.is_late(TIMING):
                        return
                    self._note(trial, trial.run(), number >= warming)
                self.passes = number
                self.progress(number, passes, "timing candidates")

    def _note(self, trial: Trial, times: tuple[float, dict[str, float]], counts: bool) -> None:
        total, by_class = times
        changed = [name for name, choice in trial.choices.items() if choice[0]]
        for name, choice in trial.choices.items() if counts else ():
            if self.has_clock:
                self.samples[name, choice].append(by_class.get(name, 0.0))
            elif not changed or name in changed:  # a whole run, with one change at most
                self.samples[name, choice].append(total)
            self.tried[name].add(choice)

    def whole(self, best: Choices) -> Whole:
        """Time whole runs with the expected choices and with the best ones, in turn."""
        before = self.trials[0]
        after = self.add({**before.choices, **best})
        if after is None:
            return Whole()
        times: tuple[list[float], list[float]] = [], []
        with contextlib.ExitStack() as stack:
            for trial in (before, after):
                trial.timed = []
                if self.has_clock:
                    trial.record(stack, whole=True)
            for number in range(WHOLE_RUNS + 1):
                if number > LEAST_PASSES and self.is_late(1):
                    break
                for trial, found in zip((before, after), times, strict=True):
                    found.append(trial.run()[0])
                self.progress(number, WHOLE_RUNS, "timing the whole model")
        difference = max(map(_difference, before.outputs(), after.outputs()), default=0.0)
        is_slower = min(times[1]) > min(times[0])
        return Whole(median(times[0][1:]), median(times[1][1:]), is_slower, difference)


def _assignments(
    tables: Mapping[str, Sequence[Choice]], has_clock: bool
) -> Iterator[dict[str, Choice]]:
    """Yield a choice for every class, first the expected ones only.

    With timestamps every class has a time of its own, so one program tries a candidate of each. On
    the host's clock only whole runs have times, so each program tries one candidate.
    """
    expected = dict.fromkeys(tables, candidates.EXPECTED)
    yield expected
    for number in range(1, max(map(len, tables.values()))):
        found = {name: table[number] for name, table in tables.items() if number < len(table)}
        if has_clock:
            yield {**expected, **found}
        else:
            yield from ({**expected, name: choice} for name, choice in found.items())


def _difference(before: np.ndarray, after: np.ndarray) -> float:
    """Return the largest difference as a share of the largest element; NaN counts as itself."""
    if before.dtype.kind not in "fiub" or not before.size:
        return 0.0
    a, b = before.astype(np.float64), after.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    most = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return float(np.abs(a - b)[~same].max() / max(most, 1e-30))
