"""Tables of `vklab bench`: rows of a run, and which peers are absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vklab.apps.cli import console
from vklab.apps.compare.speed import markdown, record, throughput
from vklab.apps.compare.speed.measure import Row

HEADERS = ("model", "runner", "median", "p05", "p95", "device", "ratio", "x floor", "error",
           "load", "first", "MB", "MHz")  # fmt: skip
GROWTHS = ("model", "plans", "new", "slowest", "again")
RATES = ("model", "mode", "devices", "frames/s", "ratio", "over", "error")


def show(data: Mapping[str, Any]) -> None:
    """Print a recorded run: its machine, a table, rows without times, absent peers."""
    rows = record.rows_of(data)
    for index, run in enumerate(data.get("runs") or [data]):
        own = [row for row in rows if row.run == index]
        console.say_wrapped(markdown.machine(run))
        console.say("whole runs with host arrays in us; `load` and `first` (run) in ms; `ratio`: "
                    "time over vklab's", "dim")  # fmt: skip
        timed = [row for row in own if row.status == "ran"]
        console.table("", HEADERS, [cells(row) for row in timed], " ".join(HEADERS[2:]),
                      "model runner")  # fmt: skip
        failed: dict[tuple[str, str, str], list[str]] = {}
        for row in own:
            if row.status not in ("ran", "absent"):
                failed.setdefault((row.model, row.status, row.reason), []).append(row.runner)
        for (model, status, reason), runners in failed.items():
            console.say_wrapped(f"{model}, {', '.join(runners)}: {status}: {reason}")
        for name, answer in (run.get("peers") or {}).items():
            console.say_wrapped(f"absent: {name}: {answer['reason']}; {answer['install']}")


def cells(row: Row) -> tuple[str, ...]:
    """Return a row of the table."""
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"

    over = row.time_us / row.floor_us if row.time_us and row.floor_us else None
    error = "" if row.max_abs_error is None else f"{row.max_abs_error:.1e}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    megabytes = "" if row.host_bytes is None else f"{row.host_bytes / 1e6:.0f}"
    return (row.model, row.runner, number(row.median_us), number(row.p05_us), number(row.p95_us),
            number(row.device_us), ratio, number(over), error, number(row.load_ms),
            number(row.first_ms), megabytes, str(row.clock_mhz or ""))  # fmt: skip


def rate_cells(row: throughput.Row) -> tuple[str, ...]:
    """Return a row of the table of frames per second."""
    where = " + ".join(map(str, row.devices))
    if row.error:
        return (row.model, row.way, where, "", "", "", row.error)
    return (row.model, row.way, where, f"{row.frames_per_s:.4g}", f"{row.ratio:.2f}", row.over,
            f"{row.max_abs_error:.1e}")  # fmt: skip
