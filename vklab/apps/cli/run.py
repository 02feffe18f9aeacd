"""Command `vklab run`: run a model, print its latency, and compare it with ONNX Runtime.

Visited by lab 00.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from vklab.apps.cli import console, placement
from vklab.apps.cli.inputs import Dims, Fed, Files, Model, UpperBounds, feed, parse_dims
from vklab.apps.cli.options import Device, DType, Json, Precision, grouped, require_parent
from vklab.base import draw
from vklab.runtime import loading, session
from vklab.runtime.observe import compare
from vklab.types import DeviceInfo

# Without --repeat: between LEAST and MOST runs, as many as fit into PATIENCE_NS.
LEAST, MOST, PATIENCE_NS = 3, 100, 1_000_000_000


@grouped
def run(
    model: Model,
    files: Files = None,
    dims: Dims = None,
    upper: UpperBounds = None,
    device: Device = None,
    dtype: DType = None,
    precision: Precision = None,
    *,
    flags: placement.PlacementFlags,
    compare: Annotated[
        str | None, typer.Option("--check", metavar="[=nodes]", help="Compare with ONNX Runtime "
                                 "on the CPU, =nodes node by node; exit 1 if it differs.",
                                 show_default=False)
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(min=1, help="Runs to time after the first. Default: those that "
                                 "fit into one second, 3 to 100.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder that receives every output as NAME.npy, a "
                             "sequence or map as NAME.npz. It is created in a folder that exists.",
                             callback=require_parent)
    ] = None,
    chosen: Annotated[
        str | None, typer.Option("--outputs", metavar="NAME,NAME", help="Outputs to compute, "
                                 "joined by commas; nodes that only others need are dropped. "
                                 "Default: all.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run an ONNX model on a Vulkan device, or on several."""
    if compare not in (None, "outputs", "nodes"):
        raise typer.BadParameter(f"--check={compare}: write --check or --check=nodes")
    bounds = parse_dims(upper, "--upper-bound")
    several = flags.arguments() if flags else {}
    names = None if chosen is None else [name.strip() for name in chosen.split(",")]
    with (
        console.compiling() as progress,
        loading.load(
            model,
            device,
            progress,
            dtype=dtype,
            precision=precision,
            upper_bounds=bounds,
            outputs=names,
            **several,
        ) as loaded,
    ):
        fed = feed(loaded.inputs, files, dims, loaded.defaults)
        for info in loaded.devices:
            announce_cpu(info)
        started = time.perf_counter_ns()
        outputs = loaded.run(fed.arrays)
        first_ns = time.perf_counter_ns() - started
        latency = measure(loaded, fed.arrays, first_ns, repeat)
        comparison = loaded.check(fed.arrays, compare == "nodes") if compare else None
        saved = save(outputs, output) if output else {}
        facts = _facts(loaded.device, outputs, latency, comparison, saved) | _host(loaded)
        if flags:
            facts |= {
                "devices": [info.summary() for info in loaded.devices],
                "plan": str(loaded.plan),
            }
    if as_json:
        console.emit(facts)
    else:
        _show(fed, facts, comparison)
    raise typer.Exit(0 if comparison is None or comparison.passed else 1)


def announce_cpu(info: DeviceInfo) -> None:
    """Warn on stderr if a device is a CPU."""
    if info.is_cpu:
        console.warn(
            f"CPU DEVICE: {info.name} runs shaders on the CPU; its times say nothing about a GPU"
        )


def measure(
    loaded: session.Session, arrays: Mapping[str, np.ndarray], first_ns: int, repeat: int | None
) -> dict[str, float]:
    """Return the latency of whole runs, host arrays in and out, in microseconds.

    Args:
        loaded: the session.
        arrays: its inputs by name.
        first_ns: time of the first run; with open dimensions it includes planning.
        repeat: number of runs to time; None for as many as fit into PATIENCE_NS.
    """
    samples: list[int] = []
    begun = time.perf_counter_ns()
    while True:
        started = time.perf_counter_ns()
        loaded.run(arrays)
        now = time.perf_counter_ns()
        samples.append(now - started)
        enough = len(samples) >= LEAST and (len(samples) >= MOST or now - begun > PATIENCE_NS)
        if len(samples) == repeat or (repeat is None and enough):
            break
    low, middle, high = np.percentile(samples, (5, 50, 95)) / 1e3
    return {
        "first": first_ns / 1e3,
        "median": float(middle),
        "p05": float(low),
        "p95": float(high),
        "runs": len(samples),
    }


def save(outputs: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Write every output to its own file; return the file's path by output.

    An array becomes a .npy file; a sequence or a map an .npz file with an array for each item.
    """
    folder.mkdir(exist_ok=True)
    paths: dict[str, str] = {}
    for name, value in outputs.items():
        # Names of values are free text in ONNX, but names of files are not.
        stem = plain = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "output"
        number = 1
        suffix = ".npy" if isinstance(value, np.ndarray) else ".npz"
        while str(folder / f"{stem}{suffix}") in paths.values():
            number += 1
            stem = f"{plain}-{number}"
        paths[name] = str(folder / f"{stem}{suffix}")
        if isinstance(value, np.ndarray):
            np.save(paths[name], _plain(value))
        else:
            items = compare.arrays({name: value}).items()
            arrays: dict[str, Any] = {key: _plain(item) for key, item in items}
            np.savez(paths[name], **arrays)
    return paths


def _plain(array: np.ndarray) -> np.ndarray:
    """Return text as an array that NumPy saves and loads without pickle."""
    return array.astype(str) if array.dtype == object else array


def _described(value: Any) -> dict[str, Any]:
    """Return dtype and shape of an output; of a sequence or map its kind and length."""
    if isinstance(value, np.ndarray):
        dtype = "string" if value.dtype == object else str(value.dtype)
        return {"dtype": dtype, "shape": list(value.shape)}
    if isinstance(value, list):
        kinds = {"map" if isinstance(item, dict) else _described(item)["dtype"] for item in value}
        return {"dtype": f"sequence({', '.join(sorted(kinds))})", "shape": [len(value)]}
    if isinstance(value, dict):
        return {"dtype": "map", "shape": [len(value)]}
    return {"dtype": "none", "shape": []}


def _facts(
    info: DeviceInfo,
    outputs: Mapping[str, np.ndarray],
    latency: dict[str, float],
    comparison: compare.Comparison | None,
    saved: dict[str, str],
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "device": info.name,
        "device_index": info.index,
        "device_type": info.type,
        "driver": info.driver,
        "latency_us": latency,
        "outputs": {name: _described(value) for name, value in outputs.items()},
    }
    if comparison is not None:
        facts["check"] = comparison.summary()
    if saved:
        facts["files"] = saved
    return facts


def _host(loaded: session.Session) -> dict[str, Any]:
    found = loaded.host_nodes
    return {
        "nodes": found.total,
        "host": str(found),
        "host_nodes": [
            {"name": node.name, "op_type": node.op_type, "reason": reason}
            for node, reason in found.nodes
        ],
    }


def _show(fed: Fed, facts: Mapping[str, Any], comparison: compare.Comparison | None) -> None:
    for info in facts.get("devices", ()):
        where = f"{info['index']}: {info['name']} ({info['type']}, {info['driver']})"
        console.say_wrapped(f"device   {where}", indent=9)
    if "plan" in facts:
        console.say_wrapped(f"plan     {facts['plan']}")
    else:
        where = f"{facts['device']} ({facts['device_type']}, {facts['driver']})"
        console.say_wrapped(f"device   {where}", indent=9)
    if facts["host"]:
        console.say_wrapped(f"host     {facts['host']}", "bold yellow", 9)
    for origin in fed.origins:
        console.say_wrapped(f"input    {origin}")
    for name, described in facts["outputs"].items():
        file = facts.get("files", {}).get(name)
        where = f" -> {file}" if file else ""
        console.say_wrapped(f"output   {name}: {described['dtype']}{described['shape']}{where}")
    latency = facts["latency_us"]
    times = {key: draw.time_text(value * 1e3) for key, value in latency.items() if key != "runs"}
    console.say_wrapped(
        f"latency  first {times['first']}; median {times['median']} "
        f"(5 % {times['p05']}, 95 % {times['p95']}) of {latency['runs']} runs"
    )
    if comparison is not None:
        style = "green" if comparison.passed else "bold red"
        for line in f"check    {comparison}".splitlines():
            console.say_wrapped(line, style)
