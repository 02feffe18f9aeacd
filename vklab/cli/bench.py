"""Command `vklab bench`: times of the benchmark models on vklab and on other runtimes."""

from __future__ import annotations

from typing import Annotated

import typer

from vklab.bench import growing, language, measure, models, throughput
from vklab.cli import bench_language, console
from vklab.cli.inputs import Device, DType
from vklab.llm import synthetic
from vklab.runtime import open_devices

__all__ = ["bench"]

GROWTHS = ("model", "plans", "new", "slowest", "again")
RATES = ("model", "mode", "devices", "frames/s", "ratio", "over", "error")
HEADERS = ("model", "runner", "median", "p05", "p95", "device", "overhead", "error", "first")


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="ONNX files, or names among "
                       f"{', '.join(models.MODELS)}. Default: {' '.join(measure.FIVE)}; with "
                       f"--throughput {' '.join(throughput.ON_GPUS)} on GPUs, "
                       f"{' '.join(throughput.ON_CPUS)} on CPUs.", show_default=False),
    ] = None,
    runner: Annotated[
        list[str] | None,
        typer.Option(help=f"Runtime: {' or '.join(measure.RUNNERS)}; repeatable. Default: all.",
                     show_default=False),
    ] = None,
    device: Device = None,
    dtype: DType = None,
    rates: Annotated[
        bool, typer.Option("--throughput", help="Measure frames per second instead: repeated "
                           "runs, frames in flight, replicas, a split model.")
    ] = False,
    devices: Annotated[
        str, typer.Option("--devices", metavar="all|DEVICE,...",
                          help="With --throughput: devices, by index or part of a name.")
    ] = "all",
    grows: Annotated[
        bool, typer.Option("--growing", help="Measure a decoder with a KV cache instead, whose "
                           "sequence grows by one at each run.")
    ] = False,
    language_models: Annotated[
        bool, typer.Option("--llm", help="Measure language models with random weights instead, "
                           "and llama.cpp in turn if llama-bench is installed.")
    ] = False,
    shape: Annotated[
        list[str] | None,
        typer.Option(help=f"With --llm: {', '.join(synthetic.SHAPES)}; repeatable.",
                     show_default=False),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", help=f"With --llm: {', '.join(synthetic.TYPES)}; repeatable.",
                     show_default=False),
    ] = None,
    prompt: Annotated[int, typer.Option(min=1, help="With --llm: tokens of the prompt.")] = 512,
    generate: Annotated[int, typer.Option(min=1, help="With --llm: tokens to generate.")] = 128,
    depth: Annotated[
        int, typer.Option(min=0, help="With --llm: tokens in the cache before them.")
    ] = 0,
    llama: Annotated[
        str | None, typer.Option("--llama-bench", metavar="PATH", show_default=False,
                                 help="With --llm: llama.cpp's llama-bench. Default: on PATH.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:  # fmt: skip
    """Measure the benchmark models in whole runs, with inputs and outputs in host arrays."""
    if rates:
        _throughput(names, devices, as_json)
        return
    if grows:
        _growing(device, as_json)
        return
    if language_models:
        bench_language.measure(shape, kind, language.Lengths(prompt, generate, depth), device,
                               llama, as_json)  # fmt: skip
        return
    unknown = [name for name in runner or () if name not in measure.RUNNERS]
    if unknown:
        known = ", ".join(measure.RUNNERS)
        raise typer.BadParameter(f"unknown runner {unknown[0]!r}; choose among {known}")
    info = open_devices.select(device)
    runners = runner or measure.RUNNERS
    rows = list(measure.measure_all(names or measure.FIVE, runners, device, dtype))
    if as_json:
        machine = {"device": info.name, "driver": info.driver, "type": info.type}
        console.emit({"machine": machine, "rows": [row.summary() for row in rows]})
        return
    console.say(str(info), "bold")
    console.say("whole runs with host arrays; times in us, `first` (the first run) in ms", "dim")
    console.table("", HEADERS, [_cells(row) for row in rows], " ".join(HEADERS[2:]), "model runner")


def _throughput(names: list[str] | None, devices: str, as_json: bool) -> None:
    chosen = devices if devices == "all" else [name.strip() for name in devices.split(",")]
    infos = open_devices.select_all(chosen)
    on_cpus = any(info.is_cpu for info in infos)
    names = names or list(throughput.ON_CPUS if on_cpus else throughput.ON_GPUS)
    rows = list(throughput.measure_all(names, chosen))
    if as_json:
        console.emit({"machine": {"devices": [f"{info.index}: {info.name}" for info in infos]},
                      "rows": [row.summary() for row in rows]})  # fmt: skip
        return
    for info in infos:
        console.say(str(info), "bold")
    console.say("frames of host arrays; the modes take turns in short rounds", "dim")
    console.table("", RATES, [_rate_cells(row) for row in rows], "frames/s ratio", "model mode")


def _growing(device: int | str | None, as_json: bool) -> None:
    info = open_devices.select(device)
    rows = list(growing.measure(device))
    if as_json:
        console.emit({"machine": {"device": info.name, "driver": info.driver, "type": info.type},
                      "rows": [row.summary() for row in rows]})  # fmt: skip
        return
    console.say(str(info), "bold")
    console.say("ms of a run of a new size (median, slowest), and of the next of that size", "dim")
    cells = [(row.model, row.variant, f"{row.first_ms:.1f}", f"{row.slowest_ms:.1f}",
              f"{row.again_ms:.1f}") for row in rows]  # fmt: skip
    console.table("", GROWTHS, cells, " ".join(GROWTHS[2:]), "model plans")


def _rate_cells(row: throughput.Row) -> tuple[str, ...]:
    where = " + ".join(map(str, row.devices))
    if row.error:
        return (row.model, row.way, where, "", "", "", row.error)
    return (row.model, row.way, where, f"{row.frames_per_s:.4g}", f"{row.ratio:.2f}", row.over,
            f"{row.max_abs_error:.1e}")  # fmt: skip


def _cells(row: measure.Row) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"

    return (row.model, row.runner, number(row.median_us), number(row.p05_us),
            number(row.p95_us), number(row.device_us), number(row.overhead_us),
            f"{row.max_abs_error:.1e}", number(row.first_ms))  # fmt: skip
