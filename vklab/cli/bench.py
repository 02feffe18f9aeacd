"""`vklab bench`: how long the benchmark models take, beside the other runtimes."""

from __future__ import annotations

from typing import Annotated

import typer

from vklab.bench import measure, models
from vklab.cli import console
from vklab.cli.inputs import Device, DType
from vklab.runtime import open_devices

__all__ = ["bench"]

HEADERS = ("model", "runner", "median", "p05", "p95", "device", "overhead", "error", "first")


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help=f"Files, or among {', '.join(models.MODELS)}; "
                       f"default {' '.join(measure.FIVE)}.", show_default=False),
    ] = None,
    runner: Annotated[
        list[str] | None,
        typer.Option(help=f"Among {', '.join(measure.RUNNERS)}; default all.", show_default=False),
    ] = None,
    device: Device = None,
    dtype: DType = None,
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:  # fmt: skip
    """Measure the benchmark models; whole runs, host arrays in and out."""
    unknown = [name for name in runner or () if name not in measure.RUNNERS]
    if unknown:
        known = ", ".join(measure.RUNNERS)
        raise typer.BadParameter(f"no runner {unknown[0]!r}; there are {known}")
    info = open_devices.select(device)
    runners = runner or measure.RUNNERS
    rows = list(measure.measure_all(names or measure.FIVE, runners, device, dtype))
    if as_json:
        machine = {"device": info.name, "driver": info.driver, "type": info.type}
        console.emit({"machine": machine, "rows": [row.summary() for row in rows]})
        return
    console.say(str(info), "bold")
    console.say("whole runs, host arrays in and out; times in us, the first run's in ms", "dim")
    console.table("", HEADERS, [_cells(row) for row in rows], " ".join(HEADERS[2:]), "model runner")


def _cells(row: measure.Row) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"

    return (row.model, row.runner, number(row.median_us), number(row.p05_us),
            number(row.p95_us), number(row.device_us), number(row.overhead_us),
            f"{row.max_abs_error:.1e}", number(row.first_ms))  # fmt: skip
