"""`vklab plan`: everything that is decided about a model before a device starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vklab import settings
from vklab.cli import console, placement
from vklab.cli.inputs import Device, Dims, DType, Model, UpperBounds, feed, open_sizes, parse_dims
from vklab.errors import PlanError, UnsupportedOperatorError
from vklab.graph import bounds, onnx_import
from vklab.graph.graph import Graph
from vklab.plan import plan as plans
from vklab.plan.parted import PartedPlan
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.runtime import open_devices, session
from vklab.runtime.compiled import container, saved

__all__ = ["plan"]


def plan(
    model: Model,
    dims: Dims = None,
    upper: UpperBounds = None,
    device: Device = None,
    dtype: DType = None,
    devices: placement.Devices = None,
    pins: placement.Pins = None,
    caps: placement.Caps = None,
    policy: placement.Policy = "cost",
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the memory plan into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:
    """Plan an ONNX model for a device: what runs where, and why.

    Open dimensions are at their upper bounds, unless --dim says otherwise. Where the host has a
    part in the model, that runs once on made-up inputs: only a run tells the sizes.
    """
    is_compiled = container.is_compiled(model)
    graph = saved.read(model).graph if is_compiled else onnx_import.load_graph(model)
    most = bounds.resolve(graph.inputs, parse_dims(upper, "--upper-bound"))
    dims = [*(f"{name}={size}" for name, size in most.items()), *(dims or ())]
    sizes = open_sizes(graph.inputs, {}, parse_dims(dims))
    if devices:
        wish = placement.Wish(devices, pins or (), caps or (), policy)
        placement.show(model, graph, sizes, dims, wish, as_json)
        return
    planned, reason = _plan(model, graph, sizes, dims, device, dtype)
    if svg:
        if not isinstance(planned, Plan):
            raise typer.BadParameter("--svg: the host has a part in this model; there is no one "
                                     "memory plan")  # fmt: skip
        svg.write_text(planned.memory._repr_html_(), encoding="utf-8")
    if as_json:
        console.emit({**planned.summary(), **({"reason": reason} if is_compiled else {})})
        return
    if is_compiled:
        console.say(f"planned here: {reason}" if reason else "the plan of the compiled model")
    if sizes:
        console.say("open dimensions: " + ", ".join(f"{name}={n}" for name, n in sizes.items()))
    console.say(str(planned).split("; memory")[0])
    console.say()
    console.table("", ("node", "kernel", "workgroups", "writes"), planned.rows())
    if isinstance(planned, Plan):
        console.say(f"\n{planned.memory}")
    if svg:
        console.say(f"the memory plan is drawn in {svg}")


def _plan(
    model: Path,
    graph: Graph,
    sizes: dict[str, int],
    dims: list[str] | None,
    device: str | None,
    dtype: str | None,
) -> tuple[Plan | SpreadPlan | PartedPlan, str]:
    """Plan without a driver if the device can run the model whole, else by a run.

    Returns why a compiled model was planned here after all, too.
    """
    try:
        if not container.is_compiled(model) and not settings.get("HOST"):
            return plans.plan_model(graph, sizes, open_devices.select(device), dtype or ""), ""
    except (UnsupportedOperatorError, PlanError):
        pass
    with (
        console.compiling() as progress,
        session.load(model, device, progress, dtype=dtype) as loaded,
    ):
        loaded.run(feed(loaded.inputs, (), dims).arrays)
        return loaded.plan, loaded.plan_reason
