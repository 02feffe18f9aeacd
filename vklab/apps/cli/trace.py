"""Commands `vklab trace`, a timeline of host and device, and `vklab profile`, times of dispatches.

Visited by labs 08 and 12.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vklab.apps.cli import console
from vklab.apps.cli.inputs import Dims, Fed, Files, Model, feed
from vklab.apps.cli.options import Device, Json, written_file
from vklab.apps.cli.run import announce_cpu
from vklab.base import draw
from vklab.base.trace import HOST, Trace
from vklab.runtime import loading


def profile(
    model: Model,
    files: Files = None,
    dims: Dims = None,
    device: Device = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs whose median is shown.")] = 10,
    as_json: Json = False,
) -> None:
    """Time every dispatch of a model on the device's own clock.

    Each dispatch runs alone between barriers, so the sum is longer than a run.
    """
    with console.compiling() as progress, loading.load(model, device, progress) as loaded:
        fed = feed(loaded.inputs, files, dims, loaded.defaults)
        announce_cpu(loaded.device)
        measured = loaded.profile(fed.arrays, repeats=repeat)
    if as_json:
        console.emit(measured.summary())
        return
    console.say(f"{measured.device}, median of {measured.repeats} runs")
    for origin in fed.origins:
        console.say_wrapped(f"input {origin}")
    console.say()
    console.table("", measured.headers, measured.cells(), right="time share GB/s GFLOP/s")
    console.say(f"\n{len(measured.rows)} steps, {draw.time_text(measured.total_ns)} in all")


def trace(
    model: Model,
    files: Files = None,
    dims: Dims = None,
    device: Device = None,
    repeat: Annotated[int, typer.Option(min=1, help="Number of runs, one after another.")] = 1,
    frames: Annotated[
        int, typer.Option(min=0, help="Instead of --repeat: number of frames of Session.map.")
    ] = 0,
    in_flight: Annotated[
        int, typer.Option(min=0, help="With --frames: frames in flight; 0: two for each device.")
    ] = 0,
    devices: Annotated[
        str | None,
        typer.Option("--devices", metavar="all|DEVICE,...", show_default=False,
                     help="With --frames: replicate the model on these devices; else split it "
                     "over them."),
    ] = None,
    steps: Annotated[
        bool, typer.Option(help="Time each dispatch, alone between barriers; --no-steps: only "
                           "each submission as a whole.")
    ] = True,
    chrome: Annotated[
        Path | None, written_file("--chrome", help="Write trace events for ui.perfetto.dev or "
                                  "chrome://tracing.")
    ] = None,
    png: Annotated[
        Path | None, written_file(help="Draw a Gantt chart; .svg and .pdf work too.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help=f"{console.JSON_HELP} --json FILE.json is --chrome FILE.")
    ] = False,
) -> None:  # fmt: skip
    """Trace runs of a model: the spans of host and device on one clock, and their waits."""
    chosen = devices.split(",") if devices and devices != "all" else devices
    with (
        console.compiling() as progress,
        loading.load(
            model, device, progress, devices=chosen, replicate=bool(chosen and frames)
        ) as loaded,
    ):
        fed = feed(loaded.inputs, files, dims, loaded.defaults)
        announce_cpu(loaded.device)
        traced = loaded.trace(
            fed.arrays, repeats=repeat, steps=steps, frames=frames, in_flight=in_flight
        )
    if chrome:
        chrome.write_text(json.dumps(traced.to_chrome()), "utf-8")
    if png:
        where = ", ".join(name.split(" (")[0] for name in traced.devices if name != HOST)
        traced.gantt(f"{model.name} on {where}").savefig(png)
    written = [str(path) for path in (chrome, png) if path]
    if as_json:
        console.emit({**traced.summary(), "files": written})
        return
    _show(fed, traced)
    for path in written:
        console.say(f"written    {path}")


def _show(fed: Fed, traced: Trace) -> None:
    for name, words in traced.machine.items():
        console.say_wrapped(f"{name:10} {words}", indent=11)
    for origin in fed.origins:
        console.say_wrapped(f"input      {origin}", indent=11)
    overlap = draw.time_text(traced.overlap_ns())
    console.say()
    console.say_wrapped(f"{traced.length_text()}, {overlap} of it with two of these busy at once")
    console.table("", traced.headers, traced.cells(), right="busy idle share")
    console.say(f"\ncritical path, {draw.time_text(traced.critical_ns())}:")
    for span in traced.critical_path():
        console.say_wrapped(
            f"  {draw.time_text(span.duration_ns):>10}  {span.name} ({span.device})", indent=14
        )
    console.say()
