"""Where the time of a run goes: per dispatch on the device's own clock, with GB/s and GFLOP/s.

Dispatches run alone between barriers here, so their sum is more than a run takes.
Visited by labs 08 and 18.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from vklab import draw
from vklab.plan.chunks import Copy
from vklab.plan.plan import Plan

__all__ = ["Profile", "Row", "Timing", "summarize"]


@dataclass(frozen=True)
class Row:
    """One step: what it is, its median time in nanoseconds, and the work it did."""

    node: str
    kernel: str
    workgroups: tuple[int, int, int]
    time_ns: float
    size_bytes: int
    flops: int

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


def summarize(plan: Plan, samples: Sequence[Sequence[float]]) -> list[Row]:
    """Turn nanoseconds by repeat and step into one row a step."""
    times = [median(column) for column in zip(*samples, strict=True)]
    rows = []
    steps = [
        (node, step)
        for chunk in plan.chunks
        for node, step in zip(chunk.nodes, chunk.steps, strict=True)
    ]
    for (node, step), time_ns in zip(steps, times, strict=True):
        if isinstance(step, Copy):
            rows.append(Row(node, "copy", (0, 0, 0), time_ns, 2 * step.source.size_bytes, 0))
        else:
            kernel = dict(step.defines).get("EXPRESSION", step.kernel)
            rows.append(
                Row(node, kernel, step.workgroups, time_ns, step.size_bytes, step.flops)
            )
    return rows
