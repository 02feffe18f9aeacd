"""`vklab plan`: everything that is decided about a model before a device starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vklab.cli import console
from vklab.cli.inputs import Device, Dims, Model, open_sizes, parse_dims
from vklab.graph import onnx_import
from vklab.plan import plan as plans
from vklab.runtime import open_devices

__all__ = ["plan"]


def plan(
    model: Model,
    dims: Dims = None,
    device: Device = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the memory plan into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:
    """Plan an ONNX model for a device, without compiling or running anything."""
    graph = onnx_import.load_graph(model)
    sizes = open_sizes(graph.inputs, {}, parse_dims(dims))
    planned = plans.plan_model(graph, sizes, open_devices.select(device))
    if svg:
        svg.write_text(planned.memory._repr_html_(), encoding="utf-8")
    if as_json:
        console.emit(planned.summary())
        return
    if sizes:
        console.say("open dimensions: " + ", ".join(f"{name}={n}" for name, n in sizes.items()))
    console.say(str(planned).split("; memory")[0])
    console.say()
    console.table("", ("node", "kernel", "workgroups", "writes"), planned.rows())
    console.say(f"\n{planned.memory}")
    if svg:
        console.say(f"the memory plan is drawn in {svg}")
