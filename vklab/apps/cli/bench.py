"""Commands `vklab bench ...`: times of the benchmark models on vklab and on other runtimes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import bench_language, bench_words, console
from vklab.apps.cli.options import Device, Json, Peers, Precision, grouped, split, written_file
from vklab.apps.compare import models, peers
from vklab.apps.compare.models import catalogue, graphs
from vklab.apps.compare.speed import (
    ablations,
    growing,
    markdown,
    plots,
    record,
    registry,
    throughput,
    turns,
)
from vklab.apps.compare.speed.measure import Row
from vklab.errors import SetupError
from vklab.runtime import open_devices
from vklab.runtime.many import device_options
from vklab.types import DeviceInfo

HEADERS = ("model", "runner", "median", "p05", "p95", "device", "ratio", "x floor", "error",
           "load", "first", "MB", "MHz")  # fmt: skip
GROWTHS = ("model", "plans", "new", "slowest", "again")
RATES = ("model", "mode", "devices", "frames/s", "ratio", "over", "error")
DTYPES = ("float32", "float16")
FORMS = (
    ", ".join(
        dict.fromkeys(name for name in (*graphs.MODELS, *models.MODELS) if "chain" not in name)
    )
    + ", chain_add_N, matmul_MxKxN, conv8_CxHxW"
)
bench = typer.Typer(cls=bench_words.OldForm, help="Measure vklab and other runtimes.")


def show(data: Mapping[str, Any]) -> None:
    """Print a recorded run: its machine, a table, rows without times, absent peers."""
    rows = record.rows_of(data)
    for index, run in enumerate(data.get("runs") or [data]):
        own = [row for row in rows if row.run == index]
        console.say_wrapped(markdown.machine(run))
        console.say(
            "whole runs with host arrays in us; `load` and `first` (run) in ms; `ratio`: "
            "time over vklab's",
            "dim",
        )
        timed = [row for row in own if row.status == "ran"]
        console.table(
            "", HEADERS, [cells(row) for row in timed], " ".join(HEADERS[2:]), "model runner"
        )
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
    return (
        row.model,
        row.runner,
        number(row.median_us),
        number(row.p05_us),
        number(row.p95_us),
        number(row.device_us),
        ratio,
        number(over),
        error,
        number(row.load_ms),
        number(row.first_ms),
        megabytes,
        str(row.clock_mhz or ""),
    )


def rate_cells(row: throughput.Row) -> tuple[str, ...]:
    """Return a row of the table of frames per second."""
    where = " + ".join(map(str, row.devices))
    if row.error:
        return (row.model, row.way, where, "", "", "", row.error)
    return (
        row.model,
        row.way,
        where,
        f"{row.frames_per_s:.4g}",
        f"{row.ratio:.2f}",
        row.over,
        f"{row.max_abs_error:.1e}",
    )


@dataclass(frozen=True)
class Chosen:
    """Options of what is measured, and how long."""

    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="ONNX files, or names: models of the suites, "
            f"{FORMS}. Default: {' '.join(catalogue.DEFAULT)}.",
            show_default=False,
        ),
    ] = None
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Models of a suite: {', '.join(catalogue.SUITES)}; repeatable.",
            show_default=False,
        ),
    ] = None
    runner: Annotated[
        list[str] | None,
        typer.Option(
            help="Runtime: a name, a pattern, or a beginning such as torch; repeatable. "
            "Default: every one that is there.",
            show_default=False,
        ),
    ] = None
    device: Device = None
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(DTYPES),
            help="Of the runners. Default: both; of ablations float32.",
            show_default=False,
        ),
    ] = None
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each runtime.")] = 5
    seconds: Annotated[float, typer.Option(min=0.001, help="Seconds of each turn.")] = 0.2
    limit: Annotated[
        float,
        typer.Option(min=1, help="Seconds after which a runtime that loads or runs is stopped."),
    ] = 120.0

    def __post_init__(self) -> None:
        if self.dtype not in (None, *DTYPES):
            raise typer.BadParameter(f"unknown dtype {self.dtype!r}; choose {' or '.join(DTYPES)}")
        catalogue.require_known(self.models)

    @property
    def models(self) -> list[str]:
        """Return the names of the models."""
        return catalogue.chosen(self.suite or (), self.names or ())

    def measure(
        self, runners: Sequence[Any], info: DeviceInfo, written: Written, **pace: Any
    ) -> dict[str, Any]:
        """Measure the models on the chosen ones of the runners.

        Args:
            runners: all runners.
            info: the device of vklab.
            written: the files that receive the models that are done.
            pace: fields of the pace that have other values than these options.
        """
        each = turns.Pace(self.rounds, self.seconds, limit=self.limit)
        return record.measured(
            self.models,
            registry.choose(runners, self.runner or ()),
            replace(each, **pace),
            info,
            console.warn,
            written.save,
        )


@dataclass(frozen=True)
class Written:
    """Options of the files that a record is written to, and how it is printed."""

    output: Annotated[
        Path | None,
        written_file(
            "--output", "-o", metavar="FILE.json", help="Write the JSON object there, too."
        ),
    ] = None
    tables: Annotated[
        Path | None,
        written_file("--markdown", metavar="FILE.md", help="Write the tables in Markdown."),
    ] = None
    pictures: Annotated[
        Path | None,
        typer.Option(
            "--plots",
            metavar="FOLDER",
            help="Write PNG plots: ratios, cost of a dispatch, roofline.",
            show_default=False,
        ),
    ] = None
    as_json: Json = False

    def save(self, data: dict[str, Any]) -> None:
        """Write the record to the file for JSON."""
        if self.output:
            self.output.write_text(console.as_text(data), "utf-8")

    def show(self, data: dict[str, Any]) -> None:
        """Write the files that were asked for, and print the record."""
        self.save(data)
        if self.tables:
            self.tables.write_text(markdown.document(data) + "\n", "utf-8")
        for path in plots.draw(data, self.pictures) if self.pictures else ():
            console.warn(f"wrote {path}")
        if self.as_json:
            console.emit(data)
        else:
            show(data)


@bench.command("run")
@grouped
def bench_run(
    *, chosen: Chosen, precision: Precision = None, root: Peers = None, written: Written
) -> None:
    """Measure models in whole runs, with inputs and outputs in host arrays.

    Every runtime works in a process of its own, and they take turns; one that crashes or hangs is a
    row of the table.
    """
    if precision not in (None, *registry.PRECISIONS):
        raise typer.BadParameter(
            f"unknown precision {precision!r}; choose {' or '.join(registry.PRECISIONS)}"
        )
    info = open_devices.select(chosen.device)
    known = [
        each
        for each in registry.every(info, root, precision or "")
        if chosen.dtype in (None, each.dtype)
    ]
    written.show(chosen.measure(known, info, written))


@bench.command("ablate")
@grouped
def bench_ablate(*, chosen: Chosen, written: Written) -> None:
    """Measure vklab without each of its optimisations: some thirty runners, one switch each."""
    info = open_devices.select(chosen.device)
    runners = ablations.runners(info, chosen.dtype or "float32")
    together = max(1, (os.cpu_count() or 1) // 2)
    written.show(
        chosen.measure(runners, info, written, warm_seconds=0.05, profiled=False, together=together)
    )


@bench.command("gather")
@grouped
def bench_gather(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.json...", help="Records of "
                                                "`vklab bench`; several become one.")],
    *,
    written: Written,
) -> None:  # fmt: skip
    """Read records instead of measuring, and write tables and plots of them."""
    written.show(record.gather([record.read(path) for path in files]))


@bench.command("rate")
def bench_rate(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help=f"ONNX files, or {FORMS}. Default: "
                       f"{' '.join(throughput.ON_GPUS)} on GPUs, {' '.join(throughput.ON_CPUS)} on "
                       "CPUs.", show_default=False),
    ] = None,
    devices: Annotated[
        str, typer.Option("--devices", metavar="all|DEVICE,...",
                          help="Devices, by index or part of a name.")
    ] = "all",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Measure frames per second: repeated runs, frames in flight, replicas, a split model."""
    chosen = split(devices) or ()
    infos = device_options.select_all(chosen)
    on_cpus = any(info.is_cpu for info in infos)
    rows = list(
        throughput.measure_all(
            names or (throughput.ON_CPUS if on_cpus else throughput.ON_GPUS), chosen
        )
    )
    if as_json:
        console.emit(
            {
                "machine": {"devices": [f"{info.index}: {info.name}" for info in infos]},
                "rows": [row.summary() for row in rows],
            }
        )
        return
    for info in infos:
        console.say(str(info), "bold")
    console.say("frames of host arrays; the modes take turns in short rounds", "dim")
    console.table("", RATES, map(rate_cells, rows), "frames/s ratio", "model mode")


@bench.command("grow")
def bench_grow(device: Device = None, as_json: Json = False) -> None:
    """Measure a decoder with a KV cache, whose sequence grows by one at each run."""
    info = open_devices.select(device)
    rows = list(growing.measure(device))
    if as_json:
        console.emit(
            {
                "machine": {"device": info.name, "driver": info.driver, "type": info.type},
                "rows": [row.summary() for row in rows],
            }
        )
        return
    console.say(str(info), "bold")
    console.say("ms of a run of a new size (median, slowest), and of the next of that size", "dim")
    cells = [
        (
            row.model,
            row.variant,
            f"{row.first_ms:.1f}",
            f"{row.slowest_ms:.1f}",
            f"{row.again_ms:.1f}",
        )
        for row in rows
    ]
    console.table("", GROWTHS, cells, " ".join(GROWTHS[2:]), "model plans")


bench.command("llm")(bench_language.bench_llm)


@bench.command("peers")
def bench_peers(device: Device = None, root: Peers = None, as_json: Json = False) -> None:
    """Install the runtimes that conflict, each into a folder of its own; exit 1 if one fails."""
    try:
        info = open_devices.select(device)
    except SetupError:  # peers without Vulkan can still be installed
        info = None
    wanted = peers.needed(info)
    done = dict(peers.set_up_all(wanted, root, lambda name: console.warn(f"installing {name}")))
    if as_json:
        console.emit(
            {
                "peers": [
                    {"name": name, "ok": not problem, "detail": problem}
                    for name, problem in done.items()
                ]
            }
        )
    else:
        for name, problem in done.items():
            console.say_wrapped(f"{name}: {problem or 'installed'}")
    if any(done.values()):
        raise typer.Exit(1)
