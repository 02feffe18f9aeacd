"""Frames per second: repeated runs, frames in flight, replicas on all devices, a split model.

These modes take turns in short rounds, so that rising clocks and other programs affect all of them.
A mode's ratio to another mode is the median over rounds.
"""

from __future__ import annotations

import contextlib
import glob
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np
import onnx

from vklab.apps.compare.children import timing
from vklab.apps.compare.models import catalogue, graphs
from vklab.errors import VklabError
from vklab.runtime import loading, session
from vklab.runtime.many import device_options
from vklab.types import DeviceInfo

# Models of more than a millisecond a frame on a large GPU; of a few milliseconds on a CPU.
ON_GPUS, ON_CPUS = ("conv_deep", "mlp_batch"), ("mnist12", "mlp")
ROUNDS, SECONDS = 6, 0.4  # the first round warms up and is not counted
LEAST = 4  # frames of a round, for each device
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """Throughput of a model in one mode.

    Attributes:
        way: the mode: "run", "map", "replicas map", "split run" or "split map".
        devices: their indices.
        over: the mode that `ratio` compares with; both are medians over rounds.
        error: the reason why there are no numbers.
    """

    model: str
    way: str
    devices: tuple[int, ...]
    frames_per_s: float = 0.0
    over: str = ""
    ratio: float = 0.0
    max_abs_error: float = 0.0
    error: str = ""

    def summary(self) -> dict[str, Any]:
        """Return the row ready for JSON."""
        return asdict(self)


@dataclass
class _Way:
    """One mode: its session, the function that feeds it, and its frames per second by round."""

    name: str
    over: str
    devices: Sequence[DeviceInfo]
    options: dict[str, Any]
    run: Callable[[session.Session, Arrays, float], int]
    loaded: session.Session | None = None
    rates: list[float] = field(default_factory=list)
    max_abs_error: float = 0.0
    error: str = ""


def _repeat(loaded: session.Session, inputs: Arrays, seconds: float) -> int:
    count, end = 0, time.perf_counter() + seconds
    while count < LEAST or time.perf_counter() < end:
        loaded.run(inputs)
        count += 1
    return count


def _map(loaded: session.Session, inputs: Arrays, seconds: float) -> int:
    end, least = time.perf_counter() + seconds, LEAST * len(loaded.devices)

    def feed() -> Iterator[Arrays]:
        count = 0
        while count < least or time.perf_counter() < end:
            yield inputs
            count += 1

    return sum(1 for _ in loaded.map(feed()))


def _ways(model: onnx.ModelProto, devices: Sequence[DeviceInfo]) -> list[_Way]:
    first, indices = devices[:1], [info.index for info in devices]
    one = {"devices": indices[:1]}
    modes = [_Way("run", "run", first, one, _repeat), _Way("map", "run", first, one, _map)]
    if len(devices) > 1:
        both = {"devices": indices, "replicate": True}
        modes.append(_Way("replicas map", "map", devices, both, _map))
        split = {"devices": indices, "place": _pieces(model, indices)}
        modes.append(_Way("split run", "run", devices, split, _repeat))
        modes.append(_Way("split map", "split run", devices, split, _map))
    return modes


def _pieces(model: onnx.ModelProto, indices: Sequence[int]) -> dict[str, int]:
    """Return placement options that give each device the same number of consecutive nodes."""
    nodes = model.graph.node
    return {
        glob.escape(node.name): indices[number * len(indices) // len(nodes)]
        for number, node in enumerate(nodes)
        if node.name
    }


def measure_all(
    names: Iterable[str], devices: Sequence[int | str] | str, seconds: float | None = None
) -> Iterator[Row]:
    """Measure models in all modes; yield the rows model by model.

    Args:
        names: keys of `graphs.MODELS`, or paths of .onnx files.
        devices: "all", or indices and parts of names; several add replicas and a split model.
        seconds: time of each mode in each round; default SECONDS.
    """
    infos = device_options.select_all(devices)
    for name in names:
        yield from _measure(*catalogue.named(name), infos, seconds or SECONDS)


def _measure(
    name: str, model: onnx.ModelProto, devices: Sequence[DeviceInfo], seconds: float
) -> Iterator[Row]:
    inputs = graphs.sample_inputs(model)
    ways = _ways(model, devices)
    with contextlib.ExitStack() as stack:
        sessions: dict[str, session.Session] = {}
        for way in ways:
            with _failing(way):
                key = repr(way.options)
                if key not in sessions:
                    sessions[key] = stack.enter_context(loading.load(model, **way.options))
                way.loaded = sessions[key]
        want = ways[0].loaded.run(inputs) if ways[0].loaded else {}
        for way in ways:
            with _failing(way):
                _compare(way, inputs, want)
        for number, way in timing.alternating(ways, ROUNDS):
            with _failing(way):
                rate = _rate(way, inputs, seconds)
                way.rates += [rate] if number and rate else []
    yield from (_row(name, way, ways) for way in ways)


@contextlib.contextmanager
def _failing(way: _Way) -> Iterator[None]:
    """Record why a mode cannot be measured, so that the others continue."""
    try:
        yield
    except VklabError as error:
        way.error = way.error or str(error)
        way.loaded = None


def _compare(way: _Way, inputs: Arrays, want: Arrays) -> None:
    """Record the largest difference of the outputs from those of the first device."""
    for outputs in way.loaded.map([inputs] * LEAST * len(way.devices)) if way.loaded else ():
        for output, array in want.items():
            error = float(np.abs(outputs[output].astype(np.float64) - array).max(initial=0))
            way.max_abs_error = max(way.max_abs_error, error)


def _rate(way: _Way, inputs: Arrays, seconds: float) -> float:
    if way.loaded is None:
        return 0.0
    begun = time.perf_counter()
    count = way.run(way.loaded, inputs, seconds)
    return count / (time.perf_counter() - begun)


def _row(name: str, way: _Way, ways: Sequence[_Way]) -> Row:
    other = next(one for one in ways if one.name == way.over)
    where = tuple(info.index for info in way.devices)
    if way.error or other.error:
        return Row(name, way.name, where, error=way.error or other.error)
    ratio = median(a / b for a, b in zip(way.rates, other.rates, strict=True))
    return Row(name, way.name, where, median(way.rates), way.over, ratio, way.max_abs_error)
