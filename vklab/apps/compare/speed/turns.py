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
from vklab.apps.compare.children import timing
from vklab.apps.compare.children.child import Child
from vklab.apps.compare.speed import measure, tasks
from vklab.apps.compare.speed.clocks import Clocks
from vklab.apps.compare.speed.measure import Row, Samples
from vklab.apps.compare.speed.runners.runner import Case, Runner
from vklab.base.worker import Failure

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
        self.children = {runner.name: Child(runner, pace.limit) for runner in runners}
        self.versions: dict[str, str] = {}
        self.kernels: dict[str, list[dict[str, Any]]] = {}  # of the last model, by runner

    def ask(self) -> dict[str, Availability]:
        """Start all children at once, and return whether each runner can run here."""
        with ThreadPoolExecutor(max(1, len(self.children))) as pool:
            answers = pool.map(Child.available, self.children.values())
        return dict(zip(self.children, answers, strict=True))

    def measure(self, case: Case) -> list[Row]:
        """Measure a model on every runner that takes it; absent ones have a row, too."""
        chosen = {n: child for n, child in self.children.items() if child.runtime.takes(case)}
        rows = {name: _blank(case, child.runtime) for name, child in chosen.items()}
        samples: dict[str, Samples] = {}
        loading = self._loaded(chosen, case)
        for name, child in chosen.items():
            if not (answer := child.available()):
                rows[name] = replace(
                    rows[name], status="absent", reason=answer.reason, install=answer.install
                )
                continue
            with _failing(rows, name):
                samples[name] = Samples(loading[name].result())
                self.versions |= samples[name].facts["versions"]
        # The times of wrong outputs count nothing.
        alive = [name for name in samples if not samples[name].facts["problem"]]
        for number, name in timing.alternating(alive, self.pace.rounds):
            if rows[name].status == "ran":
                with _failing(rows, name):
                    self._turn(chosen[name], samples[name], number)
        self.kernels = {}
        for name in (name for name in alive if rows[name].status == "ran"):
            with contextlib.suppress(Failure):  # the row is measured already
                # A profile of a chain of additions would only repeat one line.
                told = case.flops and self.pace.profiled
                self.kernels[name] = chosen[name].call(tasks.kernels) if told else []
                chosen[name].free()
        done = [
            measure.row_of(row, samples.get(name, Samples())) if row.status == "ran" else row
            for name, row in rows.items()
        ]
        return measure.compared(done, samples)

    def _loaded(
        self, chosen: Mapping[str, Child[Runner]], case: Case
    ) -> dict[str, Future[dict[str, Any]]]:
        """Load a model in all children, and return what became of each."""
        with ThreadPoolExecutor(self.pace.together) as pool:
            loading = {name: pool.submit(_prepared, child, case) for name, child in chosen.items()}
            try:
                wait(loading.values())
            except BaseException:  # the user's interrupt
                pool.shutdown(cancel_futures=True)
                raise
        return loading

    def _turn(self, child: Child[Runner], samples: Samples, number: int) -> None:
        if not number:
            child.call(tasks.time_runs, self.pace.seconds, WARM_UP_RUNS)
        if self._warm and self.pace.warm_seconds:
            self._warm(self.pace.warm_seconds)
        sampled = self._clocks.sampled(samples.clocks) if self._clocks else contextlib.nullcontext()
        with sampled:
            samples.turns.append(child.call(tasks.time_runs, self.pace.seconds, MOST_RUNS))
            middle_s = max(min(samples.turns[-1]) / 1e9, 1e-9)
            runs = max(1, min(DEVICE_RUNS, int(self.pace.seconds / middle_s)))
            samples.device.append(child.call(tasks.device, runs))

    def close(self) -> None:
        """End all children."""
        for child in self.children.values():
            child.close()

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _prepared(child: Child[Runner], case: Case) -> dict[str, Any]:
    """Load a model in a runner's child, if it is there, and return what `tasks.load` does."""
    if not child.available():
        return {}
    child.start()
    facts: dict[str, Any] = child.call(tasks.load, child.runtime, case)
    if facts["problem"]:  # its memory is wanted by others
        child.free()
    return facts


def _blank(case: Case, runner: Runner) -> Row:
    return Row(
        case.name, runner.name, dtype=runner.dtype, compares="device" if case.on_device else "run"
    )


@contextlib.contextmanager
def _failing(rows: dict[str, Row], name: str) -> Iterator[None]:
    """Write a failure into the row of a runner, so that the others go on."""
    try:
        yield
    except Failure as failure:
        rows[name] = replace(
            rows[name], status=failure.status, reason=failure.reason, install=failure.install
        )
