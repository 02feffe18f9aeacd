"""Measurement in turns: every runner has a child of its own, and they alternate in short rounds.

A child that crashes or hangs ends its row, and the run goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from vklab.apps.compare.backend import Availability
from vklab.apps.compare.speed import measure, tasks
from vklab.apps.compare.speed.clocks import Clocks
from vklab.apps.compare.speed.measure import Row, Samples
from vklab.apps.compare.speed.runners.runner import Case, Runner
from vklab.base.worker import Failure, Worker

__all__ = ["Lane", "Pace", "Turns"]

MOST_RUNS, WARM_UP_RUNS, DEVICE_RUNS = 2000, 3, 10
Warm = Callable[[float], object]


@dataclass(frozen=True)
class Pace:
    """Durations of a run.

    Attributes:
        rounds: turns of each runner.
        seconds: time of a turn.
        warm_seconds: time for which the device works before each turn.
        limit: time limit of loading and of a turn, after which a child is killed.
        together: runners that load at the same time; with more than one, loads take longer.
        profiled: whether runners tell their kernels at the end.
    """

    rounds: int = 5
    seconds: float = 0.2
    warm_seconds: float = 0.1
    limit: float = 120.0
    together: int = 1
    profiled: bool = True


class Lane:
    """A runner and its child, which is started again after an end.

    Args:
        runner: the runner.
        limit: time limit of each call.
    """

    def __init__(self, runner: Runner, limit: float) -> None:
        self.runner, self._limit = runner, limit
        self._worker: Worker | None = None
        self._availability: Availability | None = None

    def call(self, function: Any, *arguments: Any) -> Any:
        """Return function(state, *arguments), computed in the child. Raises Failure."""
        if self._worker is None:
            self._worker = Worker(self.runner.environment, self.runner.variables)
        try:
            return self._worker.call(function, *arguments, seconds=self._limit)
        except Failure as failure:
            if failure.ended:
                self.close()
            raise

    def available(self) -> Availability:
        """Return whether the runner can run here; its child is asked once."""
        if self._availability is None:
            try:
                self._availability = self.call(tasks.available, self.runner)
            except Failure as failure:
                reason = f"it cannot be asked: {failure.reason}"
                self._availability = Availability(reason, failure.install)
        return self._availability

    def close(self) -> None:
        """End the child; a later call starts another one."""
        worker, self._worker = self._worker, None
        if worker:
            worker.close()


class Turns:
    """All runners of a run; close it, or use it in a `with` block.

    Args:
        runners: the runners; the first ones are measured first.
        pace: how long to measure.
        clocks: reader of the clocks; None for none.
        warm: occupies the device for some seconds; None for no warm-up.
    """

    def __init__(
        self, runners: Sequence[Runner], pace: Pace, clocks: Clocks | None = None,
        warm: Warm | None = None,
    ) -> None:  # fmt: skip
        self.pace, self._clocks, self._warm = pace, clocks, warm
        self.lanes = {runner.name: Lane(runner, pace.limit) for runner in runners}
        self.versions: dict[str, str] = {}
        self.kernels: dict[str, list[dict[str, Any]]] = {}  # of the last model, by runner

    def ask(self) -> dict[str, Availability]:
        """Start all children at once, and return whether each runner can run here."""
        with ThreadPoolExecutor(max(1, len(self.lanes))) as pool:
            answers = pool.map(Lane.available, self.lanes.values())
        return dict(zip(self.lanes, answers, strict=True))

    def measure(self, case: Case) -> list[Row]:
        """Measure a model on every runner that takes it; absent ones have a row, too."""
        chosen = {n: lane for n, lane in self.lanes.items() if lane.runner.takes(case)}
        rows = {name: _blank(case, lane.runner) for name, lane in chosen.items()}
        samples: dict[str, Samples] = {}
        loading = self._loaded(chosen, case)
        for name, lane in chosen.items():
            if not (answer := lane.available()):
                rows[name] = replace(rows[name], status="absent", reason=answer.reason,
                                     install=answer.install)  # fmt: skip
                continue
            with _failing(rows, name):
                samples[name] = Samples(loading[name].result())
                self.versions |= samples[name].facts["versions"]
        # The times of wrong outputs count nothing.
        alive = [name for name in samples if not samples[name].facts["problem"]]
        for number in range(self.pace.rounds):
            for name in _rotated(alive, number):
                if rows[name].status == "ran":
                    with _failing(rows, name):
                        self._turn(chosen[name], samples[name], number)
        self.kernels = {}
        for name in (name for name in alive if rows[name].status == "ran"):
            with contextlib.suppress(Failure):  # the row is measured already
                # A profile of a chain of additions would only repeat one line.
                told = case.flops and self.pace.profiled
                self.kernels[name] = chosen[name].call(tasks.kernels) if told else []
                chosen[name].call(tasks.close)
        done = [measure.row_of(row, samples.get(name, Samples())) if row.status == "ran" else row
                for name, row in rows.items()]  # fmt: skip
        return measure.compared(done, samples)

    def _loaded(self, chosen: Mapping[str, Lane], case: Case) -> dict[str, Future[dict[str, Any]]]:
        """Load a model in all lanes, and return what became of each."""
        with ThreadPoolExecutor(self.pace.together) as pool:
            loading = {name: pool.submit(_prepared, lane, case) for name, lane in chosen.items()}
            try:
                wait(loading.values())
            except BaseException:  # the user's interrupt
                pool.shutdown(cancel_futures=True)
                raise
        return loading

    def _turn(self, lane: Lane, samples: Samples, number: int) -> None:
        if not number:
            lane.call(tasks.time_runs, self.pace.seconds, WARM_UP_RUNS)
        if self._warm and self.pace.warm_seconds:
            self._warm(self.pace.warm_seconds)
        sampled = self._clocks.sampled(samples.clocks) if self._clocks else contextlib.nullcontext()
        with sampled:
            samples.turns.append(lane.call(tasks.time_runs, self.pace.seconds, MOST_RUNS))
            middle_s = max(min(samples.turns[-1]) / 1e9, 1e-9)
            runs = max(1, min(DEVICE_RUNS, int(self.pace.seconds / middle_s)))
            samples.device.append(lane.call(tasks.device, runs))

    def close(self) -> None:
        """End all children."""
        for lane in self.lanes.values():
            lane.close()

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _prepared(lane: Lane, case: Case) -> dict[str, Any]:
    """Load a model in a runner's child, if it is there, and return what `tasks.prepare` does."""
    if not lane.available():
        return {}
    facts: dict[str, Any] = lane.call(tasks.prepare, lane.runner, case)
    if facts["problem"]:  # its memory is wanted by others
        lane.call(tasks.close)
    return facts


def _blank(case: Case, runner: Runner) -> Row:
    return Row(case.name, runner.name, dtype=runner.dtype,
               compares="device" if case.on_device else "run")  # fmt: skip


def _rotated(names: Sequence[str], number: int) -> list[str]:
    """Return names in another order each turn, so that none always follows the same one."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]


@contextlib.contextmanager
def _failing(rows: dict[str, Row], name: str) -> Iterator[None]:
    """Write a failure into the row of a runner, so that the others go on."""
    try:
        yield
    except Failure as failure:
        rows[name] = replace(rows[name], status=failure.status, reason=failure.reason,
                             install=failure.install)  # fmt: skip
