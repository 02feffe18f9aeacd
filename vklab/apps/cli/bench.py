"""Command `vklab bench`: times of the benchmark models on vklab and on other runtimes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import bench_language, bench_rows, console
from vklab.apps.cli.inputs import Device, DType, Precision, written_file
from vklab.apps.compare import peers
from vklab.apps.compare.models import catalogue, graphs
from vklab.apps.compare.speed import (
    ablations,
    growing,
    language,
    markdown,
    plots,
    record,
    registry,
    throughput,
    turns,
)
from vklab.apps.llm import synthetic
from vklab.errors import SetupError
from vklab.runtime import open_devices

__all__ = ["bench"]

ROUNDS = 5
GROWTHS = ("model", "plans", "new", "slowest", "again")
RATES = ("model", "mode", "devices", "frames/s", "ratio", "over", "error")


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="ONNX files, or names: models of the suites, "
                       f"{', '.join(name for name in graphs.MODELS if 'chain' not in name)}, "
                       "chain_add_N, matmul_MxKxN, conv8_CxHxW. Default: "
                       f"{' '.join(catalogue.DEFAULT)}; with --throughput "
                       f"{' '.join(throughput.ON_GPUS)} on GPUs, "
                       f"{' '.join(throughput.ON_CPUS)} on CPUs.", show_default=False),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(help=f"Models of a suite: {', '.join(catalogue.SUITES)}; repeatable.",
                     show_default=False),
    ] = None,
    runner: Annotated[
        list[str] | None,
        typer.Option(help="Runtime: a name, a pattern, or a beginning such as torch; repeatable. "
                     "Default: every runtime that is installed.", show_default=False),
    ] = None,
    device: Device = None,
    dtype: DType = None,
    precision: Precision = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Turns of each runtime. Default: 5, with --llm 2.",
                                 show_default=False)
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.001, help="Seconds of each turn.")] = 0.2,
    limit: Annotated[
        float, typer.Option(min=1, help="Seconds after which a runtime that loads or runs is "
                            "stopped.")
    ] = 120.0,
    root: Annotated[
        Path | None, typer.Option("--peers", metavar="FOLDER", help="Folder with a folder for "
                                  "each peer that cannot stand beside the others. Default: one "
                                  "in the cache folder.", show_default=False)
    ] = None,
    setup: Annotated[
        bool, typer.Option("--setup-peers", help="Install the peers that conflict, each into a "
                           "folder of its own, and measure nothing.")
    ] = False,
    ablated: Annotated[
        bool, typer.Option("--ablations", help="Measure vklab without each of its optimisations "
                           "instead of the peers.")
    ] = False,
    gathered: Annotated[
        list[Path] | None,
        typer.Option("--gather", metavar="FILE.json", help="Read recorded runs instead of "
                     "measuring; repeatable: several become one.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, written_file("--output", "-o", metavar="FILE.json", help="Write the JSON "
                                  "object there, too.")
    ] = None,
    tables: Annotated[
        Path | None, written_file("--markdown", metavar="FILE.md", help="Write the tables in "
                                  "Markdown.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option("--plots", metavar="FOLDER", help="Write PNG plots: ratios, "
                                  "cost of a dispatch, roofline.", show_default=False)
    ] = None,
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
        bool, typer.Option("--llm", help="Measure language models instead: GGUF files, or random "
                           "weights. llama.cpp takes turns if llama-bench is installed.")
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
        list[int] | None,
        typer.Option(min=0, help="With --llm: tokens in the cache before them; repeatable. "
                     "Default: 0.", show_default=False),
    ] = None,
    cache: Annotated[str, typer.Option(help="With --llm: format of vklab's cache.")] = "F16",
    llama: Annotated[
        str | None, typer.Option("--llama-bench", metavar="PATH", show_default=False,
                                 help="With --llm: llama.cpp's llama-bench. Default: on PATH.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:  # fmt: skip
    """Measure the benchmark models in whole runs, with inputs and outputs in host arrays.

    Every runtime works in a process of its own, and they take turns; one that crashes or hangs is a
    row of the table.
    """
    if rates:
        _throughput(names, devices, as_json)
        return
    if grows:
        _growing(device, as_json)
        return
    if language_models:
        lengths = language.Lengths(prompt, generate, tuple(depth or (0,)), cache)
        bench_language.measure(names or (), shape, kind, lengths, device, llama, rounds,
                               output, as_json)  # fmt: skip
        return
    if setup:
        _set_up(device, root, as_json)
        return
    if gathered:
        data = record.gather([record.read(path) for path in gathered])
    else:
        pace = turns.Pace(rounds or ROUNDS, seconds, limit=limit)
        if ablated:  # some thirty runners, which differ in one switch
            pace = replace(pace, warm_seconds=0.05, profiled=False,
                           together=max(1, (os.cpu_count() or 1) // 2))  # fmt: skip
        data = _measured(catalogue.chosen(suite or (), names or ()), runner or (), device, dtype,
                         precision, pace, root, ablated, output)  # fmt: skip
    _write(data, output, tables, pictures)
    if as_json:
        console.emit(data)
    else:
        bench_rows.show(data)


def _measured(
    names: Sequence[str], patterns: Sequence[str], device: int | str | None, dtype: str | None,
    precision: str | None, pace: turns.Pace, root: Path | None, ablated: bool, output: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """Measure models on the chosen runners, or on vklab without each optimisation.

    Args:
        names: the models.
        patterns: of the names of runners.
        device: index or part of a name.
        dtype: of the runners; None for all.
        precision: of a further runner of vklab; None for none.
        pace: how long to measure.
        root: folder above the environments of peers.
        ablated: whether to measure ablations.
        output: file that receives the models that are done.
    """
    if dtype not in (None, "float32", "float16"):
        raise typer.BadParameter(f"unknown dtype {dtype!r}; choose float32 or float16")
    if precision not in (None, *registry.PRECISIONS):
        raise typer.BadParameter(f"unknown precision {precision!r}; choose "
                                 f"{' or '.join(registry.PRECISIONS)}")  # fmt: skip
    catalogue.require_known(names)
    info = open_devices.select(device)
    if ablated:
        runners: Sequence[Any] = ablations.runners(info, dtype or "float32")
        runners = registry.choose(runners, patterns)
    else:
        known = [each for each in registry.every(info, root, precision or "")
                 if dtype in (None, each.dtype)]
        runners = registry.choose(known, patterns)

    def save(data: dict[str, Any]) -> None:
        if output:
            output.write_text(console.as_text(data), "utf-8")

    return record.measured(names, runners, pace, info, console.warn, save)


def _write(
    data: dict[str, Any], output: Path | None, tables: Path | None, pictures: Path | None
) -> None:
    """Write the files that were asked for.

    Args:
        data: the run.
        output: file for JSON.
        tables: file for Markdown.
        pictures: folder for plots.
    """
    if output:
        output.write_text(console.as_text(data), "utf-8")
    if tables:
        tables.write_text(markdown.document(data) + "\n", "utf-8")
    if pictures:
        for path in plots.draw(data, pictures):
            console.warn(f"wrote {path}")


def _set_up(device: int | str | None, root: Path | None, as_json: bool) -> None:
    """Install the peers that conflict; exit 1 if one cannot be installed.

    Args:
        device: index or part of a name.
        root: folder above the environments.
        as_json: whether to print JSON.
    """
    try:
        info = open_devices.select(device)
    except SetupError:  # peers without Vulkan can still be installed
        info = None
    wanted = peers.needed(info)
    done = dict(peers.set_up_all(wanted, root, lambda name: console.warn(f"installing {name}")))
    if as_json:
        console.emit({"peers": [{"name": name, "ok": not problem, "detail": problem}
                                for name, problem in done.items()]})  # fmt: skip
    else:
        for name, problem in done.items():
            console.say_wrapped(f"{name}: {problem or 'installed'}")
    if any(done.values()):
        raise typer.Exit(1)


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
