"""Commands `vklab coreml ...`: convert a PyTorch module, inspect a package, measure it on a Mac."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from vklab.apps.cli import console
from vklab.apps.cli.options import Inputs, Json
from vklab.apps.compare import forms, models
from vklab.apps.compare.coreml import convert as conversion
from vklab.apps.compare.coreml import inspect as inspection
from vklab.apps.compare.coreml import options as choices
from vklab.apps.compare.coreml import units
from vklab.apps.compare.torch import backend as torch
from vklab.base import draw
from vklab.errors import ModelError

coreml = typer.Typer(no_args_is_help=True, help="Convert, inspect and measure Core ML packages.")
Package = Annotated[Path, typer.Argument(metavar="PACKAGE", help="An .mlpackage or .mlmodel.")]


@coreml.command("convert")
def convert(
    factory: Annotated[
        str, typer.Argument(help="MODULE:FUNCTION, which returns an nn.Module and its example "
                            f"tensors, or one of {', '.join(models.MODELS)}.")
    ],
    output: Annotated[Path, typer.Option("-o", metavar="PACKAGE", help="Write it here.")],
    frontend: Annotated[str, typer.Option(help="export or script (TorchScript).")] = "export",
    kind: Annotated[str, typer.Option(help="mlprogram or neuralnetwork.")] = "mlprogram",
    precision: Annotated[
        str, typer.Option(help="float16 or float32. Default: float16; float32 of a "
                          "neuralnetwork.", show_default=False)
    ] = "",
    target: Annotated[
        str, typer.Option(help="The oldest system that runs the package, for example iOS18.")
    ] = "",
    weights: Annotated[str, typer.Option(help="palette, sparse or int8.")] = "",
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="N,N,...", help="Shape of the first input; 1,3,16..64,32 has a range. "
                     "Repeatable with --frontend script: only these shapes."),
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Convert a PyTorch module by coremltools, on macOS or Linux x86-64."""
    options = choices.Options(
        frontend,
        kind,
        precision or ("float16" if kind == "mlprogram" else "float32"),
        target,
        weights,
        tuple(choices.parse_sizes(each) for each in shape or ()),
    )
    choices.check(options)
    names = (models.INPUTS[factory],) if factory in models.MODELS else ()
    named = models.factory(factory) if factory in models.MODELS else factory
    conversion.load_converter()  # before torch, whose absence has no repair of its own

    module, examples = torch.load_modules().make(named)
    conversion.convert(module, examples, output, options, names)
    _show(output, as_json)


@coreml.command("inspect")
def inspect(path: Package, as_json: Json = False) -> None:
    """Show type, version, inputs, outputs, operators and sizes; works on any system."""
    _show(path, as_json)


@coreml.command("benchmark")
def benchmark(
    path: Package,
    inputs: Inputs = None,
    runs: Annotated[int, typer.Option(min=1, help="Measured predictions of each choice.")] = 50,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show the unit and the cost of each operator.")
    ] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Measure each choice of compute units; macOS only."""
    calls = units.tools()
    given = _inputs(path, inputs)
    timed = units.benchmark(path, given, runs, calls=calls)
    planned = units.plan(path, calls=calls) if plan else []
    if as_json:
        console.emit(
            {
                "timed": [dataclasses.asdict(each) for each in timed],
                "plan": [dataclasses.asdict(each) for each in planned],
            }
        )
        return
    rows = [
        (
            each.units,
            f"{each.median_us:.1f}" if each.latencies_ns else "",
            each.reason or inspection.UNITS[each.units],
        )
        for each in timed
    ]
    console.table("", ("units", "median us", "what they permit"), rows, "", "units")
    if planned:
        cells = [
            (
                each.operator,
                each.name,
                each.preferred,
                " ".join(each.supported),
                "" if each.cost is None else f"{100 * each.cost:.1f} %",
            )
            for each in planned
        ]
        console.table(
            "", ("operator", "output", "preferred", "supported", "cost"), cells, "", "operator"
        )


def _inputs(path: Path, file: Path | None) -> dict[str, np.ndarray]:
    if file is not None:
        return forms.read_inputs(file)
    random = np.random.default_rng(0)
    made = {}
    for each in inspection.inspect(path).inputs:
        if each.dtype.startswith("float"):
            made[each.name] = random.standard_normal(each.shape, np.float32)
        elif each.dtype.startswith("int"):
            made[each.name] = random.integers(0, 10, each.shape, np.int32)
        else:
            raise ModelError(
                f"input {each.name!r} is {each.dtype}, and random inputs are floats "
                "or integers; give it with --inputs"
            )
    return made


def _show(path: Path, as_json: bool) -> None:
    facts = inspection.inspect(path)
    if as_json:
        console.emit({"path": str(path), **dataclasses.asdict(facts)})
        return
    opset = f", opset {facts.opset}" if facts.opset else ""
    console.say(f"{path.name}: {facts.kind}, specification {facts.version}{opset}")
    console.say(
        f"{draw.bytes_text(facts.size_bytes)} on disk, "
        f"{draw.bytes_text(facts.weight_bytes)} of weights"
    )
    rows = [
        (role, each.name, each.dtype, " x ".join(map(str, each.shape)), ", ".join(each.flexible))
        for role, features in (("input", facts.inputs), ("output", facts.outputs))
        for each in features
    ]
    console.table("", ("", "name", "dtype", "shape", "also"), rows, "", "name")
    counts = [(name, str(count)) for name, count in facts.operators.items()]
    console.table("", ("operator", "count"), counts, "", "operator")
    if sys.platform != "darwin":
        console.say(
            "Prediction by Core ML needs macOS; vklab parity executes the program here.", "dim"
        )
