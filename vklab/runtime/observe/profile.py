"""Where the time of a run goes: per dispatch on the device's own clock, with GB/s and GFLOP/s.

Dispatches run alone between barriers here, so their sum is more than a run takes.
Visited by labs 08 and 18.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from vklab import draw
from vklab.plan.barriers import Copy
from vklab.plan.plan import Plan
from vklab.runtime.engine import Device, Work
from vklab.runtime.parts import Found, Stage
from vklab.runtime.spread import Spread

__all__ = ["Profile", "Row", "Timing", "rows", "steps", "whole"]

Values = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One step: what it is, its median time in nanoseconds, and the work it did."""

    node: str
    kernel: str
    workgroups: tuple[int, int, int]
    size_bytes: int
    flops: int
    time_ns: float

    @property
    def gigabytes_per_second(self) -> float:
        """Return operand bytes over time; above the memory's bandwidth if a cache served them."""
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
        """Return the median cost of a run that is not the device's own time."""
        return median(h - d for h, d in zip(self.host_ns, self.device_ns, strict=True))


@dataclass(frozen=True)
class Profile:
    """The rows of one program on one device; draws itself as a table."""

    device: str
    rows: tuple[Row, ...]
    repeats: int

    @property
    def total_ns(self) -> float:
        """Return the sum of the medians of all steps."""
        return sum(row.time_ns for row in self.rows)

    def node_ns(self) -> dict[str, float]:
        """Return the time of each node, for placement.

        What several nodes are fused to counts for the first, and copies for none: placement knows
        what moves.
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
            (row.node, row.kernel, "x".join(map(str, row.workgroups)), draw.time_text(row.time_ns),
             f"{100 * row.time_ns / max(self.total_ns, 1e-9):.0f} %",
             f"{row.gigabytes_per_second:.2f}", f"{row.gigaflops_per_second:.2f}")
            for row in self.rows
        ]  # fmt: skip

    headers = ("node", "kernel", "workgroups", "time", "share", "GB/s", "GFLOP/s")

    def summary(self) -> dict[str, Any]:
        """Return the profile ready for JSON."""
        return {
            "device": self.device,
            "repeats": self.repeats,
            "total_us": self.total_ns / 1e3,
            "rows": [
                {"node": row.node, "kernel": row.kernel, "workgroups": list(row.workgroups),
                 "time_us": row.time_ns / 1e3, "gb_per_s": row.gigabytes_per_second,
                 "gflop_per_s": row.gigaflops_per_second}
                for row in self.rows
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.device}: {len(self.rows)} steps, {draw.time_text(self.total_ns)}"]
        return "\n".join([*lines, *("  ".join(cells) for cells in self.cells())])

    def _repr_html_(self) -> str:
        return draw.table_html(f"Time by dispatch on {self.device}", self.headers, self.cells())


def rows(root: Stage, values: Values, repeats: int) -> tuple[Row, ...]:
    """Run a model, and time every step of the way that it took."""
    found: list[Row] = []
    for part in _parts(root, values):
        for work, given in _works(part, values):
            samples = work.time_steps(given, repeats)
            columns = zip(*(sample.step_ns for sample in samples), strict=True)
            found += [Row(*step, time_ns=median(column))
                      for step, column in zip(steps(work.program.plan), columns, strict=True)]
        if part.runner and not part.plan:
            name = part.part.graph.nodes[0].name
            found.append(Row(name, str(part.part), (0, 0, 0), 0, 0, _host_ns(part, values)))
    return tuple(found)


def whole(root: Stage, values: Values, repeats: int) -> Timing:
    """Run a model, and time the whole of each part of the way that it took."""
    host_ns, device_ns = [0.0] * repeats, [0.0] * repeats
    for part in _parts(root, values):
        for number in range(repeats if not isinstance(part.runner, Device) else 0):
            host_ns[number] += _host_ns(part, values)
        for work, given in _works(part, values):
            for number, sample in enumerate(work.time_steps(given, repeats, whole=True)):
                if isinstance(work, Device):
                    host_ns[number] += sample.ended_ns - sample.begun_ns
                device_ns[number] += sample.step_ns[0]
    return Timing(tuple(host_ns), tuple(device_ns))


def _parts(root: Stage, values: Values) -> Iterator[Found]:
    """Run once; then yield each part on the way; `values` holds what they find."""
    root.run(values)
    yield from root.walk()


def _works(found: Found, values: Values) -> Iterator[tuple[Work, Values]]:
    """Yield what has timestamps of its own, and what it runs on; stages on what is left there."""
    if isinstance(found.runner, Device):
        yield found.runner, values
    elif isinstance(found.runner, Spread):
        yield from ((chunk, chunk.program.places.inputs) for chunk in found.runner.chunks)


def _host_ns(found: Found, values: Values) -> float:
    start = time.perf_counter_ns()
    if found.runner:
        found.runner.run(values)
    return float(time.perf_counter_ns() - start)


def steps(plan: Plan) -> list[tuple[str, str, tuple[int, int, int], int, int]]:
    """Return node, kernel, workgroups, bytes and operations of every step in order."""
    found = []
    for chunk in plan.chunks:
        for node, step in zip(chunk.nodes, chunk.steps, strict=True):
            if isinstance(step, Copy):
                found.append((node, "copy", (0, 0, 0), 2 * step.source.size_bytes, 0))
            else:
                kernel = dict(step.defines).get("EXPRESSION", step.kernel)
                found.append((node, kernel, step.workgroups, step.size_bytes, step.flops))
    return found
