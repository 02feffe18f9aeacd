"""Command `vklab profile`: the time of every dispatch of a run. Visited by lab 08."""

from __future__ import annotations

from typing import Annotated

import typer

from vklab.apps.cli import console
from vklab.apps.cli.inputs import Dims, Files, Model, feed
from vklab.apps.cli.options import Device, Json
from vklab.apps.cli.run import announce_cpu
from vklab.base import draw
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
