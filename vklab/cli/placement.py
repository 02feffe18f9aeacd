"""`vklab plan --devices`: what each of several devices would do of a model, and why."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab import draw
from vklab.cli import console
from vklab.cli.inputs import feed
from vklab.errors import SetupError
from vklab.graph import shapes
from vklab.graph.graph import Graph
from vklab.plan import capability, partition
from vklab.plan.chunk import Chunk
from vklab.plan.partition import Needed
from vklab.plan.place import cutting, placement
from vklab.plan.place.placement import Placement
from vklab.plan.tuning import tune
from vklab.runtime import executor, kernels, open_devices, session
from vklab.runtime.many import speeds
from vklab.types import DeviceInfo

__all__ = ["Caps", "Devices", "Pins", "Policy", "PlacementFlags", "show"]

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_REASONS_SHOWN = 2

Devices = Annotated[
    str | None,
    typer.Option("--devices", metavar="all|DEVICE,...", show_default=False,
                 help="Split the model over these devices, by index or part of a name."),
]  # fmt: skip
Pins = Annotated[
    list[str] | None,
    typer.Option("--place", metavar="PATTERN=DEVICE",
                 help="With --devices: nodes or operators that must be there; repeatable."),
]  # fmt: skip
Caps = Annotated[
    list[str] | None,
    typer.Option("--cap", metavar="DEVICE=BYTES",
                 help="With --devices: the most memory to use there (64M, 2G); repeatable."),
]  # fmt: skip
Policy = Annotated[
    str | None,
    typer.Option("--policy", metavar="|".join(placement.POLICIES), show_default=False,
                 help="With --devices: the least predicted time, which is the default, or the "
                 "first device with room."),
]  # fmt: skip


@dataclass(frozen=True)
class PlacementFlags:
    """What the command line asks of several devices."""

    devices: str
    pins: Sequence[str]
    caps: Sequence[str]
    policy: str

    @classmethod
    def of(
        cls, devices: str | None, pins: Sequence[str] | None, caps: Sequence[str] | None,
        policy: str | None,
    ) -> PlacementFlags | None:  # fmt: skip
        """Return what options ask for; None without --devices, which all others need."""
        if devices is not None:
            return cls(devices, pins or (), caps or (), policy or placement.POLICIES[0])
        for flag, value in (("--place", pins), ("--cap", caps), ("--policy", policy)):
            if value:
                raise typer.BadParameter(f"{flag} chooses among several devices: give --devices")
        return None

    def arguments(self) -> dict[str, Any]:
        """Return what `session.load` takes."""
        indices = [info.index for info in self.infos()]
        return {
            "devices": "all" if self.devices == "all" else indices,
            "place": {name: indices[d] for d, name in self.numbers("--place").values()},
            "memory_caps": {indices[d]: _bytes(t) for d, t in self.numbers("--cap").values()},
            "policy": self.policy,
        }

    def infos(self) -> tuple[DeviceInfo, ...]:
        """Return the devices."""
        return open_devices.select_all("all" if self.devices == "all" else self.devices.split(","))

    def numbers(self, flag: str) -> dict[str, tuple[int, str]]:
        """Return what an option gives: (the device's place, the other side), by what it says."""
        indices = [info.index for info in self.infos()]
        found = {}
        for option in self.pins if flag == "--place" else self.caps:
            left, _, right = option.rpartition("=")
            name, other = (right, left) if flag == "--place" else (left, right)
            if not left:
                raise typer.BadParameter(f"{flag} {option}: write it with a =")
            info = open_devices.select(name)
            if info.index not in indices:
                raise SetupError(f"{flag} {option}: {info.name} is not among --devices")
            found[option] = indices.index(info.index), other
        return found


def show(
    model: Path, graph: Graph, sizes: Mapping[str, int], dims: list[str], wish: PlacementFlags,
    as_json: bool,
) -> None:
    """Print what is placed where, the stages and what moves between them, with reasons."""
    infos = wish.infos()
    pins = {pattern: device for device, pattern in wish.numbers("--place").values()}
    caps = {device: _bytes(text) for device, text in wish.numbers("--cap").values()}
    placement.check_pins(graph, infos, pins)
    placement.check_policy(wish.policy)
    costs = speeds.all_kept(infos)
    refusal = functools.partial(capability.refusal, kernel_refusal=kernels.unavailable,
                                tune=tune.tune)  # fmt: skip
    parts = []
    for part in _parts(model, graph, sizes, dims, infos):
        placed = placement.place(part, infos, costs=costs, caps=caps, pins=pins,
                                 policy=wish.policy, refusal=refusal, is_part=True,
                                 fastest_first=wish.devices == "all")  # fmt: skip
        parts.append((placed, cutting.cut(part, placed.devices)))
    if as_json:
        console.emit({"devices": [info.summary() for info in infos],
                      "parts": [_summary(*part) for part in parts]})  # fmt: skip
        return
    console.say(f"{model.name}, policy {wish.policy}", "bold")
    for number, (placed, cut) in enumerate(parts):
        if len(parts) > 1:
            console.say(f"\nVulkan part {number + 1} of {len(parts)}", "bold")
        _say(placed, cut)


def _bytes(text: str) -> int:
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    if not number.isdigit():
        raise typer.BadParameter(f"--cap: {text!r} is no number of bytes, such as 64M or 1000000")
    return int(number) * unit


def _parts(
    model: Path,
    graph: Graph,
    sizes: Mapping[str, int],
    dims: list[str],
    infos: tuple[DeviceInfo, ...],
) -> list[Graph]:
    """Return the graphs of the parts for Vulkan; a run finds them where the host has a part too."""
    bound = shapes.bind(graph, sizes)
    given = {info.name: info for info in bound.inputs}
    require = functools.partial(capability.require, kernel_refusal=kernels.unavailable,
                                tune=tune.tune)
    found = partition.next_chunk(bound, given, infos, executor.evaluate, require)
    if not isinstance(found, Needed) and found[0].is_on_device and not found[1].nodes:
        return [found[0].graph]
    with console.compiling() as progress, session.load(model, infos[0].index, progress) as loaded:
        loaded.run(feed(loaded.inputs, (), dims).arrays)
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
            {"number": stage.number, "device": placed.loads[stage.device].index,
             "nodes": [node.name for node in stage.graph.nodes],
             "predecessors": stage.predecessors, "reason": _reasons(placed, stage)}
            for stage in cut
        ],
        "moves": [vars(move) for move in cutting.transfers(cut)],
    }  # fmt: skip


def _say(placed: Placement, cut: Sequence[Chunk]) -> None:
    size, time = draw.bytes_text, draw.time_text
    console.say(str(placed))
    headers = ("device", "speed", "nodes", "busy", "weights", "activations", "budget")
    console.table("\ndevices", headers, [
        (f"{load.index}: {load.name}", load.speed, load.nodes, time(load.predicted_ns),
         size(load.weights_bytes), size(load.peak_bytes), size(load.budget_bytes))
        for load in placed.loads
    ], right="nodes busy weights activations budget")  # fmt: skip
    if any(load.speed == "guessed" for load in placed.loads):
        console.say("speeds can be measured: vklab devices --measure")
    rows = []
    for stage in cut:
        names = [node.name for node in stage.graph.nodes]
        ends = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
        after = ", ".join(map(str, stage.predecessors)) or "-"
        rows.append((stage.number, placed.loads[stage.device].index, len(names), ends, after,
                     _reasons(placed, stage)))  # fmt: skip
    console.table("\nstages", ("stage", "device", "count", "nodes", "after", "why"), rows,
                  right="stage device count")  # fmt: skip
    console.table("\ntransfers", ("value", "from", "to", "bytes", "predicted"), [
        (move.value, placed.loads[move.source].index, placed.loads[move.target].index,
         size(move.size_bytes), time(move.predicted_ns)) for move in placed.transfers
    ] or [("none", "", "", "", "")], right="from to bytes predicted")  # fmt: skip
    console.table("\nweighed", ("placement", "predicted", "why not"), [
        (other.name, time(other.predicted_ns), other.refusal) for other in placed.alternatives
    ], right="predicted")  # fmt: skip
