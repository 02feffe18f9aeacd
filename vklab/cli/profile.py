"""`vklab profile`: where the time of a run goes, dispatch by dispatch."""

from __future__ import annotations

from typing import Annotated

import typer

from vklab import draw
from vklab.cli import console
from vklab.cli.inputs import Device, Dims, Files, Model, feed
from vklab.cli.run import announce_cpu
from vklab.runtime import session

__all__ = ["profile"]


def profile(
    model: Model,
    files: Files = None,
    dims: Dims = None,
    device: Device = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs whose median is shown.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:
    """Time every dispatch of a model on the device's own clock.

    Each runs alone between barriers, so the sum is more than a run takes.
    """
    with console.compiling() as progress, session.load(model, device, progress) as loaded:
        fed = feed(loaded.inputs, files, dims)
        announce_cpu(loaded.device)
        found = loaded.profile(fed.arrays, repeats=repeat)
    if as_json:
        console.emit(found.summary())
        return
    console.say(f"{found.device}, median of {found.repeats} runs")
    for origin in fed.origins:
        console.say(f"input {origin}")
    console.say()
    console.table("", found.headers, found.cells(), right="time share GB/s GFLOP/s")
    console.say(f"\n{len(found.rows)} steps, {draw.time_text(found.total_ns)} in all")
