"""Command `vklab compile`: write a model's plans, kernels and weights into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab.apps.cli.inputs import Files, Model, Size, UpperBounds, feed, fixed_sizes
from vklab.apps.cli.options import Device, DType, Json, written_file
from vklab.base import draw
from vklab.graph import onnx_import
from vklab.runtime import open_devices
from vklab.runtime.compiled import build, profile
from vklab.runtime.compiled import saved as saves
from vklab.runtime.observe import given, tuned
from vklab.types import DeviceInfo


def compile(  # noqa: A001  (the command's name)
    model: Model,
    output: Annotated[
        Path | None, written_file("--output", "-o", help="File to write. Default: MODEL.vklab, "
                                  "beside the model.")
    ] = None,
    files: Files = None,
    dims: Size = None,
    upper: UpperBounds = None,
    dtype: DType = None,
    device: Device = None,
    device_profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compile for a device of another machine: "
                                  "the output of `vklab devices NAME --json` on that machine.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compile a model ahead of time: vklab.load takes the file, without onnx or a compiler.

    The file has plans for the sizes of --dim (default 1, or the upper bound), and of --upper-bound.
    For other sizes up to the bounds it has the kernels, and vklab.load makes a plan. Other devices
    may need kernels that only a compiler can make.
    """
    if device and device_profile:
        raise typer.BadParameter("--device and --device-profile exclude each other; give one")
    target = output or model.with_suffix(given.SUFFIX)
    if target.resolve() == model.resolve():
        raise typer.BadParameter(f"{target} is the model itself; name another file with --output")
    if target.is_file() and target.stat().st_size and not given.is_compiled(target):
        raise typer.BadParameter(
            f"{target} is there, and no compiled model; delete the file or "
            "name another one with --output"
        )
    is_compiled = given.is_compiled(model)
    graph = saves.read(model).graph if is_compiled else onnx_import.load_graph(model)
    most, dims, sizes = fixed_sizes(graph, files, dims, upper)
    info = profile.read(device_profile) if device_profile else open_devices.select(device)
    each = [sizes] if not most or sizes == {**sizes, **most} else [{**sizes, **most}, sizes]
    with console.compiling() as progress:
        saved, complete = build.compile_graph(
            graph, info, each, dtype or "", most, progress, tuned.kept(info)
        )
        if not complete and not device_profile:
            arrays = feed(graph.inputs, files, dims, graph.defaults).arrays
            opened = open_devices.open_device(device)
            saved, complete = (
                build.compile_by_run(graph, opened, arrays, dtype or "", most, progress),
                True,
            )
    facts = _facts(saved, info, complete)
    facts |= {"path": str(target), "bytes": saves.write(target, saved)}
    if as_json:
        console.emit(facts)
        return
    console.say(
        f"{target}: {draw.bytes_text(facts['bytes'])}, {facts['plans']} plans of "
        f"{facts['dispatches']} dispatches, {facts['kernels']} kernels, for {info.name}"
    )
    if sizes:
        console.say("open dimensions: " + ", ".join(f"{name}={n}" for name, n in sizes.items()))
    if not complete:
        console.say("nodes after a part on the host are planned when the file is loaded")


def _facts(saved: saves.Saved, info: DeviceInfo, complete: bool) -> dict[str, Any]:
    every = [part for stage in saved.stages for part in stage.parts]
    planned = [part.chunk for part in every if part.chunk.is_on_device and part.chunk.graph.nodes]
    return {
        "kernels": len(saved.kernels),
        "spirv_bytes": sum(len(kernel.shader.spirv) for kernel in saved.kernels),
        "device": info.name,
        "dtype": saved.dtype,
        "upper_bounds": dict(saved.upper_bounds),
        "plans": len(planned),
        "dispatches": sum(len(chunk.dispatches) for chunk in planned),
        "weights_bytes": max((chunk.memory.weights_bytes for chunk in planned), default=0),
        "complete": complete,
        "host_nodes": [
            {"name": node, "reason": reason}
            for part in every
            for node, reason in part.chunk.reasons.items()
        ],
    }
