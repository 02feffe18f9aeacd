"""Profile of a run: the time of each dispatch on the device's clock, with GB/s and GFLOP/s.

Dispatches run alone between barriers here, so their sum is more than the time of a run. Visited by
lab 08.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from vklab.base import draw
from vklab.base.draw import charts
from vklab.errors import SetupError
from vklab.plan.barriers import Copy
from vklab.plan.chunk import Chunk
from vklab.runtime.observe import timestamps
from vklab.runtime.observe.timestamps import Sample
from vklab.runtime.plan_cache import Entry, PlanCache
from vklab.runtime.program import Program

Values = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One step of a profile: its node and kernel, its work, and its median time."""

    node: str
    kernel: str
    workgroups: tuple[int, int, int]
    size_bytes: int
    flops: int
    time_ns: float

    @property
    def gigabytes_per_second(self) -> float:
        """Return operand bytes over time in 10^9 a second; above the memory's rate with a cache."""
        return self.size_bytes / self.time_ns if self.time_ns else 0.0

    @property
    def gigaflops_per_second(self) -> float:
        """Return floating-point operations over time, in 10^9 a second."""
        return self.flops / self.time_ns if self.time_ns else 0.0


@dataclass(frozen=True)
class Timing:
    """Nanoseconds of whole runs: on the host's clock, copies included, and on the device's."""

    host_ns: tuple[float, ...]
    device_ns: tuple[float, ...]

    @property
    def overhead_ns(self) -> float:
        """Return the median difference between the host's and the device's time of a run."""
        return median(h - d for h, d in zip(self.host_ns, self.device_ns, strict=True))

    def __str__(self) -> str:
        if not self.host_ns:
            return "no run was timed"
        times = {"host": self.host_ns, "device": self.device_ns}
        texts = [
            f"{name} {draw.time_text(median(values))} "
            f"(95 % {draw.time_text(charts.percentile(values, 95))})"
            for name, values in times.items()
        ]
        return f"{len(self.host_ns)} runs: median {', '.join(texts)}"

    def picture(self) -> str:
        """Return the distribution of the times as SVG, with median and 95th percentile."""
        return charts.histograms(
            str(self), {"host, copies included": self.host_ns, "device": self.device_ns}
        )

    def _repr_html_(self) -> str:
        return self.picture()


@dataclass(frozen=True)
class Profile:
    """Rows of a model's steps in order; shown as a table in a notebook."""

    device: str
    rows: tuple[Row, ...]
    repeats: int

    @property
    def total_ns(self) -> float:
        """Return the sum of the medians of all steps."""
        return sum(row.time_ns for row in self.rows)

    def node_ns(self) -> dict[str, float]:
        """Return the nanoseconds of each node by name, for placement.

        The time of fused nodes counts for the first of them. Copies are left out: placement
        predicts its own.
        """
        times: dict[str, float] = {}
        for row in self.rows:
            names = row.node.split(" + ")
            times |= {name: times.get(name, 0.0) for name in names}
            times[names[0]] += row.time_ns if row.kernel != "copy" else 0.0
        return times

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table as text."""
        return [
            (
                row.node,
                row.kernel,
                "x".join(map(str, row.workgroups)),
                draw.time_text(row.time_ns),
                f"{100 * row.time_ns / max(self.total_ns, 1e-9):.0f} %",
                f"{row.gigabytes_per_second:.2f}",
                f"{row.gigaflops_per_second:.2f}",
            )
            for row in self.rows
        ]

    headers = ("node", "kernel", "workgroups", "time", "share", "GB/s", "GFLOP/s")

    def summary(self) -> dict[str, Any]:
        """Return the profile ready for JSON."""
        return {
            "device": self.device,
            "repeats": self.repeats,
            "total_us": self.total_ns / 1e3,
            "rows": [
                {
                    "node": row.node,
                    "kernel": row.kernel,
                    "workgroups": list(row.workgroups),
                    "time_us": row.time_ns / 1e3,
                    "gb_per_s": row.gigabytes_per_second,
                    "gflop_per_s": row.gigaflops_per_second,
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        lines = [f"{self.device}: {len(self.rows)} steps, {draw.time_text(self.total_ns)}"]
        return "\n".join([*lines, *("  ".join(cells) for cells in self.cells())])

    def _repr_html_(self) -> str:
        return draw.table_html(f"Time by dispatch on {self.device}", self.headers, self.cells())


def profile(session: Any, *inputs: Any, repeats: int = 10) -> Profile:
    """Time every dispatch on the device's own clock.

    Args:
        session: the session.
        inputs: the inputs as in `run`.
        repeats: the number of runs, of which medians are taken, after one warm-up run.
    """
    _require_runs(repeats)
    with timed_arrays(session, inputs) as values:
        root = session.roots[0]
        return Profile(device_names(root.executor.devices), _rows(root, values, repeats), repeats)


def time_runs(session: Any, *inputs: Any, repeats: int = 30) -> Timing:
    """Time whole runs on the host's clock and on the device's, recorded as in a normal run.

    Args:
        session: the session.
        inputs: the inputs as in `run`.
        repeats: the number of runs, after one warm-up run.
    """
    _require_runs(repeats)
    with timed_arrays(session, inputs) as values:
        return _whole(session.roots[0], values, repeats)


def _require_runs(repeats: int) -> None:
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: time at least one run")


def once(root: PlanCache, values: Values) -> Profile:
    """Time every dispatch of one run, for DEBUG=2."""
    return Profile(device_names(root.executor.devices), _rows(root, values, 1), 1)


@contextlib.contextmanager
def timed_arrays(session: Any, inputs: tuple[Any, ...]) -> Iterator[Values]:
    """Block other runs of a session inside the `with`, and yield its checked inputs by name.

    Raises SetupError for a device without timestamps.
    """
    with session.exclusive():
        for state in session.states:
            if not state.opened.device.compute_queue.family.timestamp_valid_bits:
                name = state.opened.info.name
                raise SetupError(f"{name} has no timestamps on its compute queue")
        yield session.arrays(inputs)


def device_names(states: Sequence[Any]) -> str:
    """Return the names of devices as one text."""
    return " and ".join(state.opened.info.name for state in states)


def _rows(root: PlanCache, values: Values, repeats: int) -> tuple[Row, ...]:
    """Run a model, and time every step of the entries of the run."""
    timed: list[Row] = []
    for entry in _entries(root, values):
        for program, given in _programs(entry, values):
            samples = timestamps.time_steps(program, given, repeats)
            columns = zip(*(sample.step_ns for sample in samples), strict=True)
            timed += [
                Row(*step, time_ns=median(column))
                for step, column in zip(steps(program.chunk), columns, strict=True)
            ]
        if entry.runner and not entry.chunks[0].is_on_device:
            chunk = entry.chunks[0]
            label = f"{chunk.kind} chunk of {len(chunk.graph.nodes)} nodes"
            name = chunk.graph.nodes[0].name
            timed.append(Row(name, label, (0, 0, 0), 0, 0, _host_ns(entry, values)))
    return tuple(timed)


def _whole(root: PlanCache, values: Values, repeats: int) -> Timing:
    """Run a model, and time each entry of the run as a whole."""
    host_ns, device_ns = [0.0] * repeats, [0.0] * repeats
    for entry in _entries(root, values):
        is_program = isinstance(entry.runner, Program)
        for number in range(0 if is_program else repeats):
            host_ns[number] += _host_ns(entry, values)
        for program, given in _programs(entry, values):
            samples = timestamps.time_steps(program, given, repeats, whole=True)
            for number, sample in enumerate(samples):
                host_ns[number] += _elapsed_ns(sample) if is_program else 0.0
                device_ns[number] += sample.step_ns[0]
    return Timing(tuple(host_ns), tuple(device_ns))


def _elapsed_ns(sample: Sample) -> int:
    return sample.ended_ns - sample.begun_ns


def _entries(root: PlanCache, values: Values) -> Iterator[Entry]:
    """Run once, add all outputs to `values`, and yield the entries of the run."""
    root.executor.run_in_turn(root, root.find(values), values)
    yield from root.path()


def _programs(entry: Entry, values: Values) -> Iterator[tuple[Program, Values]]:
    """Yield the programs of an entry with their inputs; a group's are those of the last run."""
    if isinstance(entry.runner, Program):
        yield entry.runner, values
    for task in getattr(entry.runner, "tasks", ()):
        yield task.program, task.program.binding.inputs


def _host_ns(entry: Entry, values: Values) -> float:
    start = time.perf_counter_ns()
    if entry.runner:
        entry.runner.run(values)
    return float(time.perf_counter_ns() - start)


def steps(chunk: Chunk) -> list[tuple[str, str, tuple[int, int, int], int, int]]:
    """Return node, kernel, workgroups, bytes and floating-point operations of every step."""
    described = []
    for node, step in zip(chunk.nodes, chunk.steps, strict=True):
        if isinstance(step, Copy):
            described.append((node, "copy", (0, 0, 0), 2 * step.source.size_bytes, 0))
        else:
            kernel = step.define_values.get("EXPRESSION", step.kernel)
            described.append((node, kernel, step.workgroups, step.size_bytes, step.flops))
    return described
