"""Command `vklab parity`: one model on every backend of this machine, in one honest report."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from vklab.apps.cli import console
from vklab.apps.cli.options import Inputs, Json, Peers, written_file
from vklab.apps.compare import forms, registry
from vklab.apps.compare import parity as pipeline
from vklab.apps.compare.backend import Availability
from vklab.apps.compare.children import timing
from vklab.apps.compare.onnxruntime import backend as onnxruntime
from vklab.apps.compare.onnxruntime import providers
from vklab.apps.compare.report import page, recorded, summary
from vklab.apps.compare.report.rows import Measured
from vklab.base import draw, worker

HEADERS = ("backend", "device", "weights", "arithmetic", "status", "max error", "of tolerance",
           "median us", "size", "nodes")  # fmt: skip
PROVIDER_HEADERS = ("provider", "systems", "vendor", "package", "version", "released", "kind",
                    "here")  # fmt: skip
SHOWN = 12  # layers of a backend, those with the largest errors
COLORS = {"absent": "dim", "refused": "yellow", "crashed": "red", "timeout": "red",
          "failed": "red"}  # fmt: skip


def parity(
    model: Annotated[
        str, typer.Argument(help="An ONNX file, a Core ML package, a name as `vklab bench run` "
                            "takes it, or MODULE:FUNCTION, a PyTorch factory: it returns an "
                            "nn.Module and its example tensors.",
                            show_default=False)
    ] = "",
    backends: Annotated[
        list[str] | None,
        typer.Option(help="Name of a backend, a part of it, or a pattern with *; repeatable. "
                     "Default: all, the absent ones as rows with their reason.",
                     show_default=False),
    ] = None,
    inputs: Inputs = None,
    package: Annotated[
        Path | None, typer.Option(metavar="FILE.mlpackage", help="The same model as a Core ML "
                                  "package, for its rows.")
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Compare each layer, too: in the whole model, and "
                           "alone with the right inputs.")
    ] = False,
    parts: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="With --layers: write the smallest part "
                                  "that fails on a backend as .onnx with its inputs; of a "
                                  "Core ML package also as .mlpackage.")
    ] = None,
    batches: Annotated[
        str, typer.Option(metavar="N,N,...", help="Measure these batch sizes, too, and say from "
                          "which one on another backend is faster.")
    ] = "",
    peers: Peers = None,
    device_id: Annotated[
        int, typer.Option(min=0, help="Number of the device among those of a provider of ONNX "
                          "Runtime.")
    ] = 0,
    session_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Option of ONNX Runtime's sessions, such as "
                     "intra_op_num_threads=1, or a config entry; repeatable.", show_default=False),
    ] = None,
    save_outputs: Annotated[
        Path | None, written_file("--save-outputs", metavar="FILE.npz", help="Write inputs, "
                                  "outputs and provenance of the backends that ran.")
    ] = None,
    load_outputs: Annotated[
        list[Path] | None,
        typer.Option("--load-outputs", metavar="FILE.npz", help="Add rows of such a file, judged "
                     "here; repeatable.", show_default=False),
    ] = None,
    limit: Annotated[
        float, typer.Option(min=1, help="Seconds that one call to a backend may take.")
    ] = 120.0,
    rounds: Annotated[
        int, typer.Option(min=0, help="Turns in which the backends are timed; 0: no times.")
    ] = 3,
    list_providers: Annotated[
        bool, typer.Option("--providers", help="List ONNX Runtime's providers and their packages "
                           "instead, with what is here and what has ended.")
    ] = False,
    html: Annotated[
        Path | None, written_file("--html", help="Write the report as one page with pictures.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare the outputs of one model on every backend with float64; exit 1 if a row fails.

    Each backend runs in a process of its own: a crash or a hang is its row. An absent backend is a
    row with the command that would bring it, and no failure.
    """
    if list_providers:
        show_providers(as_json)
        return
    if not model:
        raise typer.BadParameter(
            "give a model: an .onnx file, an .mlpackage, a name, or MODULE:FUNCTION"
        )
    source = forms.of_text(model)
    if package is not None:
        source = replace(source, package=forms.of_text(str(package)).package)
    chosen = registry.choose(registry.listed(peers, limit), backends or ())
    if not chosen:
        raise typer.BadParameter(
            f"no backend matches {', '.join(backends or ())}; without "
            "--backends the report names all of them"
        )
    chosen = registry.on_device(chosen, device_id, _named(session_option or ()))
    options = pipeline.Options(
        limit,
        layers or parts is not None,
        rounds=rounds,
        batches=_sizes(batches),
        recordings=tuple(load_outputs or ()),
        stand_ins=tuple(recorded.shipped()),
        parts=parts,
        model=model,
    )
    given = forms.inputs_of(source, inputs, limit) if inputs else None
    try:
        made = pipeline.run(source, chosen, given, options, _progress)
    except worker.Failure as failure:
        console.warn(f"there is no report: {failure.reason}")
        raise typer.Exit(1) from None
    if save_outputs:
        recorded.write(save_outputs, made.recordings(_provenance()))
    if html:
        html.write_text(page.page(made), encoding="utf-8")
    if as_json:
        console.emit(summary.summary(made))
    else:
        _show(made)
    raise typer.Exit(0 if made.passed else 1)


def _sizes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise typer.BadParameter(f"--batches {text}: write sizes with commas, such as 1,8,32")
    return tuple(int(part) for part in parts)


def _named(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    wrong = [
        text for text, (name, _, value) in zip(texts, pairs, strict=True) if not (name and value)
    ]
    if wrong:
        raise typer.BadParameter(f"--session-option {wrong[0]}: write NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        console.warn(f"{text} ...")


def _provenance() -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC)
    return {
        "machine": f"{platform.system()}, {platform.machine()}, {os.cpu_count()} CPUs",
        "date": now.date().isoformat(),
        "command": shlex.join(["vklab", *(Path(word).name for word in sys.argv[1:])]),
        "measured_by": os.environ.get("VKLAB_MEASURED_BY", "not given"),
        "source": "",
    }


def _show(made: pipeline.Parity) -> None:
    console.say(f"{made.source.name}; oracle: {made.oracle}", "bold")
    for note in made.notes:
        console.say_wrapped(note)
    here = [each for each in made.rows if each.row.status != "absent"]
    if here:
        console.table(
            "",
            HEADERS,
            [_cells(each) for each in here],
            "max error of tolerance median us size",
            "backend status",
        )
    for text in summary.sentences(here):
        console.say_wrapped(text)
    for size, name in timing.crossovers({each.row.backend: each.batches for each in made.rows}):
        console.say(f"from batch {size} on, {name} is the fastest")
    for each in here:
        if each.layers:
            console.table(
                f"layers of {each.row.backend}",
                summary.LAYER_HEADERS,
                summary.layer_rows(each.layers, SHOWN),
                " ".join(summary.LAYER_HEADERS[2:]),
                "layer",
            )
    missing = [each.row for each in made.rows if each.row.status == "absent"]
    if missing:
        console.say("not available:", "bold")
    for row in missing:
        console.say_wrapped(f"{row.backend}: {row.reason}; {row.install}", "dim")


def _cells(each: Measured) -> Sequence[object]:
    row = each.row
    share = max(each.verdict.shares.values(), default=0.0) if each.verdict else None
    status = (
        row.status
        if row.passed is None
        else f"{row.status}, " + ("passed" if row.passed else "FAILED")
    )
    color = "red" if row.passed is False else "green" if row.passed else COLORS[row.status]
    return (
        row.backend,
        summary.device_text(row),
        row.dtypes.weights,
        row.dtypes.arithmetic,
        Text(status, color),
        "" if row.max_abs_error is None else f"{row.max_abs_error:.2e}",
        "" if share is None else f"{share:.1%}",
        "" if row.latency_us is None else f"{row.latency_us['median']:.0f}",
        "" if row.bytes is None else draw.bytes_text(row.bytes),
        summary.nodes_text(row),
    )


def provider_facts(answers: Mapping[str, Availability]) -> dict[str, Any]:
    """Return the table ready for JSON; `answers` tell by backend's name what is here."""
    rows = []
    for row in providers.PROVIDERS:
        mine = answers[f"onnxruntime-{row.key}-{row.variants[0].name}"]
        for name in row.packages:
            package = providers.PACKAGES[name]
            rows.append(
                {
                    "provider": row.ep,
                    "systems": list(row.systems),
                    "vendor": row.vendor,
                    "needs": row.needs,
                    "package": name,
                    "version": package.version,
                    "released": package.released,
                    "kind": package.kind,
                    "replaced_by": package.replaced_by,
                    "available": bool(mine),
                    "reason": mine.reason,
                    "install": mine.install,
                }
            )
    ended = [
        {
            "package": name,
            "version": providers.PACKAGES[name].version,
            "released": providers.PACKAGES[name].released,
            "replaced_by": providers.PACKAGES[name].replaced_by,
        }
        for name in providers.ENDED
    ]
    return {"checked": providers.CHECKED, "providers": rows, "ended": ended}


def show_providers(as_json: bool) -> None:
    """Print the table of ONNX Runtime's execution providers."""
    found = provider_facts(registry.survey(onnxruntime.every()))
    if as_json:
        console.emit(found)
        return
    console.say(
        f"versions of {found['checked']}; a full build owns the module onnxruntime, a "
        "plugin stands beside it",
        "dim",
    )
    console.table("", PROVIDER_HEADERS, map(_provider_cells, found["providers"]), "", "package")
    for row in found["providers"]:
        if row["replaced_by"]:
            console.say_wrapped(f"{row['package']}: followed by {row['replaced_by']}")
    for row in found["ended"]:
        console.say_wrapped(
            f"{row['package']} {row['version']} ({row['released']}) has ended; "
            f"followed by {row['replaced_by']}"
        )


def _provider_cells(row: Mapping[str, Any]) -> Sequence[str]:
    return (
        row["provider"].removesuffix("ExecutionProvider"),
        " ".join(row["systems"]),
        row["vendor"],
        row["package"],
        row["version"],
        row["released"],
        row["kind"],
        "yes" if row["available"] else "no",
    )
