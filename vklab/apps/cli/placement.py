"""Command `vklab plan --devices`: the placement of a model on several devices, with reasons.

Visited by lab 13.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab.apps.cli.inputs import feed
from vklab.apps.cli.options import split
from vklab.base import draw
from vklab.errors import SetupError
from vklab.graph import shapes
from vklab.graph.graph import Graph
from vklab.plan import capability, partition
from vklab.plan.chunk import Chunk
from vklab.plan.partition import Needed
from vklab.plan.place import cutting, placement
from vklab.plan.place.placement import Placement
from vklab.plan.tuning import tune
from vklab.runtime import executor, kernels, loading, open_devices
from vklab.runtime.many import device_options, speeds
from vklab.types import DeviceInfo

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_REASONS_SHOWN = 2


@dataclass(frozen=True)
class PlacementFlags:
    """Placement options of the command line, as text; false without --devices."""

    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            metavar="all|DEVICE,...",
            show_default=False,
            help="Split the model over these devices, by index or part of a name.",
        ),
    ] = None
    pins: Annotated[
        list[str] | None,
        typer.Option(
            "--place",
            metavar="PATTERN=DEVICE",
            help="With --devices: nodes or operators that must be on a device; repeatable.",
        ),
    ] = None
    caps: Annotated[
        list[str] | None,
        typer.Option(
            "--cap",
            metavar="DEVICE=BYTES",
            help="With --devices: most memory to use on a device (64M, 2G); repeatable.",
        ),
    ] = None
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="|".join(placement.POLICIES),
            show_default=False,
            help="With --devices: cost, the least predicted time, which is the default, "
            "or greedy, the first device with room.",
        ),
    ] = None

    def __post_init__(self) -> None:
        given = {"--place": self.pins, "--cap": self.caps, "--policy": self.policy}
        for flag, value in given.items():
            if value and not self:
                raise typer.BadParameter(f"{flag} chooses among several devices: give --devices")

    def __bool__(self) -> bool:
        return self.devices is not None

    @property
    def chosen_policy(self) -> str:
        """Return the policy: that of --policy, else the default."""
        return self.policy or placement.POLICIES[0]

    def arguments(self) -> dict[str, Any]:
        """Return the placement arguments of `loading.load`."""
        indices = [info.index for info in self.infos()]
        return {
            "devices": "all" if self.devices == "all" else indices,
            "place": {name: indices[d] for d, name in self.numbers("--place").values()},
            "memory_caps": {indices[d]: _bytes(t) for d, t in self.numbers("--cap").values()},
            "policy": self.chosen_policy,
        }

    def infos(self) -> tuple[DeviceInfo, ...]:
        """Return the facts of the chosen devices."""
        return device_options.select_all(split(self.devices) or ())

    def numbers(self, flag: str) -> dict[str, tuple[int, str]]:
        """Return the values of --place or --cap: the device's number and the other side, by text.

        The number counts the devices of --devices from 0; the keys are the options' whole texts.
        """
        indices = [info.index for info in self.infos()]
        values = {}
        for option in (self.pins if flag == "--place" else self.caps) or ():
            left, _, right = option.rpartition("=")
            name, other = (right, left) if flag == "--place" else (left, right)
            if not left:
                form = "PATTERN=DEVICE" if flag == "--place" else "DEVICE=BYTES"
                raise typer.BadParameter(f"{flag} {option}: write {form}")
            info = open_devices.select(name)
            if info.index not in indices:
                raise SetupError(
                    f"{flag} {option}: {info.name} is not among --devices {self.devices}"
                )
            values[option] = indices.index(info.index), other
        return values


def show(
    model: Path,
    graph: Graph,
    sizes: Mapping[str, int],
    files: Sequence[str] | None,
    dims: list[str],
    flags: PlacementFlags,
    as_json: bool,
) -> None:
    """Print the placement of a model: devices, stages and transfers, with reasons.

    Args:
        model: path of the model.
        graph: its graph.
        sizes: size of every open dimension.
        files: values of --input, for a run of a model that the host runs in part.
        dims: values of --dim, for such a run.
        flags: the placement options.
        as_json: print one JSON object instead of tables.
    """
    infos = flags.infos()
    pins = {pattern: device for device, pattern in flags.numbers("--place").values()}
    caps = {device: _bytes(text) for device, text in flags.numbers("--cap").values()}
    placement.check_pins(graph, infos, pins)
    placement.check_policy(flags.chosen_policy)
    costs = speeds.all_kept(infos)
    refusal = functools.partial(
        capability.refusal, kernel_refusal=kernels.unavailable, tune=tune.adapt
    )
    parts = []
    for part in _parts(model, graph, sizes, files, dims, infos):
        placed = placement.place(
            part,
            infos,
            costs=costs,
            caps=caps,
            pins=pins,
            policy=flags.chosen_policy,
            refusal=refusal,
            is_part=True,
            fastest_first=flags.devices == "all",
        )
        parts.append((placed, cutting.cut(part, placed.devices)))
    if as_json:
        console.emit(
            {
                "devices": [info.summary() for info in infos],
                "parts": [_summary(*part) for part in parts],
            }
        )
        return
    console.say(f"{model.name}, policy {flags.chosen_policy}", "bold")
    for number, (placed, cut) in enumerate(parts):
        if len(parts) > 1:
            console.say(f"\nVulkan part {number + 1} of {len(parts)}", "bold")
        _say(placed, cut)


def _bytes(text: str) -> int:
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    if not number.isdigit():
        raise typer.BadParameter(f"--cap: {text!r} is not a number of bytes; write 64M or 1000000")
    return int(number) * unit


def _parts(
    model: Path,
    graph: Graph,
    sizes: Mapping[str, int],
    files: Sequence[str] | None,
    dims: list[str],
    infos: tuple[DeviceInfo, ...],
) -> list[Graph]:
    """Return the graphs of the parts for Vulkan; run the model if the host has a part, too."""
    bound = shapes.bind(graph, sizes)
    given = {info.name: info for info in bound.inputs}
    require = functools.partial(
        capability.require, kernel_refusal=kernels.unavailable, tune=tune.adapt
    )
    first = partition.next_chunk(bound, given, infos, executor.evaluate, require)
    if not isinstance(first, Needed) and first[0].is_on_device and not first[1].nodes:
        return [first[0].graph]
    with console.compiling() as progress, loading.load(model, infos[0].index, progress) as loaded:
        loaded.run(feed(loaded.inputs, files, dims, loaded.defaults).arrays)
        plan = loaded.plan
    return [chunk.source for chunk in plan.chunks if chunk.source]


def _reasons(placed: Placement, stage: Chunk) -> str:
    texts = list(dict.fromkeys(placed.reasons[node.name] for node in stage.graph.nodes))
    more = f" (and {len(texts) - _REASONS_SHOWN} more)" if len(texts) > _REASONS_SHOWN else ""
    return "; ".join(texts[:_REASONS_SHOWN]) + more


def _summary(placed: Placement, cut: Sequence[Chunk]) -> dict[str, Any]:
    return {
        **placed.summary(),
        "stages": [
            {
                "number": stage.number,
                "device": placed.loads[stage.device].index,
                "nodes": [node.name for node in stage.graph.nodes],
                "predecessors": stage.predecessors,
                "reason": _reasons(placed, stage),
            }
            for stage in cut
        ],
        "moves": [vars(move) for move in cutting.transfers(cut)],
    }


def _say(placed: Placement, cut: Sequence[Chunk]) -> None:
    size, time = draw.bytes_text, draw.time_text
    console.say_wrapped(str(placed))
    headers = ("device", "speed", "nodes", "busy", "weights", "activations", "budget")
    console.table(
        "\ndevices",
        headers,
        [
            (
                f"{load.index}: {load.name}",
                load.speed,
                load.nodes,
                time(load.predicted_ns),
                size(load.weights_bytes),
                size(load.peak_bytes),
                size(load.budget_bytes),
            )
            for load in placed.loads
        ],
        right="nodes busy weights activations budget",
    )
    if any(load.speed == "guessed" for load in placed.loads):
        console.say_wrapped("some speeds are guessed; measure them: vklab devices --measure")
    rows = []
    for stage in cut:
        names = [node.name for node in stage.graph.nodes]
        ends = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
        after = ", ".join(map(str, stage.predecessors)) or "-"
        rows.append(
            (
                stage.number,
                placed.loads[stage.device].index,
                len(names),
                ends,
                after,
                _reasons(placed, stage),
            )
        )
    console.table(
        "\nstages",
        ("stage", "device", "count", "nodes", "after", "why"),
        rows,
        right="stage device count",
    )
    console.table(
        "\ntransfers",
        ("value", "from", "to", "bytes", "predicted"),
        [
            (
                move.value,
                placed.loads[move.source].index,
                placed.loads[move.target].index,
                size(move.size_bytes),
                time(move.predicted_ns),
            )
            for move in placed.transfers
        ]
        or [("none", "", "", "", "")],
        right="from to bytes predicted",
    )
    console.table(
        "\nalternatives",
        ("placement", "predicted", "why not"),
        [(other.name, time(other.predicted_ns), other.refusal) for other in placed.alternatives],
        right="predicted",
    )
