"""Rows of the benchmark: what became of one model on one runner, and how it compares.

Ratios are taken within one run, between rows whose turns alternate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import median
from typing import Any

from vklab.apps.compare.children import timing

# The row that another one is compared with, by its dtype.
BASE = {"float32": "vklab", "tfloat32": "vklab", "float16": "vklab-fp16"}


@dataclass(frozen=True)
class Row:
    """One model on one runner; times are of whole runs, host arrays in and out.

    Attributes:
        model: name of the model.
        runner: name of the runner.
        variant: device and mode in words.
        dtype: dtype of products.
        status: one of `backend.STATUSES`; "wrong" for outputs out of tolerance, whose times count
            nothing.
        reason: why there are no times, or what is wrong.
        install: what would bring an absent runner.
        median_us: median of all runs, and their 5th and 95th percentile.
        device_us: the device's own time, if the runtime tells.
        overhead_us: the rest of a run's time.
        max_abs_error: against the expected outputs.
        load_ms: time of loading, conversion and compilation included.
        first_ms: time of the first run.
        host_bytes: resident memory of the runner's process after the first run.
        floor_us: the least time that the device's roofs allow.
        ratio: time over that of `over`, the median of the turns; device times for products.
        over: the row that `ratio` compares with.
        compares: "run" or "device": the times that ratio and floor are about.
        clock_mhz: median clock of the GPU while the row was measured.
        runs: number of runs.
        run: which run of a gathered file the row belongs to.
    """

    model: str
    runner: str
    variant: str = ""
    dtype: str = "float32"
    status: str = "ran"
    reason: str = ""
    install: str = ""
    median_us: float | None = None
    p05_us: float | None = None
    p95_us: float | None = None
    device_us: float | None = None
    overhead_us: float | None = None
    max_abs_error: float | None = None
    load_ms: float | None = None
    first_ms: float | None = None
    host_bytes: int | None = None
    floor_us: float | None = None
    ratio: float | None = None
    over: str = ""
    compares: str = "run"
    clock_mhz: int | None = None
    runs: int = 0
    run: int = 0

    @property
    def time_us(self) -> float | None:
        """Return the time that ratio and floor are about."""
        return self.device_us if self.compares == "device" else self.median_us

    def summary(self) -> dict[str, Any]:
        """Return the row ready for JSON."""
        return asdict(self)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Row:
        """Return the row of a recorded file; keys of other versions are left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})


@dataclass
class Samples:
    """Measurements of one model on one runner.

    Attributes:
        facts: what `tasks.load` returned.
        turns: nanoseconds of whole runs, a list for each turn.
        device: nanoseconds on the device, a list for each turn.
        clocks: clocks in MHz.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    turns: list[list[int]] = field(default_factory=list)
    device: list[list[float]] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)


def row_of(row: Row, samples: Samples) -> Row:
    """Return a row with the times of its samples; `row` says which row, and how it compares."""
    known: dict[str, Any] = {
        key: samples.facts.get(key)
        for key in ("load_ms", "first_ms", "host_bytes", "max_abs_error")
    }
    row = replace(row, variant=samples.facts.get("variant", row.variant), **known)
    if samples.facts.get("problem"):
        row = replace(row, status="wrong", reason=samples.facts["problem"])
    times = [ns for turn in samples.turns for ns in turn]
    if not times:
        return row
    p05, middle, p95 = timing.percentiles_us(times, 5, 50, 95)
    device = [ns / 1e3 for turn in samples.device for ns in turn]
    device_us = median(device) if device else None
    return replace(
        row,
        median_us=middle,
        p05_us=p05,
        p95_us=p95,
        runs=len(times),
        device_us=device_us,
        overhead_us=None if device_us is None else max(middle - device_us, 0.0),
        clock_mhz=int(median(samples.clocks)) if samples.clocks else None,
    )


def compared(rows: Sequence[Row], samples: Mapping[str, Samples]) -> list[Row]:
    """Return the rows of one model with their ratios.

    Args:
        rows: the rows of one run.
        samples: the samples by runner.
    """
    ran = {row.runner: row for row in rows if row.status == "ran" and row.time_us}
    made = []
    for row in rows:
        wanted = BASE.get(row.dtype, "vklab")
        base = wanted if wanted in ran and wanted != row.runner else "vklab"
        if row.runner not in ran or base not in ran:
            made.append(row)
            continue
        own, other = (_of_turns(ran[name], samples[name]) for name in (row.runner, base))
        ratios = [a / b for a, b in zip(own, other, strict=False) if b]
        made.append(replace(row, ratio=median(ratios), over=base) if ratios else row)
    return made


def _of_turns(row: Row, samples: Samples) -> list[float]:
    """Return the median of each turn."""
    turns: Sequence[Sequence[float]]
    turns = samples.device if row.compares == "device" else samples.turns
    return [median(turn) for turn in turns if turn]


def with_floors(rows: Sequence[Row], floors: Mapping[tuple[str, str], float]) -> list[Row]:
    """Return rows with the floors by (model, runner)."""
    return [replace(row, floor_us=floors.get((row.model, row.runner))) for row in rows]
