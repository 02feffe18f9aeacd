"""Command `vklab tune`: measure which kernels are the fastest for a model on a device.

Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab import settings
from vklab.apps.cli import console
from vklab.apps.cli.inputs import Dims, Fed, Files, feed
from vklab.apps.cli.options import Device, DType, Json
from vklab.apps.cli.run import announce_cpu
from vklab.apps.compare.models import catalogue
from vklab.apps.llm.graphs.models import single_step
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.base import draw
from vklab.plan.tuning import candidates
from vklab.runtime import loading, open_devices
from vklab.runtime.observe import given, tuned, tuning
from vklab.types import DeviceInfo

GGUF = ".gguf"
HEADERS = ("products", "first node", "count", "tried", "fastest", "before", "after", "ratio")
KEPT = ("products", "fastest", "before", "after", "ratio")


def tune(
    model: Annotated[
        Path | None, typer.Argument(help="An ONNX or GGUF file, or the name of a model of `vklab "
                                    "bench`.", show_default=False)
    ] = None,
    files: Files = None,
    dims: Dims = None,
    device: Device = None,
    dtype: DType = None,
    limit: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Time for all measurements.")
    ] = 60.0,
    show: Annotated[
        bool, typer.Option("--show", help="List what is kept for the device, and stop.")
    ] = False,
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete what is kept for the device, and stop.")
    ] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Measure tiles, parts and workgroups of a model's products on a device; keep the fastest.

    Sessions that are loaded afterwards use them; VKLAB_DISABLE_TUNED=1 ignores them. Other work on
    the device at that time falsifies the times.
    """
    if show or clear:
        info = open_devices.select(device)
        (_clear if clear else _show)(info, as_json)
        return
    if model is None:
        raise typer.BadParameter("name a file to tune, or use --show or --clear")
    is_named = catalogue.is_known(str(model)) and not model.exists()
    source: Any = catalogue.build(str(model)) if is_named else model
    values = dict[str, Any]()
    if model.suffix == GGUF:
        source, values = single_step(read_gguf(model))
        if files or dims:
            raise typer.BadParameter(
                "a GGUF file is tuned for steps of one token; leave out --input and --dim"
            )
    elif not is_named and given.is_compiled(model):
        raise typer.BadParameter(
            f"{model} is a compiled model, whose kernels are fixed; tune the "
            "ONNX file, then compile it again"
        )
    if settings.get("DISABLE_CACHE"):
        raise typer.BadParameter("VKLAB_DISABLE_CACHE=1 leaves no folder for the measurements")
    with (
        console.compiling() as compiling,
        loading.load(source, device, compiling, dtype=dtype) as loaded,
    ):
        step = Fed(values, ("one token, with an empty cache",))
        fed = step if values else feed(loaded.inputs, files, dims, loaded.defaults)
        info = loaded.device
        announce_cpu(info)
        with console.bar("tuning", " steps") as progress:
            result = tuning.tune(
                loaded, fed.arrays, limit_s=limit, progress=progress, compiling=compiling
            )
    if as_json:
        console.emit(_facts(result, info))
    else:
        _say(result, fed.origins, info)
    if result.is_interrupted:
        raise typer.Exit(130)


def _facts(result: tuning.Tuning, info: DeviceInfo) -> dict[str, Any]:
    rows = [
        {
            **asdict(row),
            "choice": candidates.title(row.choice),
            "ratio": _ratio(row.before_ns, row.after_ns),
        }
        for row in result.rows
    ]
    return {
        **asdict(result),
        "rows": rows,
        "folder": str(tuned.folder(info)),
        "whole": {
            **result.whole._asdict(),
            "ratio": _ratio(result.whole.before_ns, result.whole.after_ns),
        },
    }


def _say(result: tuning.Tuning, origins: tuple[str, ...], info: DeviceInfo) -> None:
    console.say(f"{result.device}, medians of {result.passes} passes", "bold")
    for origin in origins:
        console.say_wrapped(f"input {origin}")
    if result.clock == "host":
        console.say_wrapped(
            "this device has no timestamps: each time is that of a whole run, on the host's clock"
        )
    cells = [
        (
            row.problem,
            row.node,
            str(row.count),
            str(row.measured),
            candidates.title(row.choice),
            *_times(row.before_ns, row.after_ns),
        )
        for row in result.rows
    ]
    if result.whole.before_ns:
        times = _times(result.whole.before_ns, result.whole.after_ns)
        cells.append(("whole model", "", "", "", "", *times))
    if cells:
        console.say()
        console.table("", HEADERS, cells, right="count tried before after ratio")
    console.say()
    for note in result.notes:
        console.say_wrapped(note)
    if result.whole.before_ns:
        console.say_wrapped(
            f"outputs differ by at most {result.whole.difference:.1e} of their largest element"
        )
    console.say_wrapped(f"{result.kept} choices kept in {tuned.folder(info)}")


def _times(before_ns: float, after_ns: float) -> tuple[str, str, str]:
    return (
        draw.time_text(before_ns),
        draw.time_text(after_ns),
        f"{_ratio(before_ns, after_ns):.2f}",
    )


def _ratio(before_ns: float, after_ns: float) -> float:
    """Return how many times faster a choice is; 1 if nothing was measured."""
    return before_ns / after_ns if after_ns else 1.0


def _show(info: DeviceInfo, as_json: bool) -> None:
    kept = tuned.entries(info)
    if as_json:
        rows = [{**asdict(entry), "choice": candidates.title(entry.choice)} for entry in kept]
        console.emit({"device": info.name, "folder": str(tuned.folder(info)), "entries": rows})
        return
    console.say(f"{info.name}: {len(kept)} choices kept in {tuned.folder(info)}", "bold")
    cells = [
        (entry.problem, candidates.title(entry.choice), *_times(entry.before_ns, entry.after_ns))
        for entry in kept
    ]
    if cells:
        console.table("", KEPT, cells, right="before after ratio")


def _clear(info: DeviceInfo, as_json: bool) -> None:
    count = tuned.clear(info)
    if as_json:
        console.emit({"device": info.name, "deleted": count})
        return
    console.say(f"{info.name}: {count} choices deleted")
